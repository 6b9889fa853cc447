#pragma once
/// One layer of a model on one tensor-parallel rank, as far as cost is concerned: seconds of its passes, elements of
/// its parameters, and when its tensors live. Made once per (layer kind, tensor ways, micro-batch, attention).
#include <array>
#include <cstdint>
#include <vector>

#include "cost/prices/pricing.h"
#include "models/expand.h"
#include "plan/lower/factors.h"
#include "plan/lower/low_rank.h"
#include "plan/lower/whole_matrices.h"
#include "plan/spec/job.h"

namespace orrery::cost {

/// A step of a pass, or a message: the device begins it once the host has issued it, and runs its steps in order.
struct Segment {
  double device = 0;    ///< seconds, of compute or of a message that it waits for
  double exchange = 0;  ///< of an all-to-all
  double host = 0;      ///< seconds to issue it
  int messages = 0;     ///< 1: of the tensor group, which the host issues besides
};

/// One pass over a layer: forward, what is recomputed of it, or backward.
struct Pass {
  double compute = 0;     ///< seconds on the compute stream, overheads included
  double host = 0;        ///< seconds that the host needs to issue it
  double recomputed = 0;  ///< of backward: seconds of what selective recomputation runs again; not in `compute`
  double messages = 0;    ///< seconds of messages within the tensor group, and of the ring what compute waits for
  double exchanges = 0;   ///< of these, of all-to-alls
  double message_bytes = 0;
  int message_count = 0;
  int tensor_messages = 0;  ///< those of the tensor group
  int steps = 0;            ///< schedule steps
  std::vector<Segment> segments = {};
};

/// First and last step of each pass in which a tensor is used; -1: not used.
struct Life {
  double bytes = 0;  ///< rounded up as an arena does
  models::TensorRole role = models::TensorRole::activation;
  int forward_first = -1, forward_last = -1;
  int recompute_first = -1, recompute_last = -1;
  int backward_first = -1, backward_last = -1;
  int weights_first = -1, weights_last = -1;
  bool dropped = false;  ///< selective: backward makes its own
  double encoded = 0;    ///< bytes in which it waits for backward, where these are fewer; 0: it waits as it is
};

/// The buckets that a layer uses: of its own parameters, of its experts', of a tied table.
enum class LayerBucket : std::uint8_t { own, experts, shared };
inline constexpr std::array kLayerBuckets = {LayerBucket::own, LayerBucket::experts, LayerBucket::shared};

struct LayerCosts {
  models::LayerKind kind{};
  plan::Recompute recomputation = plan::Recompute::none;
  Pass forward, recompute, backward;
  Pass experts_again;             ///< of backward, and in its sums: what runs from the router on, ahead of the rest
  Pass weights;                   ///< of a split backward: the weights' gradients, which `backward` then lacks
  std::int64_t own_elements = 0;  ///< of the layer's own bucket, before padding to shards; 0: none
  std::int64_t partial_elements =
      0;                             ///< of the own bucket: gradients that the tensor group sums (sequence parallelism)
  std::int64_t shared_elements = 0;  ///< of the tied table's bucket, if the layer uses it
  std::int64_t expert_elements = 0;  ///< of its experts' on this rank
  /// Of the buckets beside them whose parameters do not train: by LayerBucket.
  std::array<std::int64_t, 3> frozen_elements = {};
  std::int64_t own_parameters = 0, expert_parameters = 0, shared_parameters = 0;  ///< tensors of these buckets
  plan::FactorCount own_factors, expert_factors, shared_factors;                  ///< and what Adafactor keeps of them
  std::vector<plan::MatrixShape> own_matrices, expert_matrices, shared_matrices;  ///< and their shapes
  plan::WholeMatrices whole;  ///< of the own bucket, if the optimizer moves any as a whole
  /// Whether operators that can write a gradient are the first to touch each parameter's (plan/lower/write_first.h).
  bool own_written = true, expert_written = true, shared_written = true;
  std::vector<std::int64_t> own_gaps = {};  ///< between parameters of the own bucket: elements, of each gap
  double weight_inputs = 0;                 ///< bytes that the weights' gradients read, what is left when W waits for B
  bool backward_reads_parameters = false;
  bool reduced_beside = false;           ///< ZeRO-2 and 3: full gradients stay until the layer behind has run
  std::vector<Life> lives;               ///< tensors that are neither parameters nor their gradients
  int x = -1, y = -1, dy = -1, dx = -1;  ///< into lives

  /// Of gradients that a pass makes for itself, in a bucket of `elements` (the own, or the tied table's): those that
  /// are zeroed. Where the pass can write them one gap, if there is one alone, else all.
  [[nodiscard]] std::int64_t zeroed_by_pass(LayerBucket of, std::int64_t elements) const;
  [[nodiscard]] std::int64_t frozen_of(LayerBucket of) const {
    return frozen_elements.at(static_cast<std::size_t>(of));
  }
  [[nodiscard]] std::int64_t elements_of(LayerBucket of) const {
    return of == LayerBucket::own ? own_elements : of == LayerBucket::experts ? expert_elements : shared_elements;
  }
};

/// Ranks of the groups that a layer communicates in, of rank 0; one rank where there is none.
struct LayerGroups {
  std::vector<int> tensor, context, experts;
};

/// `split_backward`: as the zero-bubble orders run it. `optimizer`: how its states want parameters aligned.
/// `compression`: of what a block saves.
[[nodiscard]] LayerCosts layer_costs(const models::LayerProgram& program, plan::Recompute recomputation,
                                     const Pricing& pricing, const LayerGroups& groups, bool split_backward = false,
                                     plan::OptimizerKind optimizer = plan::OptimizerKind::adamw,
                                     const plan::Compression& compression = {});

}  // namespace orrery::cost

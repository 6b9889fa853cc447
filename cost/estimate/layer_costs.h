#pragma once
/// One layer of a model on one tensor-parallel rank, as far as cost is concerned: seconds of its passes, elements of
/// its parameters, and when its tensors live. Made once per (layer kind, tensor ways, micro-batch, attention).
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "cost/prices/exchange.h"
#include "cost/prices/lockstep.h"
#include "cost/prices/pricing.h"
#include "models/layers/expand.h"
#include "plan/outline/factors.h"
#include "plan/outline/low_rank.h"
#include "plan/outline/whole_matrices.h"
#include "plan/spec/job.h"

namespace orrery::cost {

/// A message between ranks of a layer's groups, as far as it does not depend on how they are linked.
struct LayerMessage {
  plan::CollectiveKind kind = plan::CollectiveKind::all_reduce;
  plan::Stream stream = plan::Stream::tensor;  ///< tensor, context or exchange: names the group
  double bytes = 0;                            ///< as the stack sends them; of an exchange, those between its ranks
  double beside = 0;        ///< exchange: seconds before and after it, among the ranks that split an expert
  bool of_experts = false;  ///< tensor: over the ranks that split an expert, not over the tensor group
};

/// The parameters of a bucket that compute steps read, as numbers of a layer's tensors.
struct ParametersRead {
  std::int32_t first = -1, last = -1;  ///< -1: none
  std::int64_t elements = 0;           ///< of `first`
  [[nodiscard]] bool any() const { return first >= 0; }
  [[nodiscard]] bool several() const { return first != last; }
  void add(const ParametersRead& other) {
    if (!other.any()) return;
    if (!any() || other.first < first) first = other.first, elements = other.elements;
    last = std::max(last, other.last);
  }
};

/// A step of a pass over a layer, in program order.
struct Segment {
  enum class Kind : std::uint8_t {
    compute,
    tensor,    ///< a message of the tensor group, or of the ranks that split an expert
    exchange,  ///< an all-to-all
    shift      ///< to the next rank of the context ring; the next compute segment reads the other messages
  };
  Kind kind = Kind::compute;
  double seconds = 0;  ///< of compute on the device, or of the message (with_messages)
  double host = 0;     ///< compute: seconds to issue it
  /// compute: seconds that it saves, by bucket, if it writes the gradients that it is the first to add to.
  std::array<double, 3> saved = {};
  bool reads_input = false;  ///< whether it reads what comes from the layer before, or in backward from the layer after
  std::array<ParametersRead, 3> reads_parameters = {};  ///< compute: by bucket (LayerBucket)
  std::array<bool, 3> writes_gradients = {};            ///< compute: of these buckets
  int shifts = 0;                                       ///< compute: the number of the pass's shifts that it waits for
  LayerMessage message = {};                            ///< if it is one

  /// Seconds if it writes these buckets' gradients.
  [[nodiscard]] double writing(const std::array<bool, 3>& buckets) const {
    double left = seconds;
    for (std::size_t b = 0; b < saved.size(); ++b)
      if (buckets[b]) left -= saved[b];
    return left;
  }
};

/// The first and the last step of a pass that uses or does something.
struct StepRange {
  int first = -1, last = -1;  ///< -1: no step does
  [[nodiscard]] bool any() const { return first >= 0; }
  void add(int step) {
    if (!any()) first = step;
    last = step;
  }
};

/// One pass over a layer: forward, recomputation, or backward.
struct Pass {
  double compute = 0;     ///< seconds on the compute stream, overheads included
  double host = 0;        ///< seconds that the host takes to issue it
  double recomputed = 0;  ///< backward, weights: seconds of what selective recomputation repeats; not in `compute`
  double messages = 0;    ///< seconds of messages of the tensor group, and of all-to-alls (with_messages)
  double exchanges = 0;   ///< the part of `messages` that all-to-alls take
  double message_bytes = 0;
  int message_count = 0;
  int tensor_messages = 0;  ///< messages of the tensor group
  int steps = 0;            ///< schedule steps
  StepRange computes = {};  ///< the steps that compute
  int empty_part = -1;      ///< a part without operators comes before all compute, just before this step; -1: none
  std::vector<Segment> segments = {};
};

using LifeId = base::Id<struct LifeTag>;  ///< of a layer's lives
/// The steps of each pass that use a tensor.
struct Life {
  double bytes = 0;  ///< rounded up as an arena does
  models::TensorRole role = models::TensorRole::activation;
  StepRange forward = {}, recompute = {}, backward = {}, weights = {};
  bool dropped = false;  ///< selective recomputation: backward, or its second half, makes the tensor again
  bool by_rows = false;  ///< its elements are a multiple of the micro-batch's sequences
  double encoded = 0;    ///< bytes while it is stored encoded for backward; 0: it is stored unencoded
};

/// The buckets that a layer uses: its own parameters', its experts', a tied table's.
enum class LayerBucket : std::uint8_t { own, experts, shared };
/// In the order in which lowering goes through them: embedding and head name the table first.
inline constexpr std::array kLayerBuckets = {LayerBucket::shared, LayerBucket::own, LayerBucket::experts};

/// The segments that write gradients of a bucket.
[[nodiscard]] inline StepRange writers_of(const std::vector<Segment>& segments, LayerBucket bucket) {
  StepRange out;
  for (std::size_t s = 0; s < segments.size(); ++s)
    if (segments[s].writes_gradients[static_cast<std::size_t>(bucket)]) out.add(static_cast<int>(s));
  return out;
}

/// What passes over a layer read of a bucket.
[[nodiscard]] inline ParametersRead read_by(std::initializer_list<const Pass*> passes, LayerBucket bucket) {
  ParametersRead read;
  for (const Pass* pass : passes)
    for (const Segment& s : pass->segments) read.add(s.reads_parameters[static_cast<std::size_t>(bucket)]);
  return read;
}

/// A layer's part of a bucket.
struct BucketCosts {
  std::int64_t elements = 0;  ///< before padding to shards; 0: the layer has no such parameters
  std::int64_t partial = 0;   ///< leading elements whose gradients the tensor group sums (sequence parallelism)
  std::int64_t frozen = 0;    ///< elements of frozen parameters, which are in a bucket beside this one
  std::int64_t tensors = 0;
  plan::FactorCount factors = {};                ///< what Adafactor keeps for them
  std::vector<plan::MatrixShape> matrices = {};  ///< their shapes
  plan::WholeMatrices whole = {};                ///< those that the optimizer updates as a whole
  std::vector<std::int64_t> gaps = {};           ///< elements in each gap between them; not of a tied table
  /// Whether operators that can write a gradient are the first to touch each one's (plan/lower/write_first.h).
  bool written = true;
  Life parameter_uses = {}, frozen_uses = {};  ///< when passes use parameters, and frozen ones; `bytes` is not set
};

struct LayerCosts {
  models::LayerKind kind{};
  plan::Recompute recomputation = plan::Recompute::none;
  Pass forward, recompute, backward;
  Pass weights;              ///< of a split backward: gradients of the weights, not included in `backward`
  Pass weights_last_alone;   ///< the same of a chunk's first layer (plan::with_last_alone)
  double weight_inputs = 0;  ///< bytes that the weights' gradients read, kept while W waits for B
  bool backward_reads_parameters = false;
  TokenChoice choice = {};         ///< of its router, on which prices of exchanges depend
  bool reduced_beside = false;     ///< ZeRO 2 and 3: full gradients stay until backward's next layer has run
  base::ById<LifeId, Life> lives;  ///< of tensors that are neither parameters nor their gradients
  LifeId x, y, dy, dx;             ///< its input and output, and their gradients
  /// Its buckets in the order in which lowering lists them, and whether their parameters are frozen.
  struct Listed {
    LayerBucket of{};
    bool frozen = false;
    bool operator==(const Listed&) const = default;
  };
  std::vector<Listed> listed = {};
  std::array<BucketCosts, kLayerBuckets.size()> buckets = {};
  [[nodiscard]] BucketCosts& in(LayerBucket of) { return buckets[static_cast<std::size_t>(of)]; }
  [[nodiscard]] const BucketCosts& in(LayerBucket of) const { return buckets[static_cast<std::size_t>(of)]; }

  /// The segment of a pass over it behind which a bucket's gradients are whole; -1: the pass writes none, or a weights
  /// pass writes more of them.
  [[nodiscard]] int whole_behind(const Pass& pass, LayerBucket of) const {
    const bool later = &pass == &backward && writers_of(weights.segments, of).any();
    return later ? -1 : writers_of(pass.segments, of).last;
  }
  /// How many gradients a pass must zero in a bucket that is padded to `elements` elements: if the
  /// pass can write gradients and there is at most one gap, only that gap; otherwise all.
  [[nodiscard]] std::int64_t zeroed_by_pass(LayerBucket of, std::int64_t elements) const;
};

/// The ranks of the groups in which a layer of rank 0 communicates, a single rank if there is no group; and the ranks
/// with which they share links.
struct LayerGroups {
  std::vector<int> tensor, context, experts, expert_tensor;
  Lockstep lockstep = {};
};

/// What a layer's costs depend on besides its program and prices.
struct LayerChoices {
  plan::Repeats repeats = {};                                  ///< of its block in backward
  bool split_backward = false;                                 ///< the zero-bubble orders need it
  plan::OptimizerKind optimizer = plan::OptimizerKind::adamw;  ///< determines how parameters are aligned
  plan::Compression compression = {};                          ///< of the activations that a block saves
  bool partition_checkpoints = false;                          ///< as in plan::Recomputation
};
/// All but the seconds of messages. Of `groups` only sizes and strides matter.
[[nodiscard]] LayerCosts layer_costs(const models::LayerProgram& program, const LayerChoices& choices,
                                     const Pricing& pricing, const LayerGroups& groups);
/// The same with messages between these ranks priced: of one layer's costs, those of many places in a cluster.
[[nodiscard]] LayerCosts with_messages(LayerCosts costs, const Pricing& pricing, const LayerGroups& groups);

}  // namespace orrery::cost

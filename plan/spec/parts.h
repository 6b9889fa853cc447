#pragma once
/// The parts of a plan beside its mesh (plan/spec/mesh.h), its stages (plan/spec/stages.h) and the embedding tables of
/// a recommendation model (plan/spec/table_placement.h). What depends on several parts is in plan/spec/plan.h.
#include <cstdint>
#include <optional>

#include "models/dtype.h"
#include "models/model.h"
#include "plan/spec/modules.h"
#include "plan/spec/optimizers.h"
#include "plan/spec/space.h"

namespace orrery::plan {

/// The sizes of a step's input.
struct Shape {
  std::int64_t batch = 1;        ///< sequences per step over all ranks
  std::int64_t micro_batch = 1;  ///< B: sequences per micro-batch and replica
  std::int64_t sequence = 1;     ///< T: tokens per sequence
  bool operator==(const Shape&) const = default;
};

/// The states of a step, gradients and what the optimizer keeps: what they are, how replicas share them, and when they
/// are reduced and applied.
struct States {
  int zero_stage = 0;
  /// ZeRO: this many neighbouring replicas partition the states, and each such sub-group has a copy of its own
  /// (MiCS, Zhang et al. 2022, section 3.2; HYBRID_SHARD of PyTorch's FSDP). 0: all replicas, without copies.
  int zero_group = 0;
  /// Gradients are reduced during the last micro-batch's backward pass, each layer's as soon as they are complete
  /// (ZeRO 0 and 1; ZeRO 2 and 3 reduce there anyway, and then sum over the copies of their sub-groups).
  bool overlap_gradients = false;
  /// Asynchronous data parallelism with a parameter server (plan/lower/parameter_server.h): the weights from which a
  /// worker computes gradients are this many steps old; 0: they include all updates of the step before. None:
  /// synchronous.
  std::optional<int> staleness = std::nullopt;
  OptimizerKind optimizer = OptimizerKind::adamw;  ///< the job's: its states and update steps are part of the schedule
  bool momentum = true;                            ///< sgd: whether it has momentum
  bool operator==(const States&) const = default;

  /// Number of states with one value per parameter that the optimizer keeps.
  [[nodiscard]] int moments() const {
    return traits_of(optimizer).momentum_optional && !momentum ? 0 : traits_of(optimizer).moments;
  }
  /// Whether replicas are workers that push their gradients to a parameter server, which applies them one by one.
  [[nodiscard]] bool has_server() const { return staleness.has_value(); }
};

enum class Recompute { none, selective, full };

/// What the backward pass of one block makes again: all that it needs of forward, what some modules make, or what its
/// operators make but for attention, messages other than gathers and every other product.
struct Repeats {
  bool all = false;
  bool operators = false;
  Modules modules = {};
  Repeats() = default;
  explicit Repeats(Modules some) : modules(some) {}
  Repeats(Recompute what)  // NOLINT(google-explicit-constructor): one word says it
      : all(what == Recompute::full),
        modules(what == Recompute::selective ? Modules().with(Module::core) : Modules()) {}
  [[nodiscard]] Recompute what() const {
    return all ? Recompute::full : operators || !modules.empty() ? Recompute::selective : Recompute::none;
  }
  [[nodiscard]] static Repeats by_operator() {
    Repeats out;
    out.operators = true;
    return out;
  }
  auto operator<=>(const Repeats&) const = default;
};

/// What the backward pass computes again instead of keeping it.
struct Recomputation {
  /// full: a block keeps only its input. selective: it drops what `modules` make.
  Recompute what = Recompute::none;
  /// selective: the modules; empty: an attention that would keep its (B,H,T,T) probabilities drops them and recomputes
  /// QK^T to PV in backward (Korthikanti et al. 2022, section 5). A flash kernel does so by itself, so `core` means
  /// nothing with `flash` (as in Megatron-LM, which does not checkpoint a flash core).
  Modules modules = {};
  std::optional<std::int64_t> layers = std::nullopt;  ///< how many of each stage's blocks, from its first; none: all
  /// While a recomputed block's input waits for backward, each rank of the tensor group keeps a part of it, and they
  /// gather it before they recompute (P_a of ZeRO-R, Rajbhandari et al. 2020, section 6.1). Rows that are divided
  /// already (sequence_parallel) do not need this.
  bool partition_checkpoints = false;
  /// Whether passes for weights' gradients may wait where an order splits backward. Until its own pass, a micro-batch
  /// keeps all that was recomputed, so that waiting ones would need the memory that recomputing all blocks saves.
  [[nodiscard]] bool weights_wait() const { return what != Recompute::full || layers; }
  bool operator==(const Recomputation&) const = default;
};

/// What lives outside the device's memory (plan/lower/offload.h); `device`: nothing leaves it.
struct Offload {
  /// host: what blocks save for backward moves out after forward and returns before backward; with full recomputation
  /// that is the blocks' checkpoints (ZeRO, Rajbhandari et al. 2020, section 6.1: P_a+cpu).
  Space activations = Space::device;
  /// host: master values, moments and summed gradients live there; its cores do the update (ZeRO-Offload, Ren et al.
  /// 2021); nvme: master values and moments are streamed from files through the host (ZeRO-Infinity, Rajbhandari 2021).
  Space optimizer = Space::device;
  Space parameters = Space::device;  ///< host, nvme: a layer's values are fetched for its passes (ZeRO-Infinity)
  int prefetch = 1;                  ///< how many layers ahead of their use values are fetched
  bool operator==(const Offload&) const = default;
  [[nodiscard]] bool states() const { return optimizer != Space::device || parameters != Space::device; }
  [[nodiscard]] bool any() const { return activations != Space::device || states(); }
};

/// How gradients travel over the data group (plan/lower/compress.h).
enum class GradientCompression : std::uint8_t { none, bf16, fp16, powersgd };
/// Format in which saved activations of blocks wait for backward, as in Gist (Jain et al. 2018, section 4.2; models/
/// encoding.h); lossless: a ReLU's output without its zeros (section 4.1).
enum class ActivationEncoding : std::uint8_t { none, fp16, fp10, fp8, lossless };

/// What travels or waits in fewer bits. All but `lossless` change the mathematics.
struct Compression {
  GradientCompression gradients = GradientCompression::none;
  ActivationEncoding activations = ActivationEncoding::none;
  int rank = 4;  ///< powersgd: columns of P and Q
  /// powersgd: a matrix of n x m values is compressed where (n + m) * rank * minimum_rate < n * m.
  double minimum_rate = 2;
  double capacity = 0.6;  ///< lossless: the largest share of values that may be nonzero
  /// bf16, fp16: this many neighbouring replicas, those of a node, sum their gradients in full precision before the sum
  /// is rounded and exchanged with other nodes (plan/lower/compress.h). 0: all exchange at once.
  int group = 0;
  /// powersgd: this many first steps of a run reduce gradients whole (start_powerSGD_iter of PyTorch's hook).
  std::int64_t start = 0;
  bool operator==(const Compression&) const = default;
};

enum class Rounding { nearest, stochastic };

/// In which types, and in which pieces, layers are computed.
struct Numerics {
  models::DType precision = models::DType::fp32;
  Rounding rounding = Rounding::nearest;
  bool flash = true;  ///< attention keeps row statistics; context parallelism needs them
  /// The head computes logits for this many equal parts of a micro-batch's rows in turn, and each part's gradients
  /// before the next part (models/layers/loss_chunks.h); 1: all rows at once.
  std::int64_t loss_chunks = 1;
  std::int64_t vocab_multiple = 128;
  bool operator==(const Numerics&) const = default;
};

/// The rows of tokens that travel to the experts of a mixture.
struct Tokens {
  /// The types in which rows travel: `dispatch` to the experts, gradients of the experts' outputs included; `combine`
  /// from the experts. All but none change the mathematics: rows are rounded wherever the experts are, so that no
  /// placement changes it.
  models::TokenCodec dispatch = models::TokenCodec::none, combine = models::TokenCodec::none;
  /// A rank has room in a message of tokens for this many times the rows that a balanced router sends it.
  double bound = 2;
  /// Tokens of the fullest rank over the mean: predictions assume this value; in a run the data decides.
  double imbalance = 1;
  bool operator==(const Tokens&) const = default;
  /// Whether rows travel in fewer bits.
  [[nodiscard]] bool encoded() const {
    return dispatch != models::TokenCodec::none || combine != models::TokenCodec::none;
  }
};

}  // namespace orrery::plan

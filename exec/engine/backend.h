#pragma once
/// Backend: where compute steps run. It owns the arena of its device, runs operators on views of it, and knows how to
/// wait. It decides nothing: program order, offsets and operands come from the Schedule.
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/engine/request.h"
#include "exec/failure.h"
#include "models/op.h"

namespace orrery::plan {
struct TableLayout;
}

namespace orrery::exec {

/// What operators need to know beyond their operands; constant within a training step.
struct StepContext {
  std::int64_t step = 0;  ///< training step from 0
  double learning_rate = 0;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  double clip_norm = 0;  ///< 0: no clipping
  double momentum = 0.9;
  bool nesterov = false;
  bool adaptive = true;  ///< Adafactor: see plan::Optimizer, as the next two
  double clip_update = 1, decay_power = 0.8;
  double matrix_rate = 0, matrix_decay = 0;  ///< Muon's matrices: rate and weight decay; all else has those above
  double scale_factor = 2;                   ///< loss scaling
  std::int64_t scale_interval = 2000;
  std::uint64_t seed = 1;  ///< of stochastic rounding and of dropout
  int tensor_rank = 0;
  int tensor_ways = 1;
  std::int64_t sample_step = 0;  ///< training step whose sequences are computed on (asynchronous pipelines run ahead)
  std::int64_t first_sequence = 0;  ///< which of that step's sequences is the micro-batch's first
  int rank = 0;
  int shard = 0;                              ///< which of a bucket's shards is this rank's
  const plan::TableLayout* tables = nullptr;  ///< of a recommendation model: which rank has what
  int part = 0;  ///< of context parallelism: this rank has chunks `part` and 2 context - 1 - part of each sequence
};

/// Where in its sequence row `row` of a micro-batch lies, whose `op.sequence` rows to a sequence are the chunks of
/// `part`.
[[nodiscard]] inline std::int64_t position_of(const models::Op& op, int part, std::int64_t row) {
  const std::int64_t own = row % op.sequence, chunk = op.sequence / 2;
  if (op.context == 1) return own;
  return own < chunk ? part * chunk + own : (2 * op.context - 2 - part) * chunk + own;
}

/// A run of elements of a flat bucket with its own decay and weight in the norm; exec derives these from
/// plan::ParameterRange for the part of the bucket an optimizer op works on.
struct ElementRange {
  std::int64_t begin = 0, end = 0;  ///< elements, relative to the operand
  bool decay = false;
  double norm_weight = 1;  ///< 0 where another rank counts it, 1/tensor where replicated
  // For optimizers that look at whole tensors; such ranges are not joined.
  std::int64_t norms = -1;   ///< which pair of the operand `norms` is this parameter's
  double share = 1;          ///< of this rank in sums over the tensor group: 1/tensor where replicated
  std::int64_t first = 0;    ///< which element of the rank's part of the parameter is `begin`
  std::int64_t columns = 0;  ///< of that part as a matrix; 0: it is none
  std::int64_t all_rows = 0, all_columns = 0;                           ///< of the whole parameter, without padding
  std::int64_t factor_sum = -1, factor_rows = -1, factor_columns = -1;  ///< places in the operand `factors`
  double orthogonal = 0;                                                ///< Muon: a matrix, its update times this
  std::uint64_t stream = 0;                                             ///< of random numbers: base::stream_of(name)
  std::int64_t logical = 0;  ///< which element of the whole parameter is `begin` (stochastic rounding)
};

/// An operand: `elements` values at `data` in the backend's memory.
struct Operand {
  std::byte* data = nullptr;  ///< null when absent
  std::int64_t elements = 0;
  models::DType dtype = models::DType::fp32;
};

/// Which kernel an operator has got, where a backend has several, and why no better one; empty: it is the best.
struct KernelChoice {
  std::string op, kernel, reason;
  auto operator<=>(const KernelChoice&) const = default;
};

/// One operator with everything it is called with, for Backend::run_all.
struct OpCall {
  const models::Op* op = nullptr;
  std::span<const Operand> in, out;
  std::span<const ElementRange> ranges;
};

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string name() const = 0;  ///< "cpu", "cuda"
  [[nodiscard]] virtual std::string device_name() const = 0;
  /// Why plans of this precision do not run here; empty where they do.
  [[nodiscard]] virtual std::string refusal(models::DType precision) const {
    static_cast<void>(precision);
    return {};
  }
  /// The one allocation of the run. Throws exec::Failure when the device cannot give it.
  [[nodiscard]] virtual std::byte* allocate_arena(std::int64_t bytes) = 0;
  /// Memory of the host beside it, for what a plan offloads; computed on where a step says so. A backend without has
  /// its reason.
  [[nodiscard]] virtual std::byte* allocate_host(std::int64_t bytes) {
    static_cast<void>(bytes);
    throw Failure("the " + name() + " backend does not run copy steps yet: plans that offload run on CPU",
                  FailureKind::environment);
  }
  virtual void copy_to_device(std::byte* device, std::span<const std::byte> host) = 0;
  virtual void copy_to_host(std::span<std::byte> host, const std::byte* device) = 0;
  /// Runs one operator; asynchronous backends queue it on the compute stream. `ranges` for updates and norms.
  /// load_tokens is not passed here: the executor copies the batch.
  virtual void run(const models::Op& op, std::span<const Operand> in, std::span<const Operand> out,
                   std::span<const ElementRange> ranges, const StepContext& context) = 0;
  /// Operators that follow each other within one compute step, as calls of `run` in that order. A backend may compute
  /// neighbours together, as long as all memory holds in the end what it would have held.
  virtual void run_all(std::span<const OpCall> calls, const StepContext& context) {
    for (const OpCall& call : calls) run(*call.op, call.in, call.out, call.ranges, context);
  }
  /// A copy step between this rank's memories, device and host; with `accumulate` `to` (the host's, fp32) += `from`.
  /// Returns when it is done. Called by threads beside the one that computes, while nobody else touches either end.
  virtual void copy_between(std::byte* to, const std::byte* from, std::size_t bytes, bool accumulate) {
    if (!accumulate) {
      std::memcpy(to, from, bytes);
      return;
    }
    const auto* const x = reinterpret_cast<const float*>(from);
    auto* const y = reinterpret_cast<float*>(to);
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) y[i] += x[i];
  }
  /// True where `run` only queues; spans are then taken from marks instead of the host's clock.
  [[nodiscard]] virtual bool asynchronous() const { return false; }
  /// All queued work is done.
  virtual void synchronise() = 0;
  /// A mark in the compute stream; `seconds_between` waits for both. For spans without stalling the device.
  using Mark = exec::Mark;
  [[nodiscard]] virtual Mark mark() = 0;
  [[nodiscard]] virtual double seconds_between(Mark from, Mark to) = 0;

  // -- the queues of a device, so that the host need not wait within a step
  /// Where the compute queue is now; null where `run` returns when it has run.
  [[nodiscard]] virtual std::shared_ptr<const Point> point() { return nullptr; }
  /// What is queued for computing from now on begins behind `point`.
  virtual void order_behind(const Point& point) { static_cast<void>(point); }
  /// Before the first operator of a training step: what changes from step to step (its number, the learning rate) is
  /// put where operators, also those of a graph, read it.
  virtual void begin_step(const StepContext& context) { static_cast<void>(context); }
  /// A few numbers that the host wants at the end of the step: queued like an operator, there after `synchronise`.
  static constexpr std::size_t kLater = 4, kLaterFloats = 4;
  virtual void read_later(std::size_t slot, const std::byte* device, std::size_t floats) {
    copy_to_host(std::as_writable_bytes(std::span(later_.at(slot)).first(floats)), device);
  }
  [[nodiscard]] virtual std::span<const float> later(std::size_t slot) const { return later_.at(slot); }

  /// A copy between device memory and the host's, in a queue of its own for each `lane`, behind `behind`; with marks
  /// where asked for. Null where copies are not queued: then `copy_between`, beside.
  [[nodiscard]] virtual std::unique_ptr<Request> queue_copy(std::size_t lane, std::byte* to, const std::byte* from,
                                                            std::size_t bytes, const Points& behind, bool marks) {
    static_cast<void>(lane), static_cast<void>(to), static_cast<void>(from), static_cast<void>(bytes);
    static_cast<void>(behind), static_cast<void>(marks);
    return nullptr;
  }
  [[nodiscard]] virtual bool queues_copies() const { return false; }

  /// Memory of the host's that stays, from which `queue_to_device` copies.
  [[nodiscard]] virtual std::span<std::byte> allocate_slot(std::size_t bytes) {
    static_cast<void>(bytes);
    throw Failure("the " + name() + " backend has no slots");
  }
  /// Copies what is in a slot when it comes to that, in the order of operators; also in a graph, each launch of which
  /// takes what is there then. The slot is free again after `synchronise`.
  virtual void queue_to_device(std::byte* device, std::span<const std::byte> slot) { copy_to_device(device, slot); }

  // -- graphs: work that is queued as one
  class Graph {
   public:
    virtual ~Graph() = default;
  };
  [[nodiscard]] virtual bool captures() const { return false; }
  /// From here on what is queued, here and by the transport, is kept instead of run.
  virtual void begin_capture() {}
  /// Throws Failure where it cannot be kept; nothing of it has run.
  [[nodiscard]] virtual std::unique_ptr<Graph> end_capture() { return nullptr; }
  virtual void abandon_capture() noexcept {}  ///< after a Failure meanwhile
  virtual void replay(Graph& graph) { static_cast<void>(graph); }

  /// Bytes that kernels have allocated beyond the arena and their operands (workspace), so that they can be shown.
  [[nodiscard]] virtual std::int64_t scratch_bytes() const { return 0; }
  /// Of operators that have run, those that had a choice.
  [[nodiscard]] virtual std::vector<KernelChoice> kernel_choices() const { return {}; }

 private:
  std::array<std::array<float, kLaterFloats>, kLater> later_{};
};

/// `device_memory`: the most that an arena may take, in bytes; 0: whatever the system gives.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(int threads, std::int64_t device_memory = 0);

}  // namespace orrery::exec

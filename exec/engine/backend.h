#pragma once
/// Backend: where compute steps run. It owns its device's arena, runs operators on views of it, and knows how to wait.
/// It decides nothing: program order, offsets and operands come from the Schedule.
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
#include "models/operators/op.h"
#include "plan/spec/ids.h"

namespace orrery::plan {
struct TableLayout;
}

namespace orrery::exec {

/// What operators need beyond their operands; constant within a training step.
struct StepContext {
  std::int64_t step = 0;  ///< training step from 0
  double learning_rate = 0;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  double clip_norm = 0;  ///< 0: no clipping
  double momentum = 0.9;
  bool nesterov = false;
  bool adaptive = true;  ///< Adafactor, like the next two: see plan::Optimizer
  double clip_update = 1, decay_power = 0.8;
  double matrix_rate = 0, matrix_decay = 0;  ///< for Muon's matrices: learning rate and weight decay
  double scale_factor = 2;                   ///< loss scaling
  std::int64_t scale_interval = 2000;
  std::uint64_t seed = 1;  ///< for stochastic rounding and dropout
  int tensor_rank = 0;
  int tensor_ways = 1;
  std::int64_t sample_step = 0;     ///< training step whose sequences are computed (asynchronous pipelines run ahead)
  std::int64_t first_sequence = 0;  ///< number of the micro-batch's first sequence within that step
  plan::LayerId layer = {};         ///< that the operator's step is of
  int rank = 0;
  int shard = 0;                              ///< which of a bucket's shards is this rank's
  const plan::TableLayout* tables = nullptr;  ///< of a recommendation model: which rank holds what
  int part = 0;  ///< context parallelism: this rank has chunks `part` and 2 context - 1 - part of each sequence
};

/// The position within its sequence of row `row` of a micro-batch. Each sequence has `op.sequence` rows: the chunks of
/// `part`.
[[nodiscard]] inline std::int64_t position_of(const models::Op& op, int part, std::int64_t row) {
  const std::int64_t own = row % op.sequence, chunk = op.sequence / 2;
  if (op.context == 1) return own;
  return own < chunk ? part * chunk + own : (2 * op.context - 2 - part) * chunk + own;
}

/// A run of elements of a flat bucket with its own weight decay and weight in the norm. exec derives these from
/// plan::ParameterRange, for the part of the bucket that an optimizer's operator works on.
struct ElementRange {
  std::int64_t begin = 0, end = 0;  ///< elements, relative to the operand
  bool decay = false;
  double norm_weight = 1;  ///< 0 if another rank counts it, 1/tensor if replicated
  // For optimizers that look at whole tensors, whose ranges are never joined.
  std::int64_t norms = -1;   ///< this parameter's pair in the operand `norms`
  double share = 1;          ///< this rank's weight in sums over the tensor group: 1/tensor if replicated
  std::int64_t first = 0;    ///< the element of the rank's part of the parameter that is at `begin`
  std::int64_t columns = 0;  ///< of that part as a matrix; 0: it is not a matrix
  std::int64_t all_rows = 0, all_columns = 0;                           ///< of the whole parameter, without padding
  std::int64_t factor_sum = -1, factor_rows = -1, factor_columns = -1;  ///< places in the operand `factors`
  double orthogonal = 0;                                                ///< Muon: factor of a matrix's update
  std::uint64_t stream = 0;                                             ///< of random numbers: base::stream_of(name)
  std::int64_t logical = 0;  ///< the element of the whole parameter that is at `begin` (stochastic rounding)
};

/// An operand: `elements` values at `data` in the backend's memory.
struct Operand {
  std::byte* data = nullptr;  ///< null when absent
  std::int64_t elements = 0;
  models::DType dtype = models::DType::fp32;
};

/// Which kernel a backend chose for an operator, and why not a better one; empty: it is the best.
struct KernelChoice {
  std::string op, kernel, reason;
  auto operator<=>(const KernelChoice&) const = default;
};

/// One operator with all arguments of its call, for Backend::run_all.
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
  /// The reason why plans of this precision cannot run here; empty if they can.
  [[nodiscard]] virtual std::string refusal(models::DType precision) const {
    static_cast<void>(precision);
    return {};
  }
  /// The run's only allocation. Throws exec::Failure if the device cannot provide it.
  [[nodiscard]] virtual std::byte* allocate_arena(std::int64_t bytes) = 0;
  /// Host memory for what a plan offloads; steps marked as the host's compute on it. A backend without any gives its
  /// reason.
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
  /// Runs consecutive operators of one compute step, as if `run` were called for each in order. A backend may compute
  /// neighbours together, as long as all memory ends up the same.
  virtual void run_all(std::span<const OpCall> calls, const StepContext& context) {
    for (const OpCall& call : calls) run(*call.op, call.in, call.out, call.ranges, context);
  }
  /// A copy step between this rank's device and host memory; with `accumulate`, `to` (the host's, fp32) += `from`.
  /// Returns when done. Called by threads beside the computing one, while nothing else touches either end.
  virtual void copy_between(std::byte* to, const std::byte* from, std::size_t bytes, bool accumulate) {
    if (!accumulate) {
      std::memcpy(to, from, bytes);
      return;
    }
    const auto* const x = reinterpret_cast<const float*>(from);
    auto* const y = reinterpret_cast<float*>(to);
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) y[i] += x[i];
  }
  /// True if `run` only queues; spans are then taken from marks instead of the host's clock.
  [[nodiscard]] virtual bool asynchronous() const { return false; }
  /// Waits until all queued work is done.
  virtual void synchronise() = 0;
  /// Places a mark in the compute stream; `seconds_between` waits for both. Measures spans without stalling the device.
  using Mark = exec::Mark;
  [[nodiscard]] virtual Mark mark() = 0;
  [[nodiscard]] virtual double seconds_between(Mark from, Mark to) = 0;

  // -- a device's queues, so that the host need not wait within a step
  /// The current end of the compute queue; null if `run` returns only when the operator is done.
  [[nodiscard]] virtual std::shared_ptr<const Point> point() { return nullptr; }
  /// Compute queued from now on begins after `point`.
  virtual void order_behind(const Point& point) { static_cast<void>(point); }
  /// Call before a training step's first operator: puts the values that change from step to step (its number, the
  /// learning rate) where operators, including those in a graph, read them.
  virtual void begin_step(const StepContext& context) { static_cast<void>(context); }
  /// A few numbers that the host wants at the end of the step: queued like an operator, available after `synchronise`.
  static constexpr std::size_t kLater = 4, kLaterFloats = 4;
  virtual void read_later(std::size_t slot, const std::byte* device, std::size_t floats) {
    copy_to_host(std::as_writable_bytes(std::span(later_.at(slot)).first(floats)), device);
  }
  [[nodiscard]] virtual std::span<const float> later(std::size_t slot) const { return later_.at(slot); }

  /// Copies between device and host memory, in one queue per `lane`, after the points `behind`, with marks if asked
  /// for. Null if copies are not queued: then use `copy_between` on another thread.
  [[nodiscard]] virtual std::unique_ptr<Request> queue_copy(std::size_t lane, std::byte* to, const std::byte* from,
                                                            std::size_t bytes, const Points& behind, bool marks) {
    static_cast<void>(lane), static_cast<void>(to), static_cast<void>(from), static_cast<void>(bytes);
    static_cast<void>(behind), static_cast<void>(marks);
    return nullptr;
  }
  [[nodiscard]] virtual bool queues_copies() const { return false; }

  /// Host memory that persists, from which `queue_to_device` copies.
  [[nodiscard]] virtual std::span<std::byte> allocate_slot(std::size_t bytes) {
    static_cast<void>(bytes);
    throw Failure("the " + name() + " backend has no slots");
  }
  /// Copies a slot's contents as they are when the copy runs, in the order of operators. In a graph, each launch copies
  /// the contents of that moment. The slot is free again after `synchronise`.
  virtual void queue_to_device(std::byte* device, std::span<const std::byte> slot) { copy_to_device(device, slot); }

  // -- graphs: work that is queued as one
  class Graph {
   public:
    virtual ~Graph() = default;
  };
  [[nodiscard]] virtual bool captures() const { return false; }
  /// From here on, work that is queued here and by the transport is recorded instead of run.
  virtual void begin_capture() {}
  /// Throws Failure if the work cannot be recorded; none of it has run.
  [[nodiscard]] virtual std::unique_ptr<Graph> end_capture() { return nullptr; }
  virtual void abandon_capture() noexcept {}  ///< after a Failure in between
  virtual void replay(Graph& graph) { static_cast<void>(graph); }

  /// Bytes that kernels have allocated beyond the arena and their operands (workspace), for reports.
  [[nodiscard]] virtual std::int64_t scratch_bytes() const { return 0; }
  /// The operators that have run and had a choice of kernels.
  [[nodiscard]] virtual std::vector<KernelChoice> kernel_choices() const { return {}; }

 private:
  std::array<std::array<float, kLaterFloats>, kLater> later_{};
};

/// `device_memory`: most bytes that an arena may take; 0: no limit but the system's.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(int threads, std::int64_t device_memory = 0);

}  // namespace orrery::exec

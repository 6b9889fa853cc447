#pragma once
/// Stack: the software that runs a schedule, as few named physical facts. Orrery's own executors are stacks
/// like any other. Read from cost/stacks/NAME.yaml; its numbers are the stack.* coefficients and may be
/// fitted.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "clusters/cluster.h"
#include "cost/parameters/calibration.h"
#include "cost/parameters/memory_recipe.h"
#include "cost/parameters/validation.h"
#include "plan/schedule/schedule.h"

namespace orrery::cost {

/// What a stack's software can do: the search proposes nothing else. What a job names is priced as if it could.
struct Capabilities {
  std::vector<int> zero_stages = {0, 1, 2, 3};
  std::vector<int> pipelined_zero_stages = {0, 1, 2, 3};  ///< of a pipeline of several stages
  bool tensor = true, pipeline = true, virtual_stages = true, context = true, expert = true, sequence_parallel = true;
  bool gpipe = true;                                                  ///< besides 1F1B
  clusters::Architecture flash_from = clusters::Architecture::volta;  ///< the first that its fused attention runs on
  bool operator==(const Capabilities&) const = default;
};

/// How its users usually run it, for runs that do not say.
struct Practice {
  bool sequence_parallel = false;  ///< beside tensor parallelism
  std::int64_t chunk_layers = 0;   ///< of interleaved stages; 0: stages are whole
  bool operator==(const Practice&) const = default;
};

struct Stack {
  std::string name;
  bool flash =
      true;  ///< attention keeps row statistics, never the (B,H,T,T) matrix; where the device has kernels for it
  bool host_inline =
      false;  ///< the host's work per op adds to the op's time (CPU ranks); else it hides behind the queue
  /// Whether transfers of a kind proceed while the same rank computes. Where not, a transfer makes progress
  /// only while the compute stream waits for it: a simulator then runs it at the place of the first wait.
  bool overlap_tensor = false, overlap_data = false, overlap_pipeline = false;
  bool overlap_copies = true;  ///< between a rank's memories; not stated: they do, by engines or threads of their own
  bool overlap_gradients = false;  ///< gradients are reduced within backward (PlanSpec::overlap_gradients)
  bool overlap_exchange = false;   ///< all-to-alls of tokens or of embeddings; not stated: as `context`
  bool overlap_context = false;    ///< the ring of context parallelism; not stated: unless the host works inline
  /// Full recomputation repeats the whole layer, as PyTorch's checkpoint does, also what backward does not read.
  bool recompute_whole_layer = false;
  /// A step begins by zeroing gradients (plan::LowerOptions); not stated: it does.
  bool zero_gradients = true;
  Capabilities can = {};
  Practice usual = {};
  /// Stacks that stand for this one where a plan is of a ZeRO stage, or stays within a node; empty: this one
  /// (cost/prices/stacks.h).
  std::array<std::string, 4> by_zero = {};
  std::string within_node = {};
  MemoryRecipe memory;  ///< what it keeps beyond the schedule's buffers
  /// stack.op_overhead      seconds an op costs beyond its arithmetic (launch gap, call, tiny-tensor costs)
  /// stack.load_overhead    seconds to read one micro-batch's tokens
  /// stack.dispatch_overhead seconds each schedule step costs the rank (progress of requests, span
  /// bookkeeping) stack.step_overhead    seconds a training step costs outside the schedule (loading tokens,
  /// metrics) stack.context_memory   bytes per rank outside the arena (context, libraries, communicators)
  std::vector<Parameter> parameters;
  std::vector<std::string> sources;
  bool generic = false;  ///< stands for software that nobody named, by kind alone
  /// Written by `calibrate --rows`: to how many runs its numbers were fitted, what they were off by with each run left
  /// out, and where measured over predicted then lay (10th and 90th percentile).
  struct Fitted {
    std::int64_t rows = 0;
    double median_error = 0, p90_error = 0;
    Interval time, memory;
  };
  std::optional<Fitted> fitted = {};

  [[nodiscard]] bool overlaps(plan::Stream stream) const;
  /// Whether it runs fused attention on a device: `flash`, and kernels for its architecture.
  [[nodiscard]] bool attends_fused(const clusters::Device& device) const;
};

[[nodiscard]] base::Result<Stack> parse_stack(std::string_view text, std::string file);
/// A stack's file; parse_stack gives the same stack back. `head`: lines of comment without their signs.
[[nodiscard]] std::string write_stack(const Stack& stack, const std::vector<std::string>& head);

}  // namespace orrery::cost

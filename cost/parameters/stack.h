#pragma once
/// Stack: the software that runs a schedule, as a few named physical facts. Orrery's own executors are stacks like any
/// other. Read from cost/stacks/NAME.yaml; its numbers are the stack.* coefficients and may be fitted.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "clusters/cluster.h"
#include "cost/parameters/calibration.h"
#include "cost/parameters/ground.h"
#include "cost/parameters/memory_recipe.h"
#include "cost/parameters/validation.h"
#include "plan/schedule/schedule.h"
#include "plan/spec/modules.h"

namespace orrery::cost {

/// What the software supports: the search proposes nothing else. A plan that a job names is priced as if supported.
struct Capabilities {
  std::vector<int> zero_stages = {0, 1, 2, 3};
  std::vector<int> pipelined_zero_stages = {0, 1, 2, 3};  ///< in a pipeline of several stages
  bool tensor = true, pipeline = true, virtual_stages = true, context = true, expert = true, sequence_parallel = true;
  bool whole_rows = true;                ///< tensor parallelism without sequence parallelism
  bool replicas_beside = true;           ///< replicas without ZeRO beside other parallelism; else they stand alone
  bool gpipe = true;                     ///< in addition to 1F1B
  bool partition_checkpoints = false;    ///< over the tensor group
  bool recompute_layers = true;          ///< some of a stage's blocks; else all of them or none
  plan::Modules recompute_modules = {};  ///< of a mixture's blocks, that its users recompute one by one
  clusters::Architecture flash_from = clusters::Architecture::volta;  ///< the oldest with fused attention
  /// What a ZeRO stage is in a pipeline of this software's: itself, else the next below that runs there. A stage that
  /// the software does not have at all stays what it is.
  [[nodiscard]] int zero_in_pipeline(int stage) const;
  bool operator==(const Capabilities&) const = default;
};

/// How users usually run it; assumed for runs that do not say.
struct Practice {
  bool sequence_parallel = false;      ///< together with tensor parallelism
  std::int64_t chunk_layers = 0;       ///< layers per chunk of interleaved stages; 0: not interleaved
  std::string lora_targets = {};       ///< products with adapters, as rows name them; empty: all of a block
  bool partition_checkpoints = false;  ///< with ZeRO, tensor parallelism and full recomputation
  bool operator==(const Practice&) const = default;
};

/// Stacks for unnamed software: eager PyTorch, and what a compiler has fused.
inline constexpr const char* kGenericEager = "generic-eager";
inline constexpr const char* kGenericCompiled = "generic-compiled";
inline constexpr const char* kGenericRecommender = "generic-recommender";  ///< whatever trains a DLRM

struct Stack {
  std::string name;
  bool flash =
      true;  ///< attention keeps row statistics, never the (B,H,T,T) matrix; where the device has kernels for it
  bool host_inline =
      false;  ///< the host's work per op adds to the op's time (CPU ranks); else it hides behind the queue
  /// Whether transfers of a kind proceed while the same rank computes. If not, a transfer makes progress only while the
  /// compute stream waits for it: the simulator then runs it at the first wait.
  bool overlap_tensor = false, overlap_data = false, overlap_pipeline = false;
  bool overlap_copies = true;  ///< between a rank's memories; default: true, by copy engines or threads of their own
  bool overlap_gradients = false;  ///< gradients are reduced during backward (States::overlap_gradients)
  bool overlap_whole = false;      ///< those of plans without ZeRO are: PyTorch's DistributedDataParallel
  bool overlap_exchange = false;   ///< all-to-alls of tokens or of embeddings; default: as `context`
  bool overlap_context = false;    ///< the ring of context parallelism; default: true unless the host works inline
  /// Full recomputation repeats the whole layer, as PyTorch's checkpoint does, including what backward does not read.
  bool recompute_whole_layer = false;
  /// A step begins by zeroing gradients (plan::LowerOptions); default: true.
  bool zero_gradients = true;
  Capabilities can = {};
  Practice usual = {};
  /// Stacks that replace this one for plans of a given ZeRO stage, or within a node; empty: this one applies
  /// (cost/prices/stacks.h).
  std::array<std::string, 4> by_zero = {};
  std::string within_node = {};
  MemoryRecipe memory;  ///< kept in addition to the schedule's buffers
  /// stack.op_overhead        seconds that an op costs beyond its arithmetic (launch gap, call, tiny-tensor costs)
  /// stack.load_overhead      seconds to read one micro-batch's tokens
  /// stack.dispatch_overhead  seconds that a schedule step costs the rank (progress of requests, span bookkeeping)
  /// stack.step_overhead      seconds that a training step costs outside the schedule (loading tokens, metrics)
  /// stack.context_memory     bytes per rank outside the arena (context, libraries, communicators)
  std::vector<Parameter> parameters;
  std::vector<Parameter> eager;  ///< in their place, where code runs eagerly that most of its runs compile
  std::vector<std::string> sources;
  bool generic = false;  ///< represents unnamed software, by kind only
  bool own = false;      ///< one of Orrery's executors, which `orrery train` runs
  /// Written by `calibrate --rows`: the stack that it began with, the number of runs that the numbers were fitted to,
  /// the errors with each run left out, and the resulting range of measured over predicted (10th to 90th percentile).
  struct Fitted {
    std::string like = {};
    std::int64_t rows = 0;
    double median_error = 0, p90_error = 0;
    Interval time, memory;
    std::vector<Ground> grounds = {};  ///< what the runs were of; empty: the file does not say
  };
  std::optional<Fitted> fitted = {};
  /// The software whose words rows of this stack are written in: a fit has a name of its own, but is the same software.
  [[nodiscard]] const std::string& software() const { return fitted && !fitted->like.empty() ? fitted->like : name; }

  [[nodiscard]] bool overlaps(plan::Stream stream) const;
  /// Whether a plan of this ZeRO stage reduces its gradients during backward.
  [[nodiscard]] bool reduces_early(int zero_stage) const {
    return overlap_gradients || (overlap_whole && zero_stage == 0);
  }
  /// Whether this software runs fused attention on a device: `flash` is set, and it has kernels for the architecture.
  [[nodiscard]] bool attends_fused(const clusters::Device& device) const;
};

[[nodiscard]] base::Result<Stack> parse_stack(std::string_view text, std::string file);
/// The text of a stack's file; parse_stack gives the same stack. `head`: comment lines without their signs.
[[nodiscard]] std::string write_stack(const Stack& stack, const std::vector<std::string>& head);

}  // namespace orrery::cost

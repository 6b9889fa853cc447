#pragma once
/// metrics.jsonl: what each training step measured, over all ranks.
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "exec/engine/arena.h"
#include "exec/engine/execute.h"
#include "plan/spec/plan.h"

namespace orrery::exec {

/// Memory of one process, in bytes.
struct MemoryNow {
  std::int64_t arena_peak = 0;       ///< highest end of anything handed out
  std::int64_t arena_live_peak = 0;  ///< most alive at once
  /// The same two for what the plan keeps on the host, and for what it keeps in files on NVMe.
  std::int64_t host_peak = 0, host_live_peak = 0, nvme_peak = 0, nvme_live_peak = 0;
  std::int64_t heap = 0;  ///< allocated outside the arena, now
  std::int64_t heap_peak = 0;
  std::int64_t scratch = 0;  ///< of the heap or besides it: workspace of kernels
  std::int64_t resident = 0, resident_peak = 0;
};
/// `arena` null: before there is one. Backends map their arenas, so the counted heap contains none of them.
[[nodiscard]] MemoryNow memory_now(const Arena* arena);

struct StepResult;  // exec/run/trainer.h

using ExpertLoads = std::map<plan::LayerId, std::vector<float>>;

/// A rank's part of a step's line.
struct RankMetrics {
  double loss = 0, gradient_norm = 0;  ///< NaN if its stage has none
  double seconds = 0;
  double waited_s = 0;  ///< the part of `seconds` spent waiting for other ranks
  double busy_s = 0;    ///< since before the step, without that wait
  MemoryNow memory;
  std::int64_t resident_before = 0;  ///< before the arena was allocated
  Executor::Lossless lossless;
  double checkpoint_pause = 0;                                 ///< before this step
  double aux_loss = std::numeric_limits<double>::quiet_NaN();  ///< of a mixture of experts; so is the next
  double z_loss = std::numeric_limits<double>::quiet_NaN();
  void take(const StepResult& step);
};
[[nodiscard]] std::string pack_metrics(const RankMetrics& metrics);
[[nodiscard]] RankMetrics unpack_metrics(const std::string& bytes);

struct StepMetrics {
  std::int64_t step = 0;
  double loss = 0, gradient_norm = 0, learning_rate = 0;
  double seconds = 0;  ///< of the slowest rank
  double tokens_per_s = 0;
  double memory_peak = 0;               ///< arena, worst rank
  double host_peak = 0, nvme_peak = 0;  ///< of what is offloaded, worst rank
  double loss_scale = 0;                ///< fp16; 0: none
  bool skipped = false;                 ///< the update, because gradients overflowed
  std::optional<double> held_out_auc;   ///< of a recommendation model, if an evaluation followed this step
  std::optional<double> held_out_loss;  ///< if an evaluation followed this step
  Executor::Lossless lossless;          ///< over all ranks
  std::vector<std::string> spikes;      ///< the quantities that had one: "loss", "gradient_norm"
  double aux_loss = std::numeric_limits<double>::quiet_NaN();  ///< of a mixture of experts; so is what follows
  double z_loss = std::numeric_limits<double>::quiet_NaN();
  /// For each layer with experts, the number of tokens that chose each expert; empty: dense.
  ExpertLoads expert_loads;
  std::map<int, Executor::CacheUse> caches;  ///< of tables, over all ranks; empty: all are on the device
  std::optional<std::int64_t> bad_lines;     ///< of the training data, skipped; nothing where none may be
  double checkpoint_pause = 0;               ///< s that checkpoints held training up before this step; slowest rank
};
/// Adds the counts of another rank or another step to `all`.
void add_lossless(Executor::Lossless& all, const Executor::Lossless& more);
/// In an asynchronous pipeline each stage has a gradient norm of its own; the step's norm is that of all together.
[[nodiscard]] StepMetrics join_metrics(const std::vector<RankMetrics>& ranks, const plan::Plan& plan);

/// Loads of the experts of all stages, on rank 0. Collective.
[[nodiscard]] ExpertLoads gather_loads(Transport& transport, const plan::Plan& plan, const Executor::ExpertUse& mine);

/// The use of tables' caches in each of these steps, by table: on rank 0 over all ranks, on the others their own.
/// Collective.
using CacheUses = std::map<int, Executor::CacheUse>;
[[nodiscard]] std::vector<CacheUses> gather_caches(Transport& transport, const std::vector<StepResult>& mine);

/// The file, line by line. Lines of steps after `keep` (when a run resumes from an earlier checkpoint) are removed;
/// keep 0 begins a new file.
class MetricsFile {
 public:
  /// Contents of the lines that were kept.
  struct Kept {
    double first_loss = std::numeric_limits<double>::quiet_NaN();  ///< of step 1; NaN if its line is missing
    double last_loss = std::numeric_limits<double>::quiet_NaN();
    double memory_peak = 0;
    std::vector<double> seconds;  ///< of each step
  };
  /// Throws Failure. Lines that are not a step's, except a last one that was cut short, are moved to another file:
  /// metrics.jsonl.damaged.
  MetricsFile(const std::filesystem::path& path, std::int64_t keep);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  [[nodiscard]] const Kept& kept() const { return kept_; }
  /// Number of lines that were not a step's.
  [[nodiscard]] std::size_t damaged() const { return damaged_; }
  void append(const StepMetrics& step, const std::vector<RankMetrics>& ranks);
  /// Syncs what was appended to the disk.
  void sync() const;

 private:
  std::string name_;
  int file_ = -1;
  Kept kept_;
  std::size_t damaged_ = 0;
};

/// Number of steps in a metrics.jsonl; 0: none, or no such file. Throws Failure if it cannot be read.
[[nodiscard]] std::int64_t steps_told(const std::filesystem::path& metrics);

}  // namespace orrery::exec

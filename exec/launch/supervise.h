#pragma once
/// Starts the MPI worker with mpiexec and watches it: forwards progress and stop requests, ends a run that makes no
/// progress or has lost a rank, and says which. Only a run's own completion record decides whether it succeeded:
/// MPICH's mpiexec can return 0 for a job that died.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/launch/saving.h"

namespace orrery::exec {

struct TrainCommand {
  std::filesystem::path worker;  ///< orrery-worker
  std::string launcher = "mpiexec";
  int ranks = 1;
  std::filesystem::path plan;  ///< plan file
  std::filesystem::path run;   ///< run directory; created if missing
  std::int64_t steps = 0;      ///< of the whole run, including the resumed part; 0: those of the plan's job
  int threads = 0;             ///< per rank; 0: cores / ranks, at least 1
  std::string backend = "cpu";
  bool resume = false;
  bool overwrite = false;
  bool checkpoint = true;             ///< at the end and on a stop request
  int keep = 2;                       ///< number of newest checkpoints to keep
  std::int64_t checkpoint_every = 0;  ///< steps; 0: by time
  std::chrono::seconds checkpoint_interval{60};
  std::set<std::int64_t> dump_gradients;  ///< steps, from 1
  bool serial = false;                    ///< one rank: the plan's serial program (plan/lower/serial.h)
  bool progress_thread = false;           ///< for software stacks whose transfers proceed during compute
  bool repeat = true;                     ///< GPUs: only kernels that repeat bit by bit, even where others are faster
  bool recompute_whole_layer = false;     ///< as the software stack lowers it (plan::LowerOptions)
  bool zero_gradients = false;            ///< likewise
  bool stop_on_spike = false;             ///< as in GuardOptions; so is the next
  std::optional<std::int64_t> hash_every;
  std::chrono::seconds deadline{60};        ///< longest wait of one rank for others
  std::chrono::seconds grace{30};           ///< from a stop request until the ranks are killed
  std::chrono::seconds start_timeout{120};  ///< until the first progress
  std::chrono::seconds step_timeout{600};   ///< between two reports of progress
};

/// Progress of a run, from rank 0.
struct StepReport {
  std::int64_t step = 0;   ///< from 1
  std::int64_t steps = 0;  ///< of the whole run
  double loss = 0, gradient_norm = 0, learning_rate = 0;
  double step_time_s = 0, tokens_per_s = 0, memory_peak_bytes = 0;
  std::int64_t lossless_tensors = 0, lossless_again = 0;  ///< as in Completion, for this step
};

/// completed.json: a run's own record, written last of all.
struct Completion {
  std::string run_id;
  bool completed = false;         ///< false: stopped on request before the last step
  std::int64_t steps = 0;         ///< in total
  std::int64_t resumed_from = 0;  ///< steps that earlier runs had done
  double first_loss = 0;          ///< of step 1, from an earlier run if this one resumed it
  double final_loss = 0;
  double step_time_s = 0;        ///< median of this run's steps except the first
  double tokens_per_s = 0;       ///< at that step time
  double memory_peak_bytes = 0;  ///< arena, worst rank
  std::string backend, device;
  int ranks = 1, threads = 1;
  bool oversubscribed = false;  ///< more busy threads than cores: timings mean nothing
  /// Over this run's steps and all ranks: tensors kept without their zeros, tensors that did not fit and were
  /// recomputed, and the largest share of nonzero values.
  std::int64_t lossless_tensors = 0, lossless_again = 0;
  double lossless_densest = 0;
  /// Over this run's steps: spikes of loss or gradient norm, updates skipped because gradients overflowed, looks over
  /// weights and states (exec/run/guards.h) and the seconds that looks took on rank 0.
  std::int64_t spikes = 0, skipped = 0, looks = 0;
  double looks_s = 0;
  SavedTotals checkpoints;                ///< of this run
  std::optional<std::int64_t> bad_lines;  ///< skipped lines of the training data, if the job skips bad ones
  /// Of a recommendation model's last evaluation: the area under the ROC curve; if its samples are generated, also the
  /// area that their true probabilities reach.
  std::optional<double> held_out_auc, best_auc;
};
[[nodiscard]] std::string write_completion(const Completion& completion);
/// Nothing if the file is missing or not such a record.
[[nodiscard]] std::optional<Completion> read_completion(const std::filesystem::path& run);

enum class RunEnd {
  completed,    ///< all steps done and the record written
  stopped,      ///< on request, with a checkpoint or before the first step
  failed,       ///< the worker gave a reason, or died
  timed_out,    ///< no progress; killed
  not_started,  ///< no mpiexec or no worker
};

struct RunOutcome {
  RunEnd end = RunEnd::failed;
  int exit_code = 0;                       ///< of mpiexec (128 + signal if it was killed)
  int worker_code = 0;                     ///< the worker's own, if it gave one: 1, 2, 3, 5, 6
  bool trained = false;                    ///< the first step began: the run directory is this run's
  std::optional<std::int64_t> checkpoint;  ///< step of the newest acknowledged one
  std::int64_t resumed_from = 0;           ///< steps that earlier starts had done
  std::string reason;                      ///< one sentence; empty when completed
  base::Diagnostics diagnostics;           ///< the worker's, including warnings
  std::string error_tail;                  ///< last 16 KiB of standard error
  std::optional<Completion> completion;
};

struct RunWatchers {
  std::function<void(const StepReport&)> step;
  std::function<void(const std::string&)> message;  ///< "checkpoint saved at step 20", "4 ranks on 2 cores …"
};

/// Blocks until the run has ended and none of its processes is left. `stop` turning true asks the ranks to finish their
/// step, save and end; after the grace they are killed, and before the first step at once, as there is nothing to save.
/// `stop` may be null. A failed run leaves failure.json (exec/launch/diagnose.h) in its directory.
[[nodiscard]] RunOutcome supervise(const TrainCommand& command, const RunWatchers& watchers,
                                   const std::atomic<bool>* stop);

}  // namespace orrery::exec

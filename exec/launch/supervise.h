#pragma once
/// Starts the MPI worker with mpiexec and watches it: forwards progress, passes on a request to stop, ends a run that
/// makes no progress or has lost a rank, and says which. Whether a run succeeded is decided by its own completion
/// record alone: MPICH's mpiexec can return 0 for a job that died.
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
  std::filesystem::path run;   ///< run directory; made if missing
  std::int64_t steps = 0;      ///< of the whole run, resumed part included; 0: as the plan's job says
  int threads = 0;             ///< per rank; 0: cores / ranks, at least 1
  std::string backend = "cpu";
  bool resume = false;
  bool overwrite = false;
  bool checkpoint = true;             ///< at the end and when stopped
  int keep = 2;                       ///< newest checkpoints that are kept
  std::int64_t checkpoint_every = 0;  ///< steps; 0: by time
  std::chrono::seconds checkpoint_interval{60};
  std::set<std::int64_t> dump_gradients;  ///< steps, from 1
  bool serial = false;                    ///< one rank: the plan's serial program (plan/lower/serial.h)
  bool progress_thread = false;           ///< where the software stack says that transfers proceed beside compute
  bool repeat = true;                     ///< GPUs: kernels that repeat bit by bit, also where others are faster
  bool recompute_whole_layer = false;     ///< as the software stack lowers (plan::LowerOptions)
  bool zero_gradients = false;            ///< likewise
  bool stop_on_spike = false;             ///< as GuardOptions, as the next
  std::int64_t hash_every = -1;
  std::chrono::seconds deadline{60};        ///< of one wait of one rank for others
  std::chrono::seconds grace{30};           ///< from a request to stop until the ranks are ended
  std::chrono::seconds start_timeout{120};  ///< until the first progress
  std::chrono::seconds step_timeout{600};   ///< between two
};

/// Progress of a run, from rank 0.
struct StepReport {
  std::int64_t step = 0;   ///< from 1
  std::int64_t steps = 0;  ///< of the whole run
  double loss = 0, gradient_norm = 0, learning_rate = 0;
  double step_time_s = 0, tokens_per_s = 0, memory_peak_bytes = 0;
  std::int64_t lossless_tensors = 0, lossless_again = 0;  ///< as in Completion, of the step
};

/// completed.json: a run's own record, written last.
struct Completion {
  std::string run_id;
  bool completed = false;         ///< false: stopped on request before its last step
  std::int64_t steps = 0;         ///< done in all
  std::int64_t resumed_from = 0;  ///< steps that an earlier run had done
  double first_loss = 0;          ///< of step 1, of an earlier run if this one resumed it
  double final_loss = 0;
  double step_time_s = 0;        ///< median of this run's steps, the first left out
  double tokens_per_s = 0;       ///< at that step time
  double memory_peak_bytes = 0;  ///< arena, worst rank
  std::string backend, device;
  int ranks = 1, threads = 1;
  bool oversubscribed = false;  ///< more busy threads than cores: timings mean nothing
  /// Of this run's steps and all ranks: tensors kept without their zeros, those that had no room and were computed
  /// again, and the largest share of values that were not zero.
  std::int64_t lossless_tensors = 0, lossless_again = 0;
  double lossless_densest = 0;
  /// Of this run's steps: spikes of loss or gradient norm, updates skipped because gradients overflowed, looks over
  /// weights and states (exec/run/guards.h) and what they took, on rank 0.
  std::int64_t spikes = 0, skipped = 0, looks = 0;
  double looks_s = 0;
  SavedTotals checkpoints;                ///< of this run
  std::optional<std::int64_t> bad_lines;  ///< of the training data, skipped: only where the job says so
};
[[nodiscard]] std::string write_completion(const Completion& completion);
/// Nothing when the file is missing or no such record.
[[nodiscard]] std::optional<Completion> read_completion(const std::filesystem::path& run);

enum class RunEnd {
  completed,    ///< all steps done, record written
  stopped,      ///< on request: with a checkpoint, or before the first step
  failed,       ///< the worker said why, or died
  timed_out,    ///< no progress; killed
  not_started,  ///< no mpiexec or no worker
};

struct RunOutcome {
  RunEnd end = RunEnd::failed;
  int exit_code = 0;                       ///< of mpiexec (128 + signal when it was killed)
  int worker_code = 0;                     ///< the worker's own where it gave one: 1, 2, 3, 5, 6
  bool trained = false;                    ///< the first step was begun: the run directory is this run's
  std::optional<std::int64_t> checkpoint;  ///< step of the newest one that was acknowledged
  std::int64_t resumed_from = 0;           ///< steps that an earlier start had done
  std::string reason;                      ///< one sentence; empty when completed
  base::Diagnostics diagnostics;           ///< the worker's, warnings included
  std::string error_tail;                  ///< last 16 KiB of standard error
  std::optional<Completion> completion;
};

struct RunWatchers {
  std::function<void(const StepReport&)> step;
  std::function<void(const std::string&)> message;  ///< "checkpoint saved at step 20", "4 ranks on 2 cores …"
};

/// Blocks until the run has ended, and no process of it is left. `stop` turning true asks the ranks to finish their
/// step, save and end; after the grace they are killed. Before the first step there is nothing to save: then at once.
/// May be null. A run that failed leaves failure.json (exec/launch/diagnose.h) in its directory.
[[nodiscard]] RunOutcome supervise(const TrainCommand& command, const RunWatchers& watchers,
                                   const std::atomic<bool>* stop);

}  // namespace orrery::exec

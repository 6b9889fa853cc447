#pragma once
/// One rank of a training run, with its run directory: plan.yaml, metrics.jsonl, timeline.json, checkpoints/, and
/// completed.json, which is written last and alone says that the run is done.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "exec/engine/arena.h"
#include "exec/launch/supervise.h"
#include "exec/run/guards.h"
#include "exec/run/trainer.h"
#include "plan/spec/job.h"
#include "plan/spec/plan.h"

namespace orrery::exec {

struct RunOptions {
  std::filesystem::path directory;
  std::string plan_text;   ///< copied to plan.yaml
  std::string run_id;      ///< for completed.json
  std::int64_t steps = 0;  ///< of the whole run
  bool resume = false;     ///< from the newest whole checkpoint, if any was ever saved
  bool overwrite = false;  ///< removes an earlier run's records and checkpoints; with neither, one is refused (E0640)
  bool checkpoint = true;
  int keep = 2;                                  ///< number of newest checkpoints to keep
  std::int64_t checkpoint_every = 0;             ///< steps; 0: by time
  std::chrono::seconds checkpoint_interval{60};  ///< by time: after the step that ends it; saving takes less
                                                 ///< than a tenth of the time
  std::set<std::int64_t> dump_gradients;         ///< steps from 1, to gradients/step-000001.safetensors
  int threads = 1;
  bool oversubscribed = false;
  bool timeline = true;          ///< at the end, to timeline.json
  bool progress_thread = false;  ///< messages progress while the rank computes
  Arena::Check check = Arena::Check::none;
  const std::atomic<bool>* stop = nullptr;  ///< when true: finish the step, save, end
  /// Rank 0 only. Lines of JSON: {"event": "preparing" | "started" | "step" | "evaluation" | "checkpoint" | "gradients"
  /// | "kernels" | "graphs" | "spike" | "stopped" | "completed" | "diagnostic"}.
  std::function<void(const std::string&)> report;
  bool graphs = true;  ///< as in Executor::Options; so is the next
  bool queue_messages = true;
  GuardOptions guards;
  std::string faults;  ///< to plant, for tests: exec/run/faults.h
};

/// Collective. Throws Failure. Errors in input files, and what the guards find (codes that begin with R; rank 0 has
/// what all ranks found), are returned as Diagnostics on every rank alike. Returns true when all steps are done, false
/// if it was stopped.
[[nodiscard]] base::Result<bool> run(const plan::Plan& plan, const plan::Training& training,
                                     const plan::Schedule& schedule, Backend& backend, Transport& transport,
                                     const Waiter& waiter, const RunOptions& options);

}  // namespace orrery::exec

#pragma once
/// Restarts a run that fails: from its newest checkpoint, after a growing pause, and not for ever.
#include <chrono>
#include <string>
#include <vector>

#include "exec/launch/supervise.h"

namespace orrery::exec {

struct RestartPolicy {
  int most = 0;              ///< restarts in total; 0: none
  int without_progress = 5;  ///< give up after this many failures in a row without a newer checkpoint
  std::chrono::milliseconds first_pause{1000};  ///< doubles with each failure in a row without a newer checkpoint
  std::chrono::milliseconds longest_pause{60000};
};

struct RestartedOutcome {
  RunOutcome last;
  std::vector<std::string> failures;  ///< why each earlier start failed
};

/// As supervise(), repeatedly; each failed start adds a line with its cost to the run's restarts.jsonl. Mistakes in
/// the request (exit codes 2, 3, 5, 6 of the worker) and runs that could not be started are not retried. Restarts
/// resume; the first start does as `command` says.
[[nodiscard]] RestartedOutcome supervise_with_restarts(TrainCommand command, const RestartPolicy& policy,
                                                       const RunWatchers& watchers, const std::atomic<bool>* stop);

}  // namespace orrery::exec

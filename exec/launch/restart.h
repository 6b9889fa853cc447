#pragma once
/// A run that is started again when it fails: from its newest checkpoint, after a pause that grows, and not for ever.
#include <chrono>
#include <string>
#include <vector>

#include "exec/launch/supervise.h"

namespace orrery::exec {

struct RestartPolicy {
  int most = 0;              ///< restarts in all; 0: none
  int without_progress = 5;  ///< failures in a row without a newer checkpoint that end it all the same
  std::chrono::milliseconds first_pause{1000};  ///< doubled for each failure in a row without a newer checkpoint
  std::chrono::milliseconds longest_pause{60000};
};

struct RestartedOutcome {
  RunOutcome last;
  std::vector<std::string> failures;  ///< why each earlier start failed
};

/// As supervise(), again and again; what each failed start cost is a line of the run's restarts.jsonl. What was asked
/// for wrongly (exit codes 2, 3, 5, 6 of the worker) and what could not be started is not tried again. Restarts resume;
/// the first start does as `command` says.
[[nodiscard]] RestartedOutcome supervise_with_restarts(TrainCommand command, const RestartPolicy& policy,
                                                       const RunWatchers& watchers, const std::atomic<bool>* stop);

}  // namespace orrery::exec

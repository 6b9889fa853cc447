#pragma once
/// Starts the worker's ranks to measure this machine, passes on what they report, and stops them on request.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "exec/probe/measured.h"

namespace orrery::exec {

struct MeasureCommand {
  std::filesystem::path worker;  ///< orrery-worker
  std::string launcher = "mpiexec";
  std::string backend = "cpu";
  int ranks = 1;
  double budget_s = 40;
  std::int64_t most_bytes = 0;       ///< of one workload, per rank; 0: the worker's default
  std::int64_t stream_bytes = 0;     ///< of an array too large for any cache; 0: the worker's default
  std::chrono::seconds silence{60};  ///< longest silence of the ranks before they are killed
};

enum class MeasureEnd { completed, stopped, failed, not_started };

struct MeasureOutcome {
  MeasureEnd end = MeasureEnd::failed;
  std::string reason;      ///< one sentence; empty when completed
  std::string error_tail;  ///< last lines of standard error
  Measured measured;       ///< whole only when completed
};

/// Reads a worker's output, perhaps from another machine: lines of text. Not `completed` if its last event is missing.
[[nodiscard]] MeasureOutcome read_measurement(std::string_view text);

/// Blocks. `progress` receives what is being measured and the finished share; may be empty. `stop` turning true ends
/// the ranks at once; may be null.
[[nodiscard]] MeasureOutcome measure(const MeasureCommand& command,
                                     const std::function<void(const std::string& what, double share)>& progress,
                                     const std::atomic<bool>* stop);

}  // namespace orrery::exec

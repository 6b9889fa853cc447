#pragma once
/// Starts the worker for one rank that samples, and returns its output.
#include <atomic>
#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"
#include "exec/run/sample.h"

namespace orrery::exec {

struct SampleCommand {
  std::filesystem::path worker, run;
  SampleOptions options;
  int threads = 1;
};

struct SampleOutcome {
  int exit_code = 0;                ///< the worker's own: 0, 1, 2, 3, 5, 6
  std::optional<std::string> text;  ///< what followed the prompt
  base::Diagnostics diagnostics;
  std::string error_tail;
};

/// Blocks until it has ended; `stop` turning true kills it. `stop` may be null.
[[nodiscard]] SampleOutcome sample_with_worker(const SampleCommand& command, const std::atomic<bool>* stop);

}  // namespace orrery::exec

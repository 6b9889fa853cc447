#pragma once
/// Launch scripts: which command of them trains, with which flags, and how many processes it starts.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "plan/frameworks/import.h"

namespace orrery::plan {

/// A launch script as settings.
struct ScriptSettings {
  std::vector<Given> given;
  std::string deepspeed;  ///< its configuration, if the script writes it; with as many lines before it
  int ranks = 0, per_node = 0;
  std::vector<std::string> assumed;
  std::vector<GivenValue> stray;
  std::optional<GivenValue> configured;  ///< DeepSpeed's configuration by its name, if the script does not write it
};

/// The last of several is the one that launches; others are what it sources. E0651: no command trains.
[[nodiscard]] base::Result<ScriptSettings> script_settings(const std::vector<RunFile>& scripts,
                                                           const RunQuestion& question);

[[nodiscard]] inline base::Diagnostic run_problem(const char* code, const base::Location& where, std::string message,
                                                  std::string help) {
  return {base::Severity::error, code, where, std::move(message), std::move(help), {}};
}
[[nodiscard]] inline std::string file_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);  // npos + 1 is 0
}

}  // namespace orrery::plan

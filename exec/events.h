#pragma once
/// Diagnostics as lines of JSON: from the worker to the command, and from rank to rank.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/result.h"

namespace orrery::exec {

/// {"event": "diagnostic", "severity", "code", "file", "line", "column", "message", "help"}.
[[nodiscard]] nlohmann::ordered_json diagnostic_event(const base::Diagnostic& diagnostic);
/// A line that a child wrote: an object with an `event`, or null when it is none. Whatever the line holds, the tree is
/// small and flat (base/json_tree.h).
[[nodiscard]] nlohmann::json event_of_line(const std::string& line);
/// Nothing when a key is missing or of another type.
[[nodiscard]] std::optional<base::Diagnostic> diagnostic_of(const nlohmann::json& event);

[[nodiscard]] std::string pack_diagnostics(const base::Diagnostics& diagnostics);
/// All diagnostics in `text` that can be read.
[[nodiscard]] base::Diagnostics unpack_diagnostics(const std::string& text);

/// The event of an evaluation after step `step`; `auc`: for a recommendation model.
[[nodiscard]] nlohmann::ordered_json evaluation_event(std::int64_t step, double loss, std::optional<double> auc);

}  // namespace orrery::exec

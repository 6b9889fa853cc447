#pragma once
/// Prints an Outcome: results on stdout, diagnostics on stderr, or one JSON object on stdout and nothing else.
#include <string>

#include "apps/outcome.h"
#include "apps/terminal.h"

namespace orrery::apps {

/// {"format_version":"1.0","command":…,"result":…,"diagnostics":[…]} and a newline.
[[nodiscard]] std::string envelope(const std::string& command, const Outcome& outcome);

void print(const std::string& command, const Outcome& outcome, bool json, const Terminal& terminal);

}  // namespace orrery::apps

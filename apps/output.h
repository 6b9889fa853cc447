#pragma once
/// Prints an Outcome: results on stdout, diagnostics on stderr, or one JSON object on stdout and nothing else.
#include <string>

#include "apps/outcome.h"
#include "apps/terminal.h"

namespace orrery::apps {

/// {"format_version":"1.0","command":…,"result":…,"diagnostics":[…]} and a newline.
[[nodiscard]] std::string envelope(const std::string& command, const Outcome& outcome);

/// Nothing of the text steers the terminal but its own colours. Says on stderr why standard output did not take all of
/// it, with R0008, and returns false then.
[[nodiscard]] bool print(const std::string& command, const Outcome& outcome, bool json, const Terminal& terminal);
/// The same of a text as it is: help, the version.
[[nodiscard]] bool print_text(const std::string& text);

}  // namespace orrery::apps

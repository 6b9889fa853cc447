#pragma once
/// Prints an Outcome: results on stdout, diagnostics on stderr, or one JSON object on stdout and nothing else.
#include <string>

#include "apps/outcome.h"
#include "apps/terminal.h"

namespace orrery::apps {

/// {"format_version":"1.0","command":…,"result":…,"diagnostics":[…]} and a newline.
[[nodiscard]] std::string envelope(const std::string& command, const Outcome& outcome);

/// The text cannot steer the terminal except by its own colours. If standard output does not take all of it, says why
/// on stderr, with R0008, and returns false; a reader that has gone has seen what it wanted.
[[nodiscard]] bool print(const std::string& command, const Outcome& outcome, bool json, const Terminal& terminal);
/// A result that a verb knows long before the rest: printed at once, before `Outcome::text`, unless the result is JSON.
void print_early(const std::string& text, bool json, const Terminal& terminal);
/// The same for a text that stands alone: help, the version.
[[nodiscard]] bool print_text(const std::string& text);

}  // namespace orrery::apps

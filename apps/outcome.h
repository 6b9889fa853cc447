#pragma once
/// What a verb returns: an exit code, its result for people and for scripts, and diagnostics about the input. Only
/// apps/output.h prints it.
#include <string>

#include "apps/exit_codes.h"
#include "base/result.h"

namespace orrery::apps {

struct Outcome {
  int exit_code = kOk;
  std::string text;               ///< for people, on stdout
  std::string json;               ///< `result` of the envelope, one JSON object; empty: null
  base::Diagnostics diagnostics;  ///< on stderr, or in the envelope
};

[[nodiscard]] inline Outcome bad_input(base::Diagnostics diagnostics) {
  return Outcome{kBadInput, {}, {}, std::move(diagnostics)};
}
/// Options or arguments that make no sense.
[[nodiscard]] inline Outcome usage(std::string message, std::string help) {
  return Outcome{kUsage, {}, {}, base::fail("U0001", std::move(message), std::move(help)).value()};
}

}  // namespace orrery::apps

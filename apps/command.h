#pragma once

namespace orrery::apps {

/// The whole command: parse, run, print; returns the exit code.
[[nodiscard]] int run_command(int argc, const char* const* argv);

}  // namespace orrery::apps

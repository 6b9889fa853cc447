#pragma once
/// The whole command.
namespace orrery::apps {

/// Parses, runs, prints; returns the exit code.
[[nodiscard]] int run_command(int argc, const char* const* argv);

}  // namespace orrery::apps

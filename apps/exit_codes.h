#pragma once
/// Exit codes of the command; scripts rely on them (docs/cli.md).
namespace orrery::apps {

inline constexpr int kOk = 0;
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;
inline constexpr int kBadInput = 3;
inline constexpr int kInfeasible = 4;
inline constexpr int kCheckFailed = 5;
inline constexpr int kMissing = 6;
inline constexpr int kInterrupted = 130;  // 128 + SIGINT, as in shells: a training run stopped by ^C

}  // namespace orrery::apps

#pragma once
/// Limits on what a model file may say: far above any model, yet small enough that parameters, bytes and shapes of the
/// largest one fit in 64 bits.
#include <cstdint>

namespace orrery::models {

inline constexpr std::int64_t kMostLayers = 10'000;
inline constexpr std::int64_t kMostWidth = std::int64_t{1} << 20;
inline constexpr std::int64_t kMostVocab = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostSequence = std::int64_t{1} << 24;
inline constexpr double kMostCap = 1e6;      ///< of caps and factors
inline constexpr double kLeastScale = 1e-6;  ///< of factors that are not 0
inline constexpr std::int64_t kMostExperts = std::int64_t{1} << 16;
/// For models with experts, whose sizes multiply beyond what each limit by itself allows.
inline constexpr double kMostParameters = 1e16;

inline constexpr std::int64_t kMostStreams = 64;

}  // namespace orrery::models

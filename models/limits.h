#pragma once
/// Bounds of what a model file may say. They are far above any model and small enough that parameters, bytes and
/// shapes of the largest one still fit 64 bits.
#include <cstdint>

namespace orrery::models {

inline constexpr std::int64_t kMostLayers = 10'000;
inline constexpr std::int64_t kMostWidth = std::int64_t{1} << 20;
inline constexpr std::int64_t kMostVocab = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostSequence = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostExperts = std::int64_t{1} << 16;
/// Of a model with experts, whose sizes multiply beyond what each may be.
inline constexpr double kMostParameters = 1e16;

}  // namespace orrery::models

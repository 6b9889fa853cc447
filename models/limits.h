#pragma once
/// Bounds of what a model file may say. They are far above any model and small enough that parameters, bytes and
/// shapes of the largest one still fit 64 bits.
#include <cstdint>

namespace orrery::models {

inline constexpr std::int64_t kMostLayers = 10'000;
inline constexpr std::int64_t kMostWidth = std::int64_t{1} << 20;
inline constexpr std::int64_t kMostVocab = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostSequence = std::int64_t{1} << 24;

}  // namespace orrery::models

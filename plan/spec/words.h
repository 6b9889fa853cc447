#pragma once
/// The words and bounds that job files and plan files share.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/yaml.h"
#include "plan/spec/job.h"

namespace orrery::plan {

// Words are in the order of their enumerations.
inline const std::vector<std::string> kOrderWords = [] {
  std::vector<std::string> words;
  for (const OrderTraits& one : kOrders) words.emplace_back(one.word);
  return words;
}();
inline const std::vector<std::string> kRecomputeWords = {"none", "selective", "full"};
inline const std::vector<std::string> kSpaceWords = {"none", "host", "nvme"};
inline const std::vector<std::string> kGradientWords = {"none", "bf16", "fp16", "powersgd"};
inline const std::vector<std::string> kActivationWords = {"none", "fp16", "fp10", "fp8", "lossless"};
inline const std::vector<std::string> kShardingWords = {"auto",     "whole", "row",       "column",
                                                        "node_row", "grid",  "replicated"};
inline const std::vector<std::string> kPooledWords = {"fp32", "bf16", "fp16", "int8"};
inline const std::vector<std::string> kTokenWords = {"none", "bf16", "fp8", "int8"};
inline const std::vector<std::string> kStoredWords = {"fp32", "bf16", "fp16"};  // of the same enumeration
inline const std::vector<std::string> kObjectiveWords = {"time", "cost", "energy", "memory"};
inline const std::vector<std::string> kOptimizerWords = [] {
  std::vector<std::string> words;
  words.reserve(std::size(kOptimizers));
  for (const OptimizerTraits& one : kOptimizers) words.emplace_back(one.name);
  return words;
}();
inline const std::vector<std::string> kRoundingWords = {"nearest", "stochastic"};
// A subset of the element types, in an order of its own.
inline const std::vector<std::string> kPrecisionWords = {"fp32", "bf16", "fp16", "fp8", "tf32", "fp4"};
inline constexpr std::array<models::DType, 6> kPrecisions = {models::DType::fp32, models::DType::bf16,
                                                             models::DType::fp16, models::DType::fp8,
                                                             models::DType::tf32, models::DType::fp4};

// Far above any cluster or batch, and small enough that their products fit 64 bits.
inline constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostBatch = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostSequence = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;  ///< of one step
inline constexpr std::int64_t kMostLayers = 10'000;
inline constexpr std::int64_t kMostPrefetch = 64;  ///< layers
inline constexpr std::int64_t kMostLossChunks = 1 << 20;
inline constexpr std::int64_t kMostStaleness = 64;  ///< steps
inline constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;
inline constexpr std::int64_t kMostRankOfPowerSgd = 1024;
inline constexpr double kMostRate = 1e6;
inline constexpr double kMostBound = 1e6;  // of expert_bound
inline constexpr double kLeastCapacity = 0.001;
inline constexpr double kMostSkew = 10;  // of embedding.skew

template <class Enum>
[[nodiscard]] Enum choose(const base::Cursor& at, const std::vector<std::string>& words, Enum fallback) {
  return static_cast<Enum>(at.choice(words, static_cast<int>(fallback)));
}

[[nodiscard]] inline models::DType choose_precision(const base::Cursor& at, models::DType fallback) {
  const auto known = std::find(kPrecisions.begin(), kPrecisions.end(), fallback) - kPrecisions.begin();
  return kPrecisions.at(static_cast<std::size_t>(at.choice(kPrecisionWords, static_cast<int>(known))));
}

[[nodiscard]] inline int small(const base::Cursor& at, std::int64_t low, std::int64_t high, int fallback) {
  return static_cast<int>(at.integer(low, high, fallback));
}

/// Reports E0121 when a step has more than kMostTokens tokens: counts might exceed 64 bits.
void check_tokens(const base::Cursor& at, std::int64_t batch, std::int64_t sequence);

}  // namespace orrery::plan

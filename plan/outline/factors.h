#pragma once
/// Optimizers that look at whole tensors (LAMB, Adafactor): the pair of norms of each parameter, and the places of
/// Adafactor's sums of rows and columns within the stage's.
#include <cstdint>
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// How many values Adafactor keeps for a parameter (Shazeer and Stern 2018, section 3): for a matrix its sum and one
/// value per row and per column, otherwise one per element. `met`: how many of these several tensor ranks contribute
/// to: the sum of a split matrix, and the values that run across the split.
struct FactorCount {
  std::int64_t elements = 0, met = 0;
};
[[nodiscard]] bool is_factored(const models::Tensor& tensor);
[[nodiscard]] FactorCount factor_count(const models::Tensor& tensor);

struct FactorLayout {
  std::int64_t parameters = 0;  ///< of the stage; each has a pair of norms
  FactorCount factors;
};

/// Assigns places to the ranges of a stage's buckets. `apart`: other ranks hold experts than the rest. Then experts'
/// norms come last. Their factors come first, and within them those last that several tensor ranks contribute to; of
/// the other parameters these are first. So each group of ranks has one run to agree on.
FactorLayout place_factors(std::vector<Bucket>& buckets, OptimizerKind optimizer, bool apart);

[[nodiscard]] constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Elements: where a parameter starts in its bucket, and the unit to which buckets are padded per shard (128 bytes of
/// fp32). Some optimizers want more: parameter_alignment().
inline constexpr std::int64_t kParameterAlignment = 32;

/// Elements: where a parameter starts in its bucket, and the unit to which buckets are padded per shard. Blocks of
/// 8-bit moments begin with their parameter and are never cut by a shard, so that every sharding over data quantises
/// the same.
[[nodiscard]] std::int64_t parameter_alignment(OptimizerKind optimizer);

}  // namespace orrery::plan

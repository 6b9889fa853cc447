#pragma once
/// Optimizers that look at whole tensors (LAMB, Adafactor): which pair of norms is a parameter's, and where Adafactor's
/// sums of rows and columns of a stage's parameters stand.
#include <cstdint>
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// Values that Adafactor keeps of a parameter (Shazeer and Stern 2018, section 3): of a matrix the sum, one of each row
/// and one of each column; of anything else one of each element. `met`: of them those to which several tensor ranks
/// contribute, the sum of a split matrix and what runs across the split.
struct FactorCount {
  std::int64_t elements = 0, met = 0;
};
[[nodiscard]] bool is_factored(const models::Tensor& tensor);
[[nodiscard]] FactorCount factor_count(const models::Tensor& tensor);

struct FactorLayout {
  std::int64_t parameters = 0;  ///< of the stage; a pair of norms each
  FactorCount factors;          ///< those that meet come first
};

/// Gives the ranges of a stage's buckets their places.
FactorLayout place_factors(std::vector<Bucket>& buckets, OptimizerKind optimizer);

/// Elements: where a parameter starts in its bucket, and the unit to which buckets are padded per shard. Blocks of
/// 8-bit moments begin with their parameter and are never cut by a shard, so that every sharding over data quantises
/// the same.
[[nodiscard]] std::int64_t parameter_alignment(OptimizerKind optimizer);

}  // namespace orrery::plan

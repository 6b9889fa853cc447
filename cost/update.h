#pragma once
/// What an optimizer costs, without lowering: bytes of its states and operators of its update (plan/lower_optimizer.h),
/// a bucket at a time.
#include <vector>

#include "cost/memory.h"
#include "models/op.h"
#include "plan/plan.h"

namespace orrery::cost {

/// An operator over a flat range of `m` elements, or `n` of them.
[[nodiscard]] inline models::Op flat(models::OpKind kind, models::DType dtype, std::int64_t m, std::int64_t n = 0) {
  models::Op op;
  op.kind = kind, op.dtype = dtype, op.m = m, op.n = n;
  return op;
}

/// What a buffer takes of the arena.
[[nodiscard]] double arena_bytes(std::int64_t elements, models::DType dtype);

/// States of one bucket, `optimized` elements of which are this rank's: masters and moments. `moment_bytes`: of both of
/// Adam's moments, a parameter.
[[nodiscard]] double state_bytes(const BucketSize& bucket, std::int64_t optimized, const plan::PlanSpec& spec,
                                 double moment_bytes);

/// Of a stage: Adafactor's factors, and what an update has beside them while it runs: their sums, and norms.
struct TensorBytes {
  double states = 0, temporary = 0;
};
[[nodiscard]] TensorBytes tensor_bytes(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec);

/// Operators of one bucket's update. Optimizers that look at whole tensors pass over it before they change it: what
/// they find is summed over ranks between the passes.
struct UpdateOps {
  std::vector<models::Op> before;  ///< each in a step of its own
  models::Op update;
};
[[nodiscard]] UpdateOps update_ops(const BucketSize& bucket, std::int64_t optimized, const plan::PlanSpec& spec);

}  // namespace orrery::cost

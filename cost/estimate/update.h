#pragma once
/// What an optimizer costs, without lowering: bytes of its states and operators of its update
/// (plan/lower/lower_optimizer.h), a bucket at a time.
#include <utility>
#include <vector>

#include "cost/estimate/memory.h"
#include "models/op.h"
#include "plan/spec/plan.h"

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

/// Of a stage: Adafactor's factors, and what an update has beside them while it runs: their sums, and norms; Muon's
/// directions and workspace.
struct TensorBytes {
  double states = 0, temporary = 0;
};
[[nodiscard]] TensorBytes tensor_bytes(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec);

/// Operators of one bucket's update. Optimizers that look at whole tensors pass over it before they change it: what
/// they find is summed over ranks between the passes.
struct UpdateOps {
  std::vector<models::Op> before;  ///< each in a step of its own
  models::Op update;
  /// Of whole matrices, a bucket after the other: a step that makes directions, the elements that the ranks gather of
  /// them, and what is run on the gathered, in one step with the update.
  std::vector<models::Op> directions = {}, products = {};
  std::int64_t gathered = 0;
};
/// Updates of a stage's buckets in their order, and the gathers of parameters behind each, in a stream of their own. A
/// bucket's directions meet behind the gather of the bucket before, and its update waits for them.
class UpdateChain {
 public:
  /// Seconds of a bucket, of which there are `count` in a row.
  struct Part {
    std::int64_t count = 1;
    double directions = 0, meet = 0, update = 0, gather = 0;
  };
  void add(const Part& part);
  /// Of the updates, with what they wait for; and what gathers add behind the last.
  [[nodiscard]] std::pair<double, double> times(bool overlaps) const;

 private:
  double computed_ = 0, gathered_ = 0;  ///< ends of the two chains
  double updates_ = 0, gathers_ = 0;    ///< sums, where nothing overlaps
  bool waits_ = false;
};

[[nodiscard]] UpdateOps update_ops(const BucketSize& bucket, std::int64_t optimized, const plan::PlanSpec& spec);

}  // namespace orrery::cost

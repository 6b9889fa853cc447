#pragma once
/// The cost of an optimizer, without lowering: bytes of its states and operators of its update
/// (plan/lower/lower_optimizer.h), one bucket at a time.
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

/// Bytes that a buffer takes in the arena.
[[nodiscard]] double arena_bytes(std::int64_t elements, models::DType dtype);

/// Bytes of the states of one bucket, masters and moments, when this rank owns `optimized` of its elements.
/// `moment_bytes`: both of Adam's moments, per parameter.
[[nodiscard]] double state_bytes(const BucketSize& bucket, std::int64_t optimized, const plan::PlanSpec& spec,
                                 double moment_bytes);

/// For a stage: Adafactor's factors, and what an update needs temporarily: their sums and norms; Muon's directions and
/// workspace.
struct TensorBytes {
  double states = 0, temporary = 0;
};
[[nodiscard]] TensorBytes tensor_bytes(const std::vector<BucketSize>& buckets, const plan::PlanSpec& spec);

/// Operators of one bucket's update. Optimizers that look at whole tensors make passes over the bucket before they
/// change it; the results of each pass are summed over ranks.
struct UpdateOps {
  std::vector<models::Op> before;  ///< each runs in a step of its own
  models::Op update;
  /// For whole matrices, bucket by bucket: a step computes directions, ranks gather `gathered` elements of them, and
  /// `products` run on the result in the same step as the update.
  std::vector<models::Op> directions = {}, products = {};
  std::int64_t gathered = 0;
};
/// Updates of a stage's buckets in order, and the gathers of parameters after each, in a stream of their own. A
/// bucket's directions are gathered after the previous bucket's parameters, and its update waits for them.
class UpdateChain {
 public:
  /// Seconds of one bucket, of which there are `count` in a row.
  struct Part {
    std::int64_t count = 1;
    double directions = 0, meet = 0, update = 0, gather = 0;
  };
  void add(const Part& part);
  /// Seconds of the updates with what they wait for, and what gathers add after the last update.
  [[nodiscard]] std::pair<double, double> times(bool overlaps) const;

 private:
  double computed_ = 0, gathered_ = 0;  ///< ends of the two chains
  double updates_ = 0, gathers_ = 0;    ///< sums, where nothing overlaps
  bool waits_ = false;
};

[[nodiscard]] UpdateOps update_ops(const BucketSize& bucket, std::int64_t optimized, const plan::PlanSpec& spec);

}  // namespace orrery::cost

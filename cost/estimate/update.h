#pragma once
/// The chain of a stage's updates, bucket by bucket (plan/outline/update.h), and of what travels between them.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "models/op.h"

namespace orrery::cost {

/// An operator over a flat range of `m` elements, or `n` of them.
[[nodiscard]] inline models::Op flat(models::OpKind kind, models::DType dtype, std::int64_t m, std::int64_t n = 0) {
  models::Op op;
  op.kind = kind, op.dtype = dtype, op.m = m, op.n = n;
  return op;
}

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

/// Gathers of parameters beside the next step's first forward passes (plan/lower/gather_next.h).
class NextGathers {
 public:
  void add(std::int64_t count, double gather) {
    first_ = std::max(first_, gather);
    all_ += static_cast<double>(count) * gather;
  }
  /// Seconds that they add to a step whose first micro-batch takes `forward`: the first one, and what does not fit.
  [[nodiscard]] double time(double forward) const { return std::max(first_, all_ - forward); }

 private:
  double first_ = 0, all_ = 0;
};

}  // namespace orrery::cost

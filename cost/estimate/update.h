#pragma once
/// The chain of a stage's updates, bucket by bucket (plan/outline/update.h), and of the messages between them.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "models/operators/op.h"
#include "plan/outline/outline.h"

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
  /// Seconds of one bucket; there are `count` equal ones in a row.
  struct Part {
    std::int64_t count = 1;
    double directions = 0, meet = 0, update = 0, gather = 0;
  };
  void add(const Part& part);
  /// Seconds of the updates including what they wait for, and what gathers add after the last update.
  [[nodiscard]] std::pair<double, double> times(bool overlaps) const;

 private:
  double computed_ = 0, gathered_ = 0;  ///< ends of the two chains
  double updates_ = 0, gathers_ = 0;    ///< sums, for the case that nothing overlaps
  bool waits_ = false;
};

/// Gathers of parameters during the next step's first forward passes (plan/lower/gather_next.h): seconds by bucket.
class NextGathers {
 public:
  void add(const plan::BucketShape& bucket, double gather) {
    if (gather > 0) all_.push_back({bucket.elements, bucket.experts, gather});
  }
  [[nodiscard]] bool any() const { return !all_.empty(); }
  [[nodiscard]] double time(const plan::BucketShape& bucket) const {
    for (const One& one : all_)
      if (one.elements == bucket.elements && one.experts == bucket.experts) return one.gather;
    return 0;
  }

 private:
  struct One {
    std::int64_t elements = 0;
    bool experts = false;
    double gather = 0;
  };
  std::vector<One> all_;
};

}  // namespace orrery::cost

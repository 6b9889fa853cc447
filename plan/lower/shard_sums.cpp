// Adds reduced gradients to shards, one layer late.
#include "plan/lower/shard_sums.h"

namespace orrery::plan {

void ShardSums::flush() {
  if (pending_.empty()) return;
  std::vector<models::Op> ops;
  for (Sum& sum : pending_)
    for (models::Op& op : sum.reduction.operators(sum.reduction.parts() - 1)) ops.push_back(std::move(op));
  build_.compute(Phase::gradient_reduce, "accumulate", std::move(ops));
  if (keeps_)
    for (const Sum& sum : pending_) build_.keep(sum.gradients);
  pending_.clear();
}

}  // namespace orrery::plan

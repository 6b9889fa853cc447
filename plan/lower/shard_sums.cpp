// Sums of reduced gradients into shards, one layer late.
#include "plan/lower/shard_sums.h"

#include "plan/lower/lower.h"

namespace orrery::plan {

void ShardSums::flush() {
  if (pending_.empty()) return;
  std::vector<models::Op> ops;
  for (const Sum& sum : pending_) {
    const Bucket& bucket = build_.bucket(sum.bucket);
    ops.push_back(ClassBuilder::flat(models::OpKind::accumulate_into, gradient_dtype(spec_.precision),
                                     bucket.shard_elements(), {build_.view(build_.whole(sum.reduced))},
                                     {build_.view(build_.whole(bucket.gradient_shard))}));
  }
  build_.compute(Phase::gradient_reduce, -1, "accumulate", std::move(ops));
  if (keeps_)
    for (const Sum& sum : pending_) build_.keep(sum.gradients);
  pending_.clear();
}

}  // namespace orrery::plan

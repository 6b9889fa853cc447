// Buckets of parameters that do not train.
#include <utility>

#include "cost/estimate/memory.h"
#include "plan/lower/buckets.h"

namespace orrery::cost {

std::vector<BucketSize> frozen_buckets_of(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec) {
  std::vector<BucketSize> out;
  bool shared = false;
  for (const LayerRun& run : layers)
    for (const LayerBucket of : kLayerBuckets) {
      const std::int64_t elements = run.costs->frozen_of(of);
      if (elements == 0 || (of == LayerBucket::shared && std::exchange(shared, true))) continue;
      const int shards = spec.shards_of(of == LayerBucket::experts);
      const std::int64_t padded = plan::round_up(elements, shards * plan::parameter_alignment(spec.optimizer));
      BucketSize& bucket = out.emplace_back();
      bucket.elements = padded;
      bucket.shard = padded / shards;
      bucket.count = of == LayerBucket::shared ? 1 : run.count;
    }
  return out;
}

}  // namespace orrery::cost

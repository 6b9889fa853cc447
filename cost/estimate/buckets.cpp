/// Buckets of a stage, from the sizes of its layers: what plan/lower/buckets.h lays out.
#include <utility>

#include "cost/estimate/memory.h"
#include "plan/lower/buckets.h"

namespace orrery::cost {

namespace {

plan::BucketShape sized(plan::BucketShape shape, std::int64_t elements, const plan::PlanSpec& spec) {
  const int shards = spec.shards_of(shape.experts);
  shape.elements = plan::round_up(elements, shards * plan::parameter_alignment(spec.states.optimizer));
  shape.shard = shape.elements / shards;
  return shape;
}

}  // namespace

plan::BucketShape shape_of(LayerBucket of, const LayerCosts& c, const plan::PlanSpec& spec) {
  const BucketCosts& bucket = c.in(of);
  return sized(
      {.partial = bucket.partial,
       .parameters = bucket.tensors,
       .factors = bucket.factors,
       .embedding = of == LayerBucket::shared || (of == LayerBucket::own && c.kind == models::LayerKind::embedding),
       .experts = of == LayerBucket::experts,
       .matrices = &bucket.matrices,
       .whole = bucket.whole.matrices.empty() ? nullptr : &bucket.whole},
      bucket.elements, spec);
}

plan::BucketShape frozen_shape_of(LayerBucket of, const LayerCosts& c, const plan::PlanSpec& spec) {
  return sized({.experts = of == LayerBucket::experts}, c.in(of).frozen, spec);
}

std::vector<BucketSize> buckets_of(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec) {
  std::vector<BucketSize> out;
  bool shared = false;
  // The head first writes a tied table's gradient; in a split backward its product comes after the embedding's scatter.
  const LayerCosts &bottom = *layers.front().costs, &top = *layers.back().costs;
  const bool tables = top.kind == models::LayerKind::head && top.in(LayerBucket::shared).written &&
                      !(spec.stages.splits_backward() && bottom.kind == models::LayerKind::embedding);
  for (const LayerRun& run : layers) {
    const LayerCosts& c = *run.costs;
    for (const LayerBucket of : kLayerBuckets) {
      const bool table = of == LayerBucket::shared;
      if (c.in(of).elements == 0 || (table && std::exchange(shared, true))) continue;
      out.push_back({shape_of(of, c, spec), table ? 1 : run.count, table ? tables : c.in(of).written});
    }
    if (c.in(LayerBucket::own).elements > 0 && c.in(LayerBucket::experts).elements > 0) out.back().alternates = true;
  }
  return out;
}

std::vector<BucketSize> frozen_buckets_of(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec) {
  std::vector<BucketSize> out;
  bool shared = false;
  for (const LayerRun& run : layers)
    for (const LayerBucket of : kLayerBuckets) {
      const bool table = of == LayerBucket::shared;
      if (run.costs->in(of).frozen == 0 || (table && std::exchange(shared, true))) continue;
      out.push_back({frozen_shape_of(of, *run.costs, spec), table ? 1 : run.count});
    }
  return out;
}

}  // namespace orrery::cost

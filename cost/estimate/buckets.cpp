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

plan::BucketShape shape_of(LayerBucket of, std::int64_t elements, const plan::PlanSpec& spec) {
  return sized({.experts = of == LayerBucket::experts}, elements, spec);
}

std::vector<BucketSize> buckets_of(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec) {
  std::vector<BucketSize> out;
  bool shared = false;
  const auto add = [&](std::int64_t elements, std::int64_t count, plan::BucketShape shape, bool written,
                       bool tied = false) {
    if (elements == 0) return;
    out.push_back({sized(std::move(shape), elements, spec), count, written, tied});
  };
  // The head first writes a tied table's gradient; in a split backward its product comes after the embedding's scatter.
  const LayerCosts &bottom = *layers.front().costs, &top = *layers.back().costs;
  const bool tables = top.kind == models::LayerKind::head && top.shared_written &&
                      !(spec.stages.splits_backward() && bottom.kind == models::LayerKind::embedding);
  for (const LayerRun& run : layers) {
    const LayerCosts& c = *run.costs;
    if (!shared && c.shared_elements > 0) {
      add(c.shared_elements, 1,
          {.parameters = c.shared_parameters,
           .factors = c.shared_factors,
           .embedding = true,
           .matrices = &c.shared_matrices},
          tables, true);
      shared = true;
    }
    add(c.own_elements, run.count,
        {.partial = c.partial_elements,
         .parameters = c.own_parameters,
         .factors = c.own_factors,
         .embedding = c.kind == models::LayerKind::embedding,
         .matrices = &c.own_matrices,
         .whole = c.whole.matrices.empty() ? nullptr : &c.whole},
        c.own_written);
    add(c.expert_elements, run.count,
        {.parameters = c.expert_parameters,
         .factors = c.expert_factors,
         .experts = true,
         .matrices = &c.expert_matrices,
         .whole = c.expert_whole.matrices.empty() ? nullptr : &c.expert_whole},
        c.expert_written);
    if (c.own_elements > 0 && c.expert_elements > 0) out.back().alternates = true;
  }
  return out;
}

std::vector<BucketSize> frozen_buckets_of(const std::vector<LayerRun>& layers, const plan::PlanSpec& spec) {
  std::vector<BucketSize> out;
  bool shared = false;
  for (const LayerRun& run : layers)
    for (const LayerBucket of : kLayerBuckets) {
      const std::int64_t elements = run.costs->frozen_of(of);
      if (elements == 0 || (of == LayerBucket::shared && std::exchange(shared, true))) continue;
      out.push_back({shape_of(of, elements, spec), of == LayerBucket::shared ? 1 : run.count});
    }
  return out;
}

}  // namespace orrery::cost

/// Bisection: the more blocks are recomputed, the less memory a plan needs.
#include "sim/search/partial_recompute.h"

#include <algorithm>

namespace orrery::sim {

namespace {

std::int64_t most_blocks(const plan::Plan& plan) {
  const plan::PlanSpec& spec = plan.spec();
  std::int64_t most = 0;
  for (const plan::StageId stage : spec.mesh.stages())
    for (int chunk = 0; chunk < spec.stages.virtual_stages; ++chunk)
      most = std::max(most, plan.chunk_layers(stage, chunk));
  return most;
}

}  // namespace

plan::PlanSpec with_recomputed(plan::PlanSpec spec, std::int64_t blocks) {
  spec.recomputation.what = blocks > 0 ? plan::Recompute::full : plan::Recompute::none;
  spec.recomputation.modules = {};
  spec.recomputation.layers = blocks > 0 ? std::optional(blocks) : std::nullopt;
  return spec;
}

std::optional<plan::Plan> fewest_recomputed(cost::Estimator& estimator, const plan::Plan& full,
                                            std::shared_ptr<const models::Model> model,
                                            std::shared_ptr<const clusters::Cluster> cluster, double capacity) {
  const auto with = [&](std::int64_t blocks) -> std::optional<plan::Plan> {
    auto made = plan::make_plan(model, cluster, with_recomputed(full.spec(), blocks));
    if (!made || estimator.memory_peak(*made) > capacity) return std::nullopt;
    return std::move(*made);
  };
  if (with(0)) return std::nullopt;
  std::optional<plan::Plan> found;
  std::int64_t too_few = 0, enough = most_blocks(full);
  while (enough - too_few > 1) {
    const std::int64_t middle = (too_few + enough) / 2;
    if (auto made = with(middle)) {
      found = std::move(made);
      enough = middle;
    } else {
      too_few = middle;
    }
  }
  return found;
}

}  // namespace orrery::sim

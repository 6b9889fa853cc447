#pragma once
/// Recomputes no more blocks than memory requires.
#include <memory>
#include <optional>

#include "cost/estimate/estimate.h"
#include "plan/spec/plan.h"

namespace orrery::sim {

/// Lower bound on a plan's time without recomputation, as a share of its time with full recomputation. Full
/// recomputation repeats a forward pass, which is at most a third of the step, and its messages.
inline constexpr double kLeastOfFull = 0.7;

/// The plan with `blocks` of each stage's blocks recomputed.
[[nodiscard]] plan::PlanSpec with_recomputed(plan::PlanSpec spec, std::int64_t blocks);

/// From a plan that recomputes every block: the same with the fewest blocks per stage (`recompute_layers`), counted
/// from its first, that needs at most `capacity` bytes; none if it fits without any, or only with all.
[[nodiscard]] std::optional<plan::Plan> fewest_recomputed(cost::Estimator& estimator, const plan::Plan& full,
                                                          std::shared_ptr<const models::Model> model,
                                                          std::shared_ptr<const clusters::Cluster> cluster,
                                                          double capacity);

}  // namespace orrery::sim

#pragma once
/// Recomputing no more blocks than memory asks for.
#include <memory>
#include <optional>

#include "cost/estimate/estimate.h"
#include "plan/spec/plan.h"

namespace orrery::sim {

/// No plan is faster without recomputation than this share of its time with all of it: what is computed again is a
/// forward pass, a third of the step at most, and with it go its messages.
inline constexpr double kLeastOfFull = 0.7;

/// Of a plan that recomputes every block: the same with the fewest blocks of each stage (`recompute_layers`), from its
/// first, for which it needs at most `capacity` bytes; none where it fits without any, or only with all.
[[nodiscard]] std::optional<plan::Plan> fewest_recomputed(cost::Estimator& estimator, const plan::Plan& full,
                                                          std::shared_ptr<const models::Model> model,
                                                          std::shared_ptr<const clusters::Cluster> cluster,
                                                          double capacity);

}  // namespace orrery::sim

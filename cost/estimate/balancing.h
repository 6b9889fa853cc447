#pragma once
/// Extra work of a mixture of experts at the end of a step. Private to cost/estimate/estimate.cpp.
#include <vector>

#include "cost/estimate/memory.h"
#include "cost/estimate/stage_groups.h"
#include "cost/prices/pricing.h"

namespace orrery::cost {

/// Seconds to sum the routing choices of a stage's layers, to move the biases that balance them, and to sum the squared
/// norms of parameters that only some replicas hold (plan/lower/lower_finish.cpp); 0 for a dense model.
[[nodiscard]] double balancing_time(const Pricing& pricing, const models::Model& model, const plan::PlanSpec& spec,
                                    const std::vector<LayerRun>& layers, const StageGroups& groups);

/// The part of it that sums the choices over layers and all ranks.
[[nodiscard]] double pooling_time(const Pricing& pricing, const models::Model& model, const plan::PlanSpec& spec,
                                  const std::vector<LayerRun>& layers, const StageGroups& groups);

/// Zeroes the tallies of choices when a step begins.
[[nodiscard]] models::Op zeroed_tally(const models::Experts& experts, const std::vector<LayerRun>& layers_of);

}  // namespace orrery::cost

#pragma once
/// Where the search proposes the loss in chunks by itself: for plans that do not fit because of their logits. It costs
/// next to nothing (a few launches, and sums into the table's gradient that are read again), so that such a plan stands
/// beside the others; where all fits, logits stay whole.
#include "cost/estimate/estimate.h"
#include "plan/spec/plan.h"

namespace orrery::sim {

/// The fewest chunks with which the plan needs at most `capacity` bytes; 1: none do. `memory`: what it needs as it is.
[[nodiscard]] std::int64_t loss_chunks_that_fit(cost::Estimator& estimator, const plan::Plan& plan,
                                                std::shared_ptr<const models::Model> model,
                                                std::shared_ptr<const clusters::Cluster> cluster, double memory,
                                                double capacity);

}  // namespace orrery::sim

#pragma once
/// When the search itself proposes computing the loss in chunks: for plans that do not fit because of their logits.
/// Chunks cost little (a few launches, and rereading sums of the table's gradient), so such a plan can compete with the
/// others. If a plan fits anyway, its logits stay whole.
#include <memory>

#include "cost/estimate/estimate.h"
#include "cost/parameters/stack.h"
#include "plan/spec/job.h"
#include "plan/spec/plan.h"

namespace orrery::sim {

/// Whether the search itself may divide logits into chunks: if the job leaves it open, and the stack's memory is that
/// of the schedule.
[[nodiscard]] bool may_chunk(const plan::Job& job, const cost::Stack& stack);

/// The fewest chunks with which the plan needs at most `capacity` bytes; 1 if no number does. `memory`: what it needs
/// as it is.
[[nodiscard]] std::int64_t loss_chunks_that_fit(cost::Estimator& estimator, const plan::Plan& plan,
                                                std::shared_ptr<const models::Model> model,
                                                std::shared_ptr<const clusters::Cluster> cluster, double memory,
                                                double capacity);

}  // namespace orrery::sim

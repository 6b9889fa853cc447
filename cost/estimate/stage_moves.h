#pragma once
/// What each stage does in its order, messages included, whatever the order. Private to cost/.
#include <cstdint>
#include <vector>

#include "plan/schedule/orders.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// By stage. `micro_batches`: of a training step. `steps`: how many training steps of a run, from its first; more than
/// one only of an asynchronous order.
[[nodiscard]] std::vector<std::vector<plan::Move>> stage_moves(const plan::PlanSpec& spec, std::int64_t micro_batches,
                                                               std::int64_t steps);

}  // namespace orrery::cost

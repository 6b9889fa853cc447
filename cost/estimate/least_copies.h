#pragma once
/// What plans that keep something outside the device copy at least. Private to cost/.
#include <vector>

#include "cost/estimate/memory.h"
#include "cost/estimate/pipeline.h"
#include "cost/prices/lockstep.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// By chunk, in the direction that takes longest. When a pass computes, what the one before it sent out has left; but
/// what is fetched for its first layers comes meanwhile. `chunks`: the stage's layers.
[[nodiscard]] std::vector<StageProgram::Copies> least_copies(const plan::Plan& plan, plan::StageId stage,
                                                             const std::vector<std::vector<LayerRun>>& chunks,
                                                             const Lockstep& prices, MovesMemo& moves);

}  // namespace orrery::cost

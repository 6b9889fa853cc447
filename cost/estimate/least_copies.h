#pragma once
/// A lower bound on the copies of plans that keep something outside the device. Private to cost/.
#include <vector>

#include "cost/estimate/memory.h"
#include "cost/estimate/pipeline.h"
#include "cost/prices/lockstep.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// By chunk, in the slower direction. Everything that a pass sends out has left before the next pass computes, but what
/// the next pass fetches for its first layers may arrive in the meantime. `chunks`: the stage's layers.
[[nodiscard]] std::vector<StageProgram::Copies> least_copies(const plan::Plan& plan, plan::StageId stage,
                                                             const std::vector<std::vector<LayerRun>>& chunks,
                                                             const Lockstep& prices, MovesMemo& moves);

}  // namespace orrery::cost

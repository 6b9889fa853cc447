#pragma once
/// Memory that a stage keeps between the passes of a zero-bubble order, which splits backward in two.
#include <cstdint>
#include <vector>

#include "cost/estimate/memory.h"
#include "cost/estimate/stage_moves.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// Most bytes of a stage's slabs (plan/schedule/place.h): tensors that live from forward to the input's or the weights'
/// gradients or from one of these to the other, and messages between passes. `chunks`: the stage's layers in forward
/// order. `staying`: by chunk, the blocks at its top that keep their activations on the device (offload.h). `pooled`: a
/// kind's place is not given to another kind, as in a schedule's arena.
[[nodiscard]] double split_slabs(const std::vector<std::vector<LayerRun>>& chunks, const plan::PlanSpec& spec,
                                 plan::StageId stage, std::int64_t micro_batches,
                                 const std::vector<std::int64_t>& staying, bool pooled, MovesMemo& moves);

}  // namespace orrery::cost

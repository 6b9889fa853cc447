#pragma once
/// Memory of a stage whose passes stand beside each other (plan::runs_beside): what each keeps across the other's parts
/// depends on where they are divided, so it is read off their lowered blocks. Private to cost/estimate/.
#include <optional>

#include "cost/estimate/stage_moves.h"
#include "cost/parameters/stack.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// Bytes of the regions of plan/schedule/place.h.
struct PairBytes {
  double slabs = 0;    ///< of what lives from one part to another
  double scratch = 0;  ///< of the fullest part
};
/// None where passes are whole, or where the software has no arena and frees what it has read.
[[nodiscard]] std::optional<PairBytes> pair_bytes(const plan::Plan& plan, plan::StageId stage, MovesMemo& moves,
                                                  const Stack& stack);

}  // namespace orrery::cost

#pragma once
/// Parameters that are gathered where the next step reads them, not where this one ends. Private to plan/: a pass over
/// a lowered class.
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// ZeRO 1 and 2: moves the messages that gather updated parameters from the end of a step to the beginning of the next,
/// in the order in which forward reads what they bring (Megatron-Core, --overlap-param-gather). The first passes then
/// hide all but the first of them. What needs memory of its own besides the parameters stays at the end.
void gather_next(RankClass& rank_class);

}  // namespace orrery::plan

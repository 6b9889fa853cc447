#pragma once
/// Gathers parameters where the next step reads them instead of at the end of this step. Private to plan/: a pass over
/// a lowered class.
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// ZeRO 1 and 2: moves the messages that gather updated parameters from the end of a step to the beginning of the next,
/// in the order in which forward reads what they bring (Megatron-Core, --overlap-param-gather). The first passes then
/// hide all but the first message. A gather that needs memory besides the parameters stays at the end.
void gather_next(RankClass& rank_class);

}  // namespace orrery::plan

#pragma once
/// Partitioned activation checkpoints (P_a of ZeRO-R, Rajbhandari et al. 2020, section 6.1; Megatron-LM's
/// --distribute-saved-activations), as a pass over a lowered class. Private to plan/.
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// The input of a recomputed block is the same on all ranks of the tensor group. Right after its last use in forward,
/// each rank keeps only its part; right before the block is recomputed, the ranks gather the whole. In between it takes
/// 1/`tensor` of the memory. What another stage has sent stays whole. Needs births, deaths and the program. `group`:
/// the tensor group's index in the schedule.
void partition_checkpoints(RankClass& rank_class, int tensor, GroupId group);

}  // namespace orrery::plan

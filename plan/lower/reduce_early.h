#pragma once
/// Reductions of gradients within the backward pass, as data-parallel frameworks overlap them (Li et al. 2020, "PyTorch
/// Distributed", section 3.2.3, with a bucket a layer). Private to plan/: a pass over a lowered class.
#include "plan/lower/class_builder.h"
#include "plan/lower/groups.h"

namespace orrery::plan {

/// Where the program writes a bucket's gradients for the last time in a step, the bucket's reduction follows at once.
/// The blocks concerned get variants, which the last micro-batch runs. ZeRO 1 reduces into the rank's own part of the
/// gradients; ZeRO 2 and 3, which reduce in every pass, add to their shards. Reductions in fewer bits are split into
/// parts: each follows the gradients of the next bucket, and the last ones stand at the end of the block.
void reduce_early(ClassBuilder& build, const Groups& groups, const PlanSpec& spec, int zero);

}  // namespace orrery::plan

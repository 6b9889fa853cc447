#pragma once
/// Lets the first pass over gradients write them, so that nothing needs to zero them: a pass over a lowered class.
/// Private to plan/.
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// If the first operators to touch every parameter of a zeroed gradient buffer can write as well as add (products, and
/// sums over rows), they write, and the buffer is no longer zeroed. Either all entries of their block write, or the
/// first ones run a variant of the block. The buffer is still zeroed if a scatter, a copy or a message comes first, or
/// if the host accumulates. The gaps between parameters of a persistent buffer are zero from the run's start and stay
/// so (exec/engine/ranges.h); in a buffer that is born again and again, only the padding is zeroed.
void write_first(RankClass& rank_class);

}  // namespace orrery::plan

#pragma once
/// Gradients that the first pass over them writes, so that nobody zeroes them. Private to plan/: a pass over a lowered
/// class.
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// Where a buffer of gradients is zeroed, and operators that write as well as they add (products, and sums over rows)
/// are the first to touch every parameter in it, they write, and it is zeroed no more. All of their block's entries do
/// so, or those that come first run a variant of it. Where a scatter, a copy or a message comes first, or the host adds
/// up, the buffer is zeroed as it was. What lies between parameters of a persistent buffer is zero from the run's start
/// and stays so (exec/engine/ranges.h); of a buffer that is born again and again only what pads it is zeroed.
void write_first(RankClass& rank_class);

}  // namespace orrery::plan

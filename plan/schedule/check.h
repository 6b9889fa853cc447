#pragma once
/// Proves a Schedule before it is timed or run: every send has its receive of equal size, no deadlock, every buffer is
/// born before it is used, used only while alive, and dead at the end (of a run, where training steps do not drain);
/// what a step says it reads and writes is what its ops touch; views stay inside their buffers; collectives of one
/// group agree in kind, size and order on all members; every mini-batch of an asynchronous pipeline reads, forward and
/// backward, weights exactly as old as its order says.
#include "base/result.h"
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// Empty when the schedule is sound; else one diagnostic (code S01 …) per fault, at most 20.
[[nodiscard]] base::Diagnostics check(const Schedule& schedule);

}  // namespace orrery::plan

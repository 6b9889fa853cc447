#pragma once
/// Proves a Schedule before it is timed or run: every send has its receive of equal size; nothing deadlocks; every
/// buffer is born before it is used, used only while alive, and dead at the end (of a run, where steps do not drain);
/// a step's declared reads and writes are what its ops touch; views stay inside their buffers; the members of a group
/// agree on kind, size and order of its collectives; every mini-batch of an asynchronous pipeline reads, forward and
/// backward, weights exactly as old as its order says.
#include "base/result.h"
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// Empty when the schedule is sound; else one diagnostic (code S01 …) per fault, at most 20.
[[nodiscard]] base::Diagnostics check(const Schedule& schedule);

/// The same for a class by itself, as far as one can be checked: views, operands, births and deaths. Empty for steps
/// that do not drain, which check() examines unrolled. `schedule`: has its plan and its groups.
[[nodiscard]] base::Diagnostics check_class(const Schedule& schedule, const RankClass& rank_class);

}  // namespace orrery::plan

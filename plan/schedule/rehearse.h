#pragma once
/// Rehearses a schedule in its memory: the walk of plan/schedule/walk.h over ranges of addresses, which the arena hands
/// out as the executor's does, so that ranks wait for exactly what the executor waits for (exec/engine/execute.cpp,
/// exec/engine/communication.cpp). plan/schedule/check.h proves that messages meet; it does not know that two buffers
/// may share a place. A message ends once its partners have started theirs: a send with its receive, a collective when
/// all stages of its group have come; copies end by themselves. A training step ends when all its messages have.
/// Cost: one walk over every rank class's program, each step against the few messages under way.
#include <vector>

#include "base/result.h"
#include "plan/schedule/place.h"
#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// Empty if the run reaches its end; otherwise one S21 for each rank that stops, with the step and what it waits for.
/// `placements`: by class. Requires a schedule that check() finds sound.
[[nodiscard]] base::Diagnostics rehearse(const Schedule& schedule, const std::vector<Placement>& placements);
/// The same, with each class placed by place().
[[nodiscard]] base::Diagnostics rehearse(const Schedule& schedule);

}  // namespace orrery::plan

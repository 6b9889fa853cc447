#pragma once
/// Where a measured step's time went, in the same parts as a prediction's.
#include "cost/results.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/timeline.h"

namespace orrery::reports {

/// Mean over ranks of the typical iteration (spans.h). Time between compute steps is bubble while a message waits for
/// its partner on another stage, exposed communication while a message is under way or members of a collective are
/// late, and overhead otherwise; a finished rank waits for the last one (bubble). What the rank with most to do
/// explains of a bubble is imbalance; contention stays in the messages that it slows. The parts sum to the iteration's
/// length.
[[nodiscard]] cost::Breakdown measured_breakdown(const plan::Timeline& timeline, const plan::Schedule& schedule);

}  // namespace orrery::reports

#pragma once
/// Where a measured step's time went, in the same parts as a prediction's.
#include "cost/results.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/timeline.h"

namespace orrery::reports {

/// Mean over ranks of the typical iteration (spans.h). Time between compute steps is bubble while a message waits for
/// its partner on another stage, exposed communication while a message is in flight or members of a collective are
/// late, and overhead otherwise. A rank that has finished waits for the last one (bubble). The part of a bubble that is
/// due to the extra work of the rank with most is imbalance. Contention is not separated from the messages that it
/// slows. The parts sum to the iteration's length.
[[nodiscard]] cost::Breakdown measured_breakdown(const plan::Timeline& timeline, const plan::Schedule& schedule);

}  // namespace orrery::reports

#pragma once
/// The operators of a step, summed up by kind and pass: what a roofline shows.
#include "cost/explanation.h"
#include "cost/prices/pricing.h"
#include "plan/schedule/schedule.h"

namespace orrery::sim {

/// Of a step behind a run's first ones, on the mean rank. Seconds are those of the operators alone: what issuing them
/// takes, and what ranks wait, is not in them. Operators on the host are left out.
[[nodiscard]] cost::Operators operators_of(const plan::Schedule& schedule, const cost::Pricing& pricing);

}  // namespace orrery::sim

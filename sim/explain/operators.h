#pragma once
/// The operators of a step, summed by kind and pass: the data of a roofline.
#include "cost/explanation.h"
#include "cost/prices/mean_share.h"
#include "cost/prices/pricing.h"
#include "plan/schedule/schedule.h"

namespace orrery::sim {

/// For a step after a run's first ones, on the mean rank (`mean`: its share of the schedule of `plan`). Seconds are
/// those of the operators alone, without the time to issue them and without waits for other ranks. Excludes operators
/// on the host.
[[nodiscard]] cost::Operators operators_of(const plan::Schedule& schedule, const cost::Pricing& pricing,
                                           const cost::MeanShare& mean);

}  // namespace orrery::sim

#pragma once
/// The placement of a recommendation model's tables as rows for people and --json.
#include "cost/prices/pricing.h"
#include "cost/results.h"

namespace orrery::cost {

/// Fills `tables` and the planner's overall result; does nothing for models without tables. Seconds for a rank that has
/// a part: lookups and updates by memory bandwidth and row width; messages at the rate of its link.
void describe_tables(Prediction& prediction, const plan::Plan& plan, const Pricing& pricing);

}  // namespace orrery::cost

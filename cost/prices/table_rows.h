#pragma once
/// The placement of a recommendation model's tables as lines for people and --json.
#include "cost/prices/pricing.h"
#include "cost/results.h"

namespace orrery::cost {

/// Fills `tables` and what the planner says of the whole; nothing of models without tables. Seconds of a rank that has
/// a part: lookups and updates by memory bandwidth and row width; what is sent and received at the rate of its link.
void describe_tables(Prediction& prediction, const plan::Plan& plan, const Pricing& pricing);

}  // namespace orrery::cost

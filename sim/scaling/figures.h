#pragma once
/// Figures derived from the predictions of a series (throughput, efficiency, causes, growth) and of a study (the cost
/// of a run, and the ways to meet a deadline). Definitions: docs/formulas.md.
#include "cost/scaling.h"

namespace orrery::sim {

/// Device-seconds per token by cause; they sum to the step's device-seconds / its tokens.
[[nodiscard]] cost::ByCause seconds_by_cause(const cost::Prediction& prediction);

/// Interval of the ratio of two uncertain predictions, (a's true value) / (b's true value), if the logarithms of
/// measured over predicted are independent. `ratio`: the ratio of the predictions.
[[nodiscard]] cost::Interval ratio_interval(double ratio, const cost::Interval& a, const cost::Interval& b);

/// Fills all fields of a series' points that follow from `best` and `factors`.
void derive(cost::ScalingSeries& series, double pays);

/// Computes the cost of a run on the study's budget for each point, and the ways. Does nothing without a budget.
void add_runs(cost::ScalingStudy& study);

}  // namespace orrery::sim

#pragma once
/// What follows from the predictions of a series: throughput, efficiency, causes, growth; and from a study: what a run
/// takes, and the ways to a deadline. Definitions: docs/formulas.md.
#include "cost/scaling.h"

namespace orrery::sim {

/// Device-seconds a token by cause; the sum is that of the step over its tokens.
[[nodiscard]] cost::ByCause seconds_by_cause(const cost::Prediction& prediction);

/// Ratio of two predictions, both uncertain: (a's truth) / (b's truth), where the logarithms of measured over predicted
/// are independent. `ratio` is that of the predictions.
[[nodiscard]] cost::Interval ratio_interval(double ratio, const cost::Interval& a, const cost::Interval& b);

/// Fills everything of a series' points that follows from `best` and `factors`.
void derive(cost::ScalingSeries& series, double pays);

/// What a run of the study's budget takes on each point, and the ways. Nothing without a budget.
void add_runs(cost::ScalingStudy& study);

}  // namespace orrery::sim

#pragma once
/// Which plan wins: whether predictions choose, among published runs of one model on one machine, the plan that was
/// fastest.
#include <vector>

#include "cost/parameters/validation.h"
#include "sim/validate/cases.h"

namespace orrery::sim {

/// Groups of at least this many plans are judged.
inline constexpr std::size_t kLeastPlans = 3;

/// Spearman's rank correlation; equal values share the mean of their ranks. Not a number when either side is all equal.
[[nodiscard]] double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

/// Groups among the measured rows that were predicted: equal in source, stack, model, machine, sequence, batch and
/// precision, and of at least kLeastPlans plans. `seconds` are the predictions of cases.ready. In the order of their
/// first rows.
[[nodiscard]] std::vector<cost::PlanGroup> which_plan(const std::vector<Row>& rows, const Cases& cases,
                                                      const std::vector<double>& seconds);

}  // namespace orrery::sim

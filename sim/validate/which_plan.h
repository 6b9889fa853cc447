#pragma once
/// Which plan wins: whether predictions choose the plan that was fastest among published runs of one model on one
/// machine.
#include <vector>

#include "cost/parameters/validation.h"
#include "sim/validate/cases.h"

namespace orrery::sim {

/// Groups of at least this many plans are judged.
inline constexpr std::size_t kLeastPlans = 3;

/// Spearman's rank correlation; equal values share the mean of their ranks. NaN if either side is all equal.
[[nodiscard]] double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

/// Groups among the predicted measured rows: equal source, stack, model, machine, sequence, batch and precision, and at
/// least kLeastPlans plans. `seconds`: predictions for cases.ready. In the order of their first rows.
[[nodiscard]] std::vector<cost::PlanGroup> which_plan(const std::vector<Row>& rows, const Cases& cases,
                                                      const std::vector<double>& seconds);

}  // namespace orrery::sim

#pragma once
/// Holds the closed form against published rows.
#include <functional>

#include "cost/intervals.h"
#include "cost/validation.h"
#include "sim/validate/cases.h"

namespace orrery::sim {

[[nodiscard]] cost::ErrorSummary summary_of(std::vector<double> errors);

/// Predicts what could be made ready, each with its interval where `intervals` has one.
[[nodiscard]] cost::Validation validate(const std::vector<Row>& rows, const Cases& cases,
                                        const cost::Intervals& intervals = {});

/// Predicts every row that can be expressed; the rest is left out with its reason. `progress` is told how many rows are
/// done and may stop the work by returning false: what is done is returned.
[[nodiscard]] cost::Validation validate(const std::vector<Row>& rows, Library library,
                                        const std::function<bool(std::size_t)>& progress = {});

}  // namespace orrery::sim

#pragma once
/// Of a job without a feasible plan: why, where the job says so, and what would do.
#include <string>

#include "apps/inputs.h"
#include "apps/terminal.h"
#include "cost/results.h"

namespace orrery::apps {

/// Adds to `result.nearest` with how many more devices of the same kind some plan fits, where one of a
/// few doublings of them does; returns their number, 0 where none is.
[[nodiscard]] int add_devices_that_do(cost::SearchResult& result, const LoadedJob& job,
                                      const std::vector<cost::Calibration>& calibrations, double memory_fraction,
                                      Progress& progress);

/// P90 at the line of the job that stands in the way.
[[nodiscard]] base::Diagnostic nothing_fits(const cost::SearchResult& result, const LoadedJob& job);

}  // namespace orrery::apps

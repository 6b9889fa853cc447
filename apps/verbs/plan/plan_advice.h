#pragma once
/// For a job without a feasible plan: the key of the job that rules plans out, and what would make a plan feasible.
#include <string>

#include "apps/inputs.h"
#include "apps/terminal.h"
#include "cost/results.h"

namespace orrery::apps {

/// Adds to `result.nearest` how many more devices of the same kind would fit some plan, if one of a few doublings
/// does; returns their number, or 0.
[[nodiscard]] int add_devices_that_do(cost::SearchResult& result, const LoadedJob& job,
                                      const std::vector<cost::Calibration>& calibrations,
                                      const cost::Intervals& intervals, double memory_fraction, Progress& progress);

/// P90, at the line of the job that rules plans out.
[[nodiscard]] base::Diagnostic nothing_fits(const cost::SearchResult& result, const LoadedJob& job);

}  // namespace orrery::apps

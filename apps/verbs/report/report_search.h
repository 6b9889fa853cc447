#pragma once
/// The plans of a job that a report shows: a job among the inputs is planned, and a plan file brings its job along.
#include <vector>

#include "apps/inputs.h"
#include "apps/terminal.h"
#include "apps/verbs/report/report_data.h"
#include "cost/results.h"
#include "reports/report.h"

namespace orrery::apps {

inline constexpr int kPlansShown = 60;  ///< at most, of a search

/// Adds the plans of a job to the page, ranked as the search ranks them.
void add_search(reports::ReportData& data, const LoadedJob& job, const Beliefs& beliefs,
                const cost::Intervals& intervals);
/// The same, ranked as `orrery plan` ranks them; without any plan, `nearest` says what would do.
[[nodiscard]] cost::SearchResult plan_job(const LoadedJob& job, const Beliefs& beliefs,
                                          const cost::Intervals& intervals, Progress& progress);

}  // namespace orrery::apps

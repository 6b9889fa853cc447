#pragma once
/// Sample records for the tests of reports/: small, hand-made, with every optional part present, so that each line and
/// column of a report has something to show. Nothing here is a measurement.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cost/results.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/timeline.h"
#include "reports/html/chart.h"
#include "reports/report.h"

namespace orrery::sample {

[[nodiscard]] cost::SearchResult search();
[[nodiscard]] cost::Prediction prediction();  ///< 4 stages
[[nodiscard]] cost::FitResult fit();
[[nodiscard]] std::vector<cost::MeasuredRun> runs();
/// Five sizes of one series: the last without a plan, two measured.
[[nodiscard]] cost::ScalingStudy scaling();

/// Two stages of two replicas, four micro-batches, 1F1B, with a gradient all-reduce and an optimizer step.
[[nodiscard]] plan::Schedule schedule();
/// A replay of schedule() with fixed durations: representatives only when predicted; when measured all four ranks and
/// three iterations, a little slower and uneven.
[[nodiscard]] plan::Timeline timeline(const plan::Schedule& schedule, plan::Origin origin);

/// All of the above in one report.
[[nodiscard]] reports::ReportData report();

/// A plan's page: a prediction with all that explains it, and no run.
[[nodiscard]] cost::Operators operators();
[[nodiscard]] reports::PlanPage plan_page();
[[nodiscard]] reports::ReportData plan_report();
[[nodiscard]] std::vector<reports::Compared> compared();  ///< two plans
[[nodiscard]] reports::WholeRun whole_run();

/// The rows that a chart's specification has in the data set of this name; null if it has none.
[[nodiscard]] nlohmann::json rows_of(const reports::html::Chart& chart, const std::string& data);

/// The names of the charts' templates, and the one of this name filled with its own sample.
[[nodiscard]] std::vector<std::string> chart_names();
[[nodiscard]] reports::html::Chart chart_of_its_sample(const std::string& name);

/// Compares with tests/golden/reports/NAME; rewrites it instead when ORRERY_UPDATE_GOLDEN is set.
void expect_golden(const std::string& name, const std::string& actual);

}  // namespace orrery::sample

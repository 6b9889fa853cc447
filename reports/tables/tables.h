#pragma once
/// Orrery's tables: one function from each record of cost/results.h to a Table. Text and HTML show the same ones.
#include <string>
#include <vector>

#include "cost/results.h"
#include "plan/schedule/schedule.h"
#include "reports/tables/table.h"

namespace orrery::reports {

/// Ranked plans; columns in which every plan has the same default (context, expert, virtual stages …) are left out.
[[nodiscard]] Table plans_table(const cost::SearchResult& result);
/// Reasons with their counts, most frequent first.
[[nodiscard]] Table rejections_table(const cost::SearchResult& result);
/// The figures of one prediction: step time, tokens/s, MFU, memory, bubble, exposed communication, cost, energy.
[[nodiscard]] Table summary_table(const cost::Prediction& prediction);
/// Where a step goes; shares of the step. With `measured`, a second pair of columns.
[[nodiscard]] Table breakdown_table(const cost::Breakdown& predicted, const cost::Breakdown* measured = nullptr);
/// Memory by stage and purpose, against `capacity` bytes (0: unknown).
[[nodiscard]] Table memory_table(const std::vector<cost::MemoryRow>& rows, double capacity);
[[nodiscard]] Table communication_table(const std::vector<cost::CommunicationRow>& rows);
/// The placement of a recommendation model's tables.
[[nodiscard]] Table tables_table(const cost::Prediction& prediction);
[[nodiscard]] Table links_table(const std::vector<cost::LinkRow>& rows);
/// A coefficient in a unit that suits its size, four digits; units that have no scale of their own stay as they are.
[[nodiscard]] std::string coefficient_text(double value, const std::string& unit);
/// Fitted parameters before and after, with their sources.
[[nodiscard]] Table parameters_table(const std::vector<cost::FittedParameter>& parameters);
/// Residuals by kind of span: count, median absolute relative error before and after; held-out ones apart.
[[nodiscard]] Table residuals_table(const std::vector<cost::Residual>& residuals);
[[nodiscard]] Table operators_table(const std::vector<cost::Residual>& operators);  ///< by kind, times summed
/// Whether a calibration changed any prediction; if not, there is nothing to say about before and after it.
[[nodiscard]] bool calibrated(const std::vector<cost::MeasuredRun>& runs);
/// Predicted against measured, one row per run; runs used in a fit and those that cannot be judged are marked.
[[nodiscard]] Table runs_table(const std::vector<cost::MeasuredRun>& runs);

/// The parts of a breakdown in their order of display, as (name, seconds).
struct Part {
  const char* name;
  double seconds;
};
[[nodiscard]] std::vector<Part> parts_of(const cost::Breakdown& breakdown);

/// Median absolute relative error of a kind of span, as shown by residuals_table and docs/json.md.
struct ResidualGroup {
  std::string what;
  bool held_out = false;
  std::int64_t count = 0;
  double error_before = 0, error_after = 0;
};
[[nodiscard]] std::vector<ResidualGroup> grouped(const std::vector<cost::Residual>& residuals);

/// |predicted - measured| / measured; not a number if nothing was measured.
[[nodiscard]] double relative_error(double predicted, double measured);

}  // namespace orrery::reports

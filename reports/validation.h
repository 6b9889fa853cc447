#pragma once
/// Output of `validate`.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cost/fit/row_fit.h"
#include "cost/parameters/validation.h"
#include "reports/report.h"
#include "reports/tables/table.h"

namespace orrery::reports {

/// Errors against published rows, one line per source and one for all.
[[nodiscard]] Table sources_table(const cost::Validation& validation);
/// Errors by stack, beside how many of its numbers were fitted to measured rows, or follow one that was.
[[nodiscard]] Table stacks_table(const cost::Validation& validation);
/// The `most` rows with the largest errors, worst first.
[[nodiscard]] Table worst_rows_table(const cost::Validation& validation, std::size_t most);
/// The first `most` rows that state no time and did not die: the predictions alone.
[[nodiscard]] Table unmeasured_table(const cost::Validation& validation, std::size_t most);
/// Of the rows that ran and of those that died for lack of memory, how many are told so (a probability to fit of a half
/// parts them); the `most` that are not, surest first.
[[nodiscard]] Table fits_table(const cost::Validation& validation, std::size_t most);
/// Why rows were left out, with the number and the first of them; most frequent first.
[[nodiscard]] Table left_out_table(const cost::Validation& validation);
/// Groups of rows that differ only in plan: the `most` ones in which the plan predicted best lost most.
[[nodiscard]] Table groups_table(const cost::Validation& validation, std::size_t most);

[[nodiscard]] nlohmann::json validate_json(const cost::Validation& validation);
/// `validate`, after what was given: errors by source and by stack, the worst rows, those without a measured time,
/// whether they fit memory, which plan wins, what was left out.
[[nodiscard]] std::string validation_text(const cost::Validation& validation, const TableStyle& style);

/// Over all groups; not numbers if there are none. Medians interpolate.
struct RegretSummary {
  std::size_t groups = 0;
  double median = 0, worst = 0, rank_correlation = 0;
};
[[nodiscard]] RegretSummary regret_of(const std::vector<cost::PlanGroup>& groups);

/// `validate --cross-validate`: in-sample and left-out errors side by side, and how many lie within their intervals.
[[nodiscard]] Table folds_table(const cost::CrossValidation& v);
[[nodiscard]] std::string cross_validation_text(const cost::CrossValidation& v, const TableStyle& style);

/// `validate --headlines`: predicted, published and source of each.
[[nodiscard]] Table headlines_table(const std::vector<cost::HeadlineResult>& headlines);
[[nodiscard]] nlohmann::json headlines_json(const std::vector<cost::HeadlineResult>& headlines);

/// `validate --html`: predicted against measured by source and by stack, the worst rows first, those without a measured
/// time, whether they fit memory, which plan wins, in-sample and left out (if cross-validated), headlines (if given),
/// rows left out and why. Self-contained, as report_html.
[[nodiscard]] std::string validation_html(const cost::Validation& validation,
                                          const std::vector<cost::HeadlineResult>& headlines,
                                          const ChartLibrary& library);

/// `calibrate --rows`; `file` is where the stack was written.
[[nodiscard]] nlohmann::json row_fit_json(const cost::RowFit& fit, const std::string& file);
[[nodiscard]] std::string row_fit_text(const cost::RowFit& fit, const TableStyle& style);

/// `validate --fit-stacks`.
[[nodiscard]] nlohmann::json stack_fits_json(const std::vector<cost::FamilyFit>& fits);
[[nodiscard]] std::string stack_fits_text(const std::vector<cost::FamilyFit>& fits, const TableStyle& style);

}  // namespace orrery::reports

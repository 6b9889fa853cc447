#pragma once
/// A scaling study as tables, sentences and files; its charts are in reports/html/scaling_charts.h.
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cost/scaling.h"
#include "reports/tables/table.h"

namespace orrery::reports {

/// "gpt3-175b on selene": what distinguishes a series from the others of the study; with `whole`, its full name.
[[nodiscard]] std::string series_name(const cost::ScalingStudy& study, std::size_t series, bool whole = false);
/// Two lines: what is trained on what, and what the predictions rest on.
[[nodiscard]] std::vector<std::string> series_heading(const cost::ScalingSeries& series);

/// What all series share, in a sentence: "Strong scaling, 192 to 3072 devices; 1536 sequences a step …".
[[nodiscard]] std::string scaling_subtitle(const cost::ScalingStudy& study);
/// The series side by side: each at its largest size that has a plan.
[[nodiscard]] Table side_by_side_table(const cost::ScalingStudy& study);
/// Throughput per device of each series (row) at each size (column); — where nothing fits or was asked.
[[nodiscard]] Table throughput_table(const cost::ScalingStudy& study);
/// The ways of run_advice as rows; none without a budget.
[[nodiscard]] Table ways_table(const cost::ScalingStudy& study);

/// One row for each size that has a plan; for the others a note says why.
[[nodiscard]] Table sizes_table(const cost::ScalingSeries& series);
/// Efficiency lost to each cause since the previous size, in percentage points; "in all" is their sum.
[[nodiscard]] Table losses_table(const cost::ScalingSeries& series);
/// Device time per token by cause, at each size.
[[nodiscard]] Table causes_table(const cost::ScalingSeries& series);
/// The fullest device's memory at each size, by purpose.
[[nodiscard]] Table size_memory_table(const cost::ScalingSeries& series);
/// What a run on the budget takes.
[[nodiscard]] Table run_costs_table(const cost::ScalingSeries& series);
/// Measured runs and rows at those sizes, beside predictions of their own plans and of the best.
[[nodiscard]] Table measured_table(const cost::ScalingSeries& series);
/// All tables of a series that are not empty, in that order.
[[nodiscard]] std::vector<Table> series_tables(const cost::ScalingSeries& series);

/// Which dimension carries each growth, what it costs, and up to which size it pays.
[[nodiscard]] std::vector<std::string> growth_advice(const cost::ScalingStudy& study,
                                                     const cost::ScalingSeries& series);
/// The cheapest and the fastest way to train each model on the budget.
[[nodiscard]] std::vector<std::string> run_advice(const cost::ScalingStudy& study);
/// What the figures do not include.
[[nodiscard]] std::vector<std::string> scaling_caveats(const cost::ScalingStudy& study);

/// Several series stand side by side first; of more than two nothing else follows, unless `all` is wanted.
[[nodiscard]] std::string scaling_text(const cost::ScalingStudy& study, const TableStyle& style, bool all = false);
[[nodiscard]] std::string scaling_markdown(const cost::ScalingStudy& study, const std::string& title);
/// One line per point, with a head; RFC 4180.
[[nodiscard]] std::string scaling_csv(const cost::ScalingStudy& study);
/// The whole study: `study` of docs/json.md.
[[nodiscard]] nlohmann::json scaling_json(const cost::ScalingStudy& study);
/// The points that have a plan: `scaling` of docs/json.md.
[[nodiscard]] nlohmann::json scaling_points_json(const cost::ScalingStudy& study);
/// The file of `--format json`.
[[nodiscard]] std::string scaling_json_file(const cost::ScalingStudy& study, const std::string& title);

}  // namespace orrery::reports

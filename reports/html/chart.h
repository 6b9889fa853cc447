#pragma once
/// A chart of the report: a Vega specification, a legend, words for those who cannot see it, and the tables behind
/// it. Colours are names of CSS variables, so that one drawing serves light and dark pages and print.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cost/parameters/validation.h"
#include "reports/report.h"
#include "reports/spans.h"
#include "reports/tables/table.h"

namespace orrery::reports::html {

using nlohmann::json;

inline constexpr double kBandOpacity = 0.35;  ///< of areas behind a line, and of their key

struct LegendEntry {
  std::string name;
  std::string colour;
  std::string shape = "box";  ///< box, band, dot, ring, diamond, tick, dashed
};

struct Chart {
  std::string title;
  std::string text;         ///< what is shown and how to read it
  std::string description;  ///< what the chart says, for screen readers
  std::vector<LegendEntry> legend;
  std::string spec;         ///< the specification: JSON in ASCII
  std::vector<Table> data;  ///< opened on demand below the chart
  /// A file that can be saved from the page: name and contents; no name: none.
  std::pair<std::string, std::string> save = {};
  bool pins = false;  ///< rows of the first table can be pinned: the plot's signal `pinned` lists them
};

[[nodiscard]] std::string colour_of(SpanKind activity);
/// Colour of a purpose of memory ("parameters", "software" …), and purposes in their order of stacking.
[[nodiscard]] std::string colour_of_purpose(const std::string& purpose);
[[nodiscard]] std::vector<std::string> purposes_in_order(const std::vector<cost::MemoryRow>& rows);

/// Pixels that the longest of some labels takes in the axis font, with padding.
[[nodiscard]] int label_width(const std::vector<std::string>& labels);

/// A unit for an axis of seconds or bytes, by its largest value `largest`.
struct Unit {
  double factor = 1;  ///< from SI to the unit
  std::string name;
};
[[nodiscard]] Unit time_unit(double largest);
[[nodiscard]] Unit byte_unit(double largest);

/// Ticks for a logarithmic axis from `low` to `high`: powers of ten, with 2 and 5 between them if these are few.
[[nodiscard]] json log_ticks(double low, double high);

/// A specification as text: ASCII, numbers with seven significant digits, which is more than a screen shows and less
/// than libraries of mathematics differ in.
[[nodiscard]] std::string text_of_spec(json spec);

// One function per chart; each requires the part of the data that it shows.
[[nodiscard]] Chart timeline_chart(const ReportData& data);
[[nodiscard]] Chart breakdown_chart(const cost::Breakdown& predicted, const std::optional<cost::Breakdown>& measured);
[[nodiscard]] Chart memory_chart(const cost::Prediction& prediction, const std::vector<MeasuredMemory>& measured);
[[nodiscard]] Chart runs_chart(const std::vector<cost::MeasuredRun>& runs);
[[nodiscard]] Chart residuals_chart(const cost::FitResult& fit);
[[nodiscard]] Chart published_scatter(const cost::Validation& validation);
[[nodiscard]] Chart sources_chart(const cost::Validation& validation);
[[nodiscard]] Chart loss_chart(const std::vector<double>& losses);

}  // namespace orrery::reports::html

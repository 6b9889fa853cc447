/// Published runs: predicted against measured, and how far off each source is.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "reports/html/chart.h"
#include "reports/html/chart_template.h"
#include "reports/validation.h"

namespace orrery::reports::html {
namespace {

constexpr double kGoal = 0.15;  // the goal for nine of ten rows

/// Rows with a measured step time, as dots: measured, predicted, their ratio, source and text.
json dots_of(const cost::Validation& v) {
  json dots = json::array();
  for (const cost::ValidatedRow& r : v.rows) {
    if (!r.measured_s || !(*r.measured_s > 0) || !(r.predicted_s > 0)) continue;
    const double ratio = r.predicted_s / *r.measured_s;
    dots.push_back({{"m", *r.measured_s},
                    {"p", r.predicted_s},
                    {"r", ratio},
                    {"s", r.source},
                    {"tip", fmt::format("{} · {}\n{}\nmeasured {}\npredicted {} ({:+.1f} %)", r.id, r.source, r.plan,
                                        time_text(*r.measured_s), time_text(r.predicted_s), 100 * (ratio - 1))}});
  }
  return dots;
}

}  // namespace

Chart published_scatter(const cost::Validation& v) {
  Chart chart;
  chart.title = "Predicted against measured";
  chart.text = fmt::format(
      "Each dot is a published run: step time measured horizontally, predicted vertically, both axes logarithmic. On "
      "the line both are equal; the band is ±{:.0f} %.",
      100 * kGoal);
  chart.description = fmt::format("Median error {} over {}, 90th percentile {}.", percent(v.time.median),
                                  count_text(static_cast<std::int64_t>(v.time.count), "row"), percent(v.time.p90));
  json dots = dots_of(v);
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const json& dot : dots)
    for (const char* field : {"m", "p"}) {
      low = std::min(low, dot[field].get<double>());
      high = std::max(high, dot[field].get<double>());
    }
  const json domain = {low / 1.25, high * 1.25};  // margin beyond the last dot
  json line = json::array();
  for (const json& at : domain) {
    const double value = at.get<double>();
    line.push_back({{"v", value}, {"lo", value * (1 - kGoal)}, {"hi", value * (1 + kGoal)}});
  }
  Table table = sources_table(v);
  table.title.clear();
  chart.data = {std::move(table)};
  chart.spec = chart_spec("published", {{"dots", std::move(dots)}, {"line", std::move(line)}},
                          {{"extent", domain}, {"ticks", log_ticks(domain[0], domain[1])}});
  return chart;
}

Chart sources_chart(const cost::Validation& v) {
  Chart chart;
  chart.title = "By source";
  chart.text = fmt::format(
      "Predicted over measured, logarithmic; the band is ±{:.0f} %. The tick is a source's median.", 100 * kGoal);
  json dots = dots_of(v), medians = json::array();
  double reach = 1 + 2 * kGoal;
  for (const cost::SourceErrors& s : v.by_source) {
    std::vector<double> ratios;
    for (const json& dot : dots)
      if (dot["s"] == s.source) ratios.push_back(dot["r"].get<double>());
    if (ratios.empty()) continue;
    std::sort(ratios.begin(), ratios.end());
    reach = std::max({reach, ratios.back(), 1 / ratios.front()});
    medians.push_back({{"s", s.source}, {"r", ratios[ratios.size() / 2]}});
  }
  chart.legend = {{"a run", "var(--backward)", "dot"}, {"median", "var(--communication)", "tick"}};
  chart.description = fmt::format("{} sources.", medians.size());
  json band = json::array({{{"lo", 1 - kGoal}, {"hi", 1 + kGoal}}});
  chart.spec =
      chart_spec("sources", {{"dots", std::move(dots)}, {"medians", std::move(medians)}, {"band", std::move(band)}},
                 {{"extent", {1 / (reach * 1.05), reach * 1.05}}});
  return chart;
}

}  // namespace orrery::reports::html

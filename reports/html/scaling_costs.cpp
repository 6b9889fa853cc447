/// Money over time of a run, a line for each series of a scaling study.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "plan/spec/plan.h"
#include "reports/html/chart_template.h"
#include "reports/html/scaling_charts.h"
#include "reports/scaling.h"

namespace orrery::reports::html {
namespace {

constexpr double kSecondsInDay = 86400;
constexpr std::array kLineColours{"backward", "communication", "recompute", "optimizer", "m-workspace", "other"};

/// The smallest and the largest value on an axis, with a margin for dots.
struct Reach {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  [[nodiscard]] std::pair<double, double> widened() const { return {low / 1.2, high * 1.2}; }
};

}  // namespace

std::optional<Chart> scaling_costs(const cost::ScalingStudy& study) {
  Chart chart;
  chart.title = "Money and time of the run";
  Reach days, usd;
  json series = json::array(), deadline = json::array();
  Table table{"", {{"", Align::left}, {"devices"}, {"days"}, {"$"}}, {}, {}};
  for (std::size_t i = 0; i < study.series.size(); ++i) {
    json values = json::array();
    for (const cost::ScalingPoint& p : study.series[i].points) {
      if (!p.best || !p.run || !(p.run->usd > 0) || !(p.run->seconds > 0)) continue;
      const double took = p.run->seconds / kSecondsInDay;
      days.include(took);
      usd.include(p.run->usd);
      const std::string name = series_name(study, i);
      values.push_back(
          {{"x", took},
           {"y", p.run->usd},
           {"s", values.empty() ? 110 : 50},
           {"tip", fmt::format("{}\n{}: {} days, {} $\n{}", name, count_text(p.devices, "device"), estimate_text(took),
                               estimate_text(p.run->usd), plan::describe(p.best->spec))}});
      table.rows.push_back({name, fmt::format("{}", p.devices), estimate_text(took), estimate_text(p.run->usd)});
      chart.description += fmt::format("{}, {}: {} days, {} $. ", name, count_text(p.devices, "device"),
                                       estimate_text(took), estimate_text(p.run->usd));
    }
    if (values.empty()) continue;
    const std::size_t drawn = chart.legend.size();
    const std::string colour = std::string("var(--") + kLineColours.at(drawn % kLineColours.size()) + ")";
    const bool filled = drawn / kLineColours.size() % 2 == 0;
    chart.legend.push_back({series_name(study, i), colour, filled ? "dot" : "ring"});
    series.push_back({{"stroke", colour}, {"fill", filled ? colour : "var(--paper)"}, {"runs", std::move(values)}});
  }
  if (table.rows.size() < 2) return std::nullopt;  // nothing to compare
  chart.text = fmt::format(
      "One dot per size, the smallest size with a larger dot; {} tokens, both axes logarithmic. Lower is cheaper, left "
      "is sooner.",
      base::human_count(study.tokens.value_or(0)));
  if (study.deadline_s) {
    const double limit = *study.deadline_s / kSecondsInDay;
    days.include(limit);
    deadline.push_back({{"x", limit}});
    chart.legend.push_back({"deadline", "var(--limit)", "dashed"});
  }
  const auto [first, last] = days.widened();
  const auto [least, most] = usd.widened();
  chart.spec = chart_spec("costs", {{"series", std::move(series)}, {"deadline", std::move(deadline)}},
                          {{"days", {first, last}},
                           {"dayTicks", log_ticks(first, last)},
                           {"dollars", {least, most}},
                           {"dollarTicks", log_ticks(least, most)}});
  chart.data = {std::move(table)};
  return chart;
}

}  // namespace orrery::reports::html

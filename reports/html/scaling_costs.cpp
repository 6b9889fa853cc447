/// Money over time of a run, a line for each series of a scaling study.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "plan/spec/plan.h"
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

json log_axis_scale(const char* name, const Reach& reach, const json& range) {
  const auto [low, high] = reach.widened();
  return {{"name", name}, {"type", "log"}, {"nice", false}, {"zero", false}, {"domain", {low, high}}, {"range", range}};
}

json marks_of(const std::string& data, const std::string& colour, bool filled) {
  json marks = json::parse(R"json([
      {"type": "line", "interactive": false, "encode": {"update": {
        "x": {"scale": "x", "field": "x"}, "y": {"scale": "y", "field": "y"}, "strokeWidth": {"value": 1.5}}}},
      {"type": "symbol", "encode": {"update": {
        "x": {"scale": "x", "field": "x"}, "y": {"scale": "y", "field": "y"}, "size": {"field": "s"},
        "strokeWidth": {"value": 2}, "tooltip": {"field": "tip"}}}}
    ])json");
  for (json& mark : marks) {
    mark["from"] = {{"data", data}};
    mark["encode"]["update"]["stroke"] = {{"value", colour}};
  }
  marks[1]["encode"]["update"]["fill"] = {{"value", filled ? colour : "var(--paper)"}};
  return marks;
}

json deadline_mark(double days) {
  json rule = json::parse(R"json({"type": "rule", "interactive": false, "encode": {"update": {
      "y": {"value": 0}, "y2": {"signal": "height"}, "stroke": {"value": "var(--limit)"},
      "strokeWidth": {"value": 1.5}, "strokeDash": {"value": [6, 4]}}}})json");
  rule["encode"]["update"]["x"] = {{"scale", "x"}, {"value", days}};
  return rule;
}

}  // namespace

std::optional<Chart> scaling_costs(const cost::ScalingStudy& study) {
  constexpr int kHeight = 300;
  Chart chart;
  chart.title = "Money and time of the run";
  Reach days, usd;
  json spec = base_spec(kHeight, {76, 24, 12, 48});
  spec["marks"] = json::array();
  Table table{"", {{"", Align::left}, {"devices"}, {"days"}, {"$"}}, {}, {}};
  for (std::size_t i = 0; i < study.series.size(); ++i) {
    json values = json::array();
    for (const cost::ScalingPoint& p : study.series[i].points) {
      if (!p.best || !p.run || !(p.run->usd > 0) || !(p.run->seconds > 0)) continue;
      const double took = p.run->seconds / kSecondsInDay;
      days.include(took);
      usd.include(p.run->usd);
      const std::string name = series_name(study, i);
      values.push_back({{"x", took},
                        {"y", p.run->usd},
                        {"s", values.empty() ? 110 : 50},
                        {"tip", fmt::format("{}\n{} devices: {} days, {} $\n{}", name, p.devices, number(took),
                                            number(p.run->usd), plan::describe(p.best->spec))}});
      table.rows.push_back({name, fmt::format("{}", p.devices), number(took), number(p.run->usd)});
      chart.description +=
          fmt::format("{}, {} devices: {} days, {} $. ", name, p.devices, number(took), number(p.run->usd));
    }
    if (values.empty()) continue;
    const std::size_t drawn = chart.legend.size();
    const std::string colour = std::string("var(--") + kLineColours.at(drawn % kLineColours.size()) + ")";
    const bool filled = drawn / kLineColours.size() % 2 == 0;
    chart.legend.push_back({series_name(study, i), colour, filled ? "dot" : "ring"});
    const std::string data = fmt::format("run-{}", i);
    spec["data"].push_back({{"name", data}, {"values", std::move(values)}});
    for (json& mark : marks_of(data, colour, filled)) spec["marks"].push_back(std::move(mark));
  }
  if (table.rows.empty()) return std::nullopt;
  chart.text = fmt::format(
      "One dot per size, the smallest size with a larger dot; {} tokens, both axes logarithmic. Lower is cheaper, left "
      "is sooner.",
      base::human_count(study.tokens.value_or(0)));
  if (study.deadline_s) {
    const double limit = *study.deadline_s / kSecondsInDay;
    days.include(limit);
    spec["marks"].push_back(deadline_mark(limit));
    chart.legend.push_back({"deadline", "var(--limit)", "dashed"});
  }
  spec["scales"] =
      json::array({log_axis_scale("x", days, "width"), log_axis_scale("y", usd, json::array({kHeight, 0}))});
  spec["axes"] = json::parse(R"json([
      {"orient": "bottom", "scale": "x", "grid": true, "domain": false, "title": "days", "format": "~g",
       "labelOverlap": true},
      {"orient": "left", "scale": "y", "grid": true, "domain": false, "ticks": false, "title": "$", "format": "~s"}
    ])json");
  spec["axes"][0]["values"] = log_ticks(days.widened().first, days.widened().second);
  spec["axes"][1]["values"] = log_ticks(usd.widened().first, usd.widened().second);
  chart.spec = text_of_spec(std::move(spec));
  chart.data = {std::move(table)};
  return chart;
}

}  // namespace orrery::reports::html

/// Published runs: predicted against measured, and how far off each source is.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "reports/html/chart.h"
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
  chart.description = fmt::format("Median error {} over {} rows, 90th percentile {}.", percent(v.time.median),
                                  v.time.count, percent(v.time.p90));
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
  constexpr int kHeight = 420;
  json spec = base_spec(kHeight, {});
  spec["data"] = json::array({{{"name", "dots"}, {"values", dots}}, {{"name", "line"}, {"values", line}}});
  spec["scales"] = json::array({{{"name", "x"}, {"type", "log"}, {"range", "width"}, {"domain", domain}},
                                {{"name", "y"}, {"type", "log"}, {"range", {kHeight, 0}}, {"domain", domain}}});
  spec["axes"] = json::parse(R"json([
      {"orient": "left", "scale": "y", "grid": true, "domain": false, "ticks": false, "format": "~g",
       "title": "predicted (s)"},
      {"orient": "bottom", "scale": "x", "grid": true, "domain": false, "ticks": false, "format": "~g",
       "title": "measured (s)"}
    ])json");
  spec["axes"][0]["values"] = spec["axes"][1]["values"] = log_ticks(domain[0], domain[1]);
  spec["marks"] = json::parse(R"json([
      {"type": "area", "from": {"data": "line"}, "clip": true, "interactive": false, "encode": {"update": {
        "x": {"scale": "x", "field": "v"}, "y": {"scale": "y", "field": "hi"}, "y2": {"scale": "y", "field": "lo"},
        "fill": {"value": "var(--ink)"}, "fillOpacity": {"value": 0.07}}}},
      {"type": "line", "from": {"data": "line"}, "clip": true, "interactive": false, "encode": {"update": {
        "x": {"scale": "x", "field": "v"}, "y": {"scale": "y", "field": "v"}, "stroke": {"value": "var(--muted)"},
        "strokeWidth": {"value": 1}}}},
      {"type": "symbol", "from": {"data": "dots"}, "encode": {"update": {
        "x": {"scale": "x", "field": "m"}, "y": {"scale": "y", "field": "p"}, "size": {"value": 26},
        "fill": {"value": "var(--backward)"}, "fillOpacity": {"value": 0.45}, "tooltip": {"field": "tip"}},
        "hover": {"fillOpacity": {"value": 1}}}}
    ])json");
  Table table = sources_table(v);
  table.title.clear();
  chart.data = {std::move(table)};
  chart.spec = text_of_spec(std::move(spec));
  return chart;
}

Chart sources_chart(const cost::Validation& v) {
  Chart chart;
  chart.title = "By source";
  chart.text = fmt::format(
      "Predicted over measured, logarithmic; the band is ±{:.0f} %. The tick is a source's median.", 100 * kGoal);
  json dots = dots_of(v), sources = json::array(), medians = json::array();
  std::vector<std::string> labels;
  double reach = 1 + 2 * kGoal;
  for (const cost::SourceErrors& s : v.by_source) {
    std::vector<double> ratios;
    for (const json& dot : dots)
      if (dot["s"] == s.source) ratios.push_back(dot["r"].get<double>());
    if (ratios.empty()) continue;
    std::sort(ratios.begin(), ratios.end());
    reach = std::max({reach, ratios.back(), 1 / ratios.front()});
    sources.push_back(s.source);
    labels.push_back(s.source);
    medians.push_back({{"s", s.source}, {"r", ratios[ratios.size() / 2]}});
  }
  constexpr int kNamed = 38;  // pixels of a source: its name above its dots, which a narrow page has room for
  const int height = kNamed * static_cast<int>(labels.size());
  json spec = base_spec(height, {8, 20, 6, 48});
  const json domain = {1 / (reach * 1.05), reach * 1.05};
  spec["data"] = json::array({{{"name", "dots"}, {"values", dots}}, {{"name", "medians"}, {"values", medians}}});
  spec["data"].push_back({{"name", "band"}, {"values", json::array({{{"lo", 1 - kGoal}, {"hi", 1 + kGoal}}})}});
  spec["scales"] = json::array({{{"name", "x"}, {"type", "log"}, {"range", "width"}, {"domain", domain}},
                                {{"name", "y"}, {"type", "band"}, {"range", {0, height}}, {"domain", sources}}});
  spec["axes"] = json::parse(R"json([
      {"orient": "bottom", "scale": "x", "grid": true, "domain": false, "format": "~g",
       "title": "predicted over measured",
       "labelOverlap": true, "values": [0.25, 0.5, 0.7, 0.85, 1, 1.15, 1.5, 2, 4]}
    ])json");
  spec["marks"] = json::parse(R"json([
      {"type": "rect", "from": {"data": "band"}, "interactive": false, "encode": {"update": {
        "x": {"scale": "x", "field": "lo"}, "x2": {"scale": "x", "field": "hi"}, "y": {"value": 0},
        "y2": {"signal": "height"}, "fill": {"value": "var(--ink)"}, "fillOpacity": {"value": 0.07}}}},
      {"type": "text", "from": {"data": "medians"}, "interactive": false, "encode": {"update": {
        "x": {"value": 0}, "y": {"scale": "y", "field": "s", "offset": 13}, "text": {"field": "s"},
        "limit": {"signal": "width"}}}},
      {"type": "symbol", "from": {"data": "dots"}, "encode": {"update": {
        "x": {"scale": "x", "field": "r"}, "y": {"scale": "y", "field": "s", "offset": 26}, "size": {"value": 26},
        "fill": {"value": "var(--backward)"}, "fillOpacity": {"value": 0.4}, "tooltip": {"field": "tip"}},
        "hover": {"fillOpacity": {"value": 1}}}},
      {"type": "rect", "from": {"data": "medians"}, "interactive": false, "encode": {"update": {
        "x": {"scale": "x", "field": "r", "offset": -1.5}, "width": {"value": 3}, "y": {"scale": "y", "field": "s",
         "offset": 18},
        "height": {"value": 16}, "fill": {"value": "var(--communication)"}}}}
    ])json");
  chart.legend = {{"a run", "var(--backward)", "dot"}, {"median", "var(--communication)", "tick"}};
  chart.description = fmt::format("{} sources.", labels.size());
  chart.spec = text_of_spec(std::move(spec));
  return chart;
}

}  // namespace orrery::reports::html

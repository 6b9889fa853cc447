/// Curves: strong scaling and the training loss.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "reports/html/chart.h"
#include "reports/tables.h"

namespace orrery::reports::html {
namespace {

constexpr int kHeight = 260;
constexpr std::size_t kMostPoints = 2000;  // of the loss curve; every n-th step above

/// Left: step time over ranks, both axes logarithmic. Right: efficiency.
json scaling_marks() {
  return json::parse(R"json([
      {
        "type": "group", "title": {"text": "Step time", "frame": "group"},
        "encode": {"update": {"width": {"signal": "panel"}}},
        "scales": [
          {"name": "x", "type": "log", "base": 2, "range": [0, {"signal": "panel"}], "padding": 18},
          {"name": "y", "type": "log"}
        ],
        "axes": [
          {
            "orient": "left", "scale": "y", "grid": true, "gridScale": "x", "domain": false, "ticks": false,
             "format": "~g"
          },
          {"orient": "bottom", "scale": "x", "format": "d", "title": "ranks"}
        ],
        "marks": [
          {
            "type": "line", "from": {"data": "points"},
            "encode": {
              "update": {
                "x": {"scale": "x", "field": "n"}, "y": {"scale": "y", "field": "ideal"},
                "stroke": {"value": "var(--muted)"}, "strokeWidth": {"value": 1},
                "strokeDash": {"value": [5, 4]}
              }
            }
          },
          {
            "type": "line", "from": {"data": "points"},
            "encode": {
              "update": {
                "x": {"scale": "x", "field": "n"}, "y": {"scale": "y", "field": "p"},
                "stroke": {"value": "var(--backward)"}, "strokeWidth": {"value": 2}
              }
            }
          },
          {
            "type": "symbol", "from": {"data": "points"},
            "encode": {
              "update": {
                "x": {"scale": "x", "field": "n"}, "y": {"scale": "y", "field": "p"},
                "fill": {"value": "var(--backward)"}, "size": {"value": 50}, "tooltip": {"field": "ptip"}
              }
            }
          },
          {
            "type": "symbol", "from": {"data": "measured"},
            "encode": {
              "update": {
                "x": {"scale": "x", "field": "n"}, "y": {"scale": "y", "field": "m"},
                "fill": {"value": "var(--paper)"}, "stroke": {"value": "var(--ink)"},
                "strokeWidth": {"value": 2}, "size": {"value": 90}, "fillOpacity": {"value": 0},
                "tooltip": {"field": "mtip"}
              }
            }
          }
        ]
      },
      {
        "type": "group", "title": {"text": "Efficiency", "frame": "group"},
        "encode": {"update": {"x": {"signal": "panel + gap"}, "width": {"signal": "panel"}}},
        "scales": [
          {"name": "x", "type": "log", "base": 2, "range": [0, {"signal": "panel"}], "padding": 18},
          {"name": "y", "type": "linear", "zero": true}
        ],
        "axes": [
          {
            "orient": "left", "scale": "y", "grid": true, "gridScale": "x", "domain": false, "ticks": false,
             "format": "%",
            "tickCount": 5
          },
          {"orient": "bottom", "scale": "x", "format": "d", "title": "ranks"}
        ],
        "marks": [
          {
            "type": "rule",
            "encode": {
              "update": {
                "x": {"value": 0}, "x2": {"signal": "panel"}, "y": {"scale": "y", "value": 1},
                "stroke": {"value": "var(--muted)"}, "strokeWidth": {"value": 1},
                "strokeDash": {"value": [5, 4]}
              }
            }
          },
          {
            "type": "line", "from": {"data": "points"},
            "encode": {
              "update": {
                "x": {"scale": "x", "field": "n"}, "y": {"scale": "y", "field": "pe"},
                "stroke": {"value": "var(--backward)"}, "strokeWidth": {"value": 2}
              }
            }
          },
          {
            "type": "symbol", "from": {"data": "points"},
            "encode": {
              "update": {
                "x": {"scale": "x", "field": "n"}, "y": {"scale": "y", "field": "pe"},
                "fill": {"value": "var(--backward)"}, "size": {"value": 50}, "tooltip": {"field": "ptip"}
              }
            }
          },
          {
            "type": "symbol", "from": {"data": "compared"},
            "encode": {
              "update": {
                "x": {"scale": "x", "field": "n"}, "y": {"scale": "y", "field": "me"},
                "fill": {"value": "var(--paper)"}, "stroke": {"value": "var(--ink)"},
                "strokeWidth": {"value": 2}, "size": {"value": 90}, "fillOpacity": {"value": 0},
                "tooltip": {"field": "mtip"}
              }
            }
          }
        ]
      }
    ])json");
}

}  // namespace

Chart scaling_chart(const std::vector<cost::ScalingPoint>& points) {
  Chart chart;
  chart.title = "Strong scaling";
  chart.text =
      "The same batch on more ranks, each with its best plan. Efficiency is the speed-up over the first point divided "
      "by "
      "the ranks added; the dashed line is ideal.";
  const cost::ScalingPoint& first = points.front();
  double high = 0, low = first.best.step_time_s, best_efficiency = 1;
  json predicted = json::array(), measured = json::array(), ranks = json::array();
  for (const cost::ScalingPoint& p : points) high = std::max({high, p.best.step_time_s, p.measured_step_time_s});
  const Unit unit = time_unit(high);
  for (const cost::ScalingPoint& p : points) {
    ranks.push_back(p.ranks);
    const double ideal = first.best.step_time_s * first.ranks / p.ranks;
    const double efficiency = ideal / p.best.step_time_s;
    best_efficiency = std::max(best_efficiency, efficiency);
    low = std::min({low, ideal, p.best.step_time_s});
    predicted.push_back(
        {{"n", p.ranks},
         {"p", p.best.step_time_s * unit.factor},
         {"ideal", ideal * unit.factor},
         {"pe", efficiency},
         {"ptip", fmt::format("{} ranks, predicted\n{}\n{} ({} efficiency)", p.ranks, plan::describe(p.best.spec),
                              time_text(p.best.step_time_s), percent(efficiency))}});
    chart.description += fmt::format("{} ranks: {} predicted. ", p.ranks, time_text(p.best.step_time_s));
    if (!(p.measured_step_time_s > 0)) continue;
    low = std::min(low, p.measured_step_time_s);
    const std::string time = time_text(p.measured_step_time_s);
    json point = {{"n", p.ranks}, {"m", p.measured_step_time_s * unit.factor}};
    std::string tip = fmt::format("{} ranks, measured\n{}", p.ranks, time);
    if (first.measured_step_time_s > 0) {
      const double reached = first.measured_step_time_s * first.ranks / (p.measured_step_time_s * p.ranks);
      best_efficiency = std::max(best_efficiency, reached);
      point["me"] = reached;
      tip += fmt::format(" ({} efficiency)", percent(reached));
    }
    point["mtip"] = tip;
    measured.push_back(std::move(point));
  }
  chart.legend = {{"predicted", "var(--backward)", "dot"}};
  if (!measured.empty()) chart.legend.push_back({"measured", "var(--ink)", "ring"});
  chart.legend.push_back({"ideal", "var(--muted)", "dashed"});
  json spec = base_spec(kHeight, {72, 20, 34, 48});
  spec["signals"].push_back({{"name", "gap"}, {"value", 72}});
  spec["signals"].push_back({{"name", "panel"}, {"update", "(width - gap) / 2"}});
  spec["data"] =
      json::array({{{"name", "points"}, {"values", predicted}}, {{"name", "measured"}, {"values", measured}}});
  json compared = {{"name", "compared"}, {"source", "measured"}};
  compared["transform"] = json::array({{{"type", "filter"}, {"expr", "isValid(datum.me)"}}});
  spec["data"].push_back(std::move(compared));
  spec["marks"] = scaling_marks();
  for (json& group : spec["marks"]) {
    group["encode"]["update"]["height"] = {{"value", kHeight}};
    group["scales"][0]["domain"] = {points.front().ranks, std::max(points.back().ranks, points.front().ranks + 1)};
    group["scales"][1]["range"] = {kHeight, 0};
    group["axes"][1]["values"] = ranks;
  }
  spec["marks"][0]["axes"][0]["values"] = log_ticks(low * unit.factor / 1.2, high * unit.factor * 1.2);
  spec["marks"][0]["scales"][1]["domain"] = {low * unit.factor / 1.2, high * unit.factor * 1.2};
  spec["marks"][0]["axes"][0]["title"] = "step time (" + unit.name + ")";
  spec["marks"][1]["scales"][1]["domain"] = {0, best_efficiency * 1.08};
  Table table = scaling_table(points);
  table.title.clear();
  chart.data = {std::move(table)};
  chart.spec = spec.dump(-1, ' ', true, json::error_handler_t::replace);
  return chart;
}

Chart loss_chart(const std::vector<double>& losses) {
  Chart chart;
  chart.title = "Training loss";
  chart.text = "Mean over the tokens of each step, before its update.";
  chart.description = fmt::format("Loss {} in the first step, {} in step {}.", number(losses.front()),
                                  number(losses.back()), losses.size());
  const std::size_t stride = losses.size() / kMostPoints + 1;
  json values = json::array();
  Table table{"", {{"step", Align::right}, {"loss", Align::right}}, {}, {}};
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (i % stride != 0 && i + 1 != losses.size()) continue;
    if (std::isfinite(losses[i])) {
      values.push_back(
          {{"s", i + 1}, {"l", losses[i]}, {"tip", fmt::format("step {}\nloss {}", i + 1, number(losses[i]))}});
    }
    table.rows.push_back({std::to_string(i + 1), fmt::format("{:.6g}", losses[i])});
  }
  json spec = base_spec(200, {72, 20, 12, 48});
  spec["data"] = json::array({{{"name", "loss"}, {"values", values}}});
  spec["scales"] = json::parse(R"json([
      {"name": "x", "type": "linear", "range": "width", "zero": false, "domain": {"data": "loss", "field": "s"}},
      {
        "name": "y", "type": "linear", "range": [200, 0], "zero": false, "nice": true,
        "domain": {"data": "loss", "field": "l"}
      }
    ])json");
  spec["axes"] = json::parse(R"json([
      {
        "orient": "left", "scale": "y", "grid": true, "domain": false, "ticks": false, "tickCount": 5,
        "title": "loss (nats per token)"
      },
      {
        "orient": "bottom", "scale": "x", "title": "step", "format": "d", "tickMinStep": 1,
        "tickCount": {"signal": "max(4, width / 110)"}
      }
    ])json");
  spec["marks"] = json::parse(R"json([
      {
        "type": "line", "from": {"data": "loss"},
        "encode": {
          "update": {
            "x": {"scale": "x", "field": "s"}, "y": {"scale": "y", "field": "l"},
            "stroke": {"value": "var(--backward)"}, "strokeWidth": {"value": 2}
          }
        }
      },
      {
        "type": "symbol", "from": {"data": "loss"},
        "encode": {
          "update": {
            "x": {"scale": "x", "field": "s"}, "y": {"scale": "y", "field": "l"},
            "fill": {"value": "var(--backward)"}, "tooltip": {"field": "tip"}
          },
          "enter": {"size": {"value": 20}}
        }
      }
    ])json");
  chart.data = {std::move(table)};
  chart.spec = spec.dump(-1, ' ', true, json::error_handler_t::replace);
  return chart;
}

}  // namespace orrery::reports::html

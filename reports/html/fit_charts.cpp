/// How well predictions meet measurements: step times of runs, and every span before and after calibration.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "reports/html/chart.h"
#include "reports/html/panels.h"
#include "reports/tables.h"
#include "reports/text.h"

namespace orrery::reports::html {
namespace {

constexpr double kPromised = 0.15;       // the band drawn around "equal": what calibration promises on held-out runs
constexpr std::size_t kMostDots = 1500;  // per panel of the scatter; beyond that every n-th residual

struct Extent {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  void include(double value) {
    if (!(value > 0) || !std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

/// Whole decades are too coarse for an axis that spans less than one; uses a fifth of margin on both sides instead.
json log_domain(const Extent& extent, double factor) {
  return {extent.low * factor / 1.25, extent.high * factor * 1.25};
}

void scatter_panel(json& group, const std::string& field, int height, const Unit& unit, const json& domain) {
  group.update(json::parse(R"json({
      "scales": [{"name": "x", "type": "log", "range": [0, {"signal": "panel"}]}, {"name": "y", "type": "log"}],
      "axes": [
        {
          "orient": "left", "scale": "y", "grid": true, "gridScale": "x", "domain": false, "ticks": false,
           "format": "~g"
        },
        {
          "orient": "bottom", "scale": "x", "grid": true, "gridScale": "y", "domain": false, "ticks": false,
           "format": "~g"
        }
      ],
      "marks": [
        {
          "type": "group", "clip": true,
          "marks": [
            {
              "type": "area", "from": {"data": "line"}, "interactive": false,
              "encode": {
                "update": {
                  "x": {"scale": "x", "field": "v"}, "y": {"scale": "y", "field": "hi"},
                  "y2": {"scale": "y", "field": "lo"}, "fill": {"value": "var(--ink)"},
                  "fillOpacity": {"value": 0.07}
                }
              }
            },
            {
              "type": "line", "from": {"data": "line"}, "interactive": false,
              "encode": {
                "update": {
                  "x": {"scale": "x", "field": "v"}, "y": {"scale": "y", "field": "v"},
                  "stroke": {"value": "var(--muted)"}, "strokeWidth": {"value": 1}
                }
              }
            },
            {
              "type": "symbol", "from": {"data": "dots"},
              "encode": {
                "update": {
                  "x": {"scale": "x", "field": "m"}, "size": {"value": 26},
                  "fill": {"signal": "datum.h ? 'var(--paper)' : 'var(--backward)'"},
                  "fillOpacity": {"signal": "datum.h ? 1 : 0.45"},
                  "stroke": {"signal": "datum.h ? 'var(--communication)' : 'none'"},
                  "strokeWidth": {"value": 1.5}
                },
                "hover": {"fillOpacity": {"value": 1}}
              }
            }
          ]
        }
      ]
    })json"));
  group["marks"][0]["encode"]["update"] = {{"width", {{"signal", "panel"}}}, {"height", {{"value", height}}}};
  group["scales"][0]["domain"] = group["scales"][1]["domain"] = domain;
  group["scales"][1]["range"] = {height, 0};
  group["axes"][0]["values"] = group["axes"][1]["values"] = log_ticks(domain[0], domain[1]);
  group["axes"][0]["title"] = "predicted (" + unit.name + ")";
  group["axes"][1]["title"] = "measured (" + unit.name + ")";
  json& dots = group["marks"][0]["marks"][2]["encode"]["update"];
  dots["y"] = {{"scale", "y"}, {"field", field}};
  dots["tooltip"] = {{"field", field + "tip"}};
}

std::string run_label(const cost::MeasuredRun& run) {
  std::string label = plan::describe(run.spec);
  if (run.oversubscribed)
    label += " (crowded)";
  else if (run.used_in_fit)
    label += " (fit)";
  return label;
}

}  // namespace

Chart residuals_chart(const cost::FitResult& fit) {
  Chart chart;
  chart.title = "Calibration: every span, before and after";
  std::vector<const cost::Residual*> shown;
  Extent extent;
  for (const cost::Residual& r : fit.residuals) {
    if (!(r.measured_s > 0) || !(r.predicted_before_s > 0) || !(r.predicted_after_s > 0)) continue;
    shown.push_back(&r);
    for (const double v : {r.measured_s, r.predicted_before_s, r.predicted_after_s}) extent.include(v);
  }
  const std::size_t stride = shown.size() / kMostDots + 1;
  const Unit unit = time_unit(extent.high);
  json dots = json::array();
  bool any_held_out = false;
  for (std::size_t i = 0; i < shown.size(); i += stride) {
    const cost::Residual& r = *shown[i];
    any_held_out |= r.held_out;
    const auto tip = [&](double predicted) {
      return fmt::format("{} · {}{}\nmeasured {}\npredicted {} ({:+.1f} %)", r.what, r.run,
                         r.held_out ? " · held out" : "", time_text(r.measured_s), time_text(predicted),
                         100 * (predicted / r.measured_s - 1));
    };
    dots.push_back({{"m", r.measured_s * unit.factor},
                    {"p", r.predicted_before_s * unit.factor},
                    {"q", r.predicted_after_s * unit.factor},
                    {"h", r.held_out},
                    {"ptip", tip(r.predicted_before_s)},
                    {"qtip", tip(r.predicted_after_s)}});
  }
  chart.text = fmt::format(
      "Each dot is a kind of schedule step: measured horizontally, predicted vertically, both axes logarithmic. On the "
      "line both are equal; the band is ±{:.0f} %.",
      100 * kPromised);
  if (stride > 1) chart.text += fmt::format(" {} of {} spans are drawn.", dots.size(), shown.size());
  chart.legend = {{"used in the fit", "var(--backward)", "dot"}};
  if (any_held_out) chart.legend.push_back({"held out", "var(--communication)", "ring"});
  chart.description = fmt::format("Mean error over the spans: {} before, {} after.", percent(fit.error_before),
                                  percent(fit.error_after));
  constexpr int kHeight = 300;
  const Panels panels(2, kHeight, 0);
  json spec = panels_spec(panels);
  const json domain = log_domain(extent, unit.factor);
  json line = json::array();
  for (const double v : {domain[0].get<double>(), domain[1].get<double>()})
    line.push_back({{"v", v}, {"lo", v * (1 - kPromised)}, {"hi", v * (1 + kPromised)}});
  spec["data"] = json::array({{{"name", "dots"}, {"values", dots}}, {{"name", "line"}, {"values", line}}});
  scatter_panel(add_panel(spec, panels, fmt::format("Before: mean error {}", percent(fit.error_before))), "p", kHeight,
                unit, domain);
  scatter_panel(add_panel(spec, panels, fmt::format("After: mean error {}", percent(fit.error_after))), "q", kHeight,
                unit, domain);
  chart.data = {residuals_table(fit.residuals)};
  chart.spec = text_of_spec(std::move(spec));
  return chart;
}

Chart runs_chart(const std::vector<cost::MeasuredRun>& runs) {
  Chart chart;
  chart.title = "Predicted against measured";
  chart.text = fmt::format(
      "Step time of each plan that was run. The bar is the measured time ±{:.0f} %; a prediction inside it is within "
      "that error.",
      100 * kPromised);
  Extent extent;
  json values = json::array(), rows = json::array();
  std::vector<std::string> labels;
  bool before = false;
  for (const cost::MeasuredRun& run : runs) {
    if (!(run.step_time_s > 0)) continue;
    extent.include(run.step_time_s * (1 + kPromised));
    extent.include(run.predicted_before_s);
    extent.include(run.predicted_after_s);
    before |= run.predicted_before_s > 0;
    std::string label = run_label(run);
    for (int n = 2; std::find(labels.begin(), labels.end(), label) != labels.end(); ++n)
      label = fmt::format("{} #{}", run_label(run), n);
    labels.push_back(label);
    rows.push_back(label);
  }
  const Unit unit = time_unit(extent.high);
  std::size_t at = 0;
  for (const cost::MeasuredRun& run : runs) {
    if (!(run.step_time_s > 0)) continue;
    const auto tip = [&](const char* what, double predicted) {
      return fmt::format("{}\n{} {}\nmeasured {}\nerror {:+.1f} %", labels[at], what, time_text(predicted),
                         time_text(run.step_time_s), 100 * (predicted / run.step_time_s - 1));
    };
    json value = {{"row", labels[at]},
                  {"m", run.step_time_s * unit.factor},
                  {"dim", run.oversubscribed},
                  {"lo", run.step_time_s * (1 - kPromised) * unit.factor},
                  {"hi", run.step_time_s * (1 + kPromised) * unit.factor},
                  {"mtip", labels[at] + "\nmeasured " + time_text(run.step_time_s)}};
    if (run.predicted_before_s > 0) {
      value["p"] = run.predicted_before_s * unit.factor;
      value["ptip"] = tip("before calibration", run.predicted_before_s);
    }
    if (run.predicted_after_s > 0) {
      value["q"] = run.predicted_after_s * unit.factor;
      value["qtip"] = tip("after calibration", run.predicted_after_s);
    }
    values.push_back(std::move(value));
    ++at;
  }
  chart.legend = {{"measured", "var(--ink)", "tick"}};
  if (before) chart.legend.push_back({"predicted before calibration", "var(--communication)", "ring"});
  chart.legend.push_back({before ? "predicted after calibration" : "predicted", "var(--backward)", "dot"});
  const double error = held_out_error(runs);
  if (std::isfinite(error))
    chart.description = fmt::format("Median error of the step time on runs not used in the fit: {}.", percent(error));
  chart.text += chart.description.empty() ? "" : " " + chart.description;
  constexpr int kNamedRow = 42;  // pixels: its name above its marks, so that long names have room on a narrow page
  const int height = kNamedRow * static_cast<int>(labels.size());
  json spec = base_spec(height, {8, 20, 2, 48});
  json scales = json::parse(R"json([
      {"name": "x", "type": "linear", "range": "width", "zero": true, "nice": true},
      {"name": "y", "type": "band"}
    ])json");
  scales[0]["domain"] = {0, extent.high * unit.factor};
  scales[1]["domain"] = rows;
  scales[1]["range"] = {0, height};
  spec["scales"] = scales;
  spec["axes"] = json::parse(R"json([
      {
        "orient": "bottom", "scale": "x", "grid": true, "domain": false,
        "tickCount": {"signal": "max(3, width / 110)"}
      }
    ])json");
  spec["axes"][0]["title"] = "step time (" + unit.name + ")";
  spec["data"] = json::array({{{"name", "runs"}, {"values", values}}});
  for (const char* field : {"p", "q"}) {
    json subset = {{"name", std::string("with-") + field}, {"source", "runs"}};
    subset["transform"] = json::array({{{"type", "filter"}, {"expr", std::string("isValid(datum.") + field + ")"}}});
    spec["data"].push_back(std::move(subset));
  }
  spec["marks"] = json::parse(R"json([
      {
        "type": "rect", "from": {"data": "runs"}, "interactive": false,
        "encode": {
          "update": {
            "x": {"scale": "x", "field": "lo"}, "x2": {"scale": "x", "field": "hi"},
            "y": {"scale": "y", "field": "row", "offset": 18}, "height": {"value": 16},
            "fill": {"value": "var(--ink)"}, "fillOpacity": {"value": 0.09}
          }
        }
      },
      {
        "type": "text", "from": {"data": "runs"}, "interactive": false,
        "encode": {
          "update": {
            "x": {"value": 0}, "y": {"scale": "y", "field": "row", "offset": 13}, "text": {"field": "row"},
            "limit": {"signal": "width"}
          }
        }
      },
      {
        "type": "rect", "from": {"data": "runs"},
        "encode": {
          "update": {
            "x": {"scale": "x", "field": "m", "offset": -1.5}, "width": {"value": 3},
            "y": {"scale": "y", "field": "row", "offset": 18}, "height": {"value": 16},
            "fill": {"value": "var(--ink)"}, "fillOpacity": {"signal": "datum.dim ? 0.4 : 1"},
            "tooltip": {"field": "mtip"}
          }
        }
      },
      {
        "type": "symbol", "from": {"data": "with-p"},
        "encode": {
          "update": {
            "x": {"scale": "x", "field": "p"}, "y": {"scale": "y", "field": "row", "offset": 26},
            "size": {"value": 60}, "fill": {"value": "var(--paper)"},
            "stroke": {"value": "var(--communication)"}, "strokeWidth": {"value": 2},
            "tooltip": {"field": "ptip"}
          }
        }
      },
      {
        "type": "symbol", "from": {"data": "with-q"},
        "encode": {
          "update": {
            "x": {"scale": "x", "field": "q"}, "y": {"scale": "y", "field": "row", "offset": 26},
            "size": {"value": 70}, "fill": {"value": "var(--backward)"}, "stroke": {"value": "var(--paper)"},
            "strokeWidth": {"value": 1}, "tooltip": {"field": "qtip"}
          }
        }
      }
    ])json");
  Table table = runs_table(runs);
  table.title.clear();
  chart.data = {std::move(table)};
  chart.spec = text_of_spec(std::move(spec));
  return chart;
}

}  // namespace orrery::reports::html

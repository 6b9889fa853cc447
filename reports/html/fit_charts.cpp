/// How well predictions meet measurements: step times of runs, and every span before and after calibration.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "reports/html/chart.h"
#include "reports/html/chart_template.h"
#include "reports/html/panels.h"
#include "reports/tables/tables.h"
#include "reports/tables/text.h"

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

std::string run_label(const cost::MeasuredRun& run, bool fitted) {
  std::string label = plan::describe(run.spec);
  if (run.oversubscribed)
    label += " (crowded)";
  else if (fitted && run.used_in_fit)
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
  json before = json::array(), after = json::array();
  bool any_held_out = false;
  for (std::size_t i = 0; i < shown.size(); i += stride) {
    const cost::Residual& r = *shown[i];
    any_held_out |= r.held_out;
    const auto add = [&](json& dots, double predicted) {
      dots.push_back({{"m", r.measured_s * unit.factor},
                      {"p", predicted * unit.factor},
                      {"held", r.held_out},
                      {"tip", fmt::format("{} · {}{}\nmeasured {}\npredicted {} ({:+.1f} %)", r.what, r.run,
                                          r.held_out ? " · held out" : "", time_text(r.measured_s),
                                          time_text(predicted), 100 * (predicted / r.measured_s - 1))}});
    };
    add(before, r.predicted_before_s);
    add(after, r.predicted_after_s);
  }
  chart.text = fmt::format(
      "Each dot is a kind of schedule step: measured horizontally, predicted vertically, both axes logarithmic. On the "
      "line both are equal; the band is ±{:.0f} %.",
      100 * kPromised);
  if (stride > 1) chart.text += fmt::format(" {} of {} spans are drawn.", before.size(), shown.size());
  chart.legend = {{"used in the fit", "var(--backward)", "dot"}};
  if (any_held_out) chart.legend.push_back({"held out", "var(--communication)", "ring"});
  chart.description = fmt::format("Mean error over the spans: {} before, {} after.", percent(fit.error_before),
                                  percent(fit.error_after));
  const json domain = log_domain(extent, unit.factor);
  json line = json::array();
  for (const double v : {domain[0].get<double>(), domain[1].get<double>()})
    line.push_back({{"v", v}, {"lo", v * (1 - kPromised)}, {"hi", v * (1 + kPromised)}});
  json panels = json::array({panel_row(0, 2, fmt::format("Before: mean error {}", percent(fit.error_before))),
                             panel_row(1, 2, fmt::format("After: mean error {}", percent(fit.error_after)))});
  panels[0]["dots"] = std::move(before);
  panels[1]["dots"] = std::move(after);
  chart.data = {residuals_table(fit.residuals)};
  chart.spec = chart_spec("residuals", {{"line", std::move(line)}, {"panels", std::move(panels)}},
                          {{"extent", domain}, {"ticks", log_ticks(domain[0], domain[1])}, {"unit", unit.name}});
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
  json values = json::array();
  std::vector<std::string> labels;
  const bool fitted = calibrated(runs);
  for (const cost::MeasuredRun& run : runs) {
    if (!(run.step_time_s > 0)) continue;
    extent.include(run.step_time_s * (1 + kPromised));
    extent.include(run.predicted_before_s);
    extent.include(run.predicted_after_s);
    std::string label = run_label(run, fitted);
    for (int n = 2; std::find(labels.begin(), labels.end(), label) != labels.end(); ++n)
      label = fmt::format("{} #{}", run_label(run, fitted), n);
    labels.push_back(label);
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
    if (fitted && run.predicted_before_s > 0) {
      value["p"] = run.predicted_before_s * unit.factor;
      value["ptip"] = tip("before calibration", run.predicted_before_s);
    }
    if (run.predicted_after_s > 0) {
      value["q"] = run.predicted_after_s * unit.factor;
      value["qtip"] = tip(fitted ? "after calibration" : "predicted", run.predicted_after_s);
    }
    values.push_back(std::move(value));
    ++at;
  }
  chart.legend = {{"measured", "var(--ink)", "tick"}};
  if (fitted) chart.legend.push_back({"predicted before calibration", "var(--communication)", "ring"});
  chart.legend.push_back({fitted ? "predicted after calibration" : "predicted", "var(--backward)", "dot"});
  const double error = held_out_error(runs);
  if (std::isfinite(error))
    chart.description = fmt::format("Median error of the step time on runs not used in the fit: {}.", percent(error));
  chart.text += chart.description.empty() ? "" : " " + chart.description;
  Table table = runs_table(runs);
  table.title.clear();
  chart.data = {std::move(table)};
  chart.spec = chart_spec("runs", {{"runs", std::move(values)}},
                          {{"longest", extent.high * unit.factor}, {"title", "step time (" + unit.name + ")"}});
  return chart;
}

}  // namespace orrery::reports::html

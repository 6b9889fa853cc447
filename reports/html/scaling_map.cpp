/// The map of a scaling study over two of its swept dimensions.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/units.h"
#include "plan/spec/plan.h"
#include "reports/html/chart_template.h"
#include "reports/html/panels.h"
#include "reports/html/scaling_charts.h"
#include "reports/scaling.h"

namespace orrery::reports::html {
namespace {

/// A dimension that jobs may be swept over.
struct Swept {
  const char* name;
  std::string (*value)(const cost::ScalingSeries&);
};
constexpr Swept kSwept[] = {
    {"model", [](const cost::ScalingSeries& s) { return s.model; }},
    {"cluster", [](const cost::ScalingSeries& s) { return s.cluster; }},
    {"sequence", [](const cost::ScalingSeries& s) { return fmt::format("{}", s.sequence); }},
    {"batch", [](const cost::ScalingSeries& s) { return fmt::format("{}", s.batch); }},
};

/// Values of a dimension, in the order in which they were given.
std::vector<std::string> values_of(const cost::ScalingStudy& study, const Swept& swept) {
  std::vector<std::string> out;
  for (const cost::ScalingSeries& series : study.series)
    if (std::find(out.begin(), out.end(), swept.value(series)) == out.end()) out.push_back(swept.value(series));
  return out;
}

/// What a panel shows: a size, and what else its series share.
using PanelKey = std::pair<int, std::string>;

std::string rest_of(const cost::ScalingSeries& series, const cost::ScalingStudy& study,
                    const std::vector<const Swept*>& axes) {
  std::string out;
  for (const Swept& one : kSwept)
    if (std::none_of(axes.begin(), axes.end(), [&](const Swept* axis) { return axis->name == one.name; }) &&
        values_of(study, one).size() > 1)
      out += fmt::format(", {} {}", one.name, one.value(series));
  const bool both = std::any_of(study.series.begin(), study.series.end(),
                                [&](const auto& other) { return other.scaling != series.scaling; });
  return both ? out + fmt::format(", {} scaling", cost::name_of(series.scaling)) : out;
}

}  // namespace

std::optional<Chart> scaling_map(const cost::ScalingStudy& study) {
  std::vector<const Swept*> axes;
  for (const Swept& one : kSwept)
    if (values_of(study, one).size() > 1 && axes.size() < 2) axes.push_back(&one);
  if (axes.size() < 2) return std::nullopt;
  const std::vector<std::string> x = values_of(study, *axes[0]), y = values_of(study, *axes[1]);
  std::set<std::pair<std::string, std::string>> crossed;
  for (const cost::ScalingSeries& series : study.series)
    crossed.emplace(axes[0]->value(series), axes[1]->value(series));
  if (crossed.size() < x.size() * y.size()) return std::nullopt;  // jobs that differ in both: no map, but a diagonal
  std::map<PanelKey, json> cells;
  Table table{"",
              {{"devices", Align::right},
               {axes[0]->name, Align::left},
               {axes[1]->name, Align::left},
               {"MFU", Align::right},
               {"per device", Align::right},
               {"plan", Align::left}},
              {},
              {}};
  Chart chart;
  double most = 0;
  for (const cost::ScalingSeries& series : study.series)
    for (const cost::ScalingPoint& p : series.points)
      if (p.best) most = std::max(most, p.best->mfu);
  if (most <= 0) return std::nullopt;
  for (const cost::ScalingSeries& series : study.series)
    for (const cost::ScalingPoint& p : series.points) {
      const std::string at_x = axes[0]->value(series), at_y = axes[1]->value(series);
      json& panel = cells.try_emplace({p.devices, rest_of(series, study, axes)}, json::array()).first->second;
      const double mfu = p.best ? p.best->mfu : 0;
      panel.push_back({{"x", at_x},
                       {"y", at_y},
                       {"share", mfu / most},
                       {"text", p.best ? percent(mfu) : "—"},
                       {"tip", fmt::format("{}, {}: {}\n{}", at_x, at_y, count_text(p.devices, "device"),
                                           p.best ? plan::describe(p.best->spec) : p.reason)}});
      chart.description += fmt::format("{}, {}, {}: {}. ", at_x, at_y, count_text(p.devices, "device"),
                                       p.best ? percent(mfu) : std::string("no plan"));
      table.rows.push_back({fmt::format("{}", p.devices), at_x, at_y, p.best ? percent(mfu) : "—",
                            p.best ? number(p.tokens_per_s_per_device) : "—",
                            p.best ? plan::describe(p.best->spec) : p.reason});
    }
  chart.title = fmt::format("MFU by {} and {}", axes[0]->name, axes[1]->name);
  chart.text = "One map per size: model FLOPs over the devices' peak, for the best plan. A dash: no plan fits.";
  json panels = json::array();
  for (auto& [key, values] : cells) {
    panels.push_back(panel_row(panels.size(), cells.size(), count_text(key.first, "device") + key.second));
    panels.back()["cells"] = std::move(values);
  }
  chart.spec =
      chart_spec("map", {{"panels", std::move(panels)}}, {{"across", x}, {"down", y}, {"labels", label_width(y)}});
  chart.data = {std::move(table)};
  return chart;
}

}  // namespace orrery::reports::html

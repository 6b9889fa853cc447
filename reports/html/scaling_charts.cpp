/// Scaling studies on the page: curves, bars and maps in panels.
#include "reports/html/scaling_charts.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/units.h"
#include "plan/spec/plan.h"
#include "reports/html/page.h"
#include "reports/html/panels.h"
#include "reports/scaling.h"

namespace orrery::reports::html {
namespace {

constexpr int kPanelHeight = 200;
constexpr double kRoom = 1.08;  // above the highest mark
constexpr double kAlike = 4;    // panels whose highest marks differ by no more have one scale, to be compared by eye

using Points = std::vector<const cost::ScalingPoint*>;

Points points_of(const cost::ScalingSeries& series) {
  Points out;
  for (const cost::ScalingPoint& point : series.points)
    if (point.best && point.tokens_per_s_per_device > 0) out.push_back(&point);
  return out;
}

/// Indices of the series that have anything to show.
std::vector<std::size_t> drawn_series(const cost::ScalingStudy& study) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < study.series.size(); ++i)
    if (!points_of(study.series[i]).empty()) out.push_back(i);
  return out;
}

/// The highest mark of each panel, or of all where they are alike.
std::vector<double> heights(std::vector<double> highest) {
  const double most = *std::max_element(highest.begin(), highest.end());
  if (most <= kAlike * *std::min_element(highest.begin(), highest.end()))
    std::fill(highest.begin(), highest.end(), most);
  return highest;
}

json field_of(const char* scale, const char* field) {
  return {{"scale", scale}, {"field", field}};
}

json left_axis(const std::string& title, const char* format) {
  return {{"orient", "left"}, {"scale", "y"},     {"grid", true},   {"gridScale", "x"}, {"domain", false},
          {"ticks", false},   {"format", format}, {"tickCount", 5}, {"title", title}};
}

/// A curve over sizes: its points, band and measurements.
struct Curve {
  json points = json::array(), band = json::array(), measured = json::array(), sizes = json::array();
  json of_plan = json::array();  ///< what is predicted of the plans that were measured
  double ideal = 0, high = 0;
  int first = 0, last = 0;
};

std::string tip_of(const cost::ScalingSeries& series, const cost::ScalingPoint& p) {
  std::string tip = fmt::format("{} devices\n{}\n{}, {} {}/s per device", p.devices, plan::describe(p.best->spec),
                                time_text(p.best->step_time_s), number(p.tokens_per_s_per_device),
                                series.samples ? "samples" : "tokens");
  tip += fmt::format("\nefficiency {}", percent(p.efficiency));
  return tip;
}

Curve curve_of(const cost::ScalingSeries& series, bool efficiency) {
  Curve out;
  const Points points = points_of(series);
  out.first = points.front()->devices;
  out.last = std::max(points.back()->devices, out.first + 1);
  out.ideal = efficiency ? 1 : points.front()->tokens_per_s_per_device;
  out.high = out.ideal;
  for (const cost::ScalingPoint* p : points) {
    const double value = efficiency ? p->efficiency : p->tokens_per_s_per_device;
    const auto& interval = efficiency ? p->efficiency_interval : p->tokens_per_s_per_device_interval;
    out.sizes.push_back(p->devices);
    out.high = std::max(out.high, value);
    out.points.push_back({{"n", p->devices}, {"v", value}, {"tip", tip_of(series, *p)}});
    if (!interval) continue;
    out.high = std::max(out.high, interval->high);
    out.band.push_back({{"n", p->devices}, {"low", interval->low}, {"high", interval->high}});
  }
  if (efficiency) return out;
  for (const cost::MeasuredPoint& m : series.measured) {
    const double value = static_cast<double>(m.batch * series.sequence) / (m.step_time_s * m.devices);
    out.high = std::max(out.high, value);
    out.measured.push_back({{"n", m.devices},
                            {"v", value},
                            {"tip", fmt::format("{} devices, measured\n{}\n{}\n{}", m.devices, m.source, m.plan,
                                                time_text(m.step_time_s))}});
    if (!(m.predicted_s > 0)) continue;
    const double predicted = value * m.step_time_s / m.predicted_s;
    out.high = std::max(out.high, predicted);
    out.of_plan.push_back(
        {{"n", m.devices},
         {"v", value},
         {"p", predicted},
         {"tip", fmt::format("{} devices, predicted of the measured plan\n{}\n{} ({:+.1f} %)", m.devices, m.plan,
                             time_text(m.predicted_s), 100 * (m.predicted_s / m.step_time_s - 1))}});
  }
  return out;
}

void draw(json& group, Curve curve, double high, const std::string& y_title, const char* format, int height) {
  group["data"] = json::array({{{"name", "points"}, {"values", std::move(curve.points)}},
                               {{"name", "band"}, {"values", std::move(curve.band)}},
                               {{"name", "measured"}, {"values", std::move(curve.measured)}},
                               {{"name", "of-plan"}, {"values", std::move(curve.of_plan)}}});
  group["scales"] =
      json::array({{{"name", "x"},
                    {"type", "log"},
                    {"base", 2},
                    {"domain", {curve.first, curve.last}},
                    {"range", json::array({0, {{"signal", "panel"}}})},
                    {"padding", 18}},
                   {{"name", "y"}, {"type", "linear"}, {"domain", {0, high * kRoom}}, {"range", {height, 0}}}});
  group["axes"] = json::array({left_axis(y_title, format),
                               {{"orient", "bottom"},
                                {"scale", "x"},
                                {"format", "d"},
                                {"title", "devices"},
                                {"labelOverlap", true},
                                {"values", std::move(curve.sizes)}}});
  group["marks"] = json::parse(R"json([
      {"type": "area", "from": {"data": "band"}, "encode": {"update": {
        "x": {"scale": "x", "field": "n"}, "y": {"scale": "y", "field": "low"}, "y2": {"scale": "y", "field": "high"},
        "fill": {"value": "var(--forward)"}}}},
      {"type": "rule", "encode": {"update": {
        "x": {"value": 0}, "x2": {"signal": "panel"}, "stroke": {"value": "var(--muted)"},
        "strokeWidth": {"value": 1}, "strokeDash": {"value": [5, 4]}}}},
      {"type": "line", "from": {"data": "points"}, "encode": {"update": {
        "x": {"scale": "x", "field": "n"}, "y": {"scale": "y", "field": "v"},
        "stroke": {"value": "var(--backward)"}, "strokeWidth": {"value": 2}}}},
      {"type": "symbol", "from": {"data": "points"}, "encode": {"update": {
        "x": {"scale": "x", "field": "n"}, "y": {"scale": "y", "field": "v"},
        "fill": {"value": "var(--backward)"}, "size": {"value": 50}, "tooltip": {"field": "tip"}}}},
      {"type": "rule", "from": {"data": "of-plan"}, "interactive": false, "encode": {"update": {
        "x": {"scale": "x", "field": "n"}, "y": {"scale": "y", "field": "v"}, "y2": {"scale": "y", "field": "p"},
        "stroke": {"value": "var(--communication)"}, "strokeWidth": {"value": 1.5}}}},
      {"type": "symbol", "from": {"data": "of-plan"}, "encode": {"update": {
        "x": {"scale": "x", "field": "n"}, "y": {"scale": "y", "field": "p"}, "shape": {"value": "diamond"},
        "fill": {"value": "var(--communication)"}, "size": {"value": 60}, "tooltip": {"field": "tip"}}}},
      {"type": "symbol", "from": {"data": "measured"}, "encode": {"update": {
        "x": {"scale": "x", "field": "n"}, "y": {"scale": "y", "field": "v"},
        "fill": {"value": "var(--paper)"}, "stroke": {"value": "var(--ink)"}, "strokeWidth": {"value": 2},
        "size": {"value": 90}, "fillOpacity": {"value": 0}, "tooltip": {"field": "tip"}}}}
    ])json");
  group["marks"][0]["encode"]["update"]["fillOpacity"] = {{"value", kBandOpacity}};
  group["marks"][1]["encode"]["update"]["y"] = {{"scale", "y"}, {"value", curve.ideal}};
}

bool any_band(const cost::ScalingStudy& study) {
  return std::any_of(study.series.begin(), study.series.end(), [](const auto& s) {
    return std::any_of(s.points.begin(), s.points.end(), [](const auto& p) { return p.step_time_s.has_value(); });
  });
}

std::string description_of(const cost::ScalingStudy& study) {
  std::string out;
  for (const std::size_t i : drawn_series(study)) {
    out += series_name(study, i) + ": ";
    for (const cost::ScalingPoint* p : points_of(study.series[i]))
      out += fmt::format("{} devices {} ({}). ", p->devices, time_text(p->best->step_time_s), percent(p->efficiency));
  }
  return out;
}

/// The tables of all series, each under the series' name if there are several.
template <class Make>
std::vector<Table> tables_of_series(const cost::ScalingStudy& study, const Make& make) {
  std::vector<Table> out;
  for (const std::size_t i : drawn_series(study)) {
    Table table = make(study.series[i]);
    if (table.rows.empty()) continue;
    table.title = study.series.size() > 1 ? series_name(study, i) : "";
    out.push_back(std::move(table));
  }
  return out;
}

Chart curves_chart(const cost::ScalingStudy& study, bool efficiency) {
  Chart chart;
  const std::vector<std::size_t> series = drawn_series(study);
  const bool clicks = study.series[series.front()].samples;
  chart.title = efficiency ? "Scaling efficiency" : "Throughput per device";
  chart.text = efficiency
                   ? "Throughput per device over that of the smallest size with a plan; the dashed line is ideal."
                   : "What each device achieves as more devices share the work; the dashed line is ideal: as much as "
                     "at the smallest size.";
  chart.description = description_of(study);
  chart.legend = {{"predicted", "var(--backward)", "dot"}};
  if (any_band(study)) chart.legend.push_back({"four of five runs", "var(--forward)", "band"});
  const bool measured =
      std::any_of(study.series.begin(), study.series.end(), [](const auto& s) { return !s.measured.empty(); });
  if (measured && !efficiency) {
    chart.legend.push_back({"measured, whatever its plan", "var(--ink)", "ring"});
    chart.legend.push_back({"predicted of that plan", "var(--communication)", "diamond"});
  }
  chart.legend.push_back({"ideal", "var(--muted)", "dashed"});
  const Panels panels(series.size(), kPanelHeight);
  json spec = panels_spec(panels);
  std::vector<Curve> curves;
  std::vector<double> highest;
  for (const std::size_t i : series) {
    curves.push_back(curve_of(study.series[i], efficiency));
    highest.push_back(curves.back().high);
  }
  highest = heights(std::move(highest));
  for (std::size_t at = 0; at < series.size(); ++at)
    draw(add_panel(spec, panels, series.size() > 1 ? series_name(study, series[at]) : ""), std::move(curves[at]),
         highest[at],
         efficiency ? "efficiency"
         : clicks   ? "samples/s per device"
                    : "tokens/s per device",
         efficiency ? "%" : "~s", kPanelHeight);
  chart.spec = text_of_spec(std::move(spec));
  chart.data = tables_of_series(study, efficiency ? losses_table : sizes_table);
  return chart;
}

std::string colour_of_cause(cost::Cause cause) {
  switch (cause) {
    case cost::Cause::compute: return "var(--backward)";
    case cost::Cause::recompute: return "var(--recompute)";
    case cost::Cause::optimizer: return "var(--optimizer)";
    case cost::Cause::bubble: return "var(--waiting)";
    case cost::Cause::imbalance: return "var(--imbalance)";
    case cost::Cause::tensor: return "var(--communication)";
    case cost::Cause::context: return "var(--bad)";
    case cost::Cause::exchange: return "var(--communication-4)";
    case cost::Cause::data: return "var(--communication-2)";
    case cost::Cause::pipeline: return "var(--communication-3)";
    case cost::Cause::copies: return "var(--copies)";
    case cost::Cause::contention: return "var(--contention)";
    case cost::Cause::host: return "var(--other)";
  }
  return "var(--other)";
}

/// Bars over sizes, stacked from boxes {n, from, to, fill, tip}; `limit`: a line across, 0 for none.
void draw_bars(json& group, json boxes, json sizes, double high, double limit, const std::string& y_title, int height) {
  group["data"] = json::array({{{"name", "boxes"}, {"values", std::move(boxes)}}});
  group["scales"] = json::array(
      {{{"name", "x"},
        {"type", "band"},
        {"domain", std::move(sizes)},
        {"range", json::array({0, {{"signal", "panel"}}})},
        {"padding", 0.3}},
       {{"name", "y"}, {"type", "linear"}, {"domain", {0, std::max(high, limit) * kRoom}}, {"range", {height, 0}}}});
  group["axes"] = json::array(
      {left_axis(y_title, ".3~r"),
       {{"orient", "bottom"}, {"scale", "x"}, {"title", "devices"}, {"labelOverlap", true}, {"ticks", false}}});
  json bar = {{"type", "rect"}, {"from", {{"data", "boxes"}}}};
  bar["encode"]["update"] = {{"x", field_of("x", "n")},     {"width", {{"scale", "x"}, {"band", 1}}},
                             {"y", field_of("y", "from")},  {"y2", field_of("y", "to")},
                             {"fill", {{"field", "fill"}}}, {"tooltip", {{"field", "tip"}}}};
  group["marks"].push_back(std::move(bar));
  if (limit <= 0) return;
  json rule = {{"type", "rule"}};
  rule["encode"]["update"] = {{"x", {{"value", 0}}},
                              {"x2", {{"signal", "panel"}}},
                              {"y", {{"scale", "y"}, {"value", limit}}},
                              {"stroke", {{"value", "var(--limit)"}}},
                              {"strokeDash", {{"value", {5, 4}}}},
                              {"strokeWidth", {{"value", 1.5}}}};
  group["marks"].push_back(std::move(rule));
}

Chart causes_chart(const cost::ScalingStudy& study) {
  Chart chart;
  const std::vector<std::size_t> series = drawn_series(study);
  const char* piece = study.series[series.front()].samples ? "sample" : "token";
  chart.title = fmt::format("Device time per {} by cause", piece);
  chart.text =
      "What all devices together spend on one; bars as high as the first are ideal scaling. The tables of lost "
      "efficiency show what each cause costs from size to size.";
  chart.description = description_of(study);
  const Panels panels(series.size(), kPanelHeight);
  json spec = panels_spec(panels);
  std::set<cost::Cause> used;
  std::vector<double> highest;
  for (const std::size_t i : series) {
    double high = 0;
    for (const cost::ScalingPoint* p : points_of(study.series[i]))
      high = std::max(high, 1 / p->tokens_per_s_per_device);
    highest.push_back(high);
  }
  const Unit unit = time_unit(*std::min_element(highest.begin(), highest.end()));
  highest = heights(std::move(highest));
  for (std::size_t at = 0; at < series.size(); ++at) {
    const std::size_t i = series[at];
    const Points points = points_of(study.series[i]);
    json boxes = json::array(), sizes = json::array();
    for (const cost::ScalingPoint* p : points) {
      sizes.push_back(p->devices);
      double from = 0;
      for (const cost::CauseWords& cause : cost::kCauses) {
        const double seconds = p->seconds_by_cause.at(static_cast<std::size_t>(cause.cause));
        if (seconds <= 0) continue;
        used.insert(cause.cause);
        boxes.push_back({{"n", p->devices},
                         {"from", from * unit.factor},
                         {"to", (from + seconds) * unit.factor},
                         {"fill", colour_of_cause(cause.cause)},
                         {"tip", fmt::format("{} devices: {}\n{} ({})\n{}", p->devices, cause.name, time_text(seconds),
                                             percent(seconds * p->tokens_per_s_per_device), cause.says)}});
        from += seconds;
      }
    }
    draw_bars(add_panel(spec, panels, series.size() > 1 ? series_name(study, i) : ""), std::move(boxes),
              std::move(sizes), highest[at] * unit.factor, 0, fmt::format("device time ({})", unit.name), kPanelHeight);
  }
  for (const cost::CauseWords& cause : cost::kCauses)
    if (used.count(cause.cause) > 0) chart.legend.push_back({cause.name, colour_of_cause(cause.cause)});
  chart.spec = text_of_spec(std::move(spec));
  chart.data = tables_of_series(study, causes_table);
  return chart;
}

const cost::MemoryRow* fullest_row(const cost::ScalingPoint& point) {
  const cost::MemoryRow* most = nullptr;
  for (const cost::MemoryRow& row : point.best->memory)
    if (most == nullptr || row.total > most->total) most = &row;
  return most;
}

Chart size_memory_chart(const cost::ScalingStudy& study) {
  Chart chart;
  chart.title = "Memory by size";
  chart.text = "The fullest device at each size, by purpose, and a device's capacity.";
  const std::vector<std::size_t> series = drawn_series(study);
  const Panels panels(series.size(), kPanelHeight);
  json spec = panels_spec(panels);
  std::vector<cost::MemoryRow> all;
  for (const std::size_t i : series)
    for (const cost::ScalingPoint* p : points_of(study.series[i]))
      if (const cost::MemoryRow* row = fullest_row(*p)) all.push_back(*row);
  const std::vector<std::string> purposes = purposes_in_order(all);
  for (const std::size_t i : series) {
    const Points points = points_of(study.series[i]);
    const double capacity = study.series[i].memory_bytes;
    double high = capacity;
    for (const cost::ScalingPoint* p : points) high = std::max(high, p->best->memory_peak_bytes);
    const Unit unit = byte_unit(high);
    json boxes = json::array(), sizes = json::array();
    for (const cost::ScalingPoint* p : points) {
      sizes.push_back(p->devices);
      chart.description += fmt::format("{}: {} devices {}. ", series_name(study, i), p->devices,
                                       base::human(base::Bytes{p->best->memory_peak_bytes}));
      const cost::MemoryRow* row = fullest_row(*p);
      double from = 0;
      for (const std::string& purpose : purposes) {
        const double bytes = row != nullptr && row->by_purpose.count(purpose) > 0 ? row->by_purpose.at(purpose) : 0;
        if (bytes <= 0) continue;
        boxes.push_back(
            {{"n", p->devices},
             {"from", from * unit.factor},
             {"to", (from + bytes) * unit.factor},
             {"fill", colour_of_purpose(purpose)},
             {"tip", fmt::format("{} devices: {}\n{}", p->devices, purpose, base::human(base::Bytes{bytes}))}});
        from += bytes;
      }
    }
    draw_bars(add_panel(spec, panels, series.size() > 1 ? series_name(study, i) : ""), std::move(boxes),
              std::move(sizes), high * unit.factor, capacity * unit.factor, fmt::format("memory ({})", unit.name),
              kPanelHeight);
  }
  for (const std::string& purpose : purposes) {
    std::string name = purpose;
    std::replace(name.begin(), name.end(), '_', ' ');
    chart.legend.push_back({name, colour_of_purpose(purpose)});
  }
  chart.legend.push_back({"capacity", "var(--limit)", "dashed"});
  chart.spec = text_of_spec(std::move(spec));
  chart.data = tables_of_series(study, size_memory_table);
  return chart;
}

std::string list_html(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += "<li>" + escaped(line) + "</li>\n";
  return out.empty() ? out : "<ul>\n" + out + "</ul>\n";
}

}  // namespace

std::vector<Chart> scaling_charts(const cost::ScalingStudy& study) {
  if (drawn_series(study).empty()) return {};
  std::vector<Chart> out;
  if (std::optional<Chart> costs = scaling_costs(study)) out.push_back(std::move(*costs));
  for (const bool efficiency : {false, true}) out.push_back(curves_chart(study, efficiency));
  out.push_back(causes_chart(study));
  out.push_back(size_memory_chart(study));
  if (std::optional<Chart> map = scaling_map(study)) out.push_back(std::move(*map));
  return out;
}

std::string scaling_lead(const cost::ScalingStudy& study) {
  const auto section = [](const char* title, const Table& table) {
    return table.rows.empty() ? std::string()
                              : fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", title, table_html(table));
  };
  const bool one = study.series.size() == 1;
  return section("Ways to train on the budget", ways_table(study)) +
         (one ? section("Size by size", sizes_table(study.series.front()))
              : section("Side by side", side_by_side_table(study)));
}

std::string scaling_sections(const cost::ScalingStudy& study) {
  std::string out;
  for (std::size_t i = 0; i < study.series.size(); ++i) {
    const cost::ScalingSeries& series = study.series[i];
    const bool several = study.series.size() > 1;
    out += "<section>\n<h2>" + escaped(several ? series_name(study, i) : "What growth gains") + "</h2>\n";
    for (const std::string& line : series_heading(series)) out += "<p>" + escaped(line) + "</p>\n";
    out += list_html(growth_advice(study, series));
    for (Table table : {losses_table(series), run_costs_table(series), measured_table(series)})
      if (!table.rows.empty()) out += table_html(table);
    for (const cost::ScalingPoint& point : series.points)
      if (!point.best)
        out += "<p class=\"note\">" + escaped(fmt::format("{} devices: {}", point.devices, point.reason)) + "</p>\n";
    out += "</section>\n";
  }
  std::string notes;
  for (const std::string& line : scaling_caveats(study)) notes += "<p class=\"note\">" + escaped(line) + "</p>\n";
  return out + "<section>\n<h2>What the figures leave out</h2>\n" + notes + "</section>\n";
}

}  // namespace orrery::reports::html

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
#include "reports/html/chart_template.h"
#include "reports/html/page.h"
#include "reports/html/panels.h"
#include "reports/scaling.h"

namespace orrery::reports::html {
namespace {

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

/// A curve over sizes.
struct Curve {
  json rows = json::array();  ///< by `kind`: points, a band, measurements, and what is predicted of the measured plans
  json sizes = json::array();
  double ideal = 0, high = 0;
  int first = 0, last = 0;
};

std::string tip_of(const cost::ScalingSeries& series, const cost::ScalingPoint& p) {
  std::string tip = fmt::format("{}\n{}\n{}, {} {}/s per device", count_text(p.devices, "device"),
                                plan::describe(p.best->spec), time_text(p.best->step_time_s),
                                number(p.tokens_per_s_per_device), series.samples ? "samples" : "tokens");
  tip += fmt::format("\nefficiency {}", percent(p.efficiency));
  return tip;
}

/// Whether any series has two sizes to compare.
bool has_growth(const cost::ScalingStudy& study) {
  return std::any_of(study.series.begin(), study.series.end(), [](const auto& s) { return points_of(s).size() > 1; });
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
    out.rows.push_back({{"kind", "point"}, {"n", p->devices}, {"v", value}, {"tip", tip_of(series, *p)}});
    if (!interval) continue;
    out.high = std::max(out.high, interval->high);
    out.rows.push_back({{"kind", "band"}, {"n", p->devices}, {"low", interval->low}, {"high", interval->high}});
  }
  if (efficiency) return out;
  for (const cost::MeasuredPoint& m : series.measured) {
    const double value = static_cast<double>(m.batch * series.sequence) / (m.step_time_s * m.devices);
    out.high = std::max(out.high, value);
    out.rows.push_back({{"kind", "measured"},
                        {"n", m.devices},
                        {"v", value},
                        {"tip", fmt::format("{}, measured\n{}\n{}\n{}", count_text(m.devices, "device"), m.source,
                                            m.plan, time_text(m.step_time_s))}});
    if (!(m.predicted_s > 0)) continue;
    const double predicted = value * m.step_time_s / m.predicted_s;
    out.high = std::max(out.high, predicted);
    out.rows.push_back(
        {{"kind", "of-plan"},
         {"n", m.devices},
         {"v", value},
         {"p", predicted},
         {"tip", fmt::format("{}, predicted of the measured plan\n{}\n{} ({:+.1f} %)", count_text(m.devices, "device"),
                             m.plan, time_text(m.predicted_s), 100 * (m.predicted_s / m.step_time_s - 1))}});
  }
  return out;
}

/// The row of a series' panel, without what it shows.
json series_row(const cost::ScalingStudy& study, const std::vector<std::size_t>& series, std::size_t place) {
  return panel_row(place, series.size(), series.size() > 1 ? series_name(study, series[place]) : "");
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
      out += fmt::format("{} {} ({}). ", count_text(p->devices, "device"), time_text(p->best->step_time_s),
                         percent(p->efficiency));
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
  std::vector<Curve> curves;
  std::vector<double> highest;
  for (const std::size_t i : series) {
    curves.push_back(curve_of(study.series[i], efficiency));
    highest.push_back(curves.back().high);
  }
  highest = heights(std::move(highest));
  json panels = json::array();
  for (std::size_t at = 0; at < series.size(); ++at) {
    json panel = series_row(study, series, at);
    panel["sizes"] = std::move(curves[at].sizes);
    panel["extent"] = {curves[at].first, curves[at].last};
    panel["high"] = highest[at] * kRoom;
    panel["ideal"] = curves[at].ideal;
    panel["rows"] = std::move(curves[at].rows);
    panels.push_back(std::move(panel));
  }
  const char* rate = clicks ? "samples/s per device" : "tokens/s per device";
  chart.spec = chart_spec("curves", {{"panels", std::move(panels)}},
                          {{"title", efficiency ? "efficiency" : rate},
                           {"format", efficiency ? "%" : "~s"},
                           {"bandOpacity", kBandOpacity}});
  chart.data = tables_of_series(study, sizes_table);
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

/// A panel of bars over sizes, stacked from boxes {n, from, to, fill, tip}.
json bars_row(json panel, json boxes, json sizes, double high, const std::string& axis) {
  panel["rows"] = std::move(boxes);
  panel["sizes"] = std::move(sizes);
  panel["high"] = high * kRoom;
  panel["axis"] = axis;
  return panel;
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
  json panels = json::array();
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
    const Points points = points_of(study.series[series[at]]);
    json boxes = json::array(), sizes = json::array();
    for (const cost::ScalingPoint* p : points) {
      sizes.push_back(p->devices);
      double from = 0;
      for (const cost::CauseWords& cause : cost::kCauses) {
        const double seconds = p->seconds_by_cause.at(static_cast<std::size_t>(cause.cause));
        if (seconds <= 0) continue;
        used.insert(cause.cause);
        boxes.push_back(
            {{"n", p->devices},
             {"from", from * unit.factor},
             {"to", (from + seconds) * unit.factor},
             {"fill", colour_of_cause(cause.cause)},
             {"tip", fmt::format("{}: {}\n{} ({})\n{}", count_text(p->devices, "device"), cause.name,
                                 time_text(seconds), percent(seconds * p->tokens_per_s_per_device), cause.says)}});
        from += seconds;
      }
    }
    panels.push_back(bars_row(series_row(study, series, at), std::move(boxes), std::move(sizes),
                              highest[at] * unit.factor, fmt::format("device time ({})", unit.name)));
  }
  for (const cost::CauseWords& cause : cost::kCauses)
    if (used.count(cause.cause) > 0) chart.legend.push_back({cause.name, colour_of_cause(cause.cause)});
  chart.spec = chart_spec("sizes", {{"panels", std::move(panels)}}, json::object());
  chart.data = tables_of_series(study, causes_table);
  return chart;
}

/// From each size to the next: what each cause takes from the efficiency, as steps between the levels of two sizes.
Chart losses_chart(const cost::ScalingStudy& study) {
  constexpr double kShown = 5e-4;          // of the efficiency; smaller ones go together
  constexpr std::size_t kRoomOfLabel = 3;  // places between two sizes at least: a wide page then has all labels
  Chart chart;
  chart.title = "Efficiency lost from size to size";
  chart.text =
      "Marks are the efficiency at each size, in figures below it; steps between two of them are what each cause takes "
      "from it (upwards: "
      "gives back). The axis does not begin at zero.";
  std::set<cost::Cause> used;
  json panels = json::array();
  std::vector<std::size_t> series;
  for (const std::size_t i : drawn_series(study))
    if (points_of(study.series[i]).size() > 1) series.push_back(i);
  for (std::size_t at = 0; at < series.size(); ++at) {
    const cost::ScalingSeries& own = study.series[series[at]];
    json levels = json::array(), steps = json::array(), places = json::array();
    double low = 1, high = 1;
    const auto place = [&] {
      places.push_back(places.size());
      return places.size() - 1;
    };
    for (const cost::ScalingPoint* p : points_of(own)) {
      if (p->before) {
        double level = own.points[*p->before].efficiency, rest = 0;
        const std::size_t first = steps.size();
        const auto step = [&](double lost, const std::string& name, const std::string& fill, const char* says) {
          steps.push_back({{"i", place()},
                           {"from", level},
                           {"to", level - lost},
                           {"fill", fill},
                           {"tip", fmt::format("to {}: {}\n{:+.1f} points\n{}", count_text(p->devices, "device"), name,
                                               -100 * lost, says)}});
          level -= lost;
          low = std::min(low, level), high = std::max(high, level);
        };
        for (const cost::CauseWords& cause : cost::kCauses) {
          const double lost = p->efficiency_lost.at(static_cast<std::size_t>(cause.cause));
          if (std::abs(lost) < kShown) {
            rest += lost;
            continue;
          }
          used.insert(cause.cause);
          step(lost, cause.name, colour_of_cause(cause.cause), cause.says);
        }
        if (std::abs(rest) >= kShown) step(rest, "smaller ones together", "var(--other)", "");
        for (std::size_t had = steps.size() - first; had < kRoomOfLabel; ++had)
          steps.push_back({{"i", place()}, {"from", level}, {"to", level}, {"fill", "transparent"}, {"tip", ""}});
      }
      low = std::min(low, p->efficiency), high = std::max(high, p->efficiency);
      levels.push_back({{"i", place()},
                        {"head", {fmt::format("{:.0f}%", 100 * p->efficiency), std::to_string(p->devices)}},
                        {"v", p->efficiency},
                        {"tip", tip_of(own, *p)}});
    }
    const double room = std::max(0.01, 0.15 * (high - low));
    json panel = panel_row(at, series.size(), series.size() > 1 ? series_name(study, series[at]) : "");
    panel["places"] = std::move(places);
    panel["extent"] = {std::max(0.0, low - room), high + room};
    panel["levels"] = std::move(levels);
    panel["rows"] = std::move(steps);
    panels.push_back(std::move(panel));
  }
  chart.description = description_of(study);
  chart.legend = {{"efficiency at a size", "var(--ink)"}};
  for (const cost::CauseWords& cause : cost::kCauses)
    if (used.count(cause.cause) > 0) chart.legend.push_back({cause.name, colour_of_cause(cause.cause)});
  chart.spec = chart_spec("losses", {{"panels", std::move(panels)}}, json::object());
  chart.data = tables_of_series(study, losses_table);
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
  json panels = json::array();
  std::vector<cost::MemoryRow> all;
  for (const std::size_t i : series)
    for (const cost::ScalingPoint* p : points_of(study.series[i]))
      if (const cost::MemoryRow* row = fullest_row(*p)) all.push_back(*row);
  const std::vector<std::string> purposes = purposes_in_order(all);
  for (std::size_t at = 0; at < series.size(); ++at) {
    const std::size_t i = series[at];
    const Points points = points_of(study.series[i]);
    const double capacity = study.series[i].memory_bytes;
    double high = capacity;
    for (const cost::ScalingPoint* p : points) high = std::max(high, p->best->memory_peak_bytes);
    const Unit unit = byte_unit(high);
    json boxes = json::array(), sizes = json::array();
    for (const cost::ScalingPoint* p : points) {
      sizes.push_back(p->devices);
      chart.description += fmt::format("{}: {} {}. ", series_name(study, i), count_text(p->devices, "device"),
                                       base::human(base::Bytes{p->best->memory_peak_bytes}));
      const cost::MemoryRow* row = fullest_row(*p);
      double from = 0;
      for (const std::string& purpose : purposes) {
        const double bytes = row != nullptr && row->by_purpose.count(purpose) > 0 ? row->by_purpose.at(purpose) : 0;
        if (bytes <= 0) continue;
        boxes.push_back({{"n", p->devices},
                         {"from", from * unit.factor},
                         {"to", (from + bytes) * unit.factor},
                         {"fill", colour_of_purpose(purpose)},
                         {"tip", fmt::format("{}: {}\n{}", count_text(p->devices, "device"), purpose,
                                             base::human(base::Bytes{bytes}))}});
        from += bytes;
      }
    }
    if (capacity > 0) boxes.push_back({{"limit", capacity * unit.factor}});
    panels.push_back(bars_row(series_row(study, series, at), std::move(boxes), std::move(sizes), high * unit.factor,
                              fmt::format("memory ({})", unit.name)));
  }
  for (const std::string& purpose : purposes) {
    std::string name = purpose;
    std::replace(name.begin(), name.end(), '_', ' ');
    chart.legend.push_back({name, colour_of_purpose(purpose)});
  }
  chart.legend.push_back({"capacity", "var(--limit)", "dashed"});
  chart.spec = chart_spec("sizes", {{"panels", std::move(panels)}}, json::object());
  chart.data = tables_of_series(study, size_memory_table);
  return chart;
}

std::string list_html(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += "<li>" + prose(line) + "</li>\n";
  return out.empty() ? out : "<ul>\n" + out + "</ul>\n";
}

}  // namespace

std::vector<Chart> scaling_charts(const cost::ScalingStudy& study) {
  if (drawn_series(study).empty()) return {};
  std::vector<Chart> out;
  if (std::optional<Chart> costs = scaling_costs(study)) out.push_back(std::move(*costs));
  if (has_growth(study)) {
    for (const bool efficiency : {false, true}) out.push_back(curves_chart(study, efficiency));
    out.push_back(losses_chart(study));
  }
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
    for (const std::string& line : series_heading(series)) out += "<p>" + prose(line) + "</p>\n";
    out += list_html(growth_advice(study, series));
    if (several) out += table_html(sizes_table(series));  // a single one's stands at the top
    for (Table table : {losses_table(series), run_costs_table(series), measured_table(series)})
      if (!table.rows.empty()) out += table_html(table);
    out += "</section>\n";
  }
  std::string notes;
  for (const std::string& line : scaling_caveats(study)) notes += "<p class=\"note\">" + prose(line) + "</p>\n";
  return out + "<section>\n<h2>What the figures leave out</h2>\n" + notes + "</section>\n";
}

}  // namespace orrery::reports::html

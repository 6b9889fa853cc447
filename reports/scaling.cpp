/// Tables of a scaling study.
#include "reports/scaling.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/units.h"
#include "plan/spec/plan.h"
#include "reports/tables/plan_table.h"

namespace orrery::reports {
namespace {

constexpr double kDay = 86400, kKwh = 3.6e6, kGramsOfTonne = 1e6;
constexpr std::size_t kPlanWidth = 40, kSourceWidth = 36;
const std::string kNo = "—";

std::string devices_text(int n) {
  return count_text(n, "device");
}

std::string points_text(double fraction) {
  const double points = 100 * fraction;
  return std::abs(points) < 0.05 ? "0" : fmt::format("{:+.1f}", points);
}

std::string span_text(const std::optional<cost::Interval>& interval) {
  if (!interval) return kNo;
  const std::string low = time_text(interval->low), high = time_text(interval->high);
  const std::size_t a = low.find(' '), b = high.find(' ');
  const bool same = a != low.npos && b != high.npos && low.substr(a) == high.substr(b);
  return (same ? low.substr(0, a) : low) + "–" + high;
}

std::string percents(const std::optional<cost::Interval>& interval) {
  return interval ? fmt::format("{:.0f}–{:.0f} %", 100 * interval->low, 100 * interval->high) : kNo;
}

std::string error_text(double predicted, double measured) {
  if (!(predicted > 0) || !(measured > 0)) return kNo;
  return fmt::format("{:+.1f} %", 100 * (predicted / measured - 1));
}

/// Points that have a plan.
std::vector<const cost::ScalingPoint*> planned(const cost::ScalingSeries& series) {
  std::vector<const cost::ScalingPoint*> out;
  for (const cost::ScalingPoint& point : series.points)
    if (point.best) out.push_back(&point);
  return out;
}

/// Causes worth a column: those that `shown` accepts in any row.
template <class Shown>
std::vector<std::size_t> causes_with(const std::vector<const cost::ScalingPoint*>& points, const Shown& shown) {
  std::vector<std::size_t> out;
  for (std::size_t c = 0; c < cost::kCauses.size(); ++c)
    if (std::any_of(points.begin(), points.end(), [&](const auto* point) { return shown(*point, c); }))
      out.push_back(c);
  return out;
}

/// A narrow terminal leaves out the smallest columns first.
template <class Size>
std::vector<int> dropped_first(const std::vector<std::size_t>& causes, const Size& size) {
  std::vector<int> out;
  for (const std::size_t a : causes)
    out.push_back(1 + static_cast<int>(std::count_if(causes.begin(), causes.end(), [&](std::size_t b) {
                    return size(b) > size(a) || (size(b) == size(a) && b < a);
                  })));
  return out;
}

const cost::MemoryRow* fullest(const cost::Prediction& prediction) {
  const auto most = std::max_element(prediction.memory.begin(), prediction.memory.end(),
                                     [](const auto& a, const auto& b) { return a.total < b.total; });
  return most == prediction.memory.end() ? nullptr : &*most;
}

}  // namespace

std::string series_name(const cost::ScalingStudy& study, std::size_t series, bool whole) {
  const cost::ScalingSeries& own = study.series.at(series);
  const auto differs = [&](const auto& field) {
    return whole || std::any_of(study.series.begin(), study.series.end(),
                                [&](const cost::ScalingSeries& other) { return field(other) != field(own); });
  };
  std::string out;
  const auto add = [&](const std::string& text, const char* between = ", ") {
    out += (out.empty() ? "" : between) + text;
  };
  if (differs([](const auto& s) { return s.model; })) add(own.model);
  if (differs([](const auto& s) { return s.cluster; })) add(own.cluster, out.empty() ? "" : " on ");
  if (!own.samples && differs([](const auto& s) { return s.sequence; })) add(fmt::format("sequence {}", own.sequence));
  if (differs([](const auto& s) { return s.batch; })) add(fmt::format("batch {}", own.batch));
  if (differs([](const auto& s) { return s.scaling; })) add(fmt::format("{} scaling", cost::name_of(own.scaling)));
  if (differs([](const auto& s) { return s.precision; })) add(own.precision);
  return out.empty() ? own.model + " on " + own.cluster : out;
}

std::vector<std::string> series_heading(const cost::ScalingSeries& s) {
  const bool weak = s.scaling == cost::Scaling::weak;
  std::string first =
      fmt::format("{} scaling of {} ({} parameters) on {}, {} of {} each", weak ? "Weak" : "Strong", s.model,
                  base::human_count(s.parameters), s.cluster, s.device, base::human(base::Bytes{s.memory_bytes}));
  std::string second = fmt::format(
      "{}, {} {}{}", s.precision, count_text(s.batch), s.samples ? "samples" : "sequences",
      weak ? fmt::format(" at {}, growing with them", devices_text(s.points.empty() ? 0 : s.points.front().devices))
           : " a step");
  if (!s.samples) second += fmt::format(", {} tokens each", count_text(s.sequence));
  if (!s.held.empty()) second += "; fixed except for `data`: " + s.held;
  std::vector<std::string> out{first, second};
  struct Said {
    std::string stack, text, sizes;
  };
  std::vector<Said> all;
  for (const cost::ScalingPoint* point : planned(s)) {
    if (point->evidence_text.empty()) continue;
    const auto same = std::find_if(all.begin(), all.end(), [&](const Said& one) {
      return one.stack == point->stack && one.text == point->evidence_text;
    });
    if (same == all.end())
      all.push_back({point->stack, point->evidence_text, count_text(point->devices)});
    else
      same->sizes += ", " + count_text(point->devices);
  }
  for (const Said& one : all)
    out.push_back(fmt::format("Evidence for {}{}: {}", one.stack,
                              all.size() > 1 ? " (" + one.sizes + " devices)" : std::string(), one.text));
  return out;
}

Table sizes_table(const cost::ScalingSeries& series) {
  const bool weak = series.scaling == cost::Scaling::weak;
  const char* rate = series.samples ? "samples/s" : "tok/s";
  const std::string each = clusters::word_for(series.kind);
  Table table;
  const auto points = planned(series);
  const bool spread = std::any_of(points.begin(), points.end(), [](const auto* p) { return p->step_time_s; });
  table.columns = {{"devices", Align::right}};
  if (weak) table.columns.push_back({"batch", Align::right, 0, 4});
  table.columns.push_back({"step", Align::right});
  if (spread) table.columns.push_back({"4 of 5 runs", Align::right, 0, 7});
  table.columns.push_back({rate, Align::right, 0, 6});
  table.columns.push_back({fmt::format("{}/{}", rate, each), Align::right, 0, 2});
  table.columns.push_back({"MFU", Align::right, 0, 3});
  table.columns.push_back({"efficiency", Align::right});
  if (spread) table.columns.push_back({"in 4 of 5 runs", Align::right, 0, 8});
  table.columns.push_back({"of added", Align::right, 0, 5});
  table.columns.push_back({"memory", Align::right, 0, 9});
  table.columns.push_back({"plan", Align::left, 0, 10});  // a narrow terminal gives its place to figures
  for (const cost::ScalingPoint* p : points) {
    auto& row = table.rows.emplace_back();
    const auto push = [&](std::string cell) { row.push_back(std::move(cell)); };
    push(count_text(p->devices));
    if (weak) push(count_text(p->batch));
    push(time_text(p->best->step_time_s));
    if (spread) push(span_text(p->step_time_s));
    push(number(p->best->tokens_per_s));
    push(number(p->tokens_per_s_per_device));
    push(p->best->mfu > 0 ? percent(p->best->mfu) : kNo);
    push(percent(p->efficiency));
    if (spread) push(percents(p->efficiency_interval));
    push(std::isfinite(p->marginal) ? fmt::format("{:.0f} %", 100 * p->marginal) : kNo);
    push(base::human(base::Bytes{p->best->memory_peak_bytes}));
    push(split_in_letters(p->best->spec));
  }
  table.notes.push_back(
      fmt::format("Efficiency: {}/{} over that of the first row. Of added: throughput gained over devices added since "
                  "the row before.",
                  rate, each));
  for (const cost::ScalingPoint& point : series.points)
    if (!point.best) table.notes.push_back(fmt::format("{}: {}.", devices_text(point.devices), point.reason));
  return table;
}

Table losses_table(const cost::ScalingSeries& series) {
  std::vector<const cost::ScalingPoint*> points;
  for (const cost::ScalingPoint* point : planned(series))
    if (point->before) points.push_back(point);
  const auto causes =
      causes_with(points, [](const auto& p, std::size_t c) { return std::abs(p.efficiency_lost.at(c)) >= 0.0005; });
  const auto drop = dropped_first(causes, [&](std::size_t c) {
    double most = 0;
    for (const auto* p : points) most = std::max(most, std::abs(p->efficiency_lost.at(c)));
    return most;
  });
  Table table;
  table.title = "Efficiency lost from size to size, in points";
  table.columns = {{"from", Align::right}, {"to", Align::right}, {"in all", Align::right}};
  for (std::size_t i = 0; i < causes.size(); ++i)
    table.columns.push_back({cost::kCauses.at(causes[i]).name, Align::right, 0, drop[i]});
  for (const cost::ScalingPoint* p : points) {
    double all = 0;
    for (const double one : p->efficiency_lost) all += one;
    auto& row = table.rows.emplace_back();
    row = {count_text(series.points[*p->before].devices), count_text(p->devices), points_text(all)};
    for (const std::size_t c : causes) row.push_back(points_text(p->efficiency_lost.at(c)));
  }
  return table;
}

Table causes_table(const cost::ScalingSeries& series) {
  const auto points = planned(series);
  const auto causes = causes_with(points, [](const auto& p, std::size_t c) { return p.seconds_by_cause.at(c) > 0; });
  Table table;
  table.title = fmt::format("Device time per {} by cause", series.samples ? "sample" : "token");
  table.columns = {{"devices", Align::right}, {"in all", Align::right}};
  const auto drop = dropped_first(causes, [&](std::size_t c) {
    double most = 0;
    for (const auto* p : points) most = std::max(most, p->seconds_by_cause.at(c));
    return most;
  });
  for (std::size_t i = 0; i < causes.size(); ++i)
    table.columns.push_back({cost::kCauses.at(causes[i]).name, Align::right, 0, drop[i]});
  for (const cost::ScalingPoint* p : points) {
    double all = 0;
    for (const double one : p->seconds_by_cause) all += one;
    auto& row = table.rows.emplace_back();
    row = {count_text(p->devices), time_text(all)};
    for (const std::size_t c : causes) row.push_back(time_text(p->seconds_by_cause.at(c)));
  }
  return table;
}

Table size_memory_table(const cost::ScalingSeries& series) {
  std::map<std::string, double> purposes;  // largest at any size
  for (const cost::ScalingPoint* p : planned(series))
    if (const cost::MemoryRow* row = fullest(*p->best))
      for (const auto& [purpose, bytes] : row->by_purpose)
        if (bytes > 0) purposes[purpose] = std::max(purposes[purpose], bytes);
  Table table;
  table.title = "Memory of the fullest device";
  table.columns = {{"devices", Align::right}, {"peak", Align::right}, {"of capacity", Align::right}};
  for (const auto& [purpose, most] : purposes) {
    std::string head = purpose;
    std::replace(head.begin(), head.end(), '_', ' ');
    const auto larger =
        std::count_if(purposes.begin(), purposes.end(), [m = most](const auto& o) { return o.second > m; });
    table.columns.push_back({head, Align::right, 0, 1 + static_cast<int>(larger)});
  }
  for (const cost::ScalingPoint* p : planned(series)) {
    const cost::Prediction& best = *p->best;
    auto& cells = table.rows.emplace_back();
    cells = {count_text(p->devices), base::human(base::Bytes{best.memory_peak_bytes}),
             best.memory_capacity_bytes > 0 ? percent(best.memory_peak_bytes / best.memory_capacity_bytes) : kNo};
    const cost::MemoryRow* row = fullest(best);
    for (const auto& [purpose, most] : purposes) {
      const double bytes = row != nullptr && row->by_purpose.count(purpose) > 0 ? row->by_purpose.at(purpose) : 0;
      cells.push_back(bytes > 0 ? base::human(base::Bytes{bytes}) : kNo);
    }
  }
  return table;
}

Table run_costs_table(const cost::ScalingSeries& series) {
  Table table;
  table.title = "What a run needs";
  table.columns = {{"devices", Align::right}, {"days", Align::right}, {"4 of 5 runs", Align::right, 0, 1},
                   {"$", Align::right},       {"kWh", Align::right},  {"t CO2", Align::right}};
  for (const cost::ScalingPoint* p : planned(series)) {
    if (!p->run) continue;
    const cost::RunCost& run = *p->run;
    table.rows.push_back({count_text(p->devices), estimate_text(run.seconds / kDay),
                          run.seconds_interval ? fmt::format("{}–{}", estimate_text(run.seconds_interval->low / kDay),
                                                             estimate_text(run.seconds_interval->high / kDay))
                                               : kNo,
                          run.usd > 0 ? estimate_text(run.usd) : kNo,
                          run.joules > 0 ? estimate_text(run.joules / kKwh) : kNo,
                          run.joules > 0 ? estimate_text(run.co2_grams / kGramsOfTonne) : kNo});
  }
  return table;
}

Table measured_table(const cost::ScalingSeries& series) {
  Table table;
  table.title = "Measured for this job";
  table.columns = {{"devices", Align::right},
                   {"measured", Align::right},
                   {"predicted", Align::right},
                   {"error", Align::right},
                   {"best plan", Align::right, 0, 1},
                   {"by", Align::left, kSourceWidth},
                   {"its plan", Align::left, kPlanWidth, 2}};
  for (const cost::MeasuredPoint& m : series.measured) {
    const auto point = std::find_if(series.points.begin(), series.points.end(),
                                    [&](const cost::ScalingPoint& p) { return p.devices == m.devices && p.best; });
    table.rows.push_back({count_text(m.devices), time_text(m.step_time_s),
                          m.predicted_s > 0 ? time_text(m.predicted_s) : kNo, error_text(m.predicted_s, m.step_time_s),
                          point == series.points.end() ? kNo
                          : m.best_plan                ? "this one"
                                                       : time_text(point->best->step_time_s),
                          m.source, m.plan});
  }
  table.notes.push_back("Predicted and error are for the measured plan; best plan: the time of this size's best plan.");
  if (std::any_of(series.measured.begin(), series.measured.end(), [](const auto& m) { return m.published; }))
    table.notes.push_back(
        "Published rows may be among those that the stacks' numbers were fitted to: `orrery validate --cross-validate` "
        "judges without them.");
  return table;
}

std::vector<Table> series_tables(const cost::ScalingSeries& series) {
  std::vector<Table> out;
  for (Table table : {sizes_table(series), losses_table(series), causes_table(series), size_memory_table(series),
                      run_costs_table(series), measured_table(series)})
    if (!table.rows.empty() || out.empty()) out.push_back(std::move(table));
  return out;
}

}  // namespace orrery::reports

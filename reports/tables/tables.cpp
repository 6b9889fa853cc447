/// Turns records into tables.
#include "reports/tables/tables.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "base/units.h"

namespace orrery::reports {
namespace {

const std::string kNone = "—";
constexpr std::size_t kSourceWidth = 64;  // columns
constexpr double kLeastShare = 0.0005;    // that a table shows: 0.1 %
constexpr int kFirst = 1000;              // to drop: a column that follows from others
const std::string kContention = "contention";

std::string seconds(double s) {
  return std::isfinite(s) && s >= 0 ? time_text(s) : kNone;
}
std::string seconds_or_none(double s) {
  return s > 0 ? seconds(s) : kNone;
}
std::string bytes(double b) {
  return b > 0 && std::isfinite(b) ? base::human(base::Bytes{b}) : kNone;
}
std::string rate(double r) {
  return r > 0 && std::isfinite(r) ? base::human(base::BytesPerSecond{r}) : kNone;
}
std::string integer(std::int64_t n) {
  return fmt::format("{}", n);
}
std::string fraction_text(double f) {
  return fmt::format("{:.4f}", std::isfinite(f) ? f : 0.0);
}
double share(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

/// Signed deviation of a prediction: "+3.1 %".
std::string deviation(double predicted, double measured) {
  if (!(predicted > 0) || !(measured > 0)) return kNone;
  const double d = predicted / measured - 1;
  return (d < 0 ? "−" : "+") + percent(std::abs(d));
}

std::string money(double usd) {
  return usd > 0 ? money_text(usd) : kNone;
}

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace

std::string coefficient_text(double value, const std::string& unit) {
  if (unit == "s" || unit == "seconds") return time_text(value);
  if (unit == "B" || unit == "bytes") return base::human(base::Bytes{value});
  if (unit == "B/s" || unit == "bytes/s" || unit == "bytes_per_second") return base::human(base::BytesPerSecond{value});
  if (unit == "FLOP/s") return base::human(base::FlopsPerSecond{value});
  const std::string given = given_text(value);
  return unit.empty() || unit == "number" || unit == "1" ? given : given + " " + unit;
}

double relative_error(double predicted, double measured) {
  return measured > 0 ? std::abs(predicted - measured) / measured : std::numeric_limits<double>::quiet_NaN();
}

std::vector<Part> parts_of(const cost::Breakdown& b) {
  return {{"forward", b.forward},
          {"backward", b.backward},
          {"recompute", b.recompute},
          {"optimizer", b.optimizer},
          {"tensor communication", b.tensor_communication},
          {"all-to-all communication", b.exchange_communication},
          {"data communication", b.data_communication},
          {"pipeline communication", b.pipeline_communication},
          {"copies", b.copies},
          {"contention", b.contention},
          {"pipeline bubble", b.bubble},
          {"imbalance", b.imbalance},
          {"overhead", b.overhead}};
}

Table rejections_table(const cost::SearchResult& result) {
  Table table;
  table.title = "Rejected";
  table.columns = {{"count", Align::right}, {"reason", Align::left}};
  std::vector<std::pair<std::string, std::int64_t>> reasons(result.rejected.begin(), result.rejected.end());
  std::stable_sort(reasons.begin(), reasons.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [reason, count] : reasons) table.rows.push_back({count_text(count), reason});
  return table;
}

Table summary_table(const cost::Prediction& p) {
  Table table;
  table.columns = {{"", Align::left}, {"", Align::left}};
  const auto line = [&](std::string name, std::string value) {
    table.rows.push_back({std::move(name), std::move(value)});
  };
  line("step time", seconds(p.step_time_s));
  if (p.tokens_per_s > 0) line(p.tables.empty() ? "tokens/s" : "samples/s", number(p.tokens_per_s));
  if (p.mfu > 0) line("MFU", percent(p.mfu));
  if (p.memory_peak_bytes > 0) {
    line("memory peak",
         p.memory_capacity_bytes > 0
             ? fmt::format("{} of {} ({:.0f} %), worst rank", bytes(p.memory_peak_bytes),
                           bytes(p.memory_capacity_bytes), 100 * p.memory_peak_bytes / p.memory_capacity_bytes)
             : bytes(p.memory_peak_bytes) + ", worst rank");
  }
  const double pipeline = share(p.breakdown.bubble, p.step_time_s), imbalance = p.bubble_fraction - pipeline;
  const bool uneven = p.breakdown.imbalance > 0 && imbalance >= kLeastShare;
  line("bubble", percent(p.bubble_fraction) +
                     (uneven ? fmt::format(": pipeline {}, imbalance {}", percent(pipeline), percent(imbalance)) : ""));
  line("exposed communication", fmt::format("{} ({})", seconds(p.exposed_communication_s),
                                            percent(share(p.exposed_communication_s, p.step_time_s))));
  if (p.cost_per_step_usd > 0) line("cost per step", money(p.cost_per_step_usd));
  if (p.energy_per_step_j > 0) line("energy per step", energy_text(p.energy_per_step_j));
  if (p.simulation_seconds > 0) line("simulated in", seconds(p.simulation_seconds));
  return table;
}

Table breakdown_table(const cost::Breakdown& predicted, const cost::Breakdown* measured) {
  Table table;
  table.title = "Where the step goes (mean rank)";
  table.columns = {{"part", Align::left}, {measured ? "predicted" : "time", Align::right}, {"share", Align::right}};
  if (measured) {
    table.columns.push_back({"measured", Align::right});
    table.columns.push_back({"share", Align::right});
  } else {
    table.columns.push_back({"", Align::bar});
  }
  const std::vector<Part> left = parts_of(predicted);
  const std::vector<Part> right = measured ? parts_of(*measured) : left;
  double total = 0, measured_total = 0;
  for (std::size_t i = 0; i < left.size(); ++i) total += left[i].seconds, measured_total += right[i].seconds;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i].seconds <= 0 && right[i].seconds <= 0) continue;
    auto& row = table.rows.emplace_back();
    const double part = share(left[i].seconds, total);
    row = {left[i].name, seconds(left[i].seconds), percent(part)};
    if (measured) {
      const bool unknown = left[i].name == kContention;  // a clock sees only how long a transfer took
      row.push_back(unknown ? "—" : seconds(right[i].seconds));
      row.push_back(unknown ? "—" : percent(share(right[i].seconds, measured_total)));
      if (unknown) table.notes.push_back("Measured contention is in the rows of the messages that it slows.");
    } else {
      row.push_back(fraction_text(part));
    }
  }
  auto& sum = table.rows.emplace_back();
  sum = {"step", seconds(total), percent(share(total, total))};
  if (measured) {
    sum.push_back(seconds(measured_total));
    sum.push_back(percent(share(measured_total, measured_total)));
  } else {
    sum.push_back("0");
  }
  return table;
}

Table memory_table(const std::vector<cost::MemoryRow>& rows, double capacity) {
  Table table;
  table.title = "Memory at its peak, by stage";
  table.columns = {{"stage", Align::right}, {"total", Align::right}};
  if (capacity > 0) table.columns.push_back({"of capacity", Align::right, 0, kFirst});
  std::map<std::string, double> purposes;  // largest of any stage
  for (const cost::MemoryRow& row : rows)
    for (const auto& [purpose, size] : row.by_purpose)
      if (size > 0) purposes[purpose] = std::max(purposes[purpose], size);
  for (const auto& [purpose, most] : purposes) {
    std::string head = purpose;
    std::replace(head.begin(), head.end(), '_', ' ');
    // A narrow terminal leaves out the smallest columns first.
    const auto larger =
        std::count_if(purposes.begin(), purposes.end(), [m = most](const auto& o) { return o.second > m; });
    table.columns.push_back({head, Align::right, 0, 1 + static_cast<int>(larger)});
  }
  for (const cost::MemoryRow& row : rows) {
    auto& cells = table.rows.emplace_back();
    cells = {integer(row.stage.number()), bytes(row.total)};
    if (capacity > 0) cells.push_back(percent(row.total / capacity));
    for (const auto& [purpose, most] : purposes) {
      const auto found = row.by_purpose.find(purpose);
      cells.push_back(bytes(found == row.by_purpose.end() ? 0 : found->second));
    }
  }
  if (capacity > 0) table.notes.push_back("Capacity: " + bytes(capacity) + " per device.");
  return table;
}

Table communication_table(const std::vector<cost::CommunicationRow>& rows) {
  Table table;
  table.title = "Communication per rank and step";
  table.columns = {{"dimension", Align::left},    {"operation", Align::left}, {"count", Align::right, 0, 4},
                   {"bytes", Align::right, 0, 3}, {"time", Align::right},     {"exposed", Align::right},
                   {"busbw", Align::right, 0, 2}};
  const bool contention = std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.contention_s > 0; });
  if (contention) table.columns.push_back({kContention, Align::right, 0, 5});
  for (const cost::CommunicationRow& row : rows) {
    std::string operation = row.operation;
    std::replace(operation.begin(), operation.end(), '_', '-');
    table.rows.push_back({row.dimension, operation, integer(row.count), bytes(row.bytes), seconds(row.time_s),
                          seconds(row.exposed_s), rate(row.bus_bandwidth)});
    if (contention) table.rows.back().push_back(seconds(row.contention_s));
  }
  return table;
}

Table links_table(const std::vector<cost::LinkRow>& rows) {
  Table table;
  table.title = "Links";
  table.columns = {{"class", Align::left},
                   {"bytes per step", Align::right},
                   {"mean use", Align::right},
                   {"peak use", Align::right},
                   {"", Align::bar}};
  for (const cost::LinkRow& row : rows) {
    table.rows.push_back({row.name, bytes(row.bytes), percent(row.mean_utilisation), percent(row.peak_utilisation),
                          fraction_text(row.mean_utilisation)});
  }
  return table;
}

Table parameters_table(const std::vector<cost::FittedParameter>& parameters) {
  Table table;
  table.title = "Parameters";
  table.columns = {{"name", Align::left},
                   {"before", Align::right},
                   {"after", Align::right},
                   {"change", Align::right},
                   {"source", Align::left, kSourceWidth, 1}};
  // A long source shared by several (a fit to many runs) is given once, below.
  std::map<std::string, int> shared;
  for (const cost::FittedParameter& p : parameters)
    if (display_width(p.source) > kSourceWidth) ++shared[p.source];
  int notes = 0;
  for (auto& [source, uses] : shared) {
    uses = uses > 1 ? ++notes : 0;
    if (uses > 0) table.notes.push_back(fmt::format("Source {}: {}", uses, source));
  }
  for (const cost::FittedParameter& p : parameters) {
    const double ratio = p.before != 0 ? p.after / p.before : 0;
    const auto found = shared.find(p.source);
    const bool below = found != shared.end() && found->second > 0;
    table.rows.push_back({p.name, coefficient_text(p.before, p.unit), coefficient_text(p.after, p.unit),
                          ratio > 0 ? fmt::format("× {:.3g}", ratio) : kNone,
                          below ? fmt::format("source {} below", found->second) : p.source});
  }
  return table;
}

std::vector<ResidualGroup> grouped(const std::vector<cost::Residual>& residuals) {
  std::map<std::pair<bool, std::string>, std::pair<std::vector<double>, std::vector<double>>> groups;
  for (const cost::Residual& r : residuals) {
    if (!(r.measured_s > 0)) continue;
    auto& [before, after] = groups[{r.held_out, r.what}];
    before.push_back(relative_error(r.predicted_before_s, r.measured_s));
    after.push_back(relative_error(r.predicted_after_s, r.measured_s));
  }
  std::vector<ResidualGroup> out;
  for (const auto& [key, errors] : groups) {
    out.push_back({key.second, key.first, static_cast<std::int64_t>(errors.first.size()), median(errors.first),
                   median(errors.second)});
  }
  return out;
}

Table residuals_table(const std::vector<cost::Residual>& residuals) {
  Table table;
  table.title = "Error by kind of span (median, relative)";
  table.columns = {{"kind", Align::left},
                   {"used for", Align::left},
                   {"count", Align::right},
                   {"before", Align::right},
                   {"after", Align::right}};
  for (const ResidualGroup& g : grouped(residuals)) {
    table.rows.push_back(
        {g.what, g.held_out ? "held out" : "fit", integer(g.count), percent(g.error_before), percent(g.error_after)});
  }
  return table;
}

Table operators_table(const std::vector<cost::Residual>& operators) {
  std::map<std::pair<bool, std::string>, cost::Residual> sums;
  for (const cost::Residual& r : operators) {
    cost::Residual& sum = sums[{r.held_out, r.what.substr(0, r.what.find(' '))}];
    sum.measured_s += r.measured_s;
    sum.predicted_before_s += r.predicted_before_s;
    sum.predicted_after_s += r.predicted_after_s;
  }
  Table table;
  table.title = "Operators inside the steps (time per training step, summed over the runs)";
  table.columns = {{"operator", Align::left},
                   {"used for", Align::left},
                   {"measured", Align::right},
                   {"before", Align::right},
                   {"after", Align::right}};
  for (const auto& [key, sum] : sums) {
    if (!(sum.measured_s > 0)) continue;
    table.rows.push_back({key.second, key.first ? "held out" : "fit", time_text(sum.measured_s),
                          fmt::format("{:+.1f} %", 100 * (sum.predicted_before_s / sum.measured_s - 1)),
                          fmt::format("{:+.1f} %", 100 * (sum.predicted_after_s / sum.measured_s - 1))});
  }
  return table;
}

bool calibrated(const std::vector<cost::MeasuredRun>& runs) {
  return std::any_of(runs.begin(), runs.end(), [](const cost::MeasuredRun& run) {
    return run.predicted_before_s > 0 && run.predicted_after_s > 0 && run.predicted_before_s != run.predicted_after_s;
  });
}

Table runs_table(const std::vector<cost::MeasuredRun>& runs) {
  Table table;
  table.title = "Predicted against measured";
  const bool fitted = calibrated(runs);
  table.columns = {{"plan", Align::left}, {"measured"}, {"spread", Align::right, 0, 5}};
  if (fitted) {
    table.columns.push_back({"predicted before", Align::right, 0, 3});
    table.columns.push_back({"error", Align::right, 0, 3});
  }
  table.columns.push_back({fitted ? "predicted after" : "predicted"});
  table.columns.push_back({"error"});
  for (const char* head : {"memory measured", "memory predicted"}) table.columns.push_back({head, Align::right, 0, 2});
  table.columns.push_back({"memory error", Align::right, 0, 4});
  const auto samples = std::count_if(runs.begin(), runs.end(), [](const auto& run) { return run.samples; });
  table.columns.push_back({samples == 0                  ? "tokens/s"
                           : samples == std::ssize(runs) ? "samples/s"
                                                         : "tokens or samples/s",
                           Align::right, 0, 6});
  table.columns.push_back({"", Align::left});
  bool any_fit = false, any_over = false;
  for (const cost::MeasuredRun& run : runs) {
    const bool fit = fitted && run.used_in_fit;
    any_fit |= fit;
    any_over |= run.oversubscribed;
    std::string marks = fit ? "fit" : "";
    if (run.oversubscribed) marks += marks.empty() ? "crowded" : ", crowded";
    auto& row = table.rows.emplace_back();
    row = {plan::describe(run.spec), seconds_or_none(run.step_time_s),
           run.step_time_spread > 0 ? percent(run.step_time_spread) : kNone};
    const auto predicted = [&](double s) {
      row.push_back(seconds_or_none(s));
      row.push_back(deviation(s, run.step_time_s));
    };
    if (fitted) predicted(run.predicted_before_s);
    predicted(run.predicted_after_s > 0 ? run.predicted_after_s : run.predicted_before_s);
    row.push_back(bytes(run.memory_peak_bytes));
    row.push_back(bytes(run.predicted_memory_bytes));
    row.push_back(deviation(run.predicted_memory_bytes, run.memory_peak_bytes));
    row.push_back(run.tokens_per_s > 0 ? number(run.tokens_per_s) : kNone);
    row.push_back(marks);
  }
  table.notes.push_back(fmt::format("Step times{}. Spread is (max − min) / median of repeated runs.",
                                    fitted ? "; before and after calibration" : ""));
  if (any_fit) table.notes.push_back("fit: used to fit the parameters, so its error does not test them.");
  if (any_over) table.notes.push_back("crowded: more ranks than cores; listed, not judged.");
  return table;
}

}  // namespace orrery::reports

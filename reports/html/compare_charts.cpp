/// Several plans or runs beside each other.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/units.h"
#include "reports/html/bars.h"
#include "reports/html/chart_template.h"
#include "reports/html/plan_charts.h"
#include "reports/tables/tables.h"

namespace orrery::reports::html {
namespace {

constexpr std::array kSeries{"backward", "communication", "recompute", "optimizer", "m-workspace", "other"};

std::string series_colour(std::size_t i) {
  return std::string("var(--") + kSeries.at(i % kSeries.size()) + ")";
}

const cost::MemoryRow* fullest(const cost::Prediction& p) {
  const auto most = std::max_element(p.memory.begin(), p.memory.end(),
                                     [](const auto& a, const auto& b) { return a.total < b.total; });
  return most == p.memory.end() ? nullptr : &*most;
}

}  // namespace

Chart compared_breakdown_chart(const std::vector<Compared>& all) {
  Chart chart;
  chart.title = "Where the steps go";
  chart.text =
      "Predicted parts of the step, mean over ranks, side by side; if there is a run, a thin bar shows what it "
      "measured.";
  const std::vector<std::string> names = short_names(all);
  std::vector<std::vector<Part>> predicted, measured;
  for (std::size_t i = 0; i < all.size(); ++i) {
    predicted.push_back(parts_of(all[i].prediction.breakdown));
    measured.push_back(all[i].measured ? parts_of(*all[i].measured) : std::vector<Part>());
    chart.legend.push_back({names[i], series_colour(i)});
  }
  double longest = 0;
  for (const auto* sets : {&predicted, &measured})
    for (const std::vector<Part>& parts : *sets)
      for (const Part& part : parts) longest = std::max(longest, part.seconds);
  const Unit unit = time_unit(longest);
  Table table{"", {{"part", Align::left}}, {}, {}};
  for (const std::string& name : names) table.columns.push_back({name});
  std::vector<BarRow> rows;
  std::vector<RowBar> bars;
  const double each = 1 / static_cast<double>(all.size());
  for (std::size_t part = 0; part < predicted.front().size(); ++part) {
    const char* what = predicted.front()[part].name;
    if (std::none_of(predicted.begin(), predicted.end(), [&](const auto& p) { return p[part].seconds > 0; })) continue;
    table.rows.push_back({what});
    chart.description += fmt::format("{}:", what);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double top = static_cast<double>(i) * each, seconds = predicted[i][part].seconds;
      const bool thin = !measured[i].empty();
      bars.push_back({rows.size(), 0, seconds * unit.factor, series_colour(i),
                      fmt::format("{}\n{}: {}", what, names[i], time_text(seconds)), top,
                      top + each * (thin ? 0.6 : 0.9)});
      if (thin)
        bars.push_back({rows.size(), 0, measured[i][part].seconds * unit.factor, "var(--ink)",
                        fmt::format("{}\n{}, measured: {}", what, names[i], time_text(measured[i][part].seconds)),
                        top + each * 0.65, top + each * 0.9});
      table.rows.back().push_back(time_text(seconds));
      chart.description += fmt::format(" {} {}", names[i], time_text(seconds));
    }
    chart.description += ". ";
    rows.push_back({what, ""});
  }
  if (std::any_of(measured.begin(), measured.end(), [](const auto& m) { return !m.empty(); }))
    chart.legend.push_back({"measured", "var(--ink)"});
  chart.spec =
      bars_spec(rows, bars, {"time (" + unit.name + ")", 0, longest * unit.factor}, 12 * static_cast<int>(all.size()));
  chart.data = {std::move(table)};
  return chart;
}

Chart compared_memory_chart(const std::vector<Compared>& all) {
  Chart chart;
  chart.title = "Memory of the fullest rank";
  chart.text = "As predicted, by purpose";
  const std::vector<std::string> names = short_names(all);
  std::vector<cost::MemoryRow> worst;
  double top = 0, most = 0;
  for (const Compared& one : all) {
    const cost::MemoryRow* row = fullest(one.prediction);
    worst.push_back(row ? *row : cost::MemoryRow{});
    top = std::max(top, worst.back().total);
    most = std::max(most, one.prediction.memory_capacity_bytes);
  }
  constexpr double kFull = 0.1;  // of the capacity: where the fullest takes less, its bars would be too short to read
  const bool marked = top >= kFull * most;
  if (marked) top = std::max(top, most);
  chart.text += marked     ? "; the mark is the device's capacity."
                : most > 0 ? fmt::format("; the device holds {}, far beyond the chart.", base::human(base::Bytes{most}))
                           : ".";
  const Unit unit = byte_unit(top);
  std::vector<BarRow> rows;
  std::vector<RowBar> bars;
  Table table{"", {{"purpose", Align::left}}, {}, {}};
  for (const std::string& name : names) table.columns.push_back({name});
  const std::vector<std::string> purposes = purposes_in_order(worst);
  for (const std::string& purpose : purposes) {
    std::string text = purpose;
    std::replace(text.begin(), text.end(), '_', ' ');
    chart.legend.push_back({text, colour_of_purpose(purpose)});
    table.rows.push_back({text});
    for (const cost::MemoryRow& row : worst) {
      const auto found = row.by_purpose.find(purpose);
      table.rows.back().push_back(found == row.by_purpose.end() ? "—" : base::human(base::Bytes{found->second}));
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double capacity = all[i].prediction.memory_capacity_bytes;
    double at = 0;
    for (const std::string& purpose : purposes) {
      const auto found = worst[i].by_purpose.find(purpose);
      if (found == worst[i].by_purpose.end() || found->second <= 0) continue;
      bars.push_back({i, at * unit.factor, (at + found->second) * unit.factor, colour_of_purpose(purpose),
                      fmt::format("{}\n{}: {}", names[i], purpose, base::human(base::Bytes{found->second})), 0.1, 0.9});
      at += found->second;
    }
    if (capacity > 0 && marked)
      bars.push_back({i, capacity * unit.factor - top * unit.factor * 0.004, capacity * unit.factor, "var(--limit)",
                      fmt::format("{}\ncapacity {}", names[i], base::human(base::Bytes{capacity}))});
    rows.push_back({names[i], base::human(base::Bytes{worst[i].total})});
    chart.description += fmt::format("{}: {} of {}. ", names[i], base::human(base::Bytes{worst[i].total}),
                                     base::human(base::Bytes{capacity}));
  }
  if (marked) chart.legend.push_back({"capacity", "var(--limit)"});
  chart.spec = bars_spec(rows, bars, {"memory (" + unit.name + ")", 0, top * unit.factor * 1.01}, 20);
  chart.data = {std::move(table)};
  return chart;
}

Chart goodput_chart(const WholeRun& run) {
  Chart chart;
  chart.title = "Goodput by the time between checkpoints";
  chart.text = "Share of the time spent on steps that count in the end. The dot is the chosen interval.";
  double low = 1e300, high = 0, least = 1;
  json values = json::array();
  Table table{"", {{"checkpoint every"}, {"goodput"}}, {}, {}};
  for (const auto& [interval, goodput] : run.by_interval) {
    low = std::min(low, interval), high = std::max(high, interval), least = std::min(least, goodput);
    values.push_back({{"x", interval / 60},
                      {"y", 100 * goodput},
                      {"tip", fmt::format("every {}\n{}", long_time(interval), percent(goodput))}});
    table.rows.push_back({long_time(interval), percent(goodput)});
  }
  chart.description =
      fmt::format("Best {} every {}.", percent(run.forecast.best.useful), long_time(run.forecast.best.interval));
  json taken = json::array();
  if (const double at = run.forecast.now.interval; at >= low && at <= high)
    taken.push_back({{"x", at / 60},
                     {"y", 100 * run.forecast.now.useful},
                     {"tip", fmt::format("taken: every {}\n{}", long_time(at), percent(run.forecast.now.useful))}});
  chart.spec = chart_spec(
      "goodput", {{"line", std::move(values)}, {"taken", std::move(taken)}},
      {{"minutes", {low / 60, high / 60}}, {"ticks", log_ticks(low / 60, high / 60)}, {"least", 100 * least}});
  chart.data = {std::move(table)};
  return chart;
}

}  // namespace orrery::reports::html

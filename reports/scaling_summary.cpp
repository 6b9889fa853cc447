/// What stands first on a scaling study's page: its series side by side, and ways to train on the budget.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/units.h"
#include "reports/scaling.h"
#include "reports/tables/plan_table.h"

namespace orrery::reports {
namespace {

constexpr double kSecondsOfADay = 86400, kJoulesOfAMwh = 3.6e9, kGramsOfATonne = 1e6;
const std::string kUnknown = "—";

std::string counted(double n) {
  return n > 0 ? estimate_text(n) : kUnknown;
}

/// Dollars of a million tokens; 0: the devices have no price.
double usd_per_million(const cost::Prediction& p) {
  const double tokens = p.step_time_s * p.tokens_per_s;
  return tokens > 0 ? 1e6 * p.cost_per_step_usd / tokens : 0;
}

const cost::ScalingPoint* largest(const cost::ScalingSeries& series) {
  const cost::ScalingPoint* out = nullptr;
  for (const cost::ScalingPoint& point : series.points)
    if (point.best) out = &point;
  return out;
}

/// "192", "192 to 3072"
std::string from_to(std::int64_t low, std::int64_t high) {
  return low == high ? fmt::format("{}", low) : fmt::format("{} to {}", low, high);
}

void add_way(Table& table, const cost::ScalingStudy& study, const std::string& model, const std::string& way,
             const std::optional<cost::Place>& place) {
  if (!place) return;
  const cost::ScalingSeries& series = study.series.at(place->series);
  const cost::ScalingPoint& point = series.points.at(place->point);
  const cost::RunCost& run = *point.run;
  table.rows.push_back(
      {way, model, fmt::format("{}", point.devices), series.cluster, estimate_text(run.seconds / kSecondsOfADay),
       counted(run.usd), counted(run.joules / kJoulesOfAMwh),
       run.joules > 0 ? estimate_text(run.co2_grams / kGramsOfATonne) : kUnknown, split_in_letters(point.best->spec)});
}

}  // namespace

std::string scaling_subtitle(const cost::ScalingStudy& study) {
  std::string out;
  const auto shared = [&](const auto& field) {
    return std::all_of(study.series.begin(), study.series.end(),
                       [&](const cost::ScalingSeries& s) { return field(s) == field(study.series.front()); });
  };
  const cost::ScalingSeries& first = study.series.front();
  int least = 0, most = 0;
  for (const cost::ScalingSeries& series : study.series)
    for (const cost::ScalingPoint& point : series.points) {
      least = least == 0 ? point.devices : std::min(least, point.devices);
      most = std::max(most, point.devices);
    }
  const bool one_way = shared([](const auto& s) { return s.scaling; });
  out = fmt::format("{} scaling, {} devices",
                    !one_way                               ? "Strong and weak"
                    : first.scaling == cost::Scaling::weak ? "Weak"
                                                           : "Strong",
                    from_to(least, most));
  const char* piece = first.samples ? "samples" : "sequences";
  if (shared([](const auto& s) { return s.batch; }) && one_way)
    out += fmt::format("; {} {} per step{}", count_text(first.batch), piece,
                       first.scaling == cost::Scaling::weak ? fmt::format(" on {}, growing with them", least) : "");
  if (!first.samples && shared([](const auto& s) { return s.sequence; }))
    out += fmt::format(", {} tokens each", count_text(first.sequence));
  if (shared([](const auto& s) { return s.precision; })) out += ", " + first.precision;
  return out + ".";
}

namespace {

/// "tok/s/GPU"; per device where series are of devices that are called differently.
std::string rate_of_each(const cost::ScalingStudy& study) {
  std::set<std::string> words;
  for (const cost::ScalingSeries& series : study.series) words.insert(clusters::word_for(series.kind));
  const bool samples = !study.series.empty() && study.series.front().samples;
  return fmt::format("{}/s/{}", samples ? "samples" : "tok", words.size() == 1 ? *words.begin() : "device");
}

}  // namespace

Table side_by_side_table(const cost::ScalingStudy& study) {
  const auto any = [&](const auto& has) {
    return std::any_of(study.series.begin(), study.series.end(), [&](const cost::ScalingSeries& series) {
      const cost::ScalingPoint* point = largest(series);
      return point != nullptr && has(*point);
    });
  };
  const bool samples = !study.series.empty() && study.series.front().samples;
  const bool priced = any([](const auto& p) { return usd_per_million(*p.best) > 0; });
  const bool runs = any([](const auto& p) { return p.run.has_value(); });
  Table table;
  // What a terminal leaves out first.
  enum Drop : int { kNever, kEfficiency, kPrice, kEnergy, kGrowth, kPlan };
  table.columns = {{"", Align::left}, {"devices"}, {"step"}, {rate_of_each(study)}, {"MFU"}};
  const auto add = [&](const char* head, Drop drop, Align align = Align::right) {
    table.columns.push_back({.head = head, .align = align, .drop = drop});
  };
  add("efficiency", kEfficiency);
  if (priced) add(samples ? "$/Msample" : "$/Mtok", kPrice);
  if (runs) add("days", kNever), add("$", kPrice), add("MWh", kEnergy);
  add("growth pays up to", kGrowth);
  add("plan", kPlan, Align::left);
  for (std::size_t i = 0; i < study.series.size(); ++i) {
    const cost::ScalingSeries& series = study.series[i];
    const cost::ScalingPoint* point = largest(series);
    if (point == nullptr) continue;
    auto& row = table.rows.emplace_back();
    row = {series_name(study, i),
           fmt::format("{}", point->devices),
           time_text(point->best->step_time_s),
           number(point->tokens_per_s_per_device),
           point->best->mfu > 0 ? percent(point->best->mfu) : kUnknown,
           percent(point->efficiency)};
    if (priced) row.push_back(counted(usd_per_million(*point->best)));
    if (runs) {
      const cost::RunCost run = point->run.value_or(cost::RunCost{});
      row.push_back(counted(run.seconds / kSecondsOfADay));
      row.push_back(counted(run.usd));
      row.push_back(counted(run.joules / kJoulesOfAMwh));
    }
    row.push_back(series.pays_up_to > 0 ? fmt::format("{}", series.pays_up_to) : kUnknown);
    row.push_back(split_in_letters(point->best->spec));
  }
  table.notes = {"Each at its largest size with a plan. Efficiency is relative to its own smallest size."};
  return table;
}

Table throughput_table(const cost::ScalingStudy& study) {
  std::set<int> sizes;
  for (const cost::ScalingSeries& series : study.series)
    for (const cost::ScalingPoint& point : series.points) sizes.insert(point.devices);
  Table table;
  table.title = rate_of_each(study) + " by devices";
  table.columns = {{"", Align::left}};
  for (const int devices : sizes) table.columns.push_back({count_text(devices)});
  for (std::size_t i = 0; i < study.series.size(); ++i) {
    std::map<int, std::string> at;
    for (const cost::ScalingPoint& point : study.series[i].points)
      if (point.best) at[point.devices] = number(point.tokens_per_s_per_device);
    auto& row = table.rows.emplace_back(std::vector{series_name(study, i)});
    for (const int devices : sizes) row.push_back(at.contains(devices) ? at[devices] : kUnknown);
  }
  return table;
}

Table ways_table(const cost::ScalingStudy& study) {
  Table table;
  table.columns = {
      {"", Align::left}, {"model", Align::left}, {"devices"}, {"cluster", Align::left}, {"days"}, {"$"}, {"MWh"},
      {"t CO2"},         {"plan", Align::left}};
  if (!study.tokens) return table;
  for (const cost::Ways& ways : study.ways) {
    if (!ways.fastest) {
      add_way(table, study, ways.model, "none in time; nearest", ways.nearest);
      continue;
    }
    add_way(table, study, ways.model, "cheapest", ways.cheapest);
    if (study.deadline_s) add_way(table, study, ways.model, "fewest devices", ways.smallest);
    add_way(table, study, ways.model, "fastest", ways.fastest);
  }
  table.title = base::human_count(*study.tokens) + " tokens";
  if (study.deadline_s) table.title += fmt::format(" within {} days", given_text(*study.deadline_s / kSecondsOfADay));
  return table;
}

}  // namespace orrery::reports

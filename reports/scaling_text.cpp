/// A scaling study in sentences, for a terminal and in Markdown.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/units.h"
#include "plan/spec/plan.h"
#include "reports/scaling.h"
#include "reports/tables/markdown.h"

namespace orrery::reports {
namespace {

constexpr double kSecondsOfDay = 86400, kJoulesOfKwh = 3.6e6, kGramsOfT = 1e6;

std::string shown(const std::string& text, const TableStyle& style) {
  return style.unicode ? text : to_ascii(text);
}

std::string bold(const std::string& text, const TableStyle& style) {
  return style.colour ? "\x1b[1m" + shown(text, style) + "\x1b[0m" : shown(text, style);
}

/// "data 8 → 16, tensor 4 → 8"
std::string growth_text(const cost::ScalingPoint& point) {
  std::string out;
  for (const cost::Grown& one : point.grown)
    out += fmt::format("{}{} {} → {}", out.empty() ? "" : ", ", one.dimension, one.from, one.to);
  return out.empty() ? "the plan stays" : out;
}

/// The cause that costs most efficiency; null if none costs any.
const cost::CauseWords* worst_cause(const cost::ScalingPoint& point) {
  const auto most = std::max_element(point.efficiency_lost.begin(), point.efficiency_lost.end());
  constexpr double kWorthSaying = 0.001;
  return *most < kWorthSaying ? nullptr
                              : &cost::kCauses.at(static_cast<std::size_t>(most - point.efficiency_lost.begin()));
}

std::string way_text(const cost::ScalingStudy& study, const cost::Place& place) {
  const cost::ScalingSeries& series = study.series.at(place.series);
  const cost::ScalingPoint& point = series.points.at(place.point);
  const cost::RunCost& run = *point.run;
  std::string out = fmt::format("{} of {}", count_text(point.devices, "device"), series.cluster);
  const auto differs = [&](const auto& field) {
    return std::any_of(study.series.begin(), study.series.end(),
                       [&](const auto& other) { return other.model == series.model && field(other) != field(series); });
  };
  if (differs([](const auto& s) { return s.batch; }) || differs([](const auto& s) { return s.scaling; }))
    out += fmt::format(", batch {}", point.batch);
  if (differs([](const auto& s) { return s.sequence; })) out += fmt::format(", sequence {}", series.sequence);
  out += fmt::format(": {} days", estimate_text(run.seconds / kSecondsOfDay));
  if (run.usd > 0) out += fmt::format(", {} $", estimate_text(run.usd));
  if (run.joules > 0)
    out += fmt::format(", {} MWh, {} t CO2", estimate_text(run.joules / kJoulesOfKwh / 1000),
                       estimate_text(run.co2_grams / kGramsOfT));
  return out + fmt::format(" ({})", plan::describe(point.best->spec));
}

bool same(const cost::Place& a, const cost::Place& b) {
  return a.series == b.series && a.point == b.point;
}

std::vector<std::string> ways_text(const cost::ScalingStudy& study, const cost::Ways& ways) {
  std::string goal = fmt::format("{} on {} tokens", ways.model, base::human_count(*study.tokens));
  if (study.deadline_s) goal += fmt::format(" within {} days", given_text(*study.deadline_s / kSecondsOfDay));
  if (!ways.fastest) {
    std::string none = goal + ": no size does it.";
    if (ways.nearest) none += " Nearest: " + way_text(study, *ways.nearest) + ".";
    return {none};
  }
  std::vector<std::string> out;
  const auto say = [&](const char* which, const std::optional<cost::Place>& place) {
    if (place) out.push_back(fmt::format("{}: {}, {}.", goal, which, way_text(study, *place)));
  };
  const bool one = same(*ways.cheapest, *ways.fastest);
  say(one ? "cheapest and fastest" : "cheapest", ways.cheapest);
  if (study.deadline_s && !same(*ways.smallest, *ways.cheapest) && !same(*ways.smallest, *ways.fastest))
    say("fewest devices", ways.smallest);
  if (!one) say("fastest", ways.fastest);
  return out;
}

void add_lines(std::string& out, const std::string& text, const TableStyle& style, std::size_t indent) {
  out += wrapped(shown(text, style), style.width, indent) + "\n";
}

}  // namespace

std::vector<std::string> growth_advice(const cost::ScalingStudy& study, const cost::ScalingSeries& series) {
  std::vector<std::string> out;
  for (const cost::ScalingPoint& point : series.points) {
    if (!point.best || !point.before) continue;
    const cost::ScalingPoint& before = series.points[*point.before];
    std::string line = fmt::format("{} → {} devices: {}; {:.0f} % of what is added becomes throughput", before.devices,
                                   point.devices, growth_text(point), 100 * point.marginal);
    if (const cost::CauseWords* worst = worst_cause(point))
      line += fmt::format("; most is lost to {} ({:.1f} points)", worst->name,
                          100 * point.efficiency_lost.at(static_cast<std::size_t>(worst->cause)));
    out.push_back(line + ".");
  }
  if (out.empty()) return out;
  const std::string rule = fmt::format("at least {:.0f} % of the added devices become throughput", 100 * study.pays);
  out.push_back(series.stops_paying_at > 0
                    ? fmt::format("Growth pays up to {}; {} is the first size where it does not. It pays if {}.",
                                  count_text(series.pays_up_to, "device"), series.stops_paying_at, rule)
                    : fmt::format("Growth pays up to {}, the largest size considered: {}.",
                                  count_text(series.pays_up_to, "device"), rule));
  return out;
}

std::vector<std::string> run_advice(const cost::ScalingStudy& study) {
  std::vector<std::string> out;
  for (const cost::Ways& ways : study.ways)
    for (std::string& line : ways_text(study, ways)) out.push_back(std::move(line));
  return out;
}

std::vector<std::string> scaling_caveats(const cost::ScalingStudy& study) {
  std::vector<std::string> out{
      "Contention is what exposed messages take beyond an idle network; imbalance is waiting that the rank with most "
      "to "
      "do explains. What either delays on other ranks counts there as bubble."};
  const bool spread = std::any_of(study.series.begin(), study.series.end(), [](const auto& s) {
    return std::any_of(s.points.begin(), s.points.end(), [](const auto& p) { return p.factors.has_value(); });
  });
  if (spread)
    out.push_back(
        "Intervals contain four of five published runs of such software. For an efficiency, errors at two sizes count "
        "as independent; if they are not, its interval is narrower.");
  if (study.tokens)
    out.push_back(
        fmt::format("Runs are without failures, restarts and checkpoints (`orrery simulate` includes these). Energy is "
                    "by what the devices do; hosts, network and cooling count where the cluster gives their power. CO2 "
                    "at {} g/kWh ({}).",
                    given_text(study.co2_grams_per_kwh), study.co2_source));
  return out;
}

static void add_series(std::string& out, const cost::ScalingStudy& study, const cost::ScalingSeries& series,
                       const TableStyle& style) {
  if (!out.empty()) out += "\n";
  const std::vector<std::string> heading = series_heading(series);
  for (std::size_t i = 0; i < heading.size(); ++i)
    out += wrapped(i == 0 ? bold(heading[i], style) : shown(heading[i], style), style.width, 2) + "\n";
  for (const Table& table : series_tables(series)) out += "\n" + text_of(table, style);
  const std::vector<std::string> advice = growth_advice(study, series);
  if (!advice.empty()) out += "\n";
  for (const std::string& line : advice) add_lines(out, "- " + line, style, 2);
}

std::string scaling_text(const cost::ScalingStudy& study, const TableStyle& style, bool all) {
  constexpr std::size_t kWhole = 2;  // such as strong and weak scaling of one job
  const bool several = study.series.size() > 1, brief = study.series.size() > kWhole && !all;
  std::string out;
  const auto lines = [&](const std::string& text, std::size_t indent) { add_lines(out, text, style, indent); };
  if (several) lines(bold(scaling_subtitle(study), style), 2), out += "\n" + text_of(side_by_side_table(study), style);
  if (brief) {
    out += "\n" + text_of(throughput_table(study), style) + "\n";
    lines("Each series' sizes, causes, memory, costs and measured runs: --all, a page (-o FILE) or --json.", 0);
  }
  for (std::size_t i = 0; !brief && i < study.series.size(); ++i) add_series(out, study, study.series[i], style);
  const std::vector<std::string> ways = run_advice(study);
  if (!ways.empty()) out += "\n";
  for (const std::string& line : ways) lines("- " + line, 2);
  out += "\n";
  for (const std::string& line : scaling_caveats(study)) lines(line, 0);
  return out;
}

std::string scaling_markdown(const cost::ScalingStudy& study, const std::string& title) {
  std::string out = "# " + markdown_text(title) + "\n\nA scaling study by `orrery report`.\n";
  const auto list = [&](const std::vector<std::string>& all) {
    if (!all.empty()) out += "\n";
    for (const std::string& line : all) out += "- " + markdown_text(line) + "\n";
  };
  list(run_advice(study));
  if (study.series.size() > 1) out += "\n" + markdown_of(side_by_side_table(study));
  for (std::size_t i = 0; i < study.series.size(); ++i) {
    const cost::ScalingSeries& series = study.series[i];
    out += "\n## " + markdown_text(series_name(study, i, study.series.size() == 1)) + "\n";
    list(series_heading(series));
    for (const Table& table : series_tables(series)) out += "\n" + markdown_of(table);
    list(growth_advice(study, series));
  }
  out += "\n## What the figures leave out\n";
  list(scaling_caveats(study));
  return out;
}

}  // namespace orrery::reports

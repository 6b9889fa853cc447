/// What a plan's step consists of, and what it depends on.
#include "reports/html/plan_charts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "base/units.h"
#include "reports/html/bars.h"
#include "reports/html/chart_template.h"
#include "reports/tables/tables.h"

namespace orrery::reports::html {
namespace {

constexpr int kRowBars = 14;  // pixels

std::string signed_seconds(double s) {
  return (s < 0 ? "−" : "+") + time_text(std::abs(s));
}

std::string waterfall_colour(const std::string& part) {
  static const std::vector<std::pair<std::string, std::string>> kColours = {{"model FLOPs", "forward"},
                                                                            {"under the mask", "good"},
                                                                            {"below peak", "backward"},
                                                                            {"bound by memory", "backward"},
                                                                            {"issuing", "other"},
                                                                            {"recomputation", "recompute"},
                                                                            {"optimizer", "optimizer"},
                                                                            {"tensor communication", "communication"},
                                                                            {"all-to-all", "communication-4"},
                                                                            {"data communication", "communication-2"},
                                                                            {"pipeline comm", "communication-3"},
                                                                            {"copies", "copies"},
                                                                            {"contention", "contention"},
                                                                            {"bubble", "waiting"},
                                                                            {"imbalance", "imbalance"}};
  for (const auto& [word, colour] : kColours)
    if (part.find(word) != part.npos) return "var(--" + colour + ")";
  return "var(--other)";
}

std::string pass_colour(const std::string& pass) {
  return pass == "forward" || pass == "backward" || pass == "recompute" || pass == "optimizer" ? "var(--" + pass + ")"
                                                                                               : "var(--other)";
}

}  // namespace

Chart waterfall_chart(const std::vector<WaterfallPart>& parts) {
  Chart chart;
  chart.title = "From the peak to the step";
  chart.text =
      "The model's FLOPs at the device's peak take the least time that a step can take. Each part below adds to the "
      "one above, up to the step; mean over ranks.";
  double at = 0, low = 0, high = 0;
  for (const WaterfallPart& part : parts) {
    at += part.seconds;
    low = std::min(low, at), high = std::max(high, at);
  }
  const double step = at;
  const Unit unit = time_unit(high);
  std::vector<BarRow> rows;
  std::vector<RowBar> bars;
  at = 0;
  for (const WaterfallPart& part : parts) {
    const std::string share = percent(step > 0 ? part.seconds / step : 0);
    const std::string value = rows.empty() ? time_text(part.seconds) : signed_seconds(part.seconds);
    bars.push_back({rows.size(), at * unit.factor, (at + part.seconds) * unit.factor, waterfall_colour(part.name),
                    fmt::format("{}\n{} ({} of the step)", part.name, value, share)});
    rows.push_back({part.name, value});
    chart.description += fmt::format("{} {}, ", part.name, value);
    at += part.seconds;
  }
  bars.push_back({rows.size(), 0, step * unit.factor, "var(--axis)", "step\n" + time_text(step)});
  rows.push_back({"the step", time_text(step)});
  chart.description += "the step " + time_text(step);
  chart.spec = bars_spec(rows, bars, {"time (" + unit.name + ")", low * unit.factor, high * unit.factor}, kRowBars);
  chart.data = {waterfall_table(parts)};
  return chart;
}

Chart tornado_chart(const PlanPage& page, const cost::Prediction& own) {
  Chart chart;
  chart.title = "What the step depends on";
  chart.text = fmt::format(
      "Step time relative to this plan's, for one change at a time, replayed. First numbers of the machine and of "
      "prices, a factor of {:g} less and more; below them other splits. Left of the line is faster.",
      cost::kSensitivityFactor);
  chart.legend = {{"less of it", "var(--communication)"},
                  {"more of it", "var(--backward)"},
                  {"another split", "var(--optimizer)"},
                  {"another split that does not fit", "var(--waiting)"}};
  const double step = own.step_time_s;
  double low = 0, high = 0;
  std::vector<BarRow> rows;
  std::vector<RowBar> bars;
  const auto change = [&](double seconds) {
    const double share = step > 0 ? 100 * (seconds - step) / step : 0;
    low = std::min(low, share), high = std::max(high, share);
    return share;
  };
  for (const cost::Sensitivity& one : page.sensitivities) {
    const auto add = [&](double seconds, const char* colour, const char* what, double top) {
      bars.push_back({rows.size(), 0, change(seconds), colour,
                      fmt::format("{} {} {:g}\n{} ({})", one.what, what, cost::kSensitivityFactor, time_text(seconds),
                                  signed_seconds(seconds - step)),
                      top, top + 0.5});
    };
    add(one.less_s, "var(--communication)", "÷", 0);
    add(one.more_s, "var(--backward)", "×", 0.5);
    rows.push_back({one.what, coefficient_text(one.value, one.unit)});
    chart.description += fmt::format("{}: {} with less, {} with more. ", one.what, signed_seconds(one.less_s - step),
                                     signed_seconds(one.more_s - step));
  }
  std::vector<const cost::Variation*> made;
  for (const cost::Variation& one : page.neighbours)
    if (one.prediction) made.push_back(&one);
  std::stable_sort(made.begin(), made.end(), [&](const auto* a, const auto* b) {
    return std::abs(a->prediction->step_time_s - step) > std::abs(b->prediction->step_time_s - step);
  });
  for (const cost::Variation* one : made) {
    const cost::Prediction& p = *one->prediction;
    const bool fits = p.memory_peak_bytes <= p.memory_capacity_bytes;
    bars.push_back({rows.size(), 0, change(p.step_time_s), fits ? "var(--optimizer)" : "var(--waiting)",
                    fmt::format("{}\n{}", one->change, verdict(*one, own)), 0.2, 0.8});
    rows.push_back({one->change, signed_seconds(p.step_time_s - step)});
    chart.description += fmt::format("{}: {}. ", one->change, verdict(*one, own));
  }
  const double margin = 0.04 * std::max(high - low, 1e-6);
  chart.spec = bars_spec(rows, bars, {"step time (% against this plan)", low - margin, high + margin}, 16);
  if (!page.sensitivities.empty()) chart.data.push_back(sensitivities_table(page.sensitivities, own));
  if (!page.neighbours.empty())
    chart.data.push_back(variations_table("Neighbours of this plan", page.neighbours, own, page.heading, 0));
  return chart;
}

namespace {

/// The ends of two logarithmic axes.
struct LogArea {
  double left, right, bottom, top;
};

/// Names operators beside their dots, those that take longest first, each once (passes of one operator lie close
/// together), and only where the name covers no other: the rest have theirs in tooltip and table. Sizes are those of
/// the template on the narrowest page, so that no page has names on top of each other.
void label_operators(json& values, const std::vector<const cost::OperatorRow*>& drawn, const LogArea& area) {
  constexpr double kWidth = 260, kHeight = 280, kLetter = 6.5, kLine = 15;  // pixels
  constexpr double kLeastShare = 0.04;
  struct Box {
    double left, right, middle;
  };
  std::vector<Box> taken;
  std::set<std::string> named;
  double total = 0;
  std::vector<std::size_t> order(drawn.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (const cost::OperatorRow* row : drawn) total += row->seconds;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return drawn[a]->seconds > drawn[b]->seconds; });
  for (const std::size_t i : order) {
    if (drawn[i]->seconds < kLeastShare * total || named.count(drawn[i]->name) > 0) continue;
    const auto at = [](double value, double low, double high) { return std::log(value / low) / std::log(high / low); };
    const double right = kWidth * at(values[i]["x"].get<double>(), area.left, area.right);
    const Box box{right - kLetter * static_cast<double>(drawn[i]->name.size()), right,
                  kHeight * at(values[i]["y"].get<double>(), area.bottom, area.top)};
    if (std::any_of(taken.begin(), taken.end(), [&](const Box& other) {
          return box.left < other.right && other.left < box.right && std::abs(box.middle - other.middle) < kLine;
        }))
      continue;
    taken.push_back(box);
    named.insert(drawn[i]->name);
    values[i]["label"] = drawn[i]->name;
  }
}

}  // namespace

Chart roofline_chart(const cost::Operators& operators) {
  constexpr double kTera = 1e12, kShown = 2e-3;  // share of the operators' time; smaller ones are only in the table
  Chart chart;
  chart.title = "Roofline by operator";
  chart.text =
      "FLOP/s that each operator reaches over its FLOPs per byte moved. The line is what the device's memory and peak "
      "allow; the area of a dot is the operator's share of the time.";
  bool above = false;
  const double total = std::accumulate(operators.rows.begin(), operators.rows.end(), 0.0,
                                       [](double sum, const cost::OperatorRow& row) { return sum + row.seconds; });
  const double ridge = operators.peak_flops / operators.bandwidth;
  double x0 = ridge / 4, x1 = ridge * 4, y0 = operators.peak_flops / 10;
  json values = json::array();
  std::vector<const cost::OperatorRow*> drawn;  // of each value
  for (const cost::OperatorRow& row : operators.rows) {
    if (!(row.flops > 0 && row.bytes > 0 && row.seconds > kShown * total)) continue;
    const double x = row.flops / row.bytes, y = row.flops / row.seconds;
    above = above || y > operators.bandwidth * x;
    x0 = std::min(x0, x / 2), x1 = std::max(x1, x * 2), y0 = std::min(y0, y / 2);
    const double share = row.seconds / total;
    values.push_back(
        {{"x", x},
         {"y", y / kTera},
         {"s", 30 + 1600 * share},
         {"c", pass_colour(row.phase)},
         {"label", ""},
         {"tip", fmt::format("{}, {}\n{} ({} of the operators' time)\n{}, {} of peak\n{} FLOP/byte", row.name,
                             row.phase, time_text(row.seconds), percent(share), base::human(base::FlopsPerSecond{y}),
                             percent(y / operators.peak_flops), number(x))}});
    drawn.push_back(&row);
    chart.description += fmt::format("{} {}: {} of peak. ", row.name, row.phase, percent(y / operators.peak_flops));
  }
  const double y1 = operators.peak_flops * 1.6;
  label_operators(values, drawn, {x0, x1, y0 / kTera, y1 / kTera});
  for (const char* pass : {"forward", "backward", "recompute", "optimizer"})
    if (std::any_of(operators.rows.begin(), operators.rows.end(), [&](const auto& r) { return r.phase == pass; }))
      chart.legend.push_back({pass, pass_colour(pass), "dot"});
  if (above) chart.text += " Operators above the slope find their operands in a cache.";
  const auto roof = [&](double x) { return std::min(operators.peak_flops, operators.bandwidth * x) / kTera; };
  json line = json::array();
  for (const double x : {std::max(x0, y0 / operators.bandwidth), ridge, x1}) line.push_back({{"x", x}, {"y", roof(x)}});
  chart.spec = chart_spec("roofline", {{"roof", std::move(line)}, {"operators", std::move(values)}},
                          {{"intensity", {x0, x1}},
                           {"intensityTicks", log_ticks(x0, x1)},
                           {"rate", {y0 / kTera, y1 / kTera}},
                           {"rateTicks", log_ticks(y0 / kTera, y1 / kTera)}});
  chart.data = {operators_table(operators)};
  return chart;
}

Chart links_chart(const std::vector<cost::LinkRow>& links) {
  Chart chart;
  chart.title = "Load of the network";
  chart.text = "For each kind of link: how much of its capacity the step uses, on average and on the busiest link.";
  chart.legend = {{"mean", "var(--backward)"}, {"busiest", "var(--forward)"}};
  std::vector<BarRow> rows;
  std::vector<RowBar> bars;
  double high = 0;
  for (const cost::LinkRow& link : links) {
    const std::string tip = fmt::format("{}\n{} a step over all of them\nmean {}, busiest {}", link.name,
                                        base::human(base::Bytes{link.bytes}), percent(link.mean_utilisation),
                                        percent(link.peak_utilisation));
    bars.push_back({rows.size(), 0, 100 * link.peak_utilisation, "var(--forward)", tip, 0, 1});
    bars.push_back({rows.size(), 0, 100 * link.mean_utilisation, "var(--backward)", tip, 0.25, 0.75});
    rows.push_back({link.name, percent(link.peak_utilisation)});
    high = std::max({high, 100 * link.peak_utilisation, 100 * link.mean_utilisation});
    chart.description += fmt::format("{}: mean {}, busiest {}. ", link.name, percent(link.mean_utilisation),
                                     percent(link.peak_utilisation));
  }
  chart.spec = bars_spec(rows, bars, {"used over the step (%)", 0, std::max(high * 1.05, 1e-3)}, kRowBars);
  Table table = links_table(links);
  table.title.clear();
  chart.data = {std::move(table)};
  return chart;
}

Chart pareto_chart(const cost::SearchResult& search, const PlanHeading& heading) {
  Chart chart;
  chart.title = "Plans: time and memory";
  chart.text =
      "Each dot is a plan. Filled: no other plan beats it in time, memory and money at once. Pin plans in the table, "
      "or by clicking their dots, to compare them.";
  chart.legend = {{"not beaten by another plan", "var(--backward)", "dot"},
                  {"beaten", "var(--other)", "ring"},
                  {"pinned", "var(--limit)", "ring"}};
  double longest = 0, least = 0, most = 0, capacity = 0;
  for (const cost::Prediction& p : search.plans) {
    longest = std::max(longest, p.step_time_s);
    least = least > 0 ? std::min(least, p.step_time_s) : p.step_time_s;
    most = std::max(most, p.memory_peak_bytes);
    capacity = std::max(capacity, p.memory_capacity_bytes);
  }
  const Unit time = time_unit(longest), bytes = byte_unit(most);
  const auto beats = [](const cost::Prediction& a, const cost::Prediction& b) {
    const bool no_worse = a.step_time_s <= b.step_time_s && a.memory_peak_bytes <= b.memory_peak_bytes &&
                          a.cost_per_step_usd <= b.cost_per_step_usd;
    return no_worse && (a.step_time_s < b.step_time_s || a.memory_peak_bytes < b.memory_peak_bytes ||
                        a.cost_per_step_usd < b.cost_per_step_usd);
  };
  json values = json::array();
  std::vector<std::size_t> rows(search.plans.size());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  for (const std::size_t i : rows) {
    const cost::Prediction& p = search.plans[i];
    const bool beaten =
        std::any_of(search.plans.begin(), search.plans.end(), [&](const auto& other) { return beats(other, p); });
    const PlanFigures figures = figures_of(p, heading);
    std::string tip = fmt::format("{}. {}\n{}, {}", i + 1, plan::describe(p.spec), time_text(p.step_time_s),
                                  base::human(base::Bytes{p.memory_peak_bytes}));
    if (figures.usd_per_million_tokens > 0)
      tip += fmt::format(", {:.3g} $ per million tokens", figures.usd_per_million_tokens);
    values.push_back({{"x", p.memory_peak_bytes * bytes.factor},
                      {"y", p.step_time_s * time.factor},
                      {"pin", i},
                      {"front", !beaten},
                      {"tip", tip}});
    if (!beaten)
      chart.description += fmt::format("Plan {}: {}, {}. ", i + 1, time_text(p.step_time_s),
                                       base::human(base::Bytes{p.memory_peak_bytes}));
  }
  const double right = std::max(most, std::min(capacity, most * 1.5)) * bytes.factor * 1.03;
  chart.spec = chart_spec("plans", {{"plans", std::move(values)}},
                          {{"largest", right},
                           {"memoryTitle", "memory per device (" + bytes.name + ")"},
                           {"times", {0.98 * least * time.factor, 1.02 * longest * time.factor}},
                           {"timeTitle", "step time (" + time.name + ")"}});
  Table table = plans_table(search.plans, rows, heading);
  table.title.clear();
  chart.data = {std::move(table)};
  chart.pins = true;
  return chart;
}

}  // namespace orrery::reports::html

/// Reads and writes cost/intervals.yaml.
#include "cost/parameters/intervals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/yaml.h"

namespace orrery::cost {

namespace {

constexpr double kLeast = 0.01, kMost = 100;  // factors beyond these would say nothing

Interval read_interval(const base::Cursor& at) {
  Interval out{at.at("low").number(kLeast, kMost), at.at("high").number(kLeast, kMost)};
  if (out.high < out.low) at.error("E0105", fmt::format("`high` is {}, below `low`, which is {}", out.high, out.low));
  return out;
}

}  // namespace

const char* name_of(Basis evidence) {
  switch (evidence) {
    case Basis::calibrated: return "calibrated";
    case Basis::published: return "published";
    case Basis::generic: return "generic";
    case Basis::uncalibrated: return "uncalibrated";
  }
  return "?";
}

std::optional<Spread> spread_of(const Intervals& intervals, const std::string& stack, bool several_nodes) {
  std::optional<Spread> other;
  for (const Spread& spread : intervals.spreads) {
    if (spread.several_nodes != several_nodes) continue;
    if (spread.stack == stack) return spread;
    if (spread.stack.empty()) other = spread;
  }
  return other;
}

std::optional<Spread> spread_of(const Intervals& intervals, const Stack& stack, bool several_nodes) {
  if (stack.fitted)
    return Spread{stack.name, several_nodes, stack.fitted->time, stack.fitted->memory, stack.fitted->rows};
  return spread_of(intervals, stack.name, several_nodes);
}

namespace {

std::int64_t rows_of(const Intervals& intervals, const std::string& stack) {
  std::int64_t rows = 0;
  for (const Spread& spread : intervals.spreads)
    if (spread.stack == stack) rows += spread.rows;
  return rows;
}

}  // namespace

Basis basis_of(const Intervals& intervals, const Stack& stack, bool stands_in) {
  if (stack.fitted) return Basis::calibrated;
  if (stack.generic || stands_in) return Basis::generic;
  return rows_of(intervals, stack.name) > 0 ? Basis::published : Basis::uncalibrated;
}

std::string basis_text(const Intervals& intervals, const Stack& stack, bool several_nodes, bool stands_in) {
  constexpr double kPercent = 100;
  const auto spread = spread_of(intervals, stack, several_nodes);
  const std::string range = spread ? fmt::format("four of five runs left out took {:+.0f} to {:+.0f} % of it",
                                                 kPercent * (spread->time.low - 1), kPercent * (spread->time.high - 1))
                                   : std::string();
  switch (basis_of(intervals, stack, stands_in)) {
    case Basis::calibrated:
      return fmt::format("calibrated here to {} runs (left-one-out error: median {:.1f} %, 90th percentile {:.1f} %)",
                         stack.fitted->rows, kPercent * stack.fitted->median_error, kPercent * stack.fitted->p90_error);
    case Basis::published:
      return fmt::format("from {} published runs of {}: {}", rows_of(intervals, stack.name), stack.name, range);
    case Basis::generic: return fmt::format("generic: no run of this software is known; taken as {}", stack.name);
    case Basis::uncalibrated: return fmt::format("uncalibrated: no run of {} was ever compared", stack.name);
  }
  return {};
}

double fits_probability(double predicted, double capacity, const Interval& factors) {
  constexpr double kNinetieth = 1.2815515655446004;  // of the standard normal distribution
  constexpr double kLeastWidth = 0.02;               // no prediction of memory is better
  const double low = std::log(factors.low), high = std::log(factors.high);
  const double width = std::max(kLeastWidth, (high - low) / 2 / kNinetieth);
  const double z = (std::log(capacity / predicted) - (low + high) / 2) / width;
  return std::erfc(-z / std::sqrt(2.0)) / 2;
}

Interval around(double predicted, const Interval& factors) {
  return {predicted * factors.low, predicted * factors.high};
}

base::Result<Intervals> parse_intervals(std::string_view text, std::string file) {
  return base::read_document<Intervals>(text, std::move(file), [](const base::Cursor& root) {
    Intervals out;
    for (const base::Cursor& item : root.at("spreads").items()) {
      Spread spread;
      if (item.has("stack")) spread.stack = item.at("stack").text();
      spread.several_nodes = item.at("several_nodes").boolean(false);
      spread.time = read_interval(item.at("time"));
      spread.memory = read_interval(item.at("memory"));
      spread.rows = item.at("rows").integer(0, std::int64_t{1} << 40);
      out.spreads.push_back(spread);
    }
    return out;
  });
}

std::string write_intervals(const Intervals& intervals) {
  std::string out =
      "# Measured over predicted, 10th and 90th percentile, of published runs that the stacks' numbers were not fitted "
      "to.\n"
      "# Written by `orrery validate --intervals`; rows of other software count with less weight. See "
      "docs/validation.md.\n"
      "spreads:\n";
  const auto text = [](const Interval& i) { return fmt::format("{{low: {}, high: {}}}", i.low, i.high); };
  for (const Spread& s : intervals.spreads)
    out += fmt::format("  - {{{}several_nodes: {}, time: {}, memory: {}, rows: {}}}\n",
                       s.stack.empty() ? "" : fmt::format("stack: {}, ", s.stack), s.several_nodes, text(s.time),
                       text(s.memory), s.rows);
  return out;
}

}  // namespace orrery::cost

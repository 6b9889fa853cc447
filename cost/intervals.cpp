/// Reads and writes cost/intervals.yaml.
#include "cost/intervals.h"

#include <fmt/format.h>

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

std::optional<Spread> spread_of(const Intervals& intervals, const std::string& stack, bool several_nodes) {
  std::optional<Spread> other;
  for (const Spread& spread : intervals.spreads) {
    if (spread.several_nodes != several_nodes) continue;
    if (spread.stack == stack) return spread;
    if (spread.stack.empty()) other = spread;
  }
  return other;
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

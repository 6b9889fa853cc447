/// Reads and writes cost/intervals.yaml.
#include "cost/parameters/intervals.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/units.h"
#include "base/yaml.h"

namespace orrery::cost {

namespace {

constexpr double kLeast = 0.01, kMost = 100;  // factors outside these bounds carry no information

Interval read_interval(const base::Cursor& at) {
  Interval out{at.at("low").number(kLeast, kMost), at.at("high").number(kLeast, kMost)};
  if (out.high < out.low) at.error("E0105", fmt::format("`high` is {}, below `low`, which is {}", out.high, out.low));
  return out;
}

/// FLOP/s; for devices without 16-bit formats, the peak that they have.
double sixteen_bit_peak(const clusters::Device& device) {
  for (const char* type : {"bf16", "fp16", "fp32"})
    if (const auto found = device.peak.find(type); found != device.peak.end()) return found->second.value;
  return 0;
}

Interval hull(const Interval& a, const Interval& b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high)};
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

namespace {

std::optional<Spread> listed_spread(const Intervals& intervals, const std::string& stack, bool several_nodes) {
  std::optional<Spread> other;
  for (const Spread& spread : intervals.spreads) {
    if (spread.several_nodes != several_nodes) continue;
    if (spread.stack == stack) return spread;
    if (spread.stack.empty()) other = spread;
  }
  return other;
}

}  // namespace

bool is_kind(const std::string& stack) {
  return stack == kGenericEager || stack == kGenericCompiled || stack == kGenericRecommender;
}

std::optional<Spread> spread_of(const Intervals& intervals, const std::string& stack, bool several_nodes) {
  auto out = listed_spread(intervals, stack, several_nodes);
  if (!out || (stack != kGenericEager && stack != kGenericCompiled)) return out;
  for (const Spread& spread : intervals.spreads)
    if (spread.stack == kStrangers && spread.several_nodes == several_nodes) out->time = hull(out->time, spread.time);
  return out;
}

Ground ground_of(const std::string& stack, const Setting& setting) {
  const clusters::Device& device = *setting.device;
  return {
      stack,           device.name,      device.architecture, sixteen_bit_peak(device), device.memory_bandwidth.value,
      setting.mixture, setting.adapters, setting.states,      setting.indexed};
}

Setting setting_of(const clusters::Cluster& cluster, const models::Model& model) {
  return {&cluster.device(), model.experts.any(), model.lora.any(), model.reads_in_order(), model.indexer.any()};
}

namespace {

/// What runs are known to be of: the user's own, or published ones.
const std::vector<Ground>& grounds_for(const Intervals& intervals, const Stack& stack) {
  return stack.fitted ? stack.fitted->grounds : intervals.grounds;
}

/// Whether it is what the stack's own runs were of.
bool is_of(const Ground& ground, const Stack& stack) {
  return stack.fitted || ground.stack == stack.name;
}

}  // namespace

bool has_ground(const Intervals& intervals, const Stack& stack, const Setting& setting) {
  constexpr double kAlike = 1.5;
  const auto alike = [](double a, double b) { return a <= kAlike * b && b <= kAlike * a; };
  const std::vector<Ground>& grounds = grounds_for(intervals, stack);
  for (const Ground& ground : grounds) {
    if (!is_of(ground, stack)) continue;
    const clusters::Device* device = setting.device;
    const bool of_device = device == nullptr || (device->architecture == ground.architecture &&
                                                 alike(sixteen_bit_peak(*device), ground.peak) &&
                                                 alike(device->memory_bandwidth.value, ground.memory_bandwidth));
    if (of_device && setting.mixture == ground.mixtures && setting.adapters == ground.adapters &&
        setting.states == ground.states && setting.indexed == ground.indexed)
      return true;
  }
  return grounds.empty();
}

namespace {

std::int64_t rows_of(const Intervals& intervals, const std::string& stack) {
  std::int64_t rows = 0;
  for (const Spread& spread : intervals.spreads)
    if (spread.stack == stack) rows += spread.rows;
  return rows;
}

}  // namespace

namespace {

/// The stack that a fit began with, as far as its uncertainty goes.
Stack before_fit(const Stack& fit) {
  Stack out = fit;
  out.name = fit.software();
  out.fitted.reset();
  return out;
}

/// The fit's own; for other devices and models than its runs', also what was unsure before there were any.
Spread spread_of_fit(const Intervals& intervals, const Stack& stack, bool several_nodes, const Setting& setting) {
  const Stack::Fitted& fit = *stack.fitted;
  Spread out{stack.name, several_nodes, fit.time, fit.memory, fit.rows};
  if (has_ground(intervals, stack, setting)) return out;
  // A plan's memory depends on its model and software, not on the device.
  Setting kind = setting;
  kind.device = nullptr;
  const bool of_kind = has_ground(intervals, stack, kind);
  const std::optional<Spread> before = spread_of(intervals, before_fit(stack), several_nodes, setting);
  for (const std::optional<Spread>& wider : {before, intervals.elsewhere}) {
    if (!wider) continue;
    out.time = hull(out.time, wider->time);
    if (!of_kind) out.memory = hull(out.memory, wider->memory);
  }
  return out;
}

}  // namespace

std::optional<Spread> spread_of(const Intervals& intervals, const Stack& stack, bool several_nodes,
                                const Setting& setting) {
  if (stack.fitted) return spread_of_fit(intervals, stack, several_nodes, setting);
  // What stands for many by kind is as uncertain as all unknown software.
  auto own = spread_of(intervals, stack.generic && !is_kind(stack.name) ? kGenericEager : stack.name, several_nodes);
  // Nobody has seen how well what is known of it fits: its times and its memory are as uncertain as unknown software's.
  if (own && !stack.generic && !stack.own && rows_of(intervals, stack.name) == 0)
    if (const auto unknown = spread_of(intervals, kGenericEager, several_nodes); unknown) {
      own->time = hull(own->time, unknown->time);
      own->memory = hull(own->memory, unknown->memory);
    }
  if (!own || !intervals.elsewhere || has_ground(intervals, stack, setting)) return own;
  own->time = hull(own->time, intervals.elsewhere->time);
  // A plan's memory depends on its model and software, not on the device.
  if (setting.mixture) own->memory = hull(own->memory, intervals.elsewhere->memory);
  return own;
}

namespace {

/// "H100-SXM5-80GB, H100-SXM5-80GB (mixtures)": what the stack's runs covered.
std::string grounds_text(const Intervals& intervals, const Stack& stack) {
  std::string out;
  for (const Ground& ground : grounds_for(intervals, stack))
    if (is_of(ground, stack))
      out += fmt::format("{}{}{}", out.empty() ? "" : ", ", ground.device, ground.mixtures ? " (mixtures)" : "");
  return out;
}

/// Why a stack's runs say little about this one: "none of them like this one (they were of H100-SXM5-80GB)".
std::string unlike_text(const Intervals& intervals, const Stack& stack, const Setting& setting) {
  const std::vector<Ground>& known = grounds_for(intervals, stack);
  const auto covers = [&](bool Ground::*kind) {
    return std::any_of(known.begin(), known.end(), [&](const Ground& g) { return is_of(g, stack) && g.*kind; });
  };
  if (setting.states && !covers(&Ground::states)) return "none of them of mixers that read tokens in order";
  if (setting.indexed && !covers(&Ground::indexed)) return "none of them of attention to chosen tokens";
  Setting whole = setting, other = setting;
  other.mixture = !setting.mixture;
  whole.adapters = !setting.adapters;
  if (has_ground(intervals, stack, whole))
    return setting.adapters ? "all of them of full training, none of adapters"
                            : "all of them of adapters, none of full training";
  if (has_ground(intervals, stack, other))
    return setting.mixture ? "none of them of a mixture of experts" : "all of them of mixtures of experts";
  const std::string grounds = grounds_text(intervals, stack);
  return "none of them like this one" + (grounds.empty() ? std::string() : fmt::format(" (they were of {})", grounds));
}

}  // namespace

Basis basis_of(const Intervals& intervals, const Stack& stack, bool stands_in) {
  if (stack.fitted) return Basis::calibrated;
  if (stack.generic || stands_in) return Basis::generic;
  return rows_of(intervals, stack.name) > 0 ? Basis::published : Basis::uncalibrated;
}

std::string basis_text(const Intervals& intervals, const Stack& stack, bool several_nodes, bool stands_in,
                       const Setting& setting) {
  constexpr double kPercent = 100;
  const auto spread = spread_of(intervals, stack, several_nodes, setting);
  const auto beside = [](double factor) {
    return fmt::format("{:.0f} % {}", kPercent * std::abs(factor - 1), factor < 1 ? "less" : "more");
  };
  const std::string range =
      spread ? fmt::format("four of five runs that were left out took between {} and {} than predicted",
                           beside(spread->time.low), beside(spread->time.high))
             : std::string();
  switch (basis_of(intervals, stack, stands_in)) {
    case Basis::calibrated:
      return fmt::format(
          "calibrated here to {}{} (left-one-out error: median {:.1f} %, 90th percentile {:.1f} %)",
          base::count_of(static_cast<std::int64_t>(stack.fitted->rows), "run"),
          has_ground(intervals, stack, setting) ? std::string() : ", " + unlike_text(intervals, stack, setting),
          kPercent * stack.fitted->median_error, kPercent * stack.fitted->p90_error);
    case Basis::published:
      if (!has_ground(intervals, stack, setting))
        return fmt::format("from {} published runs of {}, {}: {}", rows_of(intervals, stack.name), stack.name,
                           unlike_text(intervals, stack, setting), range);
      return fmt::format("from {} published runs of {}: {}", rows_of(intervals, stack.name), stack.name, range);
    case Basis::generic:
      return stands_in ? fmt::format("generic: no run of this software is known; treated as {}", stack.name)
                       : fmt::format("generic: {} has numbers of software like it, no run of its own", stack.name);
    case Basis::uncalibrated: return fmt::format("uncalibrated: Orrery has no run of {} to compare with", stack.name);
  }
  return {};
}

double fits_probability(double predicted, double capacity, const Interval& factors) {
  constexpr double kNinetieth = 1.2815515655446004;  // of the standard normal distribution
  constexpr double kLeastWidth = 0.02;               // no memory prediction is more precise
  const double low = std::log(factors.low), high = std::log(factors.high);
  const double width = std::max(kLeastWidth, (high - low) / 2 / kNinetieth);
  const double z = (std::log(capacity / predicted) - (low + high) / 2) / width;
  return std::erfc(-z / std::sqrt(2.0)) / 2;
}

double most_that_fits(double capacity, const Interval& factors, double probability) {
  // fits_probability falls as the prediction grows: the place is between a thousandth and a thousand times the
  // capacity.
  constexpr int kHalvings = 60;
  double fits = capacity / 1000, exceeds = capacity * 1000;
  for (int i = 0; i < kHalvings; ++i) {
    const double between = std::sqrt(fits * exceeds);
    (fits_probability(between, capacity, factors) >= probability ? fits : exceeds) = between;
  }
  return fits;
}

Interval around(double predicted, const Interval& factors) {
  return {predicted * factors.low, predicted * factors.high};
}

base::Result<Intervals> parse_intervals(std::string_view text, std::string file) {
  return base::read_document<Intervals>(text, std::move(file), [](const base::Cursor& root) {
    Intervals out;
    for (const base::Cursor& item : root.at("spreads").items()) {
      if (!item.is_map()) {
        item.error("E0104", fmt::format("{} must be a mapping", base::quoted(item.path())),
                   "{several_nodes: true, time: {low: 0.9, high: 1.1}, memory: {low: 0.9, high: 1.1}, rows: 3}");
        continue;
      }
      Spread spread;
      if (item.has("stack")) spread.stack = item.at("stack").text();
      spread.several_nodes = item.at("several_nodes").boolean(false);
      spread.time = read_interval(item.at("time"));
      const bool of_times = spread.stack == kStrangers && !item.has("memory");  // whose memory nobody has told
      spread.memory = of_times ? kNothingSeen : read_interval(item.at("memory"));
      spread.rows = item.at("rows").integer(0, std::int64_t{1} << 40);
      out.spreads.push_back(spread);
    }
    if (const base::Cursor at = root.optional("elsewhere"); at.exists())
      out.elsewhere = Spread{{}, false, read_interval(at.at("time")), read_interval(at.at("memory")), 0};
    if (const base::Cursor at = root.optional("grounds"); at.exists())
      for (const base::Cursor& item : at.items()) {
        out.grounds.push_back(read_ground(item));
        out.grounds.back().stack = item.at("stack").text();
      }
    return out;
  });
}

std::string write_intervals(const Intervals& intervals) {
  constexpr std::size_t kIndent = 5;  // of a row's further lines
  std::string out =
      "# Measured over predicted, 10th and 90th percentile, of published runs that the stacks' numbers were not fitted "
      "to.\n"
      "# Written by `orrery validate --intervals`; rows of other software count with less weight. See "
      "docs/validation.md.\n"
      "spreads:\n";
  const auto text = [](const Interval& i) { return fmt::format("{{low: {}, high: {}}}", i.low, i.high); };
  for (const Spread& s : intervals.spreads)
    out += base::yaml_row(
               fmt::format(
                   "  - {{{}several_nodes: {}, time: {}, {}rows: {}}}",
                   s.stack.empty() ? "" : fmt::format("stack: {}, ", base::yaml_text(s.stack)), s.several_nodes,
                   text(s.time),
                   s.stack == kStrangers && s.memory == kNothingSeen ? "" : fmt::format("memory: {}, ", text(s.memory)),
                   s.rows),
               kIndent) +
           "\n";
  if (intervals.elsewhere)
    out += fmt::format(
        "# Of a stack's predictions for kinds of devices, and for mixtures, of which it has no run: "
        "docs/validation.md.\n"
        "elsewhere: {{time: {}, memory: {}}}\n",
        text(intervals.elsewhere->time), text(intervals.elsewhere->memory));
  if (!intervals.grounds.empty()) out += "# What the runs of a stack were of.\ngrounds:\n";
  for (const Ground& g : intervals.grounds)
    out +=
        base::yaml_row(fmt::format("  - {{stack: {}, {}}}", base::yaml_text(g.stack), ground_text(g)), kIndent) + "\n";
  return out;
}

}  // namespace orrery::cost

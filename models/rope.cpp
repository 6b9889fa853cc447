// Rates of rotary positions, and the key that scales them.
#include "models/rope.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/ensure.h"
#include "base/yaml.h"
#include "models/limits.h"

namespace orrery::models {
namespace {

const std::vector<std::string> kKinds = {"none", "linear", "llama3", "yarn", "longrope", "proportional"};

/// The pair, a fractional number of 0 to columns / 2, that turns `times` times within `original` tokens.
double pair_that_turns(double times, double theta, const RopeScaling& s, std::int64_t columns) {
  const double period = static_cast<double>(s.original) / (2 * std::numbers::pi * times);
  return static_cast<double>(columns) / 2 * std::log(period) / std::log(theta);
}

/// How far each pair keeps its rate: 1 whole, 0 divided by the factor.
double kept(double rate, std::int64_t pair, double theta, const RopeScaling& s, std::int64_t columns) {
  switch (s.kind) {
    case RopeKind::none: return 1;
    case RopeKind::linear: return 0;
    case RopeKind::llama3: {
      const double turns = static_cast<double>(s.original) * rate / (2 * std::numbers::pi);
      if (s.high == s.low) return turns < s.high ? 0 : 1;  // Llama 4 Scout: a step, no pair is in between
      return std::clamp((turns - s.low) / (s.high - s.low), 0.0, 1.0);
    }
    case RopeKind::yarn: {
      double first = pair_that_turns(s.high, theta, s, columns), last = pair_that_turns(s.low, theta, s, columns);
      if (s.whole_pairs) first = std::floor(first), last = std::ceil(last);
      first = std::max(first, 0.0), last = std::min(last, static_cast<double>(columns) - 1);
      constexpr double kLeastWidth = 1e-3;
      const double width = last == first ? kLeastWidth : last - first;
      return 1 - std::clamp((static_cast<double>(pair) - first) / width, 0.0, 1.0);
    }
    case RopeKind::longrope:
    case RopeKind::proportional: return 0;
  }
  return 1;
}

}  // namespace

std::vector<double> rope_rates(double theta, const RopeScaling& scaling, std::int64_t columns) {
  std::vector<double> out(static_cast<std::size_t>(columns / 2));
  ENSURE(scaling.kind != RopeKind::longrope || scaling.divisors.size() == out.size(), "{} divisors of {} pairs",
         scaling.divisors.size(), out.size());
  const double share = scaling.kind == RopeKind::proportional ? scaling.share : 1;
  const auto turning = static_cast<std::size_t>(share * static_cast<double>(out.size()));
  for (std::size_t i = 0; i < turning; ++i) {
    const auto pair = static_cast<std::int64_t>(i);
    const double rate = std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(columns));
    const double whole = kept(rate, pair, theta, scaling, columns);
    const double divisor = scaling.kind == RopeKind::longrope ? scaling.divisors[i] : scaling.factor;
    out[i] = whole == 1 ? rate : rate * whole + rate / divisor * (1 - whole);
  }
  return out;
}

double yarn_attention(double factor, double weight) {
  constexpr double kPerLogarithm = 0.1;
  return factor <= 1 ? 1 : kPerLogarithm * weight * std::log(factor) + 1;
}

double longrope_attention(double factor, std::int64_t original) {
  return factor <= 1 || original < 2 ? 1 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)));
}

RopeScaling RopeScaling::within(std::int64_t tokens) const {
  RopeScaling out = *this;
  if (kind != RopeKind::longrope) return out;
  if (tokens > original) out.divisors = out.long_divisors, out.attention = out.long_attention;
  out.long_divisors.clear();
  out.long_attention = 1;
  return out;
}

double RopeScaling::scores() const {
  const double once = score_weight > 0 ? yarn_attention(factor, score_weight) : 1;
  return once * once;
}

std::vector<double> read_divisors(const base::Cursor& at) {
  constexpr double kMost = 1e6, kLeast = 1e-3;
  std::vector<double> out;
  for (const base::Cursor& one : at.items()) out.push_back(one.number(kLeast, kMost, 1));
  return out;
}

RopeScaling read_rope_scaling(const base::Cursor& at) {
  RopeScaling out;
  out.kind = static_cast<RopeKind>(at.at("type").choice(kKinds, 0));
  if (out.kind == RopeKind::none) return out;
  constexpr double kMost = 1e6;
  if (out.kind == RopeKind::longrope) {
    out.original = at.at("original").integer(1, kMostSequence, 1);
    out.divisors = read_divisors(at.at("divisors"));
    out.long_divisors = read_divisors(at.at("long_divisors"));
    out.attention = at.optional("attention").number(0, kMost, 1);
    out.long_attention = at.optional("long_attention").number(0, kMost, out.attention);
    return out;
  }
  if (out.kind == RopeKind::proportional) {
    out.share = at.at("share").number(0, 1, 1);
    out.factor = at.optional("factor").number(1, kMost, 1);
    return out;
  }
  out.factor = at.at("factor").number(1, kMost, 1);
  if (out.kind == RopeKind::linear) return out;
  out.original = at.at("original").integer(1, kMostSequence, 1);
  const bool yarn = out.kind == RopeKind::yarn;
  out.low = at.optional("low").number(0, kMost, 1);
  out.high = at.optional("high").number(0, kMost, yarn ? 32 : 4);
  if (out.high < out.low)  // those of Kimi K2 (yarn) and Llama 4 Scout (llama3) are the same
    at.error("E0112", fmt::format("`rope_scaling.high` ({}) must not be below `low` ({})", out.high, out.low),
             "pairs that turn `low` times or less are slow, those that turn `high` times or more fast");
  if (!yarn) return out;
  out.whole_pairs = at.optional("whole_pairs").boolean(true);
  out.attention = at.optional("attention").number(0, kMost, yarn_attention(out.factor));
  out.score_weight = at.optional("score_weight").number(0, kMost, 0);
  return out;
}

std::string rope_scaling_text(const RopeScaling& s) {
  if (s.kind == RopeKind::none) return "{type: none}";
  if (s.kind == RopeKind::longrope)
    return fmt::format(
        "{{type: longrope, original: {}, attention: {}, long_attention: {}, divisors: [{}], long_divisors: [{}]}}",
        s.original, s.attention, s.long_attention, fmt::join(s.divisors, ", "), fmt::join(s.long_divisors, ", "));
  if (s.kind == RopeKind::proportional)
    return fmt::format("{{type: proportional, share: {}, factor: {}}}", s.share, s.factor);
  std::string out = fmt::format("{{type: {}, factor: {}", kKinds[static_cast<std::size_t>(s.kind)], s.factor);
  if (s.kind != RopeKind::linear) out += fmt::format(", original: {}, low: {}, high: {}", s.original, s.low, s.high);
  if (s.kind == RopeKind::yarn)
    out +=
        fmt::format(", whole_pairs: {}, attention: {}, score_weight: {}", s.whole_pairs, s.attention, s.score_weight);
  return out + "}";
}

}  // namespace orrery::models

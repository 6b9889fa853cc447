/// What all charts share: colours, fonts, axes and units.
#include "reports/html/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

namespace orrery::reports::html {
namespace {

constexpr double kLabelPixels = 6.7;  // mean advance of a 12 px sans-serif
constexpr int kLabelPadding = 16;

/// Purposes from the bottom of a stack to its top: those that stay for the whole run first.
constexpr std::array<const char*, 10> kPurposes{"parameters",    "optimizer_states", "gradients", "activations",
                                                "workspace",     "communication",    "input",     "scalars",
                                                "fragmentation", "software"};

void round_numbers(json& value) {
  if (value.is_number_float() && std::isfinite(value.get<double>()))
    value = std::strtod(fmt::format("{:.7g}", value.get<double>()).c_str(), nullptr);
  if (value.is_structured())
    for (json& one : value) round_numbers(one);
}

}  // namespace

std::string text_of_spec(json spec) {
  round_numbers(spec);
  return spec.dump(-1, ' ', true, json::error_handler_t::replace);
}

std::string colour_of(SpanKind activity) {
  return std::string("var(--") + name_of(activity) + ")";
}

std::string colour_of_purpose(const std::string& purpose) {
  const bool known = std::find(kPurposes.begin(), kPurposes.end(), purpose) != kPurposes.end();
  return known ? "var(--m-" + purpose + ")" : "var(--other)";
}

std::vector<std::string> purposes_in_order(const std::vector<cost::MemoryRow>& rows) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& purpose) {
    const bool used = std::any_of(rows.begin(), rows.end(), [&](const cost::MemoryRow& row) {
      const auto found = row.by_purpose.find(purpose);
      return found != row.by_purpose.end() && found->second > 0;
    });
    if (used && std::find(out.begin(), out.end(), purpose) == out.end()) out.push_back(purpose);
  };
  for (const char* purpose : kPurposes) add(purpose);
  for (const cost::MemoryRow& row : rows)
    for (const auto& [purpose, bytes] : row.by_purpose) add(purpose);
  return out;
}

int label_width(const std::vector<std::string>& labels) {
  std::size_t longest = 0;
  for (const std::string& label : labels) longest = std::max(longest, display_width(label));
  return static_cast<int>(kLabelPixels * static_cast<double>(longest)) + kLabelPadding;
}

Unit time_unit(double largest) {
  if (largest >= 1) return {1, "s"};
  if (largest >= 1e-3) return {1e3, "ms"};
  return {1e6, "µs"};
}

Unit byte_unit(double largest) {
  static constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t i = 0;
  double factor = 1;
  for (; i + 1 < kNames.size() && largest * factor >= 1024; ++i) factor /= 1024;
  return {factor, kNames[i]};
}

namespace {

/// digits x 10^exponent. Dividing by a power of ten is exact for tenths and below; multiplying would give
/// 0.30000000000000004 for 0.3.
double decimal(double digits, int exponent) {
  return exponent < 0 ? digits / std::pow(10.0, -exponent) : digits * std::pow(10.0, exponent);
}

}  // namespace

json log_ticks(double low, double high) {
  constexpr double kDecadesForPowers = 2.5;
  const bool powers = std::log10(high / low) > kDecadesForPowers;
  json ticks = json::array();
  for (int exponent = static_cast<int>(std::floor(std::log10(low))); std::pow(10.0, exponent) <= high; ++exponent)
    for (const int digit : powers ? std::vector{1} : std::vector{1, 2, 5})
      if (const double tick = decimal(digit, exponent); tick >= low && tick <= high) ticks.push_back(tick);
  if (ticks.size() > 1) return ticks;
  // So short an axis is nearly linear: multiples of the largest round step that gives three.
  constexpr std::size_t kEnough = 3;
  constexpr double kRounding = 1e-9;  // an end that is a multiple is a tick
  for (int exponent = static_cast<int>(std::ceil(std::log10(high - low)));; --exponent)
    for (const int digit : {5, 2, 1}) {
      ticks = json::array();
      const double step = decimal(digit, exponent);
      for (double n = std::ceil(low / step - kRounding); n * step <= high * (1 + kRounding); ++n)
        ticks.push_back(decimal(n * digit, exponent));
      if (ticks.size() >= kEnough) return ticks;
    }
}

}  // namespace orrery::reports::html

// Quantities from and to text. Factors below one are divisors, so that "5 us" is the double nearest to 5e-6.
#include "base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/result.h"

namespace orrery::base {
namespace {

struct Unit {
  std::string_view name;
  double times = 1;
  double over = 1;
  bool writes = true;  ///< quantity_text may choose it; the others are only read
};

constexpr double kKi = 1024.0;

const std::vector<Unit>& units_of(UnitKind kind) {
  static const std::vector<Unit> seconds = {{"ps", 1, 1e12},       {"ns", 1, 1e9},       {"us", 1, 1e6},
                                            {"ms", 1, 1e3},        {"s", 1, 1},          {"min", 60, 1, false},
                                            {"h", 3600, 1, false}, {"µs", 1, 1e6, false}};
  static const std::vector<Unit> bytes = {{"B"},
                                          {"kB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9},
                                          {"TB", 1e12},
                                          {"PB", 1e15},
                                          {"KB", 1e3, 1, false},
                                          {"KiB", kKi},
                                          {"MiB", kKi * kKi},
                                          {"GiB", kKi * kKi * kKi},
                                          {"TiB", kKi * kKi * kKi * kKi}};
  static const std::vector<Unit> flops = {{"FLOP"},        {"kFLOP", 1e3},  {"MFLOP", 1e6}, {"GFLOP", 1e9},
                                          {"TFLOP", 1e12}, {"PFLOP", 1e15}, {"EFLOP", 1e18}};
  static const std::vector<Unit> bytes_per_second = {{"B/s"},
                                                     {"kB/s", 1e3},
                                                     {"MB/s", 1e6},
                                                     {"GB/s", 1e9},
                                                     {"TB/s", 1e12},
                                                     {"PB/s", 1e15},
                                                     {"KB/s", 1e3, 1, false},
                                                     {"KiB/s", kKi, 1, false},
                                                     {"MiB/s", kKi * kKi, 1, false},
                                                     {"GiB/s", kKi * kKi * kKi, 1, false},
                                                     {"TiB/s", kKi * kKi * kKi * kKi, 1, false},
                                                     {"b/s", 1, 8, false},
                                                     {"kb/s", 1e3, 8, false},
                                                     {"Mb/s", 1e6, 8, false},
                                                     {"Gb/s", 1e9, 8, false},
                                                     {"Tb/s", 1e12, 8, false}};
  static const std::vector<Unit> flops_per_second = {{"FLOPS"},
                                                     {"kFLOPS", 1e3},
                                                     {"MFLOPS", 1e6},
                                                     {"GFLOPS", 1e9},
                                                     {"TFLOPS", 1e12},
                                                     {"PFLOPS", 1e15},
                                                     {"EFLOPS", 1e18},
                                                     {"FLOP/s", 1, 1, false},
                                                     {"kFLOP/s", 1e3, 1, false},
                                                     {"MFLOP/s", 1e6, 1, false},
                                                     {"GFLOP/s", 1e9, 1, false},
                                                     {"TFLOP/s", 1e12, 1, false},
                                                     {"PFLOP/s", 1e15, 1, false},
                                                     {"EFLOP/s", 1e18, 1, false}};
  static const std::vector<Unit> watts = {{"W"}, {"kW", 1e3}, {"MW", 1e6}, {"mW", 1, 1e3, false}};
  static const std::vector<Unit> dollars = {{"$/h"}, {"USD/h", 1, 1, false}};
  switch (kind) {
    case UnitKind::seconds: return seconds;
    case UnitKind::bytes: return bytes;
    case UnitKind::flops: return flops;
    case UnitKind::bytes_per_second: return bytes_per_second;
    case UnitKind::flops_per_second: return flops_per_second;
    case UnitKind::watts: return watts;
    case UnitKind::dollars_per_hour: return dollars;
  }
  return dollars;
}

const char* examples_of(UnitKind kind) {
  switch (kind) {
    case UnitKind::seconds: return "`5 us`, `1.5 ms` or `2 s`";
    case UnitKind::bytes: return "`80 GiB`, `512 MB` or `64 kB`";
    case UnitKind::flops: return "`3 TFLOP` or `1.2 GFLOP`";
    case UnitKind::bytes_per_second: return "`450 GB/s` or `200 Gb/s`";
    case UnitKind::flops_per_second: return "`312 TFLOPS` or `19.5 TFLOP/s`";
    case UnitKind::watts: return "`400 W` or `10.2 kW`";
    case UnitKind::dollars_per_hour: return "`1.8 $/h`";
  }
  return "";
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

// Digits as in JSON, and also ".5": no hex, no octal look-alikes, no "inf" or "nan".
std::size_t number_length(std::string_view s) {
  const auto digit = [&](std::size_t i) { return i < s.size() && s[i] >= '0' && s[i] <= '9'; };
  std::size_t i = (!s.empty() && s[0] == '-') ? 1 : 0;
  if (!digit(i) && !(i < s.size() && s[i] == '.' && digit(i + 1))) return 0;
  if (digit(i) && s[i] == '0' && digit(i + 1)) return 0;
  while (digit(i)) ++i;
  if (i < s.size() && s[i] == '.') {
    if (!digit(i + 1)) return 0;
    for (++i; digit(i);) ++i;
  }
  if (i < s.size() && (s[i] == 'e' || s[i] == 'E')) {
    const std::size_t sign = (i + 1 < s.size() && (s[i + 1] == '+' || s[i + 1] == '-')) ? 1 : 0;
    if (digit(i + 1 + sign)) {  // otherwise it belongs to the unit
      for (i += 1 + sign; digit(i);) ++i;
    }
  }
  return i;
}

double value_in(double number, const Unit& unit) {
  return number * unit.times / unit.over;
}

std::string three_digits(double value, const char* unit) {
  const double size = std::abs(value);
  // 999.5 would print as "1e+03" with %.3g: rounding to three digits never needs an exponent here.
  const int decimals = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, decimals, unit);
}

struct UnitSize {
  double size;
  const char* unit;
};

template <std::size_t N>
std::string scaled(double value, const std::array<UnitSize, N>& steps) {
  if (!std::isfinite(value)) return fmt::format("{} {}", value, steps.back().unit);
  for (const UnitSize& step : steps) {
    // a value that rounds up to the unit is shown in it
    if (std::abs(value) >= step.size * 0.9995) return three_digits(value / step.size, step.unit);
  }
  return three_digits(value / steps.back().size, steps.back().unit);
}

}  // namespace

bool parse_number(std::string_view text, double& out) {
  if (text.empty() || number_length(text) != text.size()) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size() && std::isfinite(out);
}

namespace {

/// The unit that another spelling means: "Gbps" is Gb/s, "TFLOPS" and "tflop/s" are TFLOP/s. Empty if there is none.
std::string_view unit_meant(std::string name, const std::vector<Unit>& units) {
  const auto ends = [&](std::string_view tail) { return name.size() > tail.size() && name.ends_with(tail); };
  const auto lower = [](std::string_view text) {
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
    return out;
  };
  constexpr std::string_view kFlops = "flops";
  if (lower(name).ends_with(kFlops)) name.replace(name.size() - kFlops.size(), kFlops.size(), "FLOP/s");
  for (const std::string_view tail : {"/sec", "ps"})
    if (ends(tail)) name.replace(name.size() - tail.size(), tail.size(), "/s");
  for (const Unit& unit : units)
    if (unit.name == name) return unit.name;
  // "Gb" means bits: never match it with bytes by ignoring case.
  const bool bits = std::isupper(static_cast<unsigned char>(name.front())) != 0 && (ends("b") || ends("b/s"));
  for (const Unit& unit : units)
    if (!bits && lower(unit.name) == lower(name)) return unit.name;
  return {};
}

}  // namespace

bool parse_quantity(const std::string& text, UnitKind kind, double& out, std::string& error) {
  const std::string_view all = trimmed(text);
  const std::size_t length = number_length(all);
  double number = 0;
  if (length == 0 || !parse_number(all.substr(0, length), number)) {
    error = fmt::format("{} is not a number with a unit; write it like {}", quoted(text), examples_of(kind));
    return false;
  }
  const std::string_view name = trimmed(all.substr(length));
  if (name.empty()) {
    error = fmt::format("{} has no unit; write it like {}", quoted(text), examples_of(kind));
    return false;
  }
  for (const Unit& unit : units_of(kind)) {
    if (unit.name != name) continue;
    const double value = value_in(number, unit);
    if (std::isfinite(value)) {
      out = value;
      return true;
    }
    error = fmt::format("{} is too large", quoted(text));
    return false;
  }
  const std::string_view near = unit_meant(std::string(name), units_of(kind));
  error = fmt::format("unit {} is unknown here; {}write it like {}", quoted(std::string(name)),
                      near.empty() ? "" : fmt::format("did you mean `{}`? ", near), examples_of(kind));
  return false;
}

std::string quantity_text(double value, UnitKind kind) {
  std::string best;
  bool best_reads_well = false;
  for (const Unit& unit : units_of(kind)) {
    if (!unit.writes) continue;
    const double number = value * unit.over / unit.times;
    const bool reads_well = std::abs(number) >= 1 && std::abs(number) < 1000;
    // Near the edge of a unit the quotient may be one bit off: choose the digits that read back to the same value.
    for (const std::string& digits : {fmt::format("{:.15g}", number), fmt::format("{}", number)}) {
      const std::string text = fmt::format("{} {}", digits, unit.name);
      double back = 0;
      std::string ignored;
      if (!parse_quantity(text, kind, back, ignored) || back != value) continue;
      if (best.empty() || text.size() < best.size() || (text.size() == best.size() && reads_well && !best_reads_well)) {
        best = text;
        best_reads_well = reads_well;
      }
    }
  }
  return best;
}

std::string human(Seconds t) {
  static constexpr std::array<UnitSize, 5> steps{{{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}, {1e-9, "ns"}, {1e-12, "ps"}}};
  constexpr double kNothing = 5e-15;  // would be 0.00 ps, which a sum of rounded times may leave
  return std::abs(t.value) < kNothing ? "0 s" : scaled(t.value, steps);
}

std::string human(Bytes b) {
  static constexpr std::array<UnitSize, 5> steps{
      {{kKi * kKi * kKi * kKi, "TiB"}, {kKi * kKi * kKi, "GiB"}, {kKi * kKi, "MiB"}, {kKi, "KiB"}, {1, "B"}}};
  if (std::abs(b.value) < kKi && b.value == std::floor(b.value)) return fmt::format("{:.0f} B", b.value);
  return scaled(b.value, steps);
}

std::string human(BytesPerSecond r) {
  static constexpr std::array<UnitSize, 5> steps{
      {{1e12, "TB/s"}, {1e9, "GB/s"}, {1e6, "MB/s"}, {1e3, "kB/s"}, {1, "B/s"}}};
  return r.value == 0 ? "0 B/s" : scaled(r.value, steps);
}

std::string human(FlopsPerSecond r) {
  static constexpr std::array<UnitSize, 5> steps{
      {{1e18, "EFLOP/s"}, {1e15, "PFLOP/s"}, {1e12, "TFLOP/s"}, {1e9, "GFLOP/s"}, {1e6, "MFLOP/s"}}};
  return r.value == 0 ? "0 FLOP/s" : scaled(r.value, steps);
}

std::string human_count(double n) {
  static constexpr std::array<UnitSize, 4> steps{{{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "k"}}};
  if (std::abs(n) < 1000) return fmt::format("{:g}", n);
  return scaled(n, steps);
}

std::string plural(std::int64_t n, std::string_view word) {
  const bool hisses = word.size() > 1 && (word.substr(word.size() - 2) == "ch" || word.back() == 's');
  return std::string(word) + (n == 1 ? "" : hisses ? "es" : "s");
}

std::string count_of(std::int64_t n, std::string_view word) {
  return fmt::format("{} {}", n, plural(n, word));
}

}  // namespace orrery::base

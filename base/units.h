#pragma once
/// Units that cross folder boundaries. Only meaningful arithmetic compiles: Bytes / BytesPerSecond is Seconds,
/// Flops / BytesPerSecond does not exist. Inside one formula unwrap with `.value`, compute, and wrap again.
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace orrery::base {

template <class Tag>
struct Quantity {
  double value = 0;
  constexpr Quantity() = default;
  constexpr explicit Quantity(double v) : value(v) {}
  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity o) {
    value += o.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity o) {
    value -= o.value;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity{a.value + b.value}; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity{a.value - b.value}; }
  friend constexpr Quantity operator*(Quantity a, double k) { return Quantity{a.value * k}; }
  friend constexpr Quantity operator*(double k, Quantity a) { return Quantity{a.value * k}; }
  friend constexpr Quantity operator/(Quantity a, double k) { return Quantity{a.value / k}; }
  friend constexpr double operator/(Quantity a, Quantity b) { return a.value / b.value; }
};

using Seconds = Quantity<struct SecondsTag>;
using Bytes = Quantity<struct BytesTag>;
using Flops = Quantity<struct FlopsTag>;  ///< floating-point operations, a count
using BytesPerSecond = Quantity<struct BytesPerSecondTag>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag>;
using Watts = Quantity<struct WattsTag>;
using DollarsPerHour = Quantity<struct DollarsPerHourTag>;

constexpr Seconds operator/(Bytes b, BytesPerSecond r) {
  return Seconds{b.value / r.value};
}
constexpr Seconds operator/(Flops f, FlopsPerSecond r) {
  return Seconds{f.value / r.value};
}
constexpr BytesPerSecond operator/(Bytes b, Seconds t) {
  return BytesPerSecond{b.value / t.value};
}
constexpr FlopsPerSecond operator/(Flops f, Seconds t) {
  return FlopsPerSecond{f.value / t.value};
}
constexpr Bytes operator*(BytesPerSecond r, Seconds t) {
  return Bytes{r.value * t.value};
}

/// Quantities as users write them: "450 GB/s", "200 Gb/s", "80 GiB", "5 us", "312 TFLOPS", "400 W", "1.8 $/h".
/// GB is 1e9 bytes, GiB is 2^30, Gb is 1e9 bits. GFLOPS and GFLOP/s are a rate, GFLOP a count.
/// Returns true and sets `out` (SI: seconds, bytes, flops, bytes/s, flops/s, W, $/h), or false and sets `error`.
enum class UnitKind { seconds, bytes, flops, bytes_per_second, flops_per_second, watts, dollars_per_hour };
[[nodiscard]] bool parse_quantity(const std::string& text, UnitKind kind, double& out, std::string& error);
/// A finite number as in JSON (`.5` is accepted too): no hexadecimal, no leading zeros, no inf or nan.
[[nodiscard]] bool parse_number(std::string_view text, double& out);
/// Shortest text that parse_quantity reads back to exactly the same double, in a unit that suits the size.
[[nodiscard]] std::string quantity_text(double value, UnitKind kind);

/// For people: "1.23 ms", "631 µs" (files have "us"), "71.8 GiB", "4.61 GB/s", "312 TFLOP/s"; three significant digits.
[[nodiscard]] std::string human(Seconds t);
[[nodiscard]] std::string human(Bytes b);
[[nodiscard]] std::string human(BytesPerSecond r);
[[nodiscard]] std::string human(FlopsPerSecond r);
[[nodiscard]] std::string human_count(double n);  ///< "6.74 B", "124 M"

/// "rank" of 1, otherwise "ranks"; "batch", otherwise "batches".
[[nodiscard]] std::string plural(std::int64_t n, std::string_view word);
/// "1 rank", "2 ranks".
[[nodiscard]] std::string count_of(std::int64_t n, std::string_view word);

}  // namespace orrery::base

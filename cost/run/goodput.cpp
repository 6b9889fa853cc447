/// Young's interval, the exponential closed form, and the step function for faults at a fixed period.
#include "cost/run/goodput.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace orrery::cost {

namespace {

constexpr std::array<Fleet, 3> kFleets = {{
    {"good", 50'677,
     "Llama 3 (Grattafiori et al. 2024), table 5: 419 unexpected interruptions of 16,384 H100 in 54 days"},
    {"young", 12'288,
     "OPT-175B (Zhang et al. 2022), final update of its logbook: about two machines a day of 1,024 A100"},
    {"pessimistic", 8'090,
     "Meta's research clusters (Kokolis et al. 2024): jobs of 1,024 A100 failed every 7.9 hours over 11 months"},
}};

/// Negative and NaN times count as zero.
double time_of(double value) {
  return value > 0 ? value : 0;
}

Reliability sane(const Reliability& system) {
  return {time_of(system.mtbf), time_of(system.restart), time_of(system.pause), time_of(system.persist)};
}

/// How long a due checkpoint waits for the previous one.
double wait_of(double interval, const Reliability& s) {
  return std::max(0.0, s.persist - interval);
}

/// If nothing is ever committed, all time except restarts is lost.
Goodput nothing(double interval, double restart, double lost_per_failure) {
  Goodput none;
  none.interval = interval;
  none.restart = std::clamp(restart, 0.0, 1.0);
  none.lost = 1 - none.restart;
  none.lost_per_failure = lost_per_failure;
  return none;
}

}  // namespace

std::span<const Fleet> fleets() {
  return kFleets;
}

const Fleet* fleet_named(std::string_view name) {
  const auto found = std::find_if(kFleets.begin(), kFleets.end(), [&](const Fleet& one) { return name == one.name; });
  return found == kFleets.end() ? nullptr : &*found;
}

Goodput goodput(double interval, const Reliability& system) {
  const Reliability s = sane(system);
  const double T = time_of(interval), M = s.mtbf;
  const double held = s.pause + wait_of(T, s);
  if (M == 0) return nothing(T, s.restart > 0 ? 1 : 0, 0);
  if (std::isinf(M)) {  // no failures: only pauses
    if (std::isinf(T)) return {T, 1, 0, 0, 0, 0};
    if (T + held == 0) return {T, 1, 0, 0, 0, 0};
    if (std::isinf(held)) return {T, 0, 1, 0, 0, 0};
    return {T, T / (T + held), held / (T + held), 0, 0, 0};
  }
  // Of the time between two failures, a restart takes R unless a failure ends it earlier.
  const double restart = -std::expm1(-s.restart / M);
  const double grown = std::exp((s.restart + std::min(s.persist, T)) / M);
  const double all = M * grown * std::expm1((T + held) / M);
  if (!std::isfinite(all)) return nothing(T, restart, (1 - restart) * M);
  Goodput out;
  out.interval = T;
  out.restart = restart;
  out.useful = all > 0 ? T / all : 1 / grown;
  out.checkpoint = all > 0 ? held / all : 0;
  out.lost = std::max(0.0, 1 - out.useful - out.checkpoint - out.restart);
  out.lost_per_failure = out.lost * M;
  return out;
}

double young_interval(double pause, double mtbf) {
  const double C = time_of(pause), M = time_of(mtbf);
  return C == 0 || M == 0 ? 0 : std::sqrt(2 * C * M);
}

double best_interval(const Reliability& system) {
  const Reliability s = sane(system);
  if (std::isinf(s.mtbf)) return kForever;
  if (s.mtbf == 0) return 0;
  // ln(1 - x) + x + C/M decreases from C/M to -infinity between 0 and 1.
  double low = 0, high = 1;
  for (int i = 0; i < 200 && low < high; ++i) {
    const double x = (low + high) / 2;
    (std::log1p(-x) + x + s.pause / s.mtbf > 0 ? low : high) = x;
  }
  const double best = s.pause > 0 ? (low + high) / 2 * s.mtbf : 0;
  // Shorter intervals wait for the disk: work during the wait is free, unless a failure undoes it.
  return best < s.persist ? std::max(best, std::min(s.persist, s.mtbf)) : best;
}

std::int64_t best_steps(double step, const Reliability& system) {
  constexpr double kMost = 1e15;
  const double best = best_interval(system);
  if (std::isinf(best)) return 0;
  if (!(step > 0)) return 1;
  const double least = std::clamp(std::floor(best / step), 1.0, kMost);
  const bool more = goodput((least + 1) * step, system).useful > goodput(least * step, system).useful;
  return static_cast<std::int64_t>(least) + (more ? 1 : 0);
}

double first_order_goodput(const Reliability& system) {
  const Reliability s = sane(system);
  if (std::isinf(s.mtbf)) return 1;
  if (s.mtbf == 0) return 0;
  return std::max(-std::numeric_limits<double>::max(),
                  1 - std::sqrt(2 * s.pause / s.mtbf) - (s.restart + s.persist) / s.mtbf);
}

PeriodicGoodput periodic_goodput(double period, std::int64_t steps, double step, const Reliability& system) {
  const Reliability s = sane(system);
  const double T = static_cast<double>(std::max<std::int64_t>(1, steps)) * time_of(step), P = time_of(period);
  PeriodicGoodput out;
  if (std::isinf(P)) {
    Reliability calm = s;
    calm.mtbf = kForever;
    out.shares = goodput(T, calm);
    out.regular = out.shares.useful;
    out.steps_per_fault = out.checkpoints_per_fault = std::numeric_limits<double>::max();
    return out;
  }
  const double held = s.pause + wait_of(T, s), cycle = T + held;
  if (P <= s.restart || !std::isfinite(cycle) || T == 0) {
    out.shares = nothing(T, P > 0 ? s.restart / P : 1, std::max(0.0, P - s.restart));
    return out;
  }
  // Seconds that contain whole cycles; the cycle that the fault interrupts is half over on average.
  const double all = P - s.restart - std::min(s.persist, T), whole = std::max(0.0, all - cycle / 2);
  out.regular = std::min(1.0, std::max(0.0, std::floor(all / cycle) * (T / P)));
  out.checkpoints_per_fault = std::min(whole / cycle, std::numeric_limits<double>::max());
  out.steps_per_fault = step > 0 ? out.checkpoints_per_fault * (T / step) : 0;
  out.shares.interval = T;
  out.shares.useful = whole / P * (T / cycle);
  out.shares.checkpoint = whole / P * (held / cycle);
  out.shares.restart = s.restart / P;
  out.shares.lost = std::max(0.0, 1 - out.shares.useful - out.shares.checkpoint - out.shares.restart);
  out.shares.lost_per_failure = out.shares.lost * P;
  return out;
}

}  // namespace orrery::cost

/// Combines the failure model with a plan's prices.
#include "cost/run/goodput_forecast.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery::cost {

namespace {

constexpr double kHour = 3600;

/// Seconds that a run of `useful` seconds takes at the given goodput.
double stretched(double useful, double goodput) {
  if (useful <= 0) return 0;
  return goodput > 0 ? useful / goodput : kForever;
}

void at_random(Forecast& out, double step) {
  const Reliability& system = out.system;
  out.best_every = best_steps(step, system);
  if (out.every == 0) out.every = out.best_every;
  const auto at = [&](std::int64_t every) {
    return goodput(every > 0 ? static_cast<double>(every) * step : kForever, system);
  };
  out.now = at(out.every);
  out.best = at(out.best_every);
  out.young = young_interval(system.pause, system.mtbf);
  out.first_order = first_order_goodput(system);
}

void at_a_period(Forecast& out, double period, double step) {
  out.every = std::max<std::int64_t>(1, out.every);
  out.periodic = periodic_goodput(period, out.every, step, out.system);
  out.now = out.periodic->shares;
}

}  // namespace

Sourced usual_restart(clusters::DeviceKind kind) {
  if (kind != clusters::DeviceKind::cpu)
    return {660, "504 B200 over 55 days (SKT and Upstage): the median from a failure to the next try was 11 minutes"};
  return {5, "placeholder, uncalibrated: ranks of this machine"};
}

FailureModel failures_at(double per_device_hour, int devices, std::string source) {
  const double rate = per_device_hour * devices / kHour;
  return {{rate > 0 ? 1 / rate : kForever, std::move(source)}, per_device_hour, std::nullopt};
}

Forecast forecast(const ForecastRequest& request) {
  Forecast out;
  out.asked = request;
  out.every = request.every;
  out.system = {request.failures.mtbf.value, request.restart.value, request.checkpoint.pause(),
                persist_time(request.checkpoint.write, request.step)};
  const double step = request.step > 0 ? request.step : 0;
  const std::optional<double>& period = request.failures.period;
  if (period)
    at_a_period(out, *period, step);
  else
    at_random(out, step);
  const double useful = static_cast<double>(request.steps) * step;
  Reliability calm = out.system;
  calm.mtbf = kForever;
  const double interval = out.every > 0 ? static_cast<double>(out.every) * step : kForever;
  out.run_without = stretched(useful, goodput(interval, calm).useful);
  out.run = stretched(useful, out.now.useful);
  const double between = period ? *period : out.system.mtbf;
  out.failures = useful <= 0 ? 0 : between > 0 ? (std::isinf(between) ? 0 : out.run / between) : kForever;
  return out;
}

}  // namespace orrery::cost

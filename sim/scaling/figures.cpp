/// Derived figures of a scaling study.
#include "sim/scaling/figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace orrery::sim {
namespace {

using cost::Cause;

double& at(cost::ByCause& of, Cause cause) {
  return of.at(static_cast<std::size_t>(cause));
}

/// Time exposed by messages of a dimension, without contention; 0 if the prediction does not list messages.
double exposed_in(const cost::Prediction& p, const char* dimension) {
  double sum = 0;
  for (const cost::CommunicationRow& row : p.communication)
    if (row.dimension == dimension) sum += row.exposed_s - row.contention_s;
  return sum;
}

std::vector<cost::Grown> grown(const plan::PlanSpec& before, const plan::PlanSpec& now) {
  std::vector<cost::Grown> out;
  const auto add = [&](const char* name, int from, int to) {
    if (from != to) out.push_back({name, from, to});
  };
  add("data", before.mesh.data, now.mesh.data);
  add("tensor", before.mesh.tensor, now.mesh.tensor);
  add("pipeline", before.mesh.pipeline, now.mesh.pipeline);
  add("context", before.mesh.context, now.mesh.context);
  add("expert", before.mesh.expert, now.mesh.expert);
  return out;
}

/// Compares a point with the previous and with the first one.
void compare(cost::ScalingPoint& point, const cost::ScalingPoint& before, const cost::ScalingPoint& first) {
  point.efficiency = point.tokens_per_s_per_device / first.tokens_per_s_per_device;
  if (point.factors && first.factors)
    point.efficiency_interval = ratio_interval(point.efficiency, *first.factors, *point.factors);
  // efficiency = s0 / s, so the loss from s' to s is s0 (1/s' - 1/s) = s0 (s - s') / (s s'): linear in what is added.
  const double per_second =
      before.tokens_per_s_per_device * point.tokens_per_s_per_device / first.tokens_per_s_per_device;
  for (std::size_t c = 0; c < point.seconds_by_cause.size(); ++c) {
    point.seconds_added.at(c) = point.seconds_by_cause.at(c) - before.seconds_by_cause.at(c);
    point.efficiency_lost.at(c) = point.seconds_added.at(c) * per_second;
  }
  const double more = static_cast<double>(point.devices) / before.devices - 1;
  if (more > 0) point.marginal = (point.best->tokens_per_s / before.best->tokens_per_s - 1) / more;
  point.grown = grown(before.best->spec, point.best->spec);
}

/// What a way is judged by, the first first: those after it decide between equals, so that no chosen way has another
/// beside it that is as good in all of them and better in one.
using Merits = std::array<double, 3>;

/// Keeps the place with the smaller merits; of equals the first.
void take(std::optional<cost::Place>& best, Merits& value, const cost::Place& place, const Merits& other) {
  if (best && other >= value) return;
  best = place;
  value = other;
}

/// The cost by which runs are compared: dollars or, if nothing has a price, device-seconds.
double price_of(const cost::ScalingPoint& point, bool priced) {
  return priced ? point.run->usd : point.run->seconds * point.devices;
}

cost::Ways ways_of(const cost::ScalingStudy& study, const std::string& model) {
  cost::Ways ways;
  ways.model = model;
  bool priced = true;
  const auto each = [&](const auto& what) {
    for (std::size_t s = 0; s < study.series.size(); ++s) {
      if (study.series[s].model != model) continue;
      for (std::size_t p = 0; p < study.series[s].points.size(); ++p)
        if (study.series[s].points[p].run) what(cost::Place{s, p}, study.series[s].points[p]);
    }
  };
  each([&](const cost::Place&, const cost::ScalingPoint& point) { priced = priced && point.run->usd > 0; });
  Merits cheapest{}, smallest{}, fastest{}, nearest{};
  each([&](const cost::Place& place, const cost::ScalingPoint& point) {
    const double price = price_of(point, priced), time = point.run->seconds, devices = point.devices;
    take(ways.nearest, nearest, place, {time, price, devices});
    if (study.deadline_s && time > *study.deadline_s) return;
    take(ways.cheapest, cheapest, place, {price, time, devices});
    take(ways.smallest, smallest, place, {devices, price, time});
    take(ways.fastest, fastest, place, {time, price, devices});
  });
  if (ways.fastest) ways.nearest.reset();
  return ways;
}

}  // namespace

cost::ByCause seconds_by_cause(const cost::Prediction& p) {
  const cost::Breakdown& b = p.breakdown;
  cost::ByCause out{};
  // The replay counts context-parallel messages as tensor-parallel ones; its rows separate them.
  const double context = std::min(b.tensor_communication, exposed_in(p, "context"));
  at(out, Cause::compute) = b.forward + b.backward;
  at(out, Cause::recompute) = b.recompute;
  at(out, Cause::optimizer) = b.optimizer;
  at(out, Cause::bubble) = b.bubble;
  at(out, Cause::imbalance) = b.imbalance;
  at(out, Cause::tensor) = b.tensor_communication - context;
  at(out, Cause::context) = context;
  at(out, Cause::exchange) = b.exchange_communication;
  at(out, Cause::data) = b.data_communication;
  at(out, Cause::pipeline) = b.pipeline_communication;
  at(out, Cause::copies) = b.copies;
  at(out, Cause::contention) = b.contention;
  at(out, Cause::host) = b.overhead;
  // A breakdown's parts sum to the step up to rounding; scaled, their sum per token is exact.
  const double sum = std::accumulate(out.begin(), out.end(), 0.0);
  const double scale = sum > 0 && p.tokens_per_s > 0 ? p.spec.mesh.ranks() / (p.tokens_per_s * sum) : 0;
  for (double& one : out) one *= scale;
  return out;
}

cost::Interval ratio_interval(double ratio, const cost::Interval& a, const cost::Interval& b) {
  const double middle = (std::log(a.low) + std::log(a.high) - std::log(b.low) - std::log(b.high)) / 2;
  const double half = std::hypot(std::log(a.high / a.low) / 2, std::log(b.high / b.low) / 2);
  return {ratio * std::exp(middle - half), ratio * std::exp(middle + half)};
}

void derive(cost::ScalingSeries& series, double pays) {
  std::optional<std::size_t> first, before;
  bool paid = true;
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    cost::ScalingPoint& point = series.points[i];
    if (!point.best || point.best->tokens_per_s <= 0) continue;
    const cost::Prediction& best = *point.best;
    point.tokens_per_s_per_device = best.tokens_per_s / point.devices;
    point.seconds_by_cause = seconds_by_cause(best);
    if (point.factors) {
      const cost::Interval& f = *point.factors;
      point.step_time_s = cost::Interval{best.step_time_s * f.low, best.step_time_s * f.high};
      point.tokens_per_s_per_device_interval =
          cost::Interval{point.tokens_per_s_per_device / f.high, point.tokens_per_s_per_device / f.low};
    }
    point.before = before;
    if (!first) {
      first = i;
      point.efficiency = 1;
      if (point.factors) point.efficiency_interval = cost::Interval{1, 1};
    } else {
      compare(point, series.points[*before], series.points[*first]);
      paid = paid && point.marginal >= pays;
      if (paid) series.pays_up_to = point.devices;
      if (!paid && series.stops_paying_at == 0) {
        series.stops_paying_at = point.devices;
        series.pays_up_to = series.points[*before].devices;
      }
    }
    before = i;
  }
}

void add_runs(cost::ScalingStudy& study) {
  if (!study.tokens) return;
  constexpr double kJoulesPerKwh = 3.6e6;
  std::vector<std::string> models;
  for (cost::ScalingSeries& series : study.series) {
    if (std::find(models.begin(), models.end(), series.model) == models.end()) models.push_back(series.model);
    for (cost::ScalingPoint& point : series.points) {
      if (!point.best || point.best->tokens_per_s <= 0) continue;
      const cost::Prediction& best = *point.best;
      const double steps = *study.tokens / (best.tokens_per_s * best.step_time_s);
      cost::RunCost run;
      run.seconds = *study.tokens / best.tokens_per_s;
      if (point.factors)
        run.seconds_interval = cost::Interval{run.seconds * point.factors->low, run.seconds * point.factors->high};
      run.usd = best.cost_per_step_usd * steps;
      run.joules = best.energy_per_step_j * steps;
      run.co2_grams = run.joules / kJoulesPerKwh * study.co2_grams_per_kwh;
      point.run = run;
    }
  }
  for (const std::string& model : models) study.ways.push_back(ways_of(study, model));
}

}  // namespace orrery::sim

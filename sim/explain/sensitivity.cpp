// Divides and multiplies one number at a time.
#include "sim/explain/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/units.h"
#include "cost/estimate/estimate.h"
#include "cost/parameters/parameters.h"
#include "sim/simulate.h"

namespace orrery::sim {
namespace {

using cost::kSensitivityFactor;
using cost::Sensitivity;

constexpr double kNoSwing = 1e-4;  // share of the step: numbers that change it less are not listed

/// A question with one number multiplied by `factor`.
class Changed {
 public:
  explicit Changed(const Question& question) : q_(question), cluster_(question.cluster) {}

  /// Whether such a machine exists.
  [[nodiscard]] bool set(const std::string& key, double value, base::UnitKind unit) {
    auto other = machine_with(*q_.cluster, {{key, base::quantity_text(value, unit)}});
    if (!other) return false;
    cluster_ = std::make_shared<const clusters::Cluster>(std::move(*other));
    return true;
  }
  void set(cost::Parameter parameter, double value) {
    cost::Calibration one;
    one.name = "sensitivity";
    parameter.value = value;
    one.parameters.emplace(parameter.name, parameter);
    over_ = {one};
  }

  /// Step time; none if the plan cannot be made with this number.
  [[nodiscard]] std::optional<double> replayed() const {
    const auto made = plan::make_plan(q_.model, cluster_, q_.spec);
    if (!made) return std::nullopt;
    return simulate(*made, pricing(*made), {.spans = false}).prediction.step_time_s;
  }
  [[nodiscard]] double estimated(const plan::Plan& plan) const {
    const cost::Pricing prices = pricing(plan);
    return cost::Estimator(q_.model, prices).estimate(plan).step_time;
  }

 private:
  [[nodiscard]] cost::Pricing pricing(const plan::Plan& plan) const {
    std::vector<cost::Calibration> all = q_.calibrations;
    all.insert(all.end(), over_.begin(), over_.end());
    return {cluster_, q_.stacks.of(plan.spec().states.zero_stage, *cluster_), all};
  }
  const Question& q_;
  std::shared_ptr<const clusters::Cluster> cluster_;
  std::vector<cost::Calibration> over_;
};

/// A rate that the cluster's file states.
struct Rate {
  const char* what;
  std::string key;
  double value;
  base::UnitKind unit;
};

std::vector<Rate> rates_of(const Question& q) {
  using base::UnitKind;
  const clusters::Cluster& c = *q.cluster;
  std::vector<Rate> out;
  const std::string dtype = models::name_of(q.spec.numerics.precision);
  const auto peak = c.device().peak.find(dtype);
  if (peak != c.device().peak.end())
    out.push_back({"peak of matrix products", "device.peak." + dtype, peak->second.value, UnitKind::flops_per_second});
  out.push_back({"bandwidth of device memory", "device.memory_bandwidth", c.device().memory_bandwidth.value,
                 UnitKind::bytes_per_second});
  if (!c.shape) return out;
  if (c.devices_per_node > 1)
    out.push_back({"bandwidth of links within a node", "node.fabric.link_bandwidth", c.shape->node.link_bandwidth.value,
                   UnitKind::bytes_per_second});
  if (c.nodes > 1 && c.shape->node.nics > 0)
    out.push_back(
        {"bandwidth of NICs", "node.nics.bandwidth", c.shape->node.nic_bandwidth.value, UnitKind::bytes_per_second});
  return out;
}

std::vector<Sensitivity> of_the_machine(const Question& q, const GoOn& go_on) {
  std::vector<Sensitivity> out;
  for (const Rate& rate : rates_of(q)) {
    if (!(rate.value > 0) || !go_on(rate.what)) continue;
    Changed less(q), more(q);
    if (!less.set(rate.key, rate.value / kSensitivityFactor, rate.unit) ||
        !more.set(rate.key, rate.value * kSensitivityFactor, rate.unit))
      continue;
    const auto a = less.replayed(), b = more.replayed();
    if (a && b)
      out.push_back({rate.what, rate.value, rate.unit == base::UnitKind::flops_per_second ? "FLOP/s" : "B/s",
                     q.cluster->name, "property of the machine, from its file", *a, *b});
  }
  return out;
}

/// A coefficient with its sensitivity in the closed form.
struct Candidate {
  cost::Parameter parameter;
  double less = 0, more = 0, swing = 0;
};

/// Values below and above, within the coefficient's valid range.
std::pair<double, double> around(const cost::Parameter& parameter) {
  double less = parameter.value / kSensitivityFactor, more = parameter.value * kSensitivityFactor;
  if (const auto known = cost::known_parameter(parameter.name))
    less = std::max(less, std::min(known->low, parameter.value)),
    more = std::min(more, std::max(known->high, parameter.value));
  return {less, more};
}

/// Equal effects in the closed form: numbers that only occur multiplied with each other affect the step equally.
bool same(const std::pair<double, double>& a, const std::pair<double, double>& b) {
  constexpr double kEqual = 1e-9;  // relative
  return std::abs(a.first - b.first) <= kEqual * a.first && std::abs(a.second - b.second) <= kEqual * a.second;
}

/// Fittable coefficients that affect the step, each once; excludes those with the same effect as a rate of the machine.
std::vector<Candidate> candidates(const Question& q, const plan::Plan& plan) {
  const cost::Pricing own(q.cluster, q.stacks.of(plan.spec().states.zero_stage, *q.cluster), q.calibrations);
  const double step = Changed(q).estimated(plan);
  std::vector<Candidate> out;
  std::vector<std::pair<double, double>> seen;
  for (const Rate& rate : rates_of(q)) {
    Changed less(q), more(q);
    if (less.set(rate.key, rate.value / kSensitivityFactor, rate.unit) &&
        more.set(rate.key, rate.value * kSensitivityFactor, rate.unit))
      seen.emplace_back(less.estimated(plan), more.estimated(plan));
  }
  for (const auto& [name, parameter] : own.calibration().parameters) {
    const auto known = cost::known_parameter(name);
    if (!(parameter.value > 0) || !std::isfinite(parameter.value) || (known && known->prior == 0)) continue;
    Candidate one{parameter, 0, 0, 0};
    std::tie(one.less, one.more) = around(parameter);
    Changed less(q), more(q);
    less.set(parameter, one.less);
    more.set(parameter, one.more);
    const std::pair<double, double> moved = {less.estimated(plan), more.estimated(plan)};
    one.swing = std::abs(moved.first - moved.second);
    const bool twice = std::any_of(seen.begin(), seen.end(), [&](const auto& other) {
      return same(moved, other) || same({moved.second, moved.first}, other);
    });
    if (one.swing <= kNoSwing * step || twice) continue;
    seen.push_back(moved);
    out.push_back(std::move(one));
  }
  std::stable_sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) { return a.swing > b.swing; });
  return out;
}

std::vector<Sensitivity> of_the_coefficients(const Question& q, std::size_t most, const GoOn& go_on) {
  std::vector<Sensitivity> out;
  const auto plan = plan::make_plan(q.model, q.cluster, q.spec);
  if (!plan || q.model->recommender) return out;
  for (const Candidate& one : candidates(q, *plan)) {
    if (out.size() == most || !go_on(one.parameter.name)) break;
    Changed less(q), more(q);
    less.set(one.parameter, one.less);
    more.set(one.parameter, one.more);
    const auto a = less.replayed(), b = more.replayed();
    const auto known = cost::known_parameter(one.parameter.name);
    if (a && b)
      out.push_back({one.parameter.name, one.parameter.value, cost::name_of(one.parameter.unit), one.parameter.source,
                     known ? known->meaning : "", *a, *b});
  }
  return out;
}

}  // namespace

std::vector<Sensitivity> sensitivities(const Question& question, std::size_t most, const GoOn& go_on) {
  std::vector<Sensitivity> out = of_the_machine(question, go_on);
  const std::vector<Sensitivity> more = of_the_coefficients(question, most, go_on);
  out.insert(out.end(), more.begin(), more.end());
  const double least = kNoSwing * (out.empty() ? 0 : std::max(out.front().less_s, out.front().more_s));
  std::erase_if(out, [&](const Sensitivity& one) { return one.swing() <= least; });
  std::stable_sort(out.begin(), out.end(),
                   [](const Sensitivity& a, const Sensitivity& b) { return a.swing() > b.swing(); });
  if (out.size() > most) out.resize(most);
  return out;
}

}  // namespace orrery::sim

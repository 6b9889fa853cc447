/// Translates all rows; applies changed numbers to prices.
#include "sim/validate/cases.h"

#include <algorithm>

#include "sim/simulate.h"

namespace orrery::sim {

namespace {

std::string reason_of(const base::Diagnostics& why) {
  std::string text;
  for (const base::Diagnostic& d : why) text += (text.empty() ? "" : "; ") + d.message;
  return text;
}

}  // namespace

bool several_nodes(const Case& one) {
  const clusters::Cluster& cluster = one.subject.pricing->cluster();
  return cluster.size() > cluster.devices_per_node;
}

Cases make_cases(const std::vector<Row>& rows, Library library, const std::function<bool(std::size_t)>& progress) {
  Cases out;
  Translator translator(std::move(library));
  std::vector<std::shared_ptr<const models::Model>> models;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (progress && !progress(i)) break;
    const Setup& setup = rows[i].setup;
    auto subject = translator.translate(setup);
    if (!subject) {
      out.left_out.push_back({setup.id, setup.source, reason_of(subject.error()), setup.line,
                              unscorable(translator.completed(setup)).empty() && rows[i].measured.seconds.has_value()});
      continue;
    }
    // Equal models share one object, so that their layers are priced once.
    const auto same = std::find_if(models.begin(), models.end(), [&](const auto& m) { return *m == *subject->model; });
    if (same == models.end())
      models.push_back(subject->model);
    else
      subject->model = *same;
    out.ready.push_back({i, std::move(*subject)});
  }
  return out;
}

Predictor::Priced& Predictor::priced(const Case& one) {
  const cost::Pricing& usual = *one.subject.pricing;
  auto found = prices_.find(&usual);
  if (found == prices_.end()) {
    // Keep the row's own calibration, so that files given with --calibration count here too.
    cost::Calibration over;
    over.stack = usual.stack().name;
    for (const auto& [name, value] : numbers_)
      if (name.first == over.stack) over.set(name.second, value, "being fitted");
    cost::Pricing pricing(usual.shared_cluster(), usual.stack(), {usual.calibration(), over});
    found = prices_.emplace(&usual, Priced{std::move(pricing), {}}).first;
  }
  return found->second;
}

cost::Estimator& Predictor::estimator(const Case& one) {
  auto& [pricing, estimators] = priced(one);
  auto made = estimators.find(one.subject.model.get());
  if (made == estimators.end())
    made = estimators.emplace(one.subject.model.get(), cost::Estimator(one.subject.model, pricing)).first;
  return made->second;
}

cost::Estimate Predictor::replayed(const Case& one) {
  const cost::Pricing& pricing = priced(one).pricing;
  auto& fabric = fabrics_[&pricing.cluster()];
  if (!fabric) fabric = fabric_of(pricing.cluster());
  const cost::Prediction p = simulate(one.subject.plan, pricing, {.spans = false, .fabric = fabric}).prediction;
  cost::Estimate out;
  out.step_time = p.step_time_s;
  out.memory_peak = p.memory_peak_bytes;
  out.breakdown = p.breakdown;
  return out;
}

cost::Estimate Predictor::predict(const Case& one) {
  if (one.subject.model->recommender) return replayed(one);
  return estimator(one).estimate(one.subject.plan, one.subject.memory);
}

double Predictor::memory_peak(const Case& one) {
  if (one.subject.model->recommender) return replayed(one).memory_peak;
  return estimator(one).memory_peak(one.subject.plan, one.subject.memory);
}

double Predictor::memory_needed(const Case& one) {
  if (one.subject.model->recommender) return replayed(one).memory_peak;
  return estimator(one).memory_peak(one.subject.plan, {cost::MemoryKind::needed, one.subject.memory.zero_bubble});
}

double Predictor::seconds(const Case& one) {
  if (one.subject.model->recommender) return replayed(one).step_time;
  return estimator(one).time(one.subject.plan).step_time;
}

}  // namespace orrery::sim

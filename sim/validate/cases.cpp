/// Translation of all rows; prices with changed numbers.
#include "sim/validate/cases.h"

namespace orrery::sim {

namespace {

std::string reason_of(const base::Diagnostics& why) {
  std::string text;
  for (const base::Diagnostic& d : why) text += (text.empty() ? "" : "; ") + d.message;
  return text;
}

}  // namespace

Cases make_cases(const std::vector<Row>& rows, Library library, const std::function<bool(std::size_t)>& progress) {
  Cases out;
  Translator translator(std::move(library));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (progress && !progress(i)) break;
    const Setup& setup = rows[i].setup;
    auto subject = translator.translate(setup);
    if (subject)
      out.ready.push_back({i, std::move(*subject)});
    else
      out.left_out.push_back({setup.id, setup.source, reason_of(subject.error()), setup.line,
                              unscorable(setup).empty() && rows[i].measured.seconds.has_value()});
  }
  return out;
}

cost::Estimate Predictor::predict(const Case& one) {
  const cost::Pricing& usual = *one.subject.pricing;
  const std::tuple key{static_cast<const void*>(&usual.cluster()), usual.stack().name,
                       usual.stack().memory.moment_bytes};
  auto found = prices_.find(key);
  if (found == prices_.end()) {
    // The row's own calibration, so that files given with --calibration count as everywhere.
    cost::Calibration over;
    over.stack = usual.stack().name;
    for (const auto& [name, value] : numbers_)
      if (name.first == over.stack) over.set(name.second, value, "being fitted");
    found =
        prices_.emplace(key, cost::Pricing(usual.shared_cluster(), usual.stack(), {usual.calibration(), over})).first;
  }
  cost::Estimator estimator(one.subject.model, found->second);
  return estimator.estimate(one.subject.plan, one.subject.memory_kind);
}

}  // namespace orrery::sim

/// Predictions beside measurements.
#include "sim/validate/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cost/estimate.h"

namespace orrery::sim {

namespace {

std::string reason_of(const base::Diagnostics& why) {
  std::string text;
  for (const base::Diagnostic& d : why) text += (text.empty() ? "" : "; ") + d.message;
  return text;
}

/// Fills the summaries from the rows that were measured.
void score(cost::Validation& v) {
  std::vector<double> times, memory;
  std::map<std::string, std::vector<double>> sources;
  for (const cost::ValidatedRow& row : v.rows) {
    if (row.measured_s) {
      times.push_back(std::abs(row.predicted_s / *row.measured_s - 1));
      sources[row.source].push_back(times.back());
    }
    if (row.measured_bytes) memory.push_back(std::abs(row.predicted_bytes / *row.measured_bytes - 1));
  }
  v.time = summary_of(std::move(times));
  v.memory = summary_of(std::move(memory));
  for (auto& [source, errors] : sources) v.by_source.push_back({source, summary_of(std::move(errors))});
}

}  // namespace

cost::ErrorSummary summary_of(std::vector<double> errors) {
  cost::ErrorSummary out;
  out.count = static_cast<std::int64_t>(errors.size());
  if (errors.empty()) {
    out.median = out.mean = out.p90 = std::nan("");
    return out;
  }
  std::sort(errors.begin(), errors.end());
  const auto percentile = [&](double share) {
    const double place = share * static_cast<double>(errors.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, errors.size() - 1);
    return errors[below] + (place - static_cast<double>(below)) * (errors[above] - errors[below]);
  };
  constexpr double kMedian = 0.5, kNinetieth = 0.9;
  out.median = percentile(kMedian);
  out.p90 = percentile(kNinetieth);
  for (const double e : errors) out.mean += e / static_cast<double>(errors.size());
  return out;
}

cost::Validation validate(const std::vector<Row>& rows, Library library,
                          const std::function<bool(std::size_t)>& progress) {
  cost::Validation out;
  Translator translator(std::move(library));
  std::size_t done = 0;
  for (const Row& row : rows) {
    if (progress && !progress(done++)) break;
    const auto subject = translator.translate(row.setup);
    if (!subject) {
      out.left_out.push_back({row.setup.id, row.setup.source, reason_of(subject.error()), row.setup.line,
                              unscorable(row.setup).empty() && row.measured.seconds.has_value()});
      continue;
    }
    cost::Estimator estimator(subject->model, *subject->pricing);
    const cost::Estimate estimate = estimator.estimate(subject->plan);
    cost::ValidatedRow result;
    result.id = row.setup.id;
    result.source = row.setup.source;
    result.stack = subject->pricing->stack().name;
    result.plan = plan::describe(subject->plan.spec());
    result.predicted_s = estimate.step_time;
    result.predicted_bytes = estimate.memory_peak;
    result.measured_s = row.measured.seconds;
    result.measured_bytes = row.measured.memory_bytes;
    result.notes = subject->notes;
    out.rows.push_back(std::move(result));
  }
  score(out);
  return out;
}

}  // namespace orrery::sim

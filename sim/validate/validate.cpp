/// Predictions beside measurements.
#include "sim/validate/validate.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/validate/which_plan.h"

namespace orrery::sim {

namespace {

/// Fills the summaries from the rows that were measured.
void score(cost::Validation& v) {
  std::vector<double> times, memory;
  std::map<std::string, std::vector<double>> sources;
  for (const cost::ValidatedRow& row : v.rows) {
    if (row.measured_s && !row.out_of_memory) {
      times.push_back(std::abs(row.predicted_s / *row.measured_s - 1));
      sources[row.source].push_back(times.back());
    }
    if (row.measured_bytes) memory.push_back(std::abs(row.predicted_bytes / *row.measured_bytes - 1));
  }
  v.time = summary_of(std::move(times));
  v.memory = summary_of(std::move(memory));
  for (auto& [source, errors] : sources) v.by_source.push_back({source, summary_of(std::move(errors))});
}

/// Of software that stands in for another no more is known than of any.
std::optional<cost::Spread> spread_of_case(const cost::Intervals& intervals, const Case& one) {
  const cost::Stack& stack = one.subject.pricing->stack();
  const char* unknown = one.subject.model->recommender ? kGenericRecommender : kGenericEager;
  if (one.subject.stands_in && !stack.generic) return cost::spread_of(intervals, unknown, several_nodes(one));
  return cost::spread_of(intervals, stack, several_nodes(one));
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

cost::Validation validate(const std::vector<Row>& rows, const Cases& cases, const cost::Intervals& intervals) {
  cost::Validation out;
  out.given = rows.size();
  out.left_out = cases.left_out;
  const StackNumbers as_they_are;
  Predictor predictor(as_they_are);
  std::vector<double> seconds;
  for (const Case& one : cases.ready) {
    const Row& row = rows[one.row];
    const cost::Estimate estimate = predictor.predict(one);
    cost::ValidatedRow result;
    result.id = row.setup.id;
    result.source = row.setup.source;
    result.stack = one.subject.pricing->stack().name;
    result.plan = plan::describe(one.subject.plan.spec());
    result.predicted_s = estimate.step_time;
    result.predicted_bytes = estimate.memory_peak;
    result.measured_s = row.measured.seconds;
    result.measured_bytes = row.measured.memory_bytes;
    result.notes = one.subject.notes;
    const cost::Stack& stack = one.subject.pricing->stack();
    result.out_of_memory = row.setup.kind == kOutOfMemory;
    result.evidence = cost::basis_of(intervals, stack, one.subject.stands_in);
    result.evidence_text = cost::basis_text(intervals, stack, several_nodes(one), one.subject.stands_in);
    if (const auto spread = spread_of_case(intervals, one)) {
      result.time_s = cost::around(result.predicted_s, spread->time);
      result.bytes = cost::around(result.predicted_bytes, spread->memory);
      const double needed = predictor.memory_needed(one);
      const double capacity = one.subject.pricing->cluster().device().memory.value;
      if (capacity > 0) result.fits_probability = cost::fits_probability(needed, capacity, spread->memory);
    }
    seconds.push_back(estimate.step_time);
    out.rows.push_back(std::move(result));
  }
  out.groups = which_plan(rows, cases, seconds);
  score(out);
  return out;
}

cost::Validation validate(const std::vector<Row>& rows, Library library,
                          const std::function<bool(std::size_t)>& progress) {
  return validate(rows, make_cases(rows, std::move(library), progress));
}

}  // namespace orrery::sim

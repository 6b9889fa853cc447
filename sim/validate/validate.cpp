/// Compares predictions with measurements.
#include "sim/validate/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "plan/spec/placement.h"
#include "sim/search/share_out.h"
#include "sim/validate/fit.h"
#include "sim/validate/fit_rows.h"
#include "sim/validate/which_plan.h"

namespace orrery::sim {

namespace {

/// Fills the summaries from the measured rows.
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

/// The numbers that were chosen over published rows, and those that follow one of them ("as NAME").
std::set<NumberName> chosen_numbers(const std::vector<cost::Stack>& stacks) {
  std::set<NumberName> out;
  const auto families = stack_families(stacks);
  if (!families) return out;
  for (const StackFamily& family : *families)
    for (const auto& [name, root] : family.follows) out.insert(name);
  return out;
}

/// How many of a stack's numbers are `chosen`, or fitted to a user's rows.
std::int64_t fitted_numbers(const cost::Stack& stack, const std::set<NumberName>& chosen) {
  return std::count_if(stack.parameters.begin(), stack.parameters.end(), [&](const cost::Parameter& p) {
    return p.source.starts_with(kChosen) || chosen.count({stack.name, p.name}) != 0 ||
           (stack.fitted && p.source.starts_with(kFittedToRuns));
  });
}

/// By stack: its predicted rows and their errors. `catalogue`: stacks that those of the cases may follow; may be null.
void score_stacks(cost::Validation& v, const Cases& cases, const std::vector<cost::Stack>* catalogue) {
  std::map<std::string, const cost::Stack*> by_name;
  for (const Case& one : cases.ready)
    by_name.try_emplace(one.subject.pricing->stack().name, &one.subject.pricing->stack());
  std::vector<cost::Stack> stacks;
  for (const auto& [name, stack] : by_name) stacks.push_back(*stack);
  if (catalogue != nullptr)
    for (const cost::Stack& stack : *catalogue)
      if (by_name.count(stack.name) == 0) stacks.push_back(stack);
  const std::set<NumberName> chosen = chosen_numbers(stacks);
  std::map<std::string, std::int64_t> numbers;
  for (const auto& [name, stack] : by_name) numbers[name] = fitted_numbers(*stack, chosen);
  std::map<std::string, std::vector<double>> errors;
  std::map<std::string, std::int64_t> rows;
  for (const cost::ValidatedRow& row : v.rows) {
    ++rows[row.stack];
    if (row.measured_s && !row.out_of_memory)
      errors[row.stack].push_back(std::abs(row.predicted_s / *row.measured_s - 1));
  }
  for (const auto& [stack, count] : rows)
    v.by_stack.push_back({stack, count, numbers[stack], summary_of(std::move(errors[stack]))});
}

cost::Setting setting_of(const Case& one) {
  return cost::setting_of(one.subject.pricing->cluster(), *one.subject.model);
}

/// Software that stands in for another is as uncertain as unknown software.
std::optional<cost::Spread> spread_of_case(const cost::Intervals& intervals, const Case& one) {
  const cost::Stack& stack = one.subject.pricing->stack();
  const char* unknown = one.subject.model->recommender ? cost::kGenericRecommender : cost::kGenericEager;
  if (one.subject.stands_in && !stack.generic) return cost::spread_of(intervals, unknown, several_nodes(one));
  return cost::spread_of(intervals, stack, several_nodes(one), setting_of(one));
}

/// A row to be predicted; Predicting fills in the results.
cost::ValidatedRow described(const Row& row, const Case& one, const cost::Intervals& intervals) {
  cost::ValidatedRow out;
  const cost::Stack& stack = one.subject.pricing->stack();
  out.id = row.setup.id;
  out.source = row.setup.source;
  out.stack = stack.name;
  out.cluster = one.subject.pricing->cluster().name;
  out.plan = plan::describe(one.subject.plan.spec());
  out.measured_s = row.measured.seconds;
  out.measured_bytes = row.measured.memory_bytes;
  out.notes = one.subject.notes;
  if (const std::string places = plan::placement_text(one.subject.plan.cluster(), one.subject.plan.spec());
      !places.empty())
    out.notes.push_back("ranks placed: " + places);
  if (const std::string said = plan::software_text(one.subject.software); !said.empty())
    out.notes.push_back(fmt::format("software: {{{}}}, as a job says it", said));
  out.out_of_memory = row.setup.kind == kOutOfMemory;
  out.evidence = cost::basis_of(intervals, stack, one.subject.stands_in);
  out.evidence_text = cost::basis_text(intervals, stack, several_nodes(one), one.subject.stands_in, setting_of(one));
  return out;
}

/// Predicts one case after another, with its own prices and fabrics.
class Predicting {
 public:
  Predicting(const Cases& cases, const cost::Intervals& intervals, std::vector<cost::ValidatedRow>& rows)
      : cases_(cases), intervals_(intervals), rows_(rows) {}
  Predicting(const Predicting&) = delete;
  Predicting& operator=(const Predicting&) = delete;

  void operator()(std::size_t i) {
    const Case& one = cases_.ready[i];
    cost::ValidatedRow& row = rows_[i];
    // A run that ran out of memory has no step to replay: only its memory counts.
    row.predicted_s = row.out_of_memory ? predictor_.seconds(one) : predictor_.replayed(one).step_time;
    row.predicted_bytes = predictor_.memory_peak(one);
    const auto spread = spread_of_case(intervals_, one);
    if (!spread) return;
    row.time_s = cost::around(row.predicted_s, spread->time);
    const double capacity = one.subject.pricing->cluster().device().memory.value;
    const auto fits = [&](const Case& plan, const cost::Spread& memory_of) {
      return cost::fits_probability(predictor_.memory_needed(plan), capacity, memory_of.memory);
    };
    if (capacity > 0) row.fits_probability = fits(one, *spread);
    if (capacity > 0 && one.subject.smallest)
      row.fits_probability = std::max(*row.fits_probability, fits({one.row, *one.subject.smallest}, *spread));
    if (one.subject.fitting) {
      const Case other{one.row, *one.subject.fitting};
      const double seconds = predictor_.replayed(other).step_time;
      const cost::Interval of_other = cost::around(seconds, spread->time);
      row.time_s = cost::Interval{std::min(row.time_s->low, of_other.low), std::max(row.time_s->high, of_other.high)};
      // The run ran: a plan that could not have was not its plan, even if memory were as uncertain as unknown
      // software's. Software with runs of its own keeps what they were read as, by which its times were fitted.
      const auto unknown = cost::spread_of(intervals_, cost::kGenericEager, several_nodes(one));
      if (row.evidence != cost::Basis::published && fits(one, unknown.value_or(*spread)) < kUnlikely) {
        row.predicted_s = seconds;
        row.predicted_bytes = predictor_.memory_peak(other);
        row.fits_probability = std::max(fits(other, *spread), row.fits_probability.value_or(0));
        row.plan = plan::describe(one.subject.fitting->plan.spec());
      }
    }
    row.bytes = cost::around(row.predicted_bytes, spread->memory);
  }

 private:
  static constexpr double kUnlikely = 0.01;  ///< chosen: docs/validation.md says with which rows in view
  const Cases& cases_;
  const cost::Intervals& intervals_;
  std::vector<cost::ValidatedRow>& rows_;
  const StackNumbers as_they_are_;
  Predictor predictor_{as_they_are_};
};

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

cost::Validation validate(const std::vector<Row>& rows, const Cases& cases, const cost::Intervals& intervals,
                          const ValidateOptions& options) {
  cost::Validation out;
  out.given = rows.size();
  out.left_out = cases.left_out;
  for (const Case& one : cases.ready) out.rows.push_back(described(rows[one.row], one, intervals));
  std::vector<std::unique_ptr<Predicting>> workers;
  for (int w = 0; w < std::max(1, options.threads); ++w)
    workers.push_back(std::make_unique<Predicting>(cases, intervals, out.rows));
  share_out(workers, cases.ready.size(), 1, options.stop, [&](std::size_t begun) {
    if (options.progress) options.progress(begun);
  });
  std::vector<double> seconds;
  for (const cost::ValidatedRow& row : out.rows) seconds.push_back(row.predicted_s);
  if (std::erase_if(out.rows, [](const cost::ValidatedRow& row) { return row.predicted_s == 0; }) == 0)
    out.groups = which_plan(rows, cases, seconds);
  score(out);
  score_stacks(out, cases, options.stacks);
  return out;
}

cost::Validation validate(const std::vector<Row>& rows, Library library,
                          const std::function<bool(std::size_t)>& progress) {
  const std::vector<cost::Stack> stacks = library.stacks;
  ValidateOptions options;
  options.stacks = &stacks;
  return validate(rows, make_cases(rows, std::move(library), progress), {}, options);
}

}  // namespace orrery::sim

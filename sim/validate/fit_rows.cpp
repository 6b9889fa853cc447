/// Two fits, of times and of memory, and their remaining uncertainty.
#include "sim/validate/fit_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "base/units.h"
#include "cost/fit/least_squares.h"
#include "cost/parameters/parameters.h"
#include "cost/prices/stacks.h"
#include "sim/validate/cases.h"
#include "sim/validate/likeness.h"
#include "sim/validate/validate.h"

namespace orrery::sim {

namespace {

constexpr double kHuber = 1.5;  ///< in scatters; beyond it a row counts as an outlier (Huber 1964: 1.345 to 2)
constexpr int kRounds = 8;
constexpr std::size_t kFewRows = 4;  ///< with fewer residuals percentiles mean nothing

/// A number that runs may change: its value if a stack does not state it, the least difference that counts (added
/// before taking logarithms), and the width of its prior around the family's value, as a logarithm.
struct FreeNumber {
  const char* name;
  double otherwise, least, width, low, high;
};

constexpr double kMicros = 1e-6;
// Widths as in cost/parameters/parameters.cpp; smaller for shares, on which a family agrees within a tenth or two.
constexpr FreeNumber kTimes[] = {
    {"stack.matmul_share", 1, 0, 0.2, 0.3, 1.05},
    {"stack.elementwise_passes", 1, 0, 0.4, 0.5, 10},
    {"stack.attention_share", 1, 0, 0.3, 0.2, 1.1},
    {"stack.host_op_time", 0, 5 * kMicros, 0.7, 0, 2e-3},
    {"stack.host_message_time", 0, 20 * kMicros, 0.7, 0, 5e-3},
    {"stack.pipeline_message_time", 0, 20 * kMicros, 1, 0, 5e-3},
    {"stack.tensor_hop_time", 0, 5 * kMicros, 1, 0, 5e-3},
    {"stack.data_share", 1, 0, 0.5, 0.05, 1.2},
    {"stack.step_overhead", 0, 5e-3, 1, 0, 10},
};
constexpr FreeNumber kMemory[] = {
    {"memory.fragmentation", 0, 0.1, 0.4, 0, 1},
    {"memory.pipeline_fragmentation", 0, 0.1, 0.4, 0, 2},
    {"memory.stuck", 0, 0.1, 0.4, 0, 1},
    {"stack.context_memory", 0, 0.5e9, 0.5, 0, 20e9},
};

double* recipe_number(cost::Stack& stack, const std::string& name) {
  if (name == "memory.fragmentation") return &stack.memory.fragmentation;
  if (name == "memory.pipeline_fragmentation") return &stack.memory.pipeline_fragmentation;
  if (name == "memory.stuck") return &stack.memory.stuck;
  return nullptr;
}

double value_of(cost::Stack stack, const FreeNumber& number) {
  if (const double* recipe = recipe_number(stack, number.name)) return *recipe;
  for (const cost::Parameter& p : stack.parameters)
    if (p.name == number.name) return p.value;
  return number.otherwise;
}

void set_number(cost::Stack& stack, const std::string& name, double value, const std::string& source) {
  if (double* recipe = recipe_number(stack, name)) {
    *recipe = value;
    stack.memory.stated = true;
    return;
  }
  for (cost::Parameter& p : stack.parameters)
    if (p.name == name) {
      p.value = value;
      p.source = source;
      return;
    }
  stack.parameters.push_back({name, value, cost::unit_of(name), source});
}

using Numbers = std::vector<std::pair<const FreeNumber*, double>>;

/// Predictions with some of a stack's numbers replaced; what a row's own words state stays.
class Variant {
 public:
  explicit Variant(Numbers numbers) : numbers_(std::move(numbers)) {}

  double seconds(const Subject& one) { return estimator(one).time(one.plan).step_time; }
  double memory(const Subject& one, cost::MemoryKind kind) {
    return estimator(one).memory_peak(one.plan, {kind, one.memory.zero_bubble});
  }

 private:
  struct Priced {
    std::unique_ptr<cost::Pricing> pricing;
    std::map<const void*, cost::Estimator> estimators;  // by model
  };

  cost::Estimator& estimator(const Subject& one) {
    Priced& priced = prices_[one.pricing.get()];
    if (!priced.pricing) {
      cost::Stack stack = one.pricing->stack();
      cost::Calibration over;
      over.stack = stack.name;
      for (const auto& [number, value] : numbers_) {
        if (one.stated.count(number->name) != 0) continue;
        set_number(stack, number->name, value, "being fitted");
        if (!recipe_number(stack, number->name)) over.set(number->name, value, "being fitted");
      }
      priced.pricing =
          std::make_unique<cost::Pricing>(one.pricing->shared_cluster(), std::move(stack),
                                          std::vector<cost::Calibration>{one.pricing->calibration(), std::move(over)});
    }
    const auto found = priced.estimators.find(one.model.get());
    if (found != priced.estimators.end()) return found->second;
    return priced.estimators.emplace(one.model.get(), cost::Estimator(one.model, *priced.pricing)).first->second;
  }

  Numbers numbers_;
  std::map<const cost::Pricing*, Priced> prices_;
};

/// One of the two fits: its numbers, its observations, and its current state.
struct Fit {
  std::vector<FreeNumber> numbers;
  std::vector<cost::Unknown> unknowns;
  std::vector<double> theta;
  cost::LeftOneOut left;

  void add(const FreeNumber& number, const cost::Stack& like) {
    numbers.push_back(number);
    const double start = std::log(std::clamp(value_of(like, number), number.low, number.high) + number.least);
    unknowns.push_back({start, number.width, number.low + number.least, number.high + number.least});
    theta.push_back(start);
  }
  [[nodiscard]] Numbers at(const std::vector<double>& where) const {
    Numbers out;
    for (std::size_t i = 0; i < numbers.size(); ++i)
      out.emplace_back(&numbers[i], std::max(0.0, std::exp(where[i]) - numbers[i].least));
    return out;
  }
  void solve(const cost::Residuals& residuals, std::size_t count) {
    if (numbers.empty() || count == 0) return;
    const std::vector<double> weights(count, 1.0);
    theta = cost::least_squares(unknowns, weights, residuals, kHuber, kRounds).theta;
    left = cost::left_one_out(unknowns, weights, residuals, kHuber, theta);
  }
  /// Posterior width of a number over its prior width.
  [[nodiscard]] double narrowed(std::size_t i) const {
    return left.covariance.empty() ? 1 : std::sqrt(std::max(0.0, left.covariance[i][i])) / unknowns[i].prior;
  }
};

/// Rows prepared for fitting.
struct Rows {
  const std::vector<Row>& all;
  Cases cases;
  std::vector<const Case*> timed, peaks, lives;  ///< with a time; with a peak; that ran or ran out of memory

  [[nodiscard]] const Row& row(const Case& one) const { return all[one.row]; }
  [[nodiscard]] bool died(const Case& one) const { return row(one).setup.kind == kOutOfMemory; }
  [[nodiscard]] double capacity(const Case& one) const { return one.subject.pricing->cluster().device().memory.value; }
};

/// No step is faster: its model FLOPs at the devices' peak. 0: not known.
double least_seconds(const Subject& one) {
  const cost::Prediction p = cost::Estimator(one.model, *one.pricing).predict(one.plan);
  return p.mfu * p.step_time_s;
}

/// A warning if the row's device is not known by its name, and another's numbers are taken; once for each name.
void warn_of_device(const Setup& s, const Subject& subject, base::Diagnostics& warnings) {
  constexpr int kButForWords = 3;  // likeness() of names that mean the same model
  const std::string& taken = subject.pricing->cluster().device().name;
  if (!s.cluster.empty() || s.device_at.line == 0 || likeness(s.gpu_type, taken, s.gpu_gb).model >= kButForWords)
    return;
  std::string message =
      fmt::format("the catalogue has no device {}: such rows are read as runs on {}", base::quoted(s.gpu_type), taken);
  for (const base::Diagnostic& one : warnings)
    if (one.message == message) return;
  warnings.push_back({base::Severity::warning,
                      "V07",
                      s.device_at,
                      std::move(message),
                      "correct its name; or describe it in a cluster file, and name that: --cluster FILE",
                      {}});
}

Rows rows_of(const std::vector<Row>& rows, Library library, const cost::Stack& like,
             std::vector<cost::LeftOutRow>& left_out, std::size_t& used, base::Diagnostics& warnings) {
  const bool one_machine = library.machine.has_value();
  library.stand_in = like;
  library.for_all = true;
  Rows out{rows, make_cases(rows, std::move(library)), {}, {}, {}};
  left_out = out.cases.left_out;
  for (const Case& one : out.cases.ready) {
    const Row& row = out.row(one);
    const bool died = out.died(one);
    if (const double least = least_seconds(one.subject); row.measured.seconds && *row.measured.seconds < least) {
      left_out.push_back(
          {row.setup.id, row.setup.source,
           fmt::format("a step of {} is faster than the devices' peak, {}",
                       base::human(base::Seconds{*row.measured.seconds}), base::human(base::Seconds{least})),
           row.setup.line, false});
      continue;
    }
    if (row.measured.seconds && !died) out.timed.push_back(&one);
    if (row.measured.memory_bytes && !died) out.peaks.push_back(&one);
    const bool ran = row.measured.seconds || row.measured.memory_bytes;
    if ((died || ran) && !one_machine) warn_of_device(row.setup, one.subject, warnings);
    if (died && row.setup.open_micro_batch)
      left_out.push_back(
          {row.setup.id, row.setup.source, "it died, and leaves its micro-batch open", row.setup.line, false});
    else if (died || ran)
      out.lives.push_back(&one), ++used;
    else
      left_out.push_back(
          {row.setup.id, row.setup.source, "it states neither a step time nor a memory peak", row.setup.line, false});
  }
  return out;
}

std::vector<double> time_residuals(const Rows& rows, Variant variant) {
  std::vector<double> out;
  for (const Case* one : rows.timed)
    out.push_back(std::log(variant.seconds(one->subject) / *rows.row(*one).measured.seconds));
  return out;
}

/// Residuals of peaks, and by how much the need lies on the wrong side of the capacity.
std::vector<double> memory_residuals(const Rows& rows, Variant variant) {
  std::vector<double> out;
  for (const Case* one : rows.peaks)
    out.push_back(
        std::log(variant.memory(one->subject, one->subject.memory.kind) / *rows.row(*one).measured.memory_bytes));
  for (const Case* one : rows.lives) {
    const double over = std::log(variant.memory(one->subject, cost::MemoryKind::needed) / rows.capacity(*one));
    out.push_back(rows.died(*one) ? std::min(0.0, over) : std::max(0.0, over));
  }
  return out;
}

cost::ErrorSummary errors_of(const std::vector<double>& log_ratios) {
  std::vector<double> errors;
  for (const double ratio : log_ratios) errors.push_back(std::abs(std::exp(ratio) - 1));
  return summary_of(std::move(errors));
}

/// 10th and 90th percentile of measured over predicted, wider for few rows: with n residuals, a further one scatters
/// roughly by a t-distribution with as many degrees of freedom, and the family's spread counts as much as a few rows.
cost::Interval interval_of(std::vector<double> log_ratios, const cost::Interval& family) {
  std::sort(log_ratios.begin(), log_ratios.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(log_ratios.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, log_ratios.size() - 1);
    return log_ratios[below] + (place - static_cast<double>(below)) * (log_ratios[above] - log_ratios[below]);
  };
  constexpr double kLow = 0.1, kHigh = 0.9, kLeast = 0.03, kExtra = 4, kParts = 1000;
  const auto rows = static_cast<double>(log_ratios.size());
  const double wider = std::sqrt(1 + kExtra / rows);
  const auto pooled = [&](double own, double of_family) {
    return (rows * wider * own + kExtra * std::log(of_family)) / (rows + kExtra);
  };
  const double low = std::exp(std::min(-kLeast, pooled(at(kLow), family.low)));
  const double high = std::exp(std::max(kLeast, pooled(at(kHigh), family.high)));
  return {std::floor(low * kParts) / kParts, std::ceil(high * kParts) / kParts};
}

/// Four digits: more would suggest false precision, and the file should be readable.
double rounded(double value) {
  constexpr double kNothing = 1e-12;
  return std::abs(value) < kNothing ? 0 : std::stod(fmt::format("{:.4g}", value));
}

std::string source_of(const Fit& fit, std::size_t i, std::size_t rows, const std::string& like) {
  constexpr double kUntold = 0.9;
  return fit.narrowed(i) > kUntold ? fmt::format("about as in {}: the runs do not determine it", like)
                                   : fmt::format("{} {} around {}", kFittedToRuns,
                                                 base::count_of(static_cast<std::int64_t>(rows), "run"), like);
}

/// What the timed runs were of, of which there are three of a kind, as of published runs; if no kind has as many, the
/// kinds with the most: without any ground a fit would be trusted everywhere. Without a time, what the peaks were of.
std::vector<cost::Ground> grounds_of_runs(const Rows& rows) {
  constexpr int kLeastRuns = 3;
  std::vector<std::pair<cost::Ground, int>> all;
  int most = 0;
  for (const Case* one : rows.timed.empty() ? rows.peaks : rows.timed) {
    const cost::Ground ground =
        cost::ground_of({}, cost::setting_of(one->subject.pricing->cluster(), *one->subject.model));
    auto same = std::find_if(all.begin(), all.end(), [&](const auto& known) { return known.first == ground; });
    if (same == all.end()) same = all.emplace(all.end(), ground, 0);
    most = std::max(most, ++same->second);
  }
  std::vector<cost::Ground> out;
  for (const auto& [ground, runs] : all)
    if (runs >= std::min(most, kLeastRuns)) out.push_back(ground);
  return out;
}

/// Splits of the given models over the same number of devices that no row has.
std::vector<Setup> other_runs(const Rows& rows) {
  std::vector<Setup> out;
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>> known;
  const auto key = [](const Setup& s) { return std::tuple(*s.gpus, *s.tensor, *s.pipeline, *s.micro_batch); };
  for (const Case* one : rows.lives)
    if (const Setup& s = rows.row(*one).setup; s.family != kRecommender) known.insert(key(s));
  std::set<std::int64_t> sizes;
  constexpr std::size_t kMostSizes = 3;
  for (const Case* one : rows.timed) {
    const Setup& base = rows.row(*one).setup;
    // A recommendation model has no such splits, and without heads nobody knows which divide them.
    if (base.family == kRecommender || !base.layers || !base.heads) continue;
    if (sizes.size() >= kMostSizes || !sizes.insert(*base.gpus).second) continue;
    for (const std::int64_t tensor : {1, 2, 4, 8, 16})
      for (const std::int64_t pipeline : {1, 2, 4, 8})
        for (const std::int64_t micro : {1, 4}) {
          Setup s = base;
          s.tensor = tensor;
          s.pipeline = pipeline;
          s.data = *s.gpus / (tensor * pipeline * s.context.value_or(1));
          s.micro_batch = micro;
          s.virtual_stages.reset();
          s.sequence_parallel = tensor > 1 ? base.sequence_parallel : std::optional<bool>();
          if (*s.data < 1 || *s.data * tensor * pipeline * s.context.value_or(1) != *s.gpus) continue;
          if (*s.batch % (*s.data * micro) != 0 || *s.heads % tensor != 0 || *s.layers % pipeline != 0) continue;
          if (known.insert(key(s)).second) out.push_back(std::move(s));
        }
  }
  return out;
}

std::vector<cost::TeachingRun> teaching(const Rows& rows, const Fit& fit, Library library, const cost::Stack& fitted) {
  std::vector<cost::TeachingRun> out;
  if (fit.left.covariance.empty()) return out;
  library.stand_in = fitted;
  library.for_all = true;
  Translator translator(std::move(library));
  std::vector<Subject> subjects;
  constexpr std::size_t kMostRuns = 60;
  Variant now(fit.at(fit.theta));
  for (const Setup& setup : other_runs(rows)) {
    if (subjects.size() == kMostRuns) break;
    auto subject = translator.translate(setup);
    if (!subject || !cost::beyond(fitted, subject->plan.spec()).empty()) continue;  // the software has no such plans
    if (now.memory(*subject, cost::MemoryKind::needed) <= subject->pricing->cluster().device().memory.value)
      subjects.push_back(std::move(*subject));
  }
  constexpr double kShift = 1e-3;
  std::vector<double> seconds;
  for (const Subject& s : subjects) seconds.push_back(now.seconds(s));
  std::vector<std::vector<double>> slopes(subjects.size());
  for (std::size_t k = 0; k < fit.theta.size(); ++k) {
    std::vector<double> moved = fit.theta;
    moved[k] += kShift;
    Variant variant(fit.at(moved));
    for (std::size_t i = 0; i < subjects.size(); ++i)
      slopes[i].push_back(std::log(variant.seconds(subjects[i]) / seconds[i]) / kShift);
  }
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    double variance = 0;
    for (std::size_t k = 0; k < fit.theta.size(); ++k)
      for (std::size_t l = 0; l < fit.theta.size(); ++l)
        variance += slopes[i][k] * fit.left.covariance[k][l] * slopes[i][l];
    out.push_back({fmt::format("{}, {}", base::count_of(subjects[i].plan.spec().mesh.ranks(), "device"),
                               plan::describe(subjects[i].plan.spec())),
                   seconds[i], std::sqrt(std::max(0.0, variance))});
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.uncertainty > b.uncertainty; });
  constexpr std::size_t kShown = 3;
  if (out.size() > kShown) out.resize(kShown);
  return out;
}

}  // namespace

base::Result<cost::RowFit> fit_rows(const std::vector<Row>& given, Library library, const cost::Stack& like,
                                    const cost::Intervals& intervals, const RowFitOptions& options) {
  std::size_t looks = 0;
  bool stopped = false;
  const auto tell = [&](const char* what) {
    if (options.progress && !stopped) stopped = !options.progress(fmt::format("{}: {} predictions", what, looks));
    return !stopped;
  };
  cost::RowFit out;
  out.like = like.name;
  out.given = given.size();
  const Library known = library;
  Rows rows = rows_of(given, std::move(library), like, out.left_out, out.used, out.warnings);
  if (rows.timed.empty() && rows.peaks.empty()) {
    const std::string why =
        out.left_out.empty() ? "" : fmt::format(": {}: {}", out.left_out.front().id, out.left_out.front().reason);
    return base::fail(
        "F05", fmt::format("none of {} rows can be used{}", given.size(), why),
        "a row states its model, devices, split and global_batch, and iter_time_s, a throughput or a memory peak");
  }
  Fit times, memory;
  if (!rows.timed.empty())
    for (const FreeNumber& number : kTimes) times.add(number, like);
  const bool dies = std::any_of(rows.lives.begin(), rows.lives.end(), [&](const Case* one) { return rows.died(*one); });
  for (const FreeNumber& number : kMemory) {
    const bool of_life = std::string(number.name) == "memory.stuck";
    const bool of_device = std::string(number.name) == "stack.context_memory";
    const bool counted = std::any_of(rows.peaks.begin(), rows.peaks.end(), [](const Case* one) {
      return one->subject.memory.kind == cost::MemoryKind::device;
    });
    if (rows.peaks.empty() && !of_life) continue;
    if ((of_life && !dies) || (of_device && !counted && !dies)) continue;
    memory.add(number, like);
  }
  // When stopped, the fit is discarded, so any residuals will do.
  const cost::Residuals of_time = [&](const std::vector<double>& theta) {
    ++looks;
    return tell("step times") ? time_residuals(rows, Variant(times.at(theta)))
                              : std::vector<double>(rows.timed.size(), 0);
  };
  const std::size_t memory_count = rows.peaks.size() + rows.lives.size();
  const cost::Residuals of_memory = [&](const std::vector<double>& theta) {
    ++looks;
    return tell("memory") ? memory_residuals(rows, Variant(memory.at(theta))) : std::vector<double>(memory_count, 0);
  };
  out.before = errors_of(time_residuals(rows, Variant({})));
  const auto of_peaks = [&](std::vector<double> residuals) {
    residuals.resize(rows.peaks.size());
    return residuals;
  };
  out.memory_before = errors_of(of_peaks(memory_residuals(rows, Variant({}))));
  times.solve(of_time, rows.timed.size());
  if (!stopped) memory.solve(of_memory, memory_count);
  std::vector<double> left_out;  // ln(measured / predicted), each run by a fit to the others
  for (std::size_t i = 0; i < rows.timed.size() && rows.timed.size() > 1 && tell("each run left out"); ++i, ++looks)
    left_out.push_back(std::log(*rows.row(*rows.timed[i]).measured.seconds /
                                Variant(times.at(times.left.theta[i])).seconds(rows.timed[i]->subject)));
  if (stopped) return base::fail(base::Diagnostics{});

  out.stack = like;
  out.stack.name = options.name;
  out.stack.by_zero = {};
  out.stack.within_node.clear();
  for (const Fit* fit : {&times, &memory}) {
    const Numbers numbers = fit->at(fit->theta);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const FreeNumber* number = numbers[i].first;
      const double value = rounded(numbers[i].second);
      const std::size_t count = fit == &times ? rows.timed.size() : rows.lives.size();
      const std::string source = source_of(*fit, i, count, like.name);
      out.numbers.push_back({options.name, number->name, value_of(like, *number), value, source});
      set_number(out.stack, number->name, value, source);
    }
  }
  const std::vector<double> after = time_residuals(rows, Variant(times.at(times.theta)));
  const std::vector<double> peaks = of_peaks(memory_residuals(rows, Variant(memory.at(memory.theta))));
  out.after = errors_of(after);
  out.memory_after = errors_of(peaks);
  std::vector<double> ratios = left_out;  // predicted / measured
  for (double& ratio : ratios) ratio = -ratio;
  out.left_one_out = errors_of(ratios);
  const auto usual = cost::spread_of(intervals, like, true);
  const cost::Spread otherwise = usual.value_or(cost::Spread{{}, true, {0.7, 1.5}, {0.8, 1.25}, 0});
  cost::Stack::Fitted fitted;
  fitted.like = like.software();
  fitted.rows = static_cast<std::int64_t>(out.used);
  fitted.median_error = left_out.empty() ? 0 : rounded(out.left_one_out.median);
  fitted.p90_error = left_out.empty() ? 0 : rounded(out.left_one_out.p90);
  fitted.time = left_out.size() < kFewRows ? otherwise.time : interval_of(left_out, otherwise.time);
  std::vector<double> measured_over;
  for (const double peak : peaks) measured_over.push_back(-peak);
  fitted.memory = peaks.size() < kFewRows ? otherwise.memory : interval_of(measured_over, otherwise.memory);
  fitted.grounds = grounds_of_runs(rows);
  out.stack.fitted = fitted;
  if (tell("what would teach the most")) out.teaching = teaching(rows, times, known, out.stack);
  if (stopped) return base::fail(base::Diagnostics{});
  return out;
}

}  // namespace orrery::sim

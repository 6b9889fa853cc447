/// Robust least squares over the logarithms of coefficients; see cost/fit/fit.h.
#include "cost/fit/fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "base/units.h"
#include "cost/fit/least_squares.h"
#include "cost/fit/observations.h"

namespace orrery::cost {

namespace {

/// How many runs a coefficient's source names; the others are counted.
constexpr std::size_t kNamedRuns = 3;
/// Share of the weight that is divided evenly among the observations.
constexpr double kEqualShare = 0.1;

struct Free {
  ParameterKind kind;
  double start = 0;  ///< logarithm of the prior value
};

/// Coefficients that may change: known, positive, with a prior, and not marked as absent on this device.
std::vector<Free> free_parameters(const Calibration& c) {
  std::vector<Free> out;
  for (const ParameterKind& kind : known_parameters()) {
    const double value = c.get(kind.name, 0);
    if (kind.prior > 0 && value > 0) out.push_back({kind, std::log(value)});
  }
  return out;
}

class Problem {
 public:
  Problem(const Pricing& before, const std::vector<Observation>& observations, const FitOptions& options)
      : before_(before), options_(options), free_(free_parameters(before.calibration())) {
    std::copy_if(observations.begin(), observations.end(), std::back_inserter(observations_),
                 [](const Observation& o) { return !o.in_parts; });
    weigh();
  }

  /// Afterwards `calibration()` returns the result.
  void solve() {
    std::vector<Unknown> unknowns;
    for (const Free& one : free_) unknowns.push_back({one.start, one.kind.prior, one.kind.low, one.kind.high});
    solved_ = least_squares(
        unknowns, weight_, [&](const std::vector<double>& theta) { return residuals_at(theta); }, options_.huber,
        options_.rounds);
  }

  /// With values within their bounds; while solving they may leave them, or a derivative at a bound would be none.
  [[nodiscard]] Calibration calibration() const {
    Calibration c = calibration_at(solved_.theta);
    for (std::size_t j = 0; j < free_.size(); ++j) c.parameters[free_[j].kind.name].value = value(j);
    return c;
  }
  [[nodiscard]] const std::vector<Free>& parameters() const { return free_; }
  [[nodiscard]] double value(std::size_t j) const {
    return value_between(solved_.theta[j], free_[j].kind.low, free_[j].kind.high);
  }
  /// Whether any observation depends on the coefficient.
  [[nodiscard]] bool revealed(std::size_t j) const { return solved_.sensitivity[j] > 1e-3; }

 private:
  /// Part of the weight is equal for all observations, so that small messages count; the rest is an observation's share
  /// of its run's time, so that what dominates a training step counts most.
  void weigh() {
    std::map<int, std::pair<double, double>> runs;  // seconds, observations
    for (const Observation& o : observations_) {
      if (o.saving != nullptr) continue;
      runs[o.run].first += o.seconds * o.count;
      runs[o.run].second += 1;
    }
    for (const Observation& o : observations_) {
      if (o.saving != nullptr) {  // not part of a training step; nothing else determines its coefficients
        weight_.push_back(1);
        continue;
      }
      const auto& [seconds, count] = runs[o.run];
      weight_.push_back(std::sqrt(kEqualShare + (1 - kEqualShare) * count * o.seconds * o.count / seconds));
    }
  }

  [[nodiscard]] Calibration calibration_at(const std::vector<double>& theta) const {
    Calibration c = before_.calibration();
    for (std::size_t j = 0; j < free_.size(); ++j) c.parameters[free_[j].kind.name].value = std::exp(theta[j]);
    return c;
  }

  /// log(predicted / measured).
  [[nodiscard]] std::vector<double> residuals_at(const std::vector<double>& theta) const {
    const Pricing pricing(before_.shared_cluster(), before_.stack(), {calibration_at(theta)});
    std::vector<double> out;
    for (const Observation& o : observations_)
      out.push_back(std::log(std::max(1e-12, predicted(o, pricing)) / o.seconds));
    return out;
  }

  const Pricing& before_;
  std::vector<Observation> observations_;
  const FitOptions& options_;
  std::vector<Free> free_;
  std::vector<double> weight_;
  Solved solved_;
};

/// Mean absolute relative error over the spans that the observations represent. Waits and the time between steps are
/// not spans and do not count.
double mean_error(const std::vector<Observation>& observations, const Pricing& pricing) {
  double sum = 0, count = 0;
  for (const Observation& o : observations) {
    if (o.step == nullptr || o.op != nullptr || o.gap || o.waiting || o.seconds <= 0) continue;
    sum += o.count * std::abs(predicted(o, pricing) / o.seconds - 1);
    count += o.count;
  }
  return count > 0 ? sum / count : 0;
}

/// The same over all observations, each weighted by its time.
double time_weighted_error(const std::vector<Observation>& observations, const Pricing& pricing) {
  double sum = 0, measured = 0;
  for (const Observation& o : observations) {
    if (o.op != nullptr || o.saving != nullptr) continue;  // its step counts; it is in no step
    sum += o.count * std::abs(predicted(o, pricing) - o.seconds);
    measured += o.count * o.seconds;
  }
  return measured > 0 ? sum / measured : 0;
}

Pricing priced(const Pricing& before, const Calibration& calibration) {
  return Pricing(before.shared_cluster(), before.stack(), {calibration});
}

/// Predicts each plan's runs by a fit to those of other plans, in at most ten folds; with a single plan, each half of
/// the observations by the other. Runs of one plan stay together, because one nearly determines the others.
double held_out_error(const std::vector<Observation>& all, const std::vector<const FitRun*>& runs,
                      const Pricing& before, const FitOptions& options) {
  constexpr int kMostFolds = 10;
  std::vector<const plan::PlanSpec*> plans;
  std::vector<int> plan_of;  // by run
  for (const FitRun* run : runs) {
    const auto same = std::find_if(plans.begin(), plans.end(),
                                   [&](const plan::PlanSpec* spec) { return *spec == run->timeline.spec; });
    plan_of.push_back(static_cast<int>(same - plans.begin()));
    if (same == plans.end()) plans.push_back(&run->timeline.spec);
  }
  const int folds = plans.size() > 1 ? std::min(static_cast<int>(plans.size()), kMostFolds) : 2;
  double sum = 0;
  for (int fold = 0; fold < folds; ++fold) {
    std::vector<Observation> kept, left_out;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const int place =
          plans.size() > 1 ? plan_of[static_cast<std::size_t>(all[i].run)] % folds : static_cast<int>(i % 2);
      (place == fold ? left_out : kept).push_back(all[i]);
    }
    if (kept.empty() || left_out.empty()) continue;
    Problem problem(before, kept, options);
    problem.solve();
    sum += mean_error(left_out, priced(before, problem.calibration()));
  }
  return sum / folds;
}

/// One line per run and kind of step or operator: seconds per training step and rank.
std::vector<Residual> residuals_of(const std::vector<Observation>& observations, const std::vector<const FitRun*>& runs,
                                   const Pricing& before, const Pricing& after, bool operators) {
  std::map<std::pair<int, std::string>, Residual> lines;
  for (const Observation& o : observations) {
    if ((o.op != nullptr) != operators) continue;
    Residual& line = lines[{o.run, o.what}];
    line.run = runs[static_cast<std::size_t>(o.run)]->name;
    line.what = o.what;
    line.measured_s += o.count * o.seconds;
    line.predicted_before_s += o.count * predicted(o, before);
    line.predicted_after_s += o.count * predicted(o, after);
  }
  std::vector<Residual> out;
  for (auto& [key, line] : lines) out.push_back(std::move(line));
  return out;
}

/// Observations of the usable runs, divided into fitted and held out; `notes` names the other runs.
struct Evidence {
  std::vector<const FitRun*> runs;  ///< index: Observation::run
  std::vector<std::string> names;   ///< of the fitted runs
  std::vector<Observation> fitted, held_out;
  std::vector<std::string> notes;
};

/// Among runs of one plan, those slowed by other work on the machine are excluded: with three or more runs, each that
/// takes this much longer than their median.
constexpr double kDisturbed = 1.1;
constexpr std::size_t kFewestToCompare = 3;

bool disturbed(const FitRun& run, const std::vector<FitRun>& runs) {
  std::vector<double> times;
  for (const FitRun& other : runs)
    if (other.timeline.spec == run.timeline.spec && !other.timeline.oversubscribed)
      times.push_back(other.timeline.step_time);
  if (times.size() < kFewestToCompare) return false;
  std::sort(times.begin(), times.end());
  return run.timeline.step_time > kDisturbed * times[times.size() / 2];
}

Evidence evidence_of(const std::vector<FitRun>& runs, const FitOptions& options, const Stack& stack) {
  Evidence out;
  for (const FitRun& run : runs) {
    if (run.timeline.oversubscribed) {
      out.notes.push_back(fmt::format(
          "{}: left out, since ranks outnumber cores: its times show how the system shares a core", run.name));
      continue;
    }
    if (disturbed(run, runs)) {
      out.notes.push_back(fmt::format(
          "{}: left out, since it is more than {:.0f} % slower than other runs of its plan: something else was running",
          run.name, 100 * (kDisturbed - 1)));
      continue;
    }
    const std::vector<Observation> found =
        observations_of(run, static_cast<int>(out.runs.size()), options.skip_iterations, stack);
    if (found.empty()) {
      out.notes.push_back(fmt::format("{}: left out, since it has no span of a training step after the first {}",
                                      run.name, options.skip_iterations));
      continue;
    }
    out.runs.push_back(&run);
    if (!run.held_out) out.names.push_back(run.name);
    std::vector<Observation>& into = run.held_out ? out.held_out : out.fitted;
    into.insert(into.end(), found.begin(), found.end());
  }
  return out;
}

/// Errors and residuals of both pricings over all observations.
FitResult compared(const Evidence& evidence, const Pricing& before, const Pricing& after) {
  FitResult out;
  out.notes = evidence.notes;
  out.error_before = mean_error(evidence.fitted, before);
  out.error_after = mean_error(evidence.fitted, after);
  out.time_weighted_error_before = time_weighted_error(evidence.fitted, before);
  out.time_weighted_error_after = time_weighted_error(evidence.fitted, after);
  out.held_out_error_after = evidence.held_out.empty() ? std::nan("") : mean_error(evidence.held_out, after);
  for (const bool operators : {false, true}) {
    std::vector<Residual>& into = operators ? out.operators : out.residuals;
    into = residuals_of(evidence.fitted, evidence.runs, before, after, operators);
    for (Residual& line : residuals_of(evidence.held_out, evidence.runs, before, after, operators)) {
      line.held_out = true;
      into.push_back(std::move(line));
    }
  }
  return out;
}

}  // namespace

FitResult compare(const std::vector<FitRun>& runs, const Pricing& before, const Pricing& after,
                  const FitOptions& options) {
  return compared(evidence_of(runs, options, before.stack()), before, after);
}

namespace {

/// Moves the changed coefficients, with their source, into `out`.
void take(const Problem& problem, const Pricing& before, const FitOptions& options, const std::string& source,
          Fitted& out) {
  out.calibration.name = options.name;
  out.calibration.device = before.calibration().device;
  out.calibration.network = before.calibration().network;
  out.calibration.stack = before.calibration().stack;
  for (std::size_t j = 0; j < problem.parameters().size(); ++j) {
    if (!problem.revealed(j)) continue;
    const std::string& name = problem.parameters()[j].kind.name;
    const Parameter& old = before.calibration().parameters.at(name);
    out.calibration.set(name, problem.value(j), source);
    out.result.parameters.push_back({name, old.value, problem.value(j), name_of(old.unit), source});
  }
}

}  // namespace

Fitted fit_observations(const std::vector<Observation>& observations, const Pricing& before, const FitOptions& options,
                        const std::string& source) {
  Problem problem(before, observations, options);
  problem.solve();
  const Pricing after = priced(before, problem.calibration());
  Fitted out;
  out.result.error_before = mean_error(observations, before);
  out.result.error_after = mean_error(observations, after);
  out.result.time_weighted_error_before = time_weighted_error(observations, before);
  out.result.time_weighted_error_after = time_weighted_error(observations, after);
  out.result.held_out_error_after = std::nan("");
  take(problem, before, options, source, out);
  return out;
}

base::Result<Fitted> fit(const std::vector<FitRun>& runs, const Pricing& before, const FitOptions& options) {
  const Evidence evidence = evidence_of(runs, options, before.stack());
  if (evidence.fitted.empty()) {
    std::string why = "no run can be used for calibration";
    for (const std::string& note : evidence.notes) why += "\n  " + note;
    return base::fail("F01", why, "measure with no more ranks than cores and at least a few training steps");
  }

  Problem problem(before, evidence.fitted, options);
  problem.solve();
  Fitted out;
  out.result = compared(evidence, before, priced(before, problem.calibration()));
  if (evidence.held_out.empty())
    out.result.held_out_error_after = held_out_error(evidence.fitted, evidence.runs, before, options);
  const std::size_t shown = std::min(kNamedRuns, evidence.names.size()), more = evidence.names.size() - shown;
  const auto last = evidence.names.begin() + static_cast<std::ptrdiff_t>(shown);
  const std::string source =
      fmt::format("fit {} to {}: {}{}", options.date, base::count_of(std::ssize(evidence.names), "run"),
                  fmt::join(evidence.names.begin(), last, "; "), more > 0 ? fmt::format("; and {} more", more) : "");
  take(problem, before, options, source, out);
  return out;
}

}  // namespace orrery::cost

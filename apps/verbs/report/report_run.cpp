// A whole run: its tokens and time, the part of it that remains despite failures, and what a real run's directory says.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "apps/files.h"
#include "apps/verbs/goodput.h"
#include "apps/verbs/report/report_plan.h"
#include "base/json.h"
#include "cost/run/scaling_laws.h"
#include "exec/launch/supervise.h"
#include "models/layers/counts.h"

namespace orrery::apps {
namespace {

constexpr double kLargestNumber = 1e300;

/// Prices a length of run: steps, time with failures, money of all devices, and energy at the mean power of a step.
void price(reports::RunLength& length, cost::ForecastRequest asked, const clusters::Cluster& cluster,
           const cost::Prediction& step) {
  constexpr double kHour = 3600;
  asked.steps = static_cast<std::int64_t>(std::ceil(length.tokens / asked.tokens_per_step));
  length.steps = asked.steps;
  length.run_s = cost::forecast(asked).run;
  if (!std::isfinite(length.run_s)) return;
  length.usd = cluster.device().price.value * cluster.size() * length.run_s / kHour;
  length.energy_j = step.energy_per_step_j / step.step_time_s * length.run_s;
}

/// The length asked for first, then those that scaling laws give.
std::vector<reports::RunLength> lengths_of(const ReportOptions& options, const PlanToShow& shown, double parameters) {
  const plan::PlanSpec& spec = shown.loaded->plan.spec();
  const bool language = !shown.loaded->file.model.recommender;
  std::vector<reports::RunLength> out;
  const auto add = [&](std::string what, std::string source, double n, double tokens, bool own) {
    const double loss = language ? cost::expected_loss(n, tokens) : 0;
    out.push_back({std::move(what), std::move(source), n, tokens, 0, 0, 0, 0, loss, own});
  };
  if (options.failures.tokens > 0)
    add("given", "--tokens", parameters, options.failures.tokens, true);
  else if (options.budget_flops > 0 && !options.compute_optimal)
    add("for the budget", "--budget: C / 6 N", parameters, cost::tokens_for(options.budget_flops, parameters), true);
  else if (!options.compute_optimal)
    add("the job's steps", "", parameters,
        static_cast<double>(shown.loaded->file.job.training.steps) *
            static_cast<double>(spec.shape.batch * spec.shape.sequence),
        true);
  if (!language) return out;
  for (const cost::ComputeOptimal& one : cost::compute_optimal_tokens(parameters))
    add(one.law, one.formula, one.parameters, one.tokens, true);
  if (options.budget_flops > 0) {
    if (options.compute_optimal)
      add("for the budget", "--budget: C / 6 N", parameters, cost::tokens_for(options.budget_flops, parameters), true);
    for (const cost::ComputeOptimal& one : cost::compute_optimal_model(options.budget_flops))
      add("another model: " + one.law, one.formula, one.parameters, one.tokens, false);
  }
  return out;
}

/// Goodput around the best interval, by seconds between checkpoints.
std::vector<std::pair<double, double>> by_interval(const cost::Forecast& forecast) {
  constexpr int kPoints = 97;     // so that the knee, where checkpoints are written without pause, is seen
  constexpr double kAround = 30;  // times the best interval, in both directions
  std::vector<std::pair<double, double>> out;
  const double best = forecast.best.interval;
  if (forecast.periodic || !(best > 0) || !std::isfinite(best)) return out;
  const double low = std::max(best / kAround, forecast.asked.step);
  for (int i = 0; i < kPoints; ++i) {
    const double interval = low * std::pow(best * kAround / low, static_cast<double>(i) / (kPoints - 1));
    out.emplace_back(interval, cost::goodput(interval, forecast.system).useful);
  }
  return out;
}

/// One line of restarts.jsonl.
struct Restarted {
  std::string reason;
  double ran_s = 0, pause_s = 0;
  std::int64_t from = 0, checkpoint = 0;
};

std::vector<Restarted> restarts_of(const std::string& directory) {
  std::vector<Restarted> out;
  const auto text = read_file(std::filesystem::path(directory) / "restarts.jsonl");
  if (!text) return out;
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t end = std::min(text->find('\n', begin), text->size());
    base::JsonReader in(std::string_view(*text).substr(begin, end - begin), {});
    begin = end + 1;
    Restarted one;
    in.open_object();
    for (std::string key; in.key(key);) {
      if (key == "reason")
        one.reason = in.text();
      else if (key == "ran_s")
        one.ran_s = in.number(0, kLargestNumber);
      else if (key == "pause_s")
        one.pause_s = in.number(0, kLargestNumber);
      else if (key == "from_step")
        one.from = in.integer(0, std::int64_t{1} << 53);
      else if (key == "checkpoint_step")
        one.checkpoint = in.integer(0, std::int64_t{1} << 53);
      else
        in.skip();
    }
    in.finish();
    if (!in.failed()) out.push_back(std::move(one));
  }
  return out;
}

reports::RealRun real_run(const Run& run) {
  reports::RealRun out;
  out.directory = run.directory;
  const auto record = exec::read_completion(run.directory);
  if (!record) return out;
  out.steps = record->steps;
  out.resumed_from = record->resumed_from;
  double useful = 0;
  std::vector<double> times;
  for (const Metric& metric : run.metrics) {
    useful += metric.step_time_s;
    times.push_back(metric.step_time_s);
  }
  out.step_time_s = median(times);
  const exec::SavedTotals& saved = record->checkpoints;
  const double held = saved.pause_s;
  out.checkpoints = saved.count;
  if (saved.count > 0) {
    out.pause_s = held / static_cast<double>(saved.count);
    out.write_s = saved.write_s / static_cast<double>(saved.count);
  }
  for (const Restarted& one : restarts_of(run.directory)) {
    ++out.restarts;
    out.failures.push_back(one.reason);
    const double stands = static_cast<double>(std::max<std::int64_t>(0, one.checkpoint - one.from)) * out.step_time_s;
    out.lost_s += std::max(0.0, one.ran_s - stands) + one.pause_s;
  }
  const double all = useful + held + out.lost_s;
  out.goodput = all > 0 ? useful / all : 0;
  return out;
}

}  // namespace

bool asks_for_run(const ReportOptions& options) {
  return options.failures.any() || options.compute_optimal || options.budget_flops > 0;
}

base::Result<reports::WholeRun> whole_run_of(const ReportOptions& options, const PlanToShow& shown, const Run* real) {
  const LoadedPlan& loaded = *shown.loaded;
  const models::Model& model = loaded.file.model;
  if (model.recommender && (options.compute_optimal || options.budget_flops > 0))
    return base::fail("U0001",
                      "--compute-optimal and --budget are for language models only, as are the laws behind them",
                      "give --tokens the number of samples");
  const auto parameters = static_cast<double>(models::parameters_active(model));
  reports::WholeRun out;
  out.lengths = lengths_of(options, shown, parameters);
  FailureOptions failures = options.failures;
  failures.tokens = out.lengths.front().tokens;
  const auto run = forecast_of(failures, loaded, shown.schedule, shown.pricing, shown.prediction.step_time_s);
  if (!run) return tl::unexpected(run.error());
  out.checkpoint = run->checkpoint;
  out.forecast = *run->forecast;
  for (reports::RunLength& one : out.lengths)
    if (one.this_model) price(one, out.forecast.asked, loaded.file.cluster, shown.prediction);
  out.by_interval = by_interval(out.forecast);
  out.devices = loaded.file.cluster.size();
  out.devices_per_node = loaded.file.cluster.devices_per_node;
  if (real != nullptr) out.real = real_run(*real);
  return out;
}

}  // namespace orrery::apps

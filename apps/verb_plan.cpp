// plan: searches for a job's best plans on its cluster, or on each of several sizes of it.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/interrupt.h"
#include "apps/plan_json.h"
#include "apps/verbs.h"
#include "clusters/read.h"
#include "reports/json.h"
#include "reports/text.h"
#include "sim/search/search.h"

namespace orrery::apps {
namespace {

using ClusterPointer = std::shared_ptr<const clusters::Cluster>;

/// The job's cluster in each asked size; as the cluster says when none is asked.
base::Result<std::vector<ClusterPointer>> sizes_of(const ClusterPointer& cluster, const std::vector<int>& gpus,
                                                   const std::string& job) {
  if (gpus.empty()) return std::vector<ClusterPointer>{cluster};
  std::vector<ClusterPointer> sizes;
  base::Diagnostics found;
  for (const int devices : gpus) {
    auto size = clusters::resized(*cluster, devices);
    if (size)
      sizes.push_back(std::make_shared<const clusters::Cluster>(std::move(*size)));
    else
      for (base::Diagnostic one : size.error()) {
        one.where = {job, 0, 0, 1};  // whose cluster it is
        one.message += fmt::format(" (--gpus {})", devices);
        found.push_back(std::move(one));
      }
  }
  if (!found.empty()) return base::fail(std::move(found));
  return sizes;
}

sim::SearchOptions search_options(const PlanOptions& asked, Progress& progress) {
  sim::SearchOptions options;
  options.top = asked.top;
  options.memory_fraction = asked.memory_fraction;
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.stop = &Interrupt::requested();
  options.now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  options.progress = [&progress](const sim::SearchProgress& state) {
    const double share = state.total > 0 ? static_cast<double>(state.done) / static_cast<double>(state.total) : 0;
    progress.line(fmt::format("{} {} {} of {}, {} feasible", bar(share, 30), state.phase, state.done, state.total,
                              state.feasible));
  };
  return options;
}

/// One search after another; of several sizes, the best plan of each, ranked together.
void add(cost::SearchResult& all, cost::SearchResult one, bool only_best) {
  if (only_best && one.plans.size() > 1) one.plans.resize(1);
  std::move(one.plans.begin(), one.plans.end(), std::back_inserter(all.plans));
  all.candidates += one.candidates;
  all.feasible += one.feasible;
  all.evaluated += one.evaluated;
  all.simulated += one.simulated;
  all.seconds += one.seconds;
  all.interrupted = all.interrupted || one.interrupted;
  if (one.optimality_gap && !all.interrupted)
    all.optimality_gap = std::max(all.optimality_gap.value_or(0), *one.optimality_gap);
  else if (all.interrupted)
    all.optimality_gap.reset();
  for (const auto& [reason, count] : one.rejected) all.rejected[reason] += count;
  std::move(one.nearest.begin(), one.nearest.end(), std::back_inserter(all.nearest));
}

base::Diagnostics nothing_fits(const cost::SearchResult& result, const std::string& job) {
  std::string help;
  for (const std::string& way : result.nearest) help += (help.empty() ? "" : "; ") + way;
  std::string why;
  for (const auto& [reason, count] : result.rejected)
    why += fmt::format("{}{} {}", why.empty() ? "" : ", ", count, reason);
  return {base::Diagnostic{base::Severity::error,
                           "P90",
                           {job, 1, 1, 1},
                           fmt::format("none of {} candidate plans is feasible: {}", result.candidates,
                                       why.empty() ? "the job's bounds leave no plan at all" : why),
                           help,
                           {}}};
}

/// Where as much more memory as one in ten published runs of such software needed would not fit.
std::optional<base::Diagnostic> tight(const cost::Prediction& best, const std::optional<cost::Spread>& spread,
                                      const std::string& job) {
  if (!spread || best.memory_capacity_bytes <= 0) return std::nullopt;
  const double share = best.memory_peak_bytes / best.memory_capacity_bytes;
  if (share * spread->memory.high <= 1) return std::nullopt;
  return base::Diagnostic{
      base::Severity::warning,
      "P110",
      {job, 1, 1, 1},
      fmt::format("the best plan fills {:.1f} % of a device's memory, and of published runs one in ten needed {:.1f} % "
                  "more than "
                  "was predicted",
                  100 * share, 100 * (spread->memory.high - 1)),
      fmt::format("`--memory-fraction {:.2f}` leaves room for that", std::floor(100 / spread->memory.high) / 100),
      {}};
}

}  // namespace

Outcome run_plan(const PlanOptions& options, const Context& context) {
  Outcome outcome;
  const auto job = load_job(context.catalog, options.job, outcome.diagnostics);
  if (!job) return bad_input(job.error());
  const auto calibrations = load_calibrations(context.catalog, options.calibrations);
  if (!calibrations) return bad_input(calibrations.error());
  const auto sizes = sizes_of(job->cluster, options.gpus, options.job);
  if (!sizes) return bad_input(sizes.error());

  cost::SearchResult result;
  {
    const Interrupt interrupt;
    Progress progress(context.terminal.progress);
    for (const ClusterPointer& cluster : *sizes) {
      if (result.interrupted) break;
      const cost::Prices prices(cluster, job->stacks, *calibrations);
      add(result, sim::search(job->model, cluster, job->job, prices, search_options(options, progress)),
          sizes->size() > 1);
    }
  }
  const auto better = [&](const cost::Prediction& a, const cost::Prediction& b) {
    return sim::objective_of(a, job->job.objective) < sim::objective_of(b, job->job.objective);
  };
  if (sizes->size() > 1) std::stable_sort(result.plans.begin(), result.plans.end(), better);

  const auto file_of = [&](const plan::PlanSpec& spec) {
    const auto size =
        std::find_if(sizes->begin(), sizes->end(), [&](const auto& c) { return c->size() == spec.ranks(); });
    return plan::PlanFile{job->job, *job->model, size == sizes->end() ? *job->cluster : **size, spec};
  };
  outcome.json =
      reports::plan_json(result, [&](const plan::PlanSpec& spec) { return plan_file_json(file_of(spec)); }).dump();
  outcome.text = reports::plan_text(result, context.terminal.style);
  if (result.plans.empty()) {
    const base::Diagnostics reasons = nothing_fits(result, options.job);
    outcome.diagnostics.insert(outcome.diagnostics.end(), reasons.begin(), reasons.end());
    outcome.exit_code = kInfeasible;
  } else if (auto warning = changed_mathematics(result.plans.front().spec, options.job)) {
    outcome.diagnostics.push_back(std::move(*warning));
  }
  if (!result.plans.empty())
    if (auto warning = beyond_software(job->stacks, result.plans.front().spec, options.job))
      outcome.diagnostics.push_back(std::move(*warning));
  if (!result.plans.empty() && job->cluster->device().kind == clusters::DeviceKind::gpu) {
    const auto intervals = load_intervals(context.catalog);
    if (!intervals) return bad_input(intervals.error());
    const cost::Prediction& best = result.plans.front();
    const bool several = best.spec.ranks() > job->cluster->devices_per_node;
    if (auto warning =
            tight(best, cost::spread_of(*intervals, job->stacks.of(best.spec.zero_stage, *job->cluster), several),
                  options.job))
      outcome.diagnostics.push_back(std::move(*warning));
  }
  if (result.interrupted) outcome.exit_code = kInterrupted;
  if (!result.plans.empty() && !options.output.empty()) {
    write_file(options.output, plan::write_plan_file(file_of(result.plans.front().spec)));
    outcome.text += fmt::format("\nWrote {}    next: orrery simulate {}\n", options.output, options.output);
  }
  return outcome;
}

}  // namespace orrery::apps

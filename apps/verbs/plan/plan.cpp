// plan: searches for a job's best plans on its cluster, or on several sizes of it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/interrupt.h"
#include "apps/output.h"
#include "apps/plan_warnings.h"
#include "apps/verbs/plan/plan_advice.h"
#include "apps/verbs/plan/plan_json.h"
#include "apps/verbs/plan/plan_rows.h"
#include "apps/verbs/verb.h"
#include "clusters/read.h"
#include "reports/json.h"
#include "reports/tables/text.h"
#include "sim/search/search.h"

namespace orrery::apps {
namespace {

struct PlanOptions {
  std::string job;
  int top = kRowsShown;
  std::vector<int> gpus;       ///< cluster sizes to plan for; empty: the cluster's own
  double memory_fraction = 1;  ///< share of a device's memory that a plan may fill
  std::string output;          ///< plan file of the best plan, or of row `pick`
  bool all = false;            ///< every plan, not one per family
  int pick = 1;
  std::vector<std::string> settings;  ///< "plan.tensor=4", overriding the job
  std::vector<std::string> calibrations;
};

using ClusterPointer = std::shared_ptr<const clusters::Cluster>;

/// The job's cluster in each size asked for; its own size if none is.
base::Result<std::vector<ClusterPointer>> sizes_of(const LoadedJob& job, const std::vector<int>& gpus) {
  const ClusterPointer& cluster = job.cluster;
  if (gpus.empty()) return std::vector<ClusterPointer>{cluster};
  std::vector<ClusterPointer> sizes;
  base::Diagnostics found;
  for (const int devices : gpus) {
    auto size = clusters::resized(*cluster, devices);
    if (size)
      sizes.push_back(std::make_shared<const clusters::Cluster>(std::move(*size)));
    else
      for (base::Diagnostic one : size.error()) {
        one.message += fmt::format(" (--gpus {})", devices);
        found.push_back(job.at("cluster", std::move(one)));
      }
  }
  if (!found.empty()) return base::fail(std::move(found));
  return sizes;
}

sim::SearchOptions search_options(const PlanOptions& asked, Progress& progress) {
  sim::SearchOptions options;
  options.top = std::max(asked.top, kPlansLookedAt);
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

/// Merges searches: of several sizes, the best plan of each, ranked together.
void add(cost::SearchResult& all, cost::SearchResult one, bool only_best) {
  if (only_best && one.plans.size() > 1) one.plans.resize(1);
  std::move(one.plans.begin(), one.plans.end(), std::back_inserter(all.plans));
  all.candidates += one.candidates;
  all.feasible += one.feasible;
  all.fits_probability = one.fits_probability;
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
  if (all.obstacle.empty()) all.obstacle = std::move(one.obstacle);
}

/// A warning if the plan may run out of memory more often than the job accepts; no plan of the search is safer.
std::optional<base::Diagnostic> tight(const cost::Prediction& best, const std::optional<double>& fits, double wanted) {
  if (!fits || *fits >= wanted || best.memory_capacity_bytes <= 0) return std::nullopt;
  return base::Diagnostic{
      base::Severity::warning,
      "P110",
      {},
      fmt::format("no plan fits with a probability of {:g}: the best one is predicted to fill {:.1f} % of a device's "
                  "memory, and fits with {:.2f}",
                  wanted, 100 * best.memory_peak_bytes / best.memory_capacity_bytes, *fits),
      "more devices, recomputation or offload make room; `fits_probability:` of the job says what it accepts",
      {}};
}

/// The finding at `fits_probability`; at `cluster` if the job leaves the usual one.
base::Diagnostic at_what_it_accepts(const LoadedJob& job, const base::Diagnostic& found) {
  base::Diagnostic said = job.at("fits_probability", found);
  // The whole job, where the key is not there, begins in the first column, and values never do.
  return said.where.file == job.file && said.where.column == 1 ? job.at("cluster", found) : said;
}

/// Whether the job names stages of ZeRO and the plan has none.
bool leaves_out_zero(const plan::Job& job, const plan::PlanSpec& spec) {
  const std::vector<int>& named = job.bounds.states.zero_stage;
  return spec.states.zero_stage == 0 && !named.empty() && std::find(named.begin(), named.end(), 0) == named.end();
}

base::Diagnostic nothing_to_partition(const plan::PlanSpec& spec) {
  return {base::Severity::warning,
          "P12",
          {},
          fmt::format("ZeRO has nothing to partition among one replica ({}): the plan has stage 0, which is the same",
                      plan::describe(spec)),
          "zero_stage: 0",
          {}};
}

}  // namespace

namespace {

/// The whole result as JSON: plans as ranked, whatever the table folds, each with the table row that it belongs to.
nlohmann::json json_of(const cost::SearchResult& result, const ShownPlans& shown, const reports::PlanHeading& heading,
                       int top, int devices_that_do, const reports::WholePlan& whole_plan) {
  cost::SearchResult first = result;
  if (first.plans.size() > static_cast<std::size_t>(top)) first.plans.resize(static_cast<std::size_t>(top));
  nlohmann::json out = reports::plan_json(first, whole_plan);
  for (std::size_t i = 0; i < first.plans.size(); ++i) {
    nlohmann::json& plan = out["plans"][i];
    plan.update(
        reports::figures_json(reports::figures_of(first.plans[i], heading), heading.evidence_of(first.plans[i].spec)));
    plan["row"] = shown.row_of[i] < shown.rows.size() ? nlohmann::json(shown.row_of[i] + 1) : nlohmann::json(nullptr);
  }
  out["job"] = reports::heading_json(heading);
  out["search"]["devices_that_do"] = devices_that_do > 0 ? nlohmann::json(devices_that_do) : nlohmann::json(nullptr);
  return out;
}

Outcome run_plan(const PlanOptions& options, const Context& context) {
  Outcome outcome;
  const auto job = load_job(context.catalog, options.job, outcome.diagnostics, options.settings);
  if (!job) return bad_input(job.error());
  if (auto warning = long_sequence(*job)) outcome.diagnostics.push_back(std::move(*warning));
  const auto calibrations = load_calibrations(context.catalog, options.calibrations);
  if (!calibrations) return bad_input(calibrations.error());
  const auto intervals = load_intervals(context.catalog);
  if (!intervals) return bad_input(intervals.error());
  const auto sizes = sizes_of(*job, options.gpus);
  if (!sizes) return bad_input(sizes.error());

  const bool several = sizes->size() > 1;
  LoadedJob asked = *job;  // on the one size asked for
  asked.cluster = sizes->front();
  const reports::PlanHeading heading =
      heading_of(asked, several ? *job->cluster : *asked.cluster, *intervals, *calibrations);
  print_early(reports::heading_text(heading, context.terminal.style), context.json, context.terminal);
  cost::SearchResult result;
  ShownPlans shown;
  int devices_that_do = 0;
  std::vector<int> without;  // sizes without a plan
  {
    const Interrupt interrupt;
    Progress progress(context.terminal.progress);
    for (const ClusterPointer& cluster : *sizes) {
      if (result.interrupted) break;
      const cost::Prices prices(cluster, job->stacks, *calibrations, *intervals);
      cost::SearchResult one = sim::search(job->model, cluster, job->job, prices, search_options(options, progress));
      if (several && one.plans.empty() && !one.interrupted) without.push_back(cluster->size());
      add(result, std::move(one), several);
    }
    const auto better = [&](const cost::Prediction& a, const cost::Prediction& b) {
      return sim::objective_of(a, job->job.objective) < sim::objective_of(b, job->job.objective);
    };
    if (several) std::stable_sort(result.plans.begin(), result.plans.end(), better);
    const cost::Prices prices(asked.cluster, job->stacks, *calibrations, *intervals);
    const cost::Room room(*asked.cluster, *job->model, prices, options.memory_fraction, result.fits_probability);
    shown = shown_plans(result, asked, prices, room, options.top, options.all || several, progress);
    if (result.plans.empty() && !several && !result.interrupted)
      devices_that_do =
          add_devices_that_do(result, asked, *calibrations, *intervals, options.memory_fraction, progress);
  }

  const auto file_of = [&](const plan::PlanSpec& spec) {
    const auto size =
        std::find_if(sizes->begin(), sizes->end(), [&](const auto& c) { return c->size() == spec.mesh.ranks(); });
    plan::PlanFile file{job->job, *job->model, size == sizes->end() ? *job->cluster : **size, spec};
    if (file.job.devices > 0) file.job.devices = file.cluster.size();  // --gpus takes precedence
    return file;
  };
  outcome.json = json_of(result, shown, heading, options.top, devices_that_do, [&](const plan::PlanSpec& spec) {
                   return plan_file_json(file_of(spec));
                 }).dump();
  outcome.text = reports::plan_text(result, reports::plans_table(result.plans, shown.rows, heading, shown.folded),
                                    heading, context.terminal.style);
  if (result.plans.empty()) {
    outcome.diagnostics.push_back(nothing_fits(result, *job));
    outcome.exit_code = kInfeasible;
  } else if (auto warning = changed_mathematics(result.plans.front().spec, placing(*job))) {
    outcome.diagnostics.push_back(std::move(*warning));
  }
  if (!result.plans.empty() && leaves_out_zero(job->job, result.plans.front().spec))
    outcome.diagnostics.push_back(job->at("plan.zero_stage", nothing_to_partition(result.plans.front().spec)));
  if (!result.plans.empty())
    if (auto warning = beyond_software(job->stacks, result.plans.front().spec, placing(*job)))
      outcome.diagnostics.push_back(std::move(*warning));
  if (!result.plans.empty() && job->cluster->device().kind != clusters::DeviceKind::cpu) {
    const cost::Prediction& best = result.plans.front();
    const auto fits = reports::figures_of(best, heading).fits_probability;
    if (auto warning = tight(best, fits, job->job.fits_probability))
      outcome.diagnostics.push_back(at_what_it_accepts(*job, *warning));
  }
  if (!result.plans.empty() && !without.empty())
    outcome.diagnostics.push_back(
        job->at("cluster", {base::Severity::warning,
                            "P90",
                            {},
                            fmt::format("no feasible plan for {} devices", fmt::join(without, ", ")),
                            fmt::format("`orrery plan {} --gpus {}` says why", options.job, without.front()),
                            {}}));
  if (result.interrupted) outcome.exit_code = kInterrupted;
  if (result.plans.empty() || options.output.empty()) return outcome;
  const auto row = static_cast<std::size_t>(options.pick) - 1;
  if (row >= shown.rows.size()) {
    Outcome refused = usage(fmt::format("row {} does not exist: the table has {}", options.pick, shown.rows.size()),
                            "--all or a larger --top shows more");
    refused.text = std::move(outcome.text);
    return refused;
  }
  const plan::PlanSpec& kept = result.plans[shown.rows[row]].spec;
  context.outputs.write(options.output, plan::write_plan_file(file_of(kept)));
  outcome.text +=
      fmt::format("\n{} {} (row {}{})    next: orrery simulate {}\n", context.outputs.wrote(), options.output,
                  options.pick, several ? fmt::format(", {} devices", kept.mesh.ranks()) : "", options.output);
  return outcome;
}

void add_plan_flags(Flags flags, PlanOptions& o) {
  flags.option("JOB", o.job, "Job file").required();
  flags.option("--top", o.top, "Plans to show; default 10").range(1, 1000).value("N");
  flags
      .option("--memory-fraction", o.memory_fraction,
              "Share of a device's memory that a plan may be predicted to fill; default 1")
      .range(0.01, 1.0)
      .value("F");
  flags.option("--gpus", o.gpus, "Cluster sizes to plan for; shows the best plan of each: 8,16,32")
      .by_commas()
      .range(1, 1 << 20)
      .value("N,N..");
  flags.flag("--all", o.all, "Also show plans that differ little from better ones");
  flags.option("-o,--output", o.output, "Write the best plan").value("PLAN.yaml");
  flags.option("--pick", o.pick, "Write this row of the table instead of the first one")
      .range(1, 1000)
      .needs("--output")
      .value("N");
  add_settings(flags, o.settings);
  add_calibrations(flags, o.calibrations);
}

}  // namespace

Verb plan_verb() {
  return verb_of<PlanOptions>({
      .name = "plan",
      .says = "Search for the best plans of a job",
      .examples = "  orrery plan examples/gpt3-175b-a100-1024.yaml          rank plans for GPT-3 175B on 1,024 A100s\n"
                  "  orrery plan job.yaml --gpus 64,128,256                 the best plan of each size\n"
                  "  orrery plan job.yaml -o plan.yaml                      keep the best\n"
                  "  orrery plan job.yaml --all -o plan.yaml --pick 3       keep the third of all\n"
                  "  orrery plan job.yaml --set batch=512 --set plan.tensor=[4,8]",
      .flags = add_plan_flags,
      .run = run_plan,
      .outputs = [](const PlanOptions& o) -> std::vector<OutputFile> {
        return {{o.output, FileKind::plan}};
      },
      .inputs = [](const PlanOptions& o) -> std::vector<std::string> {
        return all_of({{o.job}, o.calibrations});
      },
  });
}

}  // namespace orrery::apps

// report: runs and predictions side by side, in one HTML file.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/chart_library.h"
#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/verbs/report_data.h"
#include "apps/verbs/report_scaling.h"
#include "apps/verbs/verbs.h"
#include "clusters/read.h"
#include "exec/probe/capabilities.h"
#include "reports/json.h"
#include "reports/report.h"
#include "reports/scaling.h"
#include "reports/text.h"
#include "sim/search/search.h"
#include "sim/simulate.h"

namespace orrery::apps {
namespace {

namespace fs = std::filesystem;

/// A page of nothing but a job is called after it; beside runs of something else it says so.
void name_after(reports::ReportData& data, const std::string& name) {
  if (data.title.empty()) data.title = name;
  if (data.title != name && data.subtitle.find(name) == std::string::npos)
    data.subtitle += fmt::format("; beside it {}", name);
}

/// What is given, by what it is: a folder is a run's, a file a plan's.
struct Inputs {
  std::vector<std::string> runs, plans;
};

Inputs sorted_out(const std::vector<std::string>& inputs) {
  Inputs out;
  for (const std::string& one : inputs) {
    std::error_code error;
    (one == "-" || fs::is_regular_file(one, error) ? out.plans : out.runs).push_back(one);
  }
  return out;
}

/// A plan that nobody has run: its prediction and its timeline.
void show_plan(reports::ReportData& data, const LoadedPlan& loaded, const Beliefs& beliefs) {
  const cost::Pricing pricing(std::make_shared<const clusters::Cluster>(loaded.file.cluster), loaded.stack,
                              beliefs.after);
  data.schedule = lower_for(loaded.plan, loaded.stack);
  sim::Simulation simulation = sim::simulate(loaded.plan, *data.schedule, pricing, {.spans = true});
  data.prediction = std::move(simulation.prediction);
  data.predicted = std::move(simulation.timeline);
}

std::vector<reports::Provenance> provenance(const ReportOptions& options, const Context& context, std::size_t runs) {
  std::vector<reports::Provenance> lines{{"orrery", ORRERY_VERSION, {}}};
  for (const exec::Capability& one : exec::probe_capabilities(program_folder()))
    if (one.name == "cores" || one.name == "memory" || one.name == "blas") lines.push_back({one.name, one.detail, {}});
  if (!options.inputs.empty())
    lines.push_back({runs > 0 ? "runs" : "plan", std::to_string(std::max<std::size_t>(1, runs)),
                     options.inputs.front() + (options.inputs.size() > 1 ? " …" : "")});
  for (const std::string& job : options.scaling) lines.push_back({"scaling", job, {}});
  for (const std::string& file : options.calibrations) lines.push_back({"calibration", file, {}});
  if (!options.job.empty()) lines.push_back({"job", options.job, {}});
  for (const fs::path& root : context.catalog.roots()) lines.push_back({"catalogue", root.string(), {}});
  return lines;
}

}  // namespace

Outcome run_report(const ReportOptions& asked, const Context& context) {
  const ReportOptions options = with_runs_apart(asked);
  if (auto refused = refused_scaling(options, context)) return *refused;
  const Inputs inputs = sorted_out(options.inputs);
  if (options.inputs.empty() && options.held_out.empty() && options.job.empty() && options.scaling.empty())
    return usage("there is nothing to report on",
                 "name a run directory, a plan file, or a job with --scaling or --job");
  if (inputs.plans.size() > 1)
    return usage("a report shows one plan in full, and two were given", "`orrery explain A --vs B` compares two");
  Outcome outcome;
  std::vector<std::string> left_out;
  base::Result<std::vector<Run>> runs = std::vector<Run>();
  if (!inputs.runs.empty() || !options.held_out.empty())
    runs = load_runs(context.catalog, inputs.runs, options.held_out, left_out);
  if (!runs) return bad_input(runs.error());
  for (const std::string& note : left_out)
    outcome.diagnostics.push_back({base::Severity::warning, "E0208", {}, note, {}, {}});
  const auto known = load_calibrations(context.catalog, {});
  const auto learned = load_calibrations(context.catalog, options.calibrations);
  if (!known) return bad_input(known.error());
  if (!learned) return bad_input(learned.error());
  const Beliefs beliefs{*known, *learned};

  for (const Run& run : *runs)
    for (const cost::Calibration& one : beliefs.after)
      if (run.held_out && fitted_to(one, run))
        outcome.diagnostics.push_back(
            {base::Severity::warning,
             "F02",
             {run.directory, 0, 0, 1},
             fmt::format("calibration `{}` was fitted to this run: it is not held out", one.name),
             "calibrate without it, or give it without --hold-out",
             {}});

  const std::vector<Group> groups = grouped(*runs, beliefs);
  reports::ReportData data;
  if (!groups.empty()) {
    const LoadedPlan& shown = shown_of(groups).runs.front()->loaded;
    data.title = fmt::format("{} on {}", shown.file.model.name, shown.file.cluster.name);
    data.subtitle = plan::describe(shown.file.spec);
    show(data, shown_of(groups), beliefs);
  }
  if (!inputs.plans.empty() && groups.empty()) {
    const auto loaded = load_plan_argument(context.catalog, inputs.plans.front());
    if (!loaded) return bad_input(loaded.error());
    data.title = fmt::format("{} on {}", loaded->file.model.name, loaded->file.cluster.name);
    data.subtitle = plan::describe(loaded->file.spec);
    show_plan(data, *loaded, beliefs);
  }
  for (const Group& group : groups) data.runs.push_back(group.measured);
  if (!options.calibrations.empty() && !groups.empty()) {
    const auto before = pricing_of(*runs, beliefs.before);
    const auto after = pricing_of(*runs, beliefs.after);
    if (!before) return bad_input(before.error());
    data.fit = fit_of(*runs, *before, *after);
  }

  if (!options.job.empty()) {
    const auto job = load_job(context.catalog, options.job, outcome.diagnostics, options.settings);
    if (!job) return bad_input(job.error());
    const cost::Prices prices(job->cluster, job->stacks, beliefs.after);
    data.search = sim::search(job->model, job->cluster, job->job, prices);
    name_after(data, fmt::format("{} on {}", job->model->name, job->cluster->name));
  }
  if (!options.scaling.empty()) {
    auto study = scaling_study_of(options, context, beliefs, groups, outcome.diagnostics);
    if (!study) return bad_input(study.error());
    if (study->interrupted) {
      outcome.exit_code = kInterrupted;
      return outcome;
    }
    if (!cost::any_plan(*study)) {
      outcome.exit_code = kInfeasible;
      outcome.diagnostics.push_back(nothing_scales(*study, options.scaling.front()));
      outcome.json = reports::report_json("", data.runs, &*study).dump();
      return outcome;
    }
    data.scaling = std::move(*study);
    name_after(data, title_of(*data.scaling));
  }
  data.provenance = provenance(options, context, runs->size());

  const cost::ScalingStudy* study = data.scaling ? &*data.scaling : nullptr;
  outcome.json = reports::report_json(options.output, data.runs, study).dump();
  const std::string text = options.format == "html" || study == nullptr
                               ? reports::report_html(data, chart_library(outcome.diagnostics))
                               : scaling_file(*study, options.format);
  if (options.output == "-") {
    outcome.text = text;
    return outcome;
  }
  context.outputs.write(options.output, text);
  if (!data.runs.empty()) outcome.text = reports::runs_text(data.runs, context.terminal.style);
  if (study != nullptr)
    outcome.text += (outcome.text.empty() ? "" : "\n") + reports::scaling_text(*study, context.terminal.style);
  outcome.text += fmt::format("\n{} {}\n", context.outputs.wrote(), fs::absolute(options.output).string());
  return outcome;
}

}  // namespace orrery::apps

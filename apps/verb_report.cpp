// report: runs and predictions side by side, in one HTML file.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "apps/chart_library.h"
#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/report_data.h"
#include "apps/verbs.h"
#include "clusters/read.h"
#include "exec/probe/capabilities.h"
#include "reports/json.h"
#include "reports/report.h"
#include "reports/text.h"
#include "sim/search/search.h"

namespace orrery::apps {
namespace {

namespace fs = std::filesystem;

/// Best plan of each size of the job's cluster, beside the run of that very plan if there is one.
base::Result<std::vector<cost::ScalingPoint>> scaling(const LoadedJob& job, const Beliefs& beliefs,
                                                      const std::vector<Group>& groups) {
  std::vector<cost::ScalingPoint> points;
  for (const int size : scaling_sizes(job.cluster->size())) {
    auto cluster = clusters::resized(*job.cluster, size);
    if (!cluster) return base::fail(cluster.error());
    const auto shared = std::make_shared<const clusters::Cluster>(std::move(*cluster));
    const cost::Pricing pricing(shared, job.stack, beliefs.after);
    const cost::SearchResult found = sim::search(job.model, shared, job.job, pricing, {.top = 1});
    if (found.plans.empty()) continue;
    cost::ScalingPoint point{size, found.plans.front(), 0};
    for (const Group& group : groups)
      if (group.measured.spec == point.best.spec) point.measured_step_time_s = group.measured.step_time_s;
    points.push_back(std::move(point));
  }
  return points;
}

std::vector<reports::Provenance> provenance(const ReportOptions& options, const Context& context, std::size_t runs) {
  std::vector<reports::Provenance> lines{{"orrery", ORRERY_VERSION, {}}};
  for (const exec::Capability& one : exec::probe_capabilities(program_folder()))
    if (one.name == "cores" || one.name == "memory" || one.name == "blas") lines.push_back({one.name, one.detail, {}});
  lines.push_back({"runs", std::to_string(runs), options.runs.front() + " …"});
  for (const std::string& file : options.calibrations) lines.push_back({"calibration", file, {}});
  if (!options.job.empty()) lines.push_back({"job", options.job, {}});
  for (const fs::path& root : context.catalog.roots()) lines.push_back({"catalogue", root.string(), {}});
  return lines;
}

}  // namespace

Outcome run_report(const ReportOptions& options, const Context& context) {
  Outcome outcome;
  std::vector<std::string> left_out;
  const auto runs = load_runs(context.catalog, options.runs, options.held_out, left_out);
  if (!runs) return bad_input(runs.error());
  for (const std::string& note : left_out)
    outcome.diagnostics.push_back({base::Severity::warning, "E0208", {}, note, {}, {}});
  const auto known = load_calibrations(context.catalog, {});
  const auto learned = load_calibrations(context.catalog, options.calibrations);
  if (!known) return bad_input(known.error());
  if (!learned) return bad_input(learned.error());
  const Beliefs beliefs{*known, *learned};
  const auto before = pricing_of(*runs, beliefs.before);
  const auto after = pricing_of(*runs, beliefs.after);
  if (!before) return bad_input(before.error());

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
  const LoadedPlan& shown = shown_of(groups).runs.front()->loaded;
  data.title = fmt::format("{} on {}", shown.file.model.name, shown.file.cluster.name);
  data.subtitle = plan::describe(shown.file.spec);
  show(data, shown_of(groups), beliefs);
  for (const Group& group : groups) data.runs.push_back(group.measured);
  if (!options.calibrations.empty()) data.fit = fit_of(*runs, *before, *after);

  if (!options.job.empty()) {
    const auto job = load_job(context.catalog, options.job, outcome.diagnostics);
    if (!job) return bad_input(job.error());
    const cost::Pricing pricing(job->cluster, job->stack, beliefs.after);
    data.search = sim::search(job->model, job->cluster, job->job, pricing);
  }
  if (!options.scaling.empty()) {
    const auto job = load_job(context.catalog, options.scaling, outcome.diagnostics);
    if (!job) return bad_input(job.error());
    auto points = scaling(*job, beliefs, groups);
    if (!points) return bad_input(points.error());
    data.scaling = std::move(*points);
  }
  data.provenance = provenance(options, context, runs->size());

  write_file(options.output, reports::report_html(data, chart_library(outcome.diagnostics)));
  outcome.json = reports::report_json(options.output, data.runs, data.scaling).dump();
  outcome.text = reports::runs_text(data.runs, context.terminal.style);
  if (!data.scaling.empty()) outcome.text += "\n" + reports::scaling_text(data.scaling, context.terminal.style);
  outcome.text += fmt::format("\nWrote {}\n", fs::absolute(options.output).string());
  return outcome;
}

}  // namespace orrery::apps

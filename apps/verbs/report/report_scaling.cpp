// Determines what `report --scaling` sweeps, and plans each point.
#include "apps/verbs/report/report_scaling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "apps/files.h"
#include "apps/input_kinds.h"
#include "apps/inputs.h"
#include "apps/interrupt.h"
#include "apps/output.h"
#include "apps/plan_warnings.h"
#include "apps/verbs/plan/plan_rows.h"
#include "apps/verbs/published_rows.h"
#include "base/units.h"
#include "base/yaml.h"
#include "reports/scaling.h"
#include "sim/scaling/measured.h"
#include "sim/scaling/study.h"
#include "sim/search/search.h"

namespace orrery::apps {
namespace {

namespace fs = std::filesystem;

constexpr double kSecondsOfDay = 86400;
constexpr double kGramsPerKwh = 480;
constexpr const char* kGramsSource = "world average of 2023: Ember, Global Electricity Review 2024";

/// Rewrites a name from the command line for use in a job: there, paths start at the current folder.
std::string as_in_a_job(const std::string& name) {
  std::error_code error;
  const bool path = name.find('/') != std::string::npos || fs::path(name).has_extension();
  return path && fs::exists(name, error) ? fs::absolute(name).string() : name;
}

/// A usage error if the findings say that a name is no model or cluster.
std::optional<Outcome> unknown(const base::Diagnostics& found, const char* flag) {
  const base::Diagnostic& first = found.front();
  if (first.code == "E0203" || first.code == "E0201")
    return usage(fmt::format("{}: {}", flag, first.message), first.help);
  return bad_input(found);
}

/// All combinations of one setting from each list, in order.
std::vector<std::vector<std::string>> products(const std::vector<std::vector<std::string>>& lists) {
  std::vector<std::vector<std::string>> out{{}};
  for (const std::vector<std::string>& list : lists) {
    if (list.empty()) continue;
    std::vector<std::vector<std::string>> longer;
    for (const std::vector<std::string>& begun : out)
      for (const std::string& one : list) {
        longer.push_back(begun);
        longer.back().push_back(one);
      }
    out = std::move(longer);
  }
  return out;
}

template <class T, class Text>
std::vector<std::string> settings_of(const char* key, const std::vector<T>& values, const Text& text) {
  std::vector<std::string> out;
  for (const T& value : values) {
    std::string one = fmt::format("{}={}", key, text(value));
    if (std::find(out.begin(), out.end(), one) == out.end()) out.push_back(std::move(one));
  }
  return out;
}

std::vector<std::vector<std::string>> sweeps_of(const ReportOptions& options) {
  const auto name = [](const std::string& one) { return base::yaml_quoted(as_in_a_job(one)); };
  const auto number = [](std::int64_t one) { return fmt::format("{}", one); };
  return products({settings_of("model", options.models, name), settings_of("cluster", options.clusters, name),
                   settings_of("sequence", options.sequences, number), settings_of("batch", options.batches, number)});
}

/// Every job under every combination of settings.
base::Result<std::vector<LoadedJob>> swept_jobs(const ReportOptions& options, const Context& context,
                                                base::Diagnostics& warnings) {
  std::vector<LoadedJob> out;
  for (const std::string& file : options.scaling)
    for (const std::vector<std::string>& sweep : sweeps_of(options)) {
      std::vector<std::string> settings = options.settings;
      settings.insert(settings.end(), sweep.begin(), sweep.end());
      base::Diagnostics found;
      auto job = load_job(context.catalog, file, found, settings);
      if (!job) return base::fail(job.error());
      if (const auto long_one = long_sequence(*job)) found.push_back(*long_one);
      for (const base::Diagnostic& one : found)
        if (std::none_of(warnings.begin(), warnings.end(), [&](const base::Diagnostic& said) {
              return said.message == one.message && said.where.file == one.where.file &&
                     said.where.line == one.where.line;
            }))
          warnings.push_back(one);
      out.push_back(std::move(*job));
    }
  return out;
}

/// The plans of a point, best first, ranked as `orrery plan --gpus N` does.
cost::SearchResult plans_of(LoadedJob asked, const sim::StudyJob& point, const cost::Prices& prices) {
  asked.job = point.job;
  asked.cluster = point.cluster;
  sim::SearchOptions search;
  search.top = kPlansLookedAt;
  search.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  search.stop = &Interrupt::requested();
  cost::SearchResult result = sim::search(point.model, point.cluster, point.job, prices, search);
  Progress quiet(false);
  const cost::Room room(*point.cluster, *point.model, prices, 1, result.fits_probability);
  (void)shown_plans(result, asked, prices, room, kRowsShown, false, quiet);
  return result;
}

sim::StudyEvidence evidence_of(LoadedJob asked, const sim::StudyJob& point, const plan::PlanSpec& spec,
                               const cost::Intervals& intervals, const std::vector<cost::Calibration>& calibrations) {
  asked.cluster = point.cluster;
  const reports::Evidence evidence = heading_of(asked, *point.cluster, intervals, calibrations).evidence_of(spec);
  const bool several = spec.mesh.ranks() > point.cluster->devices_per_node;
  const auto& spread = several ? evidence.several_nodes : evidence.one_node;
  return {evidence.stack, evidence.word, evidence.text,
          spread ? std::optional<cost::Interval>(spread->time) : std::nullopt};
}

/// The job of a point. Jobs that differ only in what a study changes are interchangeable.
const LoadedJob& loaded_of(const std::vector<LoadedJob>& all, const sim::StudyJob& point) {
  return *std::find_if(all.begin(), all.end(), [&](const LoadedJob& one) {
    return one.model == point.model && one.job.sequence == point.job.sequence;
  });
}

/// Rows that come with the project, and those of `--measured`.
base::Result<std::vector<sim::Row>> rows_of(const ReportOptions& options, const Context& context) {
  auto rows = load_rows(context.catalog, {}, sim::Origin::published);
  if (!rows || options.measured.empty()) return rows;
  auto own = load_rows(context.catalog, options.measured, sim::Origin::own);
  if (!own) return own;
  rows->insert(rows->end(), own->begin(), own->end());
  return rows;
}

base::Result<bool> add_measurements(cost::ScalingStudy& study, const std::vector<sim::StudyJob>& jobs,
                                    const ReportOptions& options, const Context& context,
                                    const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    const plan::PlanFile& file = group.runs.front()->loaded.file;
    sim::add_measured(study, jobs,
                      {&file.model, &file.cluster, &file.spec, group.measured.directory, group.measured.step_time_s,
                       group.measured.predicted_after_s, false});
  }
  auto rows = rows_of(options, context);
  if (!rows) return base::fail(rows.error());
  const std::vector<sim::Row> near = sim::rows_near(study, *rows);
  if (near.empty()) return true;
  auto library = load_library(context.catalog, options.calibrations, "", "");
  if (!library) return base::fail(library.error());
  sim::add_rows(study, jobs, near, std::move(*library));
  return true;
}

/// "Scaling of llama3-8b on hgx-h100 to 64, 128 devices": what a study will plan.
std::string known_at_once(const std::vector<LoadedJob>& jobs, const ReportOptions& options) {
  std::vector<std::string> names;
  for (const LoadedJob& job : jobs)
    if (std::string name = job.model->name + " on " + job.cluster->name;
        std::count(names.begin(), names.end(), name) == 0)
      names.push_back(std::move(name));
  return fmt::format("Scaling of {}: {}", fmt::join(names, ", "),
                     options.gpus.empty() ? std::string("each cluster's devices, half of them, and so on")
                                          : fmt::format("{} devices", fmt::join(options.gpus, ", ")));
}

}  // namespace

std::optional<Outcome> refused_scaling(const ReportOptions& options, const Context& context) {
  if (options.scaling.empty()) return std::nullopt;
  for (const auto* list : {&options.models, &options.clusters})
    if (std::find(list->begin(), list->end(), "") != list->end())
      return usage(fmt::format("{} has an empty name", list == &options.models ? "--models" : "--clusters"),
                   "separate names by commas: a,b");
  if (options.weak && options.batches.size() > 1)
    return usage("weak scaling itself grows the batch, but --batch lists several",
                 "give one --batch, that of the smallest size; or use --strong");
  if (options.output == "-" && options.format == "html")
    return usage("a page cannot be written to standard output",
                 "use --format md, csv or json for standard output, or name a file for the page");
  for (const std::string& name : options.models)
    if (auto model = load_model(context.catalog, as_in_a_job(name), {}, fs::current_path()); !model)
      return unknown(model.error(), "--models");
  for (const std::string& name : options.clusters)
    if (auto cluster = load_cluster(context.catalog, as_in_a_job(name), {}, fs::current_path()); !cluster)
      return unknown(cluster.error(), "--clusters");
  return std::nullopt;
}

ReportOptions with_jobs_apart(ReportOptions options) {
  if (options.scaling.empty()) return options;
  const auto move = [](std::vector<std::string>& from, std::vector<std::string>& to, const auto& stays) {
    const auto moved = std::stable_partition(from.begin(), from.end(), stays);
    to.insert(to.end(), moved, from.end());
    from.erase(moved, from.end());
  };
  std::error_code error;
  move(options.scaling, options.inputs, [&](const std::string& one) {
    if (fs::is_directory(one, error)) return false;
    const InputKind kind = kind_of_input(one);
    return kind != InputKind::plan && kind != InputKind::printed;
  });
  if (options.scaling.empty())
    move(options.inputs, options.scaling, [](const std::string& one) { return kind_of_input(one) != InputKind::job; });
  return options;
}

base::Result<cost::ScalingStudy> scaling_study_of(const ReportOptions& options, const Context& context,
                                                  const Beliefs& beliefs, const std::vector<Group>& groups,
                                                  base::Diagnostics& warnings) {
  const auto loaded = swept_jobs(options, context, warnings);
  if (!loaded) return base::fail(loaded.error());
  const auto intervals = load_intervals(context.catalog);
  if (!intervals) return base::fail(intervals.error());
  if (options.output != kStandardInput)
    print_early(reports::wrapped(known_at_once(*loaded, options), context.terminal.style.width) + "\n\n", context.json,
                context.terminal);
  std::vector<sim::StudyJob> jobs;
  for (const LoadedJob& one : *loaded) jobs.push_back({one.job, one.model, one.cluster, one.stacks});
  const Interrupt interrupt;
  Progress progress(context.terminal.progress && !context.quiet);
  sim::StudyOptions asked;
  asked.sizes = options.gpus;
  asked.strong = !options.weak || options.strong;
  asked.weak = options.weak;
  asked.hold_plan = options.hold_plan;
  asked.calibrations = beliefs.after;
  asked.intervals = *intervals;
  asked.plans = [&](const sim::StudyJob& point, const cost::Prices& prices) {
    return plans_of(loaded_of(*loaded, point), point, prices);
  };
  asked.evidence = [&](const sim::StudyJob& point, const plan::PlanSpec& spec) {
    return evidence_of(loaded_of(*loaded, point), point, spec, *intervals, beliefs.after);
  };
  if (options.failures.tokens > 0) asked.tokens = options.failures.tokens;
  if (options.deadline_days > 0) asked.deadline_s = options.deadline_days * kSecondsOfDay;
  asked.co2_grams_per_kwh = options.co2.value_or(kGramsPerKwh);
  asked.co2_source = options.co2 ? "--co2" : kGramsSource;
  asked.stop = &Interrupt::requested();
  asked.progress = [&](const std::string& what, std::size_t done, std::size_t all) {
    progress.line(fmt::format("{} {} ({} of {})",
                              bar(static_cast<double>(done) / static_cast<double>(std::max<std::size_t>(1, all)), 20),
                              what, done + 1, all));
  };
  auto study = sim::scaling_study(jobs, asked);
  if (!study) return study;
  if (study->interrupted) return study;
  progress.line("looking for measurements");
  const auto added = add_measurements(*study, jobs, options, context, groups);
  if (!added) return base::fail(added.error());
  return study;
}

std::string title_of(const cost::ScalingStudy& study) {
  const auto names = [&](const auto& of, const char* several) {
    std::vector<std::string> all;
    for (const cost::ScalingSeries& one : study.series)
      if (std::find(all.begin(), all.end(), of(one)) == all.end()) all.push_back(of(one));
    return all.size() == 1 ? all.front() : fmt::format("{} {}", all.size(), several);
  };
  return names([](const auto& s) { return s.model; }, "models") + " on " +
         names([](const auto& s) { return s.cluster; }, "clusters");
}

base::Diagnostic nothing_scales(const cost::ScalingStudy& study, const std::string& job) {
  std::string why;
  for (const cost::ScalingPoint& point : study.series.front().points)
    why = fmt::format("{}: {}", base::count_of(point.devices, "device"), point.reason);
  return {base::Severity::error,
          "P90",
          {job, 1, 1, 1},
          "no size of the cluster has a feasible plan; " + why,
          "`orrery plan` says why; --gpus takes larger sizes",
          {}};
}

std::string scaling_file(const cost::ScalingStudy& study, const std::string& format) {
  if (format == "csv") return reports::scaling_csv(study);
  if (format == "json") return reports::scaling_json_file(study, title_of(study));
  return reports::scaling_markdown(study, title_of(study));
}

}  // namespace orrery::apps

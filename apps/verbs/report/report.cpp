// report: runs and predictions side by side, in one HTML file.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "apps/chart_library.h"
#include "apps/files.h"
#include "apps/input_kinds.h"
#include "apps/inputs.h"
#include "apps/interrupt.h"
#include "apps/output.h"
#include "apps/plan_warnings.h"
#include "apps/verbs/plan/evidence.h"
#include "apps/verbs/plan/plan_advice.h"
#include "apps/verbs/plan/plan_rows.h"
#include "apps/verbs/plan/what_if.h"
#include "apps/verbs/report/report_data.h"
#include "apps/verbs/report/report_options.h"
#include "apps/verbs/report/report_plan.h"
#include "apps/verbs/report/report_saved.h"
#include "apps/verbs/report/report_scaling.h"
#include "apps/verbs/report/report_search.h"
#include "clusters/read.h"
#include "reports/json.h"
#include "reports/measured.h"
#include "reports/report.h"
#include "reports/report_files.h"
#include "reports/scaling.h"
#include "reports/tables/binding.h"
#include "reports/tables/text.h"

namespace orrery::apps {
namespace {

namespace fs = std::filesystem;

/// Titles the page; one that already has another title mentions `name` in its subtitle.
void name_after(reports::ReportData& data, const std::string& name) {
  if (data.title.empty()) data.title = name;
  if (data.title != name && data.subtitle.find(name) == std::string::npos)
    data.subtitle += fmt::format("; beside it {}", name);
}

/// Where what is compared is of several models or machines, titles the page after all of them; the subtitle says which
/// of them `shown`, the one in full, is.
void name_after_all(reports::ReportData& data, const std::string& shown) {
  std::vector<std::string> names;
  for (const reports::Compared& one : data.compared) {
    std::string name = fmt::format("{} on {}", one.heading.model, one.heading.cluster);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  if (names.size() < 2) return;
  constexpr std::size_t kMost = 3;  // that a title has room for
  const std::size_t named = names.size() > kMost ? kMost - 1 : names.size() - 1;
  std::string title = names.front();
  for (std::size_t i = 1; i < named; ++i) title += ", " + names[i];
  data.title = title + " and " + (names.size() > kMost ? fmt::format("{} others", names.size() - named) : names.back());
  data.subtitle = fmt::format("in full: {}, {}", shown, data.subtitle);
}

/// The inputs by kind: a folder is a run, a file is a plan, a job or a prediction. A path that does not exist is
/// classified by its name, so that the message says which of the two is missing.
struct Inputs {
  std::vector<std::string> runs;
  std::vector<std::string> plans;        ///< and predictions of them, and jobs, whose best plans are shown
  std::vector<std::string> jobs;         ///< those of `plans` that are jobs
  std::vector<std::string> predictions;  ///< those of `plans` that a verb printed
};

Inputs sorted_out(const std::vector<std::string>& inputs) {
  Inputs out;
  for (const std::string& one : inputs) {
    std::error_code error;
    const fs::path ending = fs::path(one).extension();
    const bool named_a_file = ending == ".yaml" || ending == ".yml" || ending == ".json";
    const bool file = one == kStandardInput || (fs::exists(one, error) ? !fs::is_directory(one, error) : named_a_file);
    (file ? out.plans : out.runs).push_back(one);
    if (!file) continue;
    const InputKind kind = kind_of_input(one);
    if (kind == InputKind::job) out.jobs.push_back(one);
    if (kind == InputKind::printed) out.predictions.push_back(one);
  }
  return out;
}

bool is_among(const std::string& one, const std::vector<std::string>& all) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

/// The ending of a file's name in small letters: ".html".
std::string small_ending(const std::string& output) {
  std::string ending = fs::path(output).extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending;
}

/// Whether an ending is letters alone, as of formats: "out.pdf", but not "llama-3.1-8b" or "out.v2".
bool names_a_format(const std::string& ending) {
  return ending.size() > 1 &&
         std::all_of(ending.begin() + 1, ending.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

/// The format that a file's ending means; empty: none that is known.
std::string format_by_ending(const std::string& output) {
  constexpr std::pair<const char*, const char*> kEndings[] = {
      {".html", "html"}, {".htm", "html"}, {".md", "md"}, {".csv", "csv"}, {".json", "json"}, {".markdown", "md"}};
  const std::string ending = small_ending(output);
  for (const auto& [known, format] : kEndings)
    if (ending == known) return format;
  return {};
}

/// As asked, else by the ending of the file, else html.
std::string format_of(const ReportOptions& options) {
  if (!options.format.empty()) return options.format == "markdown" ? "md" : options.format;
  const std::string meant = format_by_ending(options.output);
  return meant.empty() ? "html" : meant;
}

/// What is wrong with the output's ending: another format's than the one asked for, or none's where none is.
std::optional<Outcome> refused_ending(const ReportOptions& options) {
  const std::string ending = small_ending(options.output), meant = format_by_ending(options.output);
  if (ending.empty() || options.output == kStandardInput) return std::nullopt;
  if (options.format.empty() && meant.empty() && names_a_format(ending))
    return usage(fmt::format("no format of a report has the ending {}", base::quoted(ending)),
                 "end its name in .html, .md, .csv or .json, or say --format; a browser prints a page to PDF");
  if (options.format.empty() || meant.empty() || meant == format_of(options)) return std::nullopt;
  return usage(
      fmt::format("{} is asked for, but {} ends as {} does", format_of(options), base::quoted(options.output), meant),
      fmt::format("leave --format out for {}, or name the file *.{}", meant, format_of(options)));
}

/// As asked; else a page is written to the current folder, and text to standard output.
std::string output_of(const ReportOptions& options) {
  if (!options.output.empty()) return options.output;
  return format_of(options) == "html" ? "report.html" : kStandardInput;
}

/// A job among the inputs is what --job takes where there are runs to show, or another word names the job.
base::Result<ReportOptions> with_job_named(ReportOptions options) {
  const Inputs inputs = sorted_out(options.inputs);
  if (inputs.jobs.empty() || (inputs.runs.empty() && options.held_out.empty())) return options;
  if (inputs.jobs.size() > 1 || !options.job.empty())
    return base::fail("U0001", "several jobs, but the plans of one only can be shown beside runs",
                      "name one job; or plan the others first: orrery plan JOB -o plan.yaml");
  options.job = inputs.jobs.front();
  std::erase(options.inputs, options.job);
  return options;
}

/// Plans that were ranked before the report was made, or for it: of a job among the inputs, or as `plan` printed them.
struct Ranked {
  cost::SearchResult result;
  reports::PlanHeading heading;
};

/// A plan among the inputs.
struct NamedPlan {
  std::string name;
  LoadedPlan loaded;
  std::optional<reports::SavedPrediction> saved = {};  ///< if a verb printed it
  [[nodiscard]] PlanToShow shown(const std::vector<cost::Calibration>& calibrations) const {
    return plan_to_show(name, loaded, calibrations, saved ? &*saved : nullptr);
  }
};

/// The best plan of a job; nothing and an exit code if there is none.
base::Result<std::optional<LoadedPlan>> plan_of_job(const Context& context, const std::string& name,
                                                    const ReportOptions& options, const Beliefs& beliefs,
                                                    const cost::Intervals& intervals, Progress& progress,
                                                    std::optional<Ranked>& ranked, Outcome& outcome) {
  const auto job = load_job(context.catalog, name, outcome.diagnostics, options.settings);
  if (!job) return base::fail(job.error());
  if (auto warning = long_sequence(*job)) outcome.diagnostics.push_back(std::move(*warning));
  cost::SearchResult result = plan_job(*job, beliefs, intervals, progress);
  if (result.interrupted) outcome.exit_code = kInterrupted;
  if (result.interrupted) return std::nullopt;
  if (result.plans.empty()) {
    outcome.exit_code = kInfeasible;
    return base::fail({nothing_fits(result, *job)});
  }
  auto best = load_made_plan(context.catalog, {job->job, *job->model, *job->cluster, result.plans.front().spec}, name);
  if (!best) return base::fail(best.error());
  if (!ranked) ranked = Ranked{std::move(result), heading_of(*job, *job->cluster, intervals, beliefs.after)};
  return std::move(*best);
}

/// Plans that the inputs name or predict, and the best ones of their jobs. `ranked`: the first others of these.
base::Result<std::vector<NamedPlan>> load_plans(const Context& context, const Inputs& inputs,
                                                const ReportOptions& options, const Beliefs& beliefs,
                                                const cost::Intervals& intervals, std::optional<Ranked>& ranked,
                                                Outcome& outcome) {
  std::vector<NamedPlan> out;
  base::Diagnostics found;
  const auto take = [&](const auto& result, const auto& add) {
    if (result)
      add(*result);
    else
      found.insert(found.end(), result.error().begin(), result.error().end());
  };
  const Interrupt interrupt;
  Progress progress(context.terminal.progress && !context.quiet);
  for (const std::string& name : inputs.plans) {
    if (is_among(name, inputs.jobs))
      take(plan_of_job(context, name, options, beliefs, intervals, progress, ranked, outcome),
           [&](const std::optional<LoadedPlan>& best) {
             if (best) out.push_back({name, *best});
           });
    else if (is_among(name, inputs.predictions))
      take(load_saved(context.catalog, name, intervals), [&](const SavedPlan& one) {
        out.push_back({name, one.loaded, one.saved});
        if (one.search && !ranked) ranked = Ranked{*one.search, one.search_heading};
      });
    else
      take(load_plan_argument(context.catalog, name), [&](const LoadedPlan& loaded) { out.push_back({name, loaded}); });
    if (outcome.exit_code == kInterrupted) return out;
  }
  if (!found.empty()) return base::fail(std::move(found));
  return out;
}

bool same_plan(const LoadedPlan& a, const LoadedPlan& b) {
  return a.plan.spec() == b.plan.spec() && a.file.model == b.file.model &&
         clusters::write_cluster(a.file.cluster) == clusters::write_cluster(b.file.cluster);
}

/// What to compare: plans, predictions, and groups of runs that were not held out. Empty if all are the same plan.
/// `warnings`: of predictions, but for that of `full`.
std::vector<reports::Compared> compared_of(const std::vector<NamedPlan>& plans, const std::vector<Group>& groups,
                                           const cost::Intervals& intervals,
                                           const std::vector<cost::Calibration>& calibrations, const LoadedPlan* full,
                                           base::Diagnostics& warnings) {
  std::vector<reports::Compared> out;
  std::vector<const LoadedPlan*> seen;
  for (const Group& group : groups) {
    const Run& run = *group.runs.front();
    if (run.held_out) continue;
    seen.push_back(&run.loaded);
    out.push_back({run.directory, group.predicted, heading_of(run.loaded, intervals, calibrations), group.measured,
                   reports::measured_breakdown(run.timeline, run.schedule), run.schedule, run.timeline, false});
  }
  bool saved = false;
  for (const NamedPlan& plan : plans) {
    seen.push_back(&plan.loaded);
    saved = saved || plan.saved;
    PlanToShow shown = plan.shown(calibrations);
    if (auto warning = not_the_replay(shown); warning && &plan.loaded != full) warnings.push_back(std::move(*warning));
    out.push_back(
        {plan.name, std::move(shown.prediction), heading_of(shown, intervals, calibrations), {}, {}, {}, {}, {}});
    out.back().saved = !shown.is_replay;
    if (!shown.is_replay) continue;
    out.back().schedule = std::move(shown.schedule);
    out.back().timeline = std::move(shown.timeline);
  }
  const bool differ =
      std::any_of(seen.begin(), seen.end(), [&](const LoadedPlan* one) { return !same_plan(*one, *seen.front()); });
  // A single plan needs no comparison: its runs are shown beside its prediction anyway, and for plan files the page
  // says that they are the same. What was predicted before may differ from what is predicted now.
  if (!differ && !saved && !groups.empty()) out.clear();
  return out;
}

/// The plan shown in full.
struct Shown {
  const LoadedPlan* loaded = nullptr;
  const Run* run = nullptr;  ///< if it was run
  std::string name;
  const reports::SavedPrediction* saved = nullptr;  ///< if it was predicted before
};

/// What is shown, on what, by which software: all that is known before the replays.
std::string known_at_once(const Shown& shown, const reports::PlanHeading& heading, const reports::TableStyle& style) {
  return reports::heading_text(heading, style) +
         reports::wrapped(shown.name + ": " + plan::describe(shown.loaded->plan.spec()), style.width, 2) + "\n\n";
}

/// Adds the plan's parts of the page: its prediction if it was not run, what explains it, and its run.
base::Result<bool> add_plan(reports::ReportData& data, const Shown& shown, const ReportOptions& options,
                            const cost::Intervals& intervals, const std::vector<cost::Calibration>& calibrations,
                            Progress& progress, base::Diagnostics& warnings) {
  PlanToShow plan = plan_to_show(shown.name, *shown.loaded, calibrations, shown.saved);
  if (auto warning = not_the_replay(plan)) warnings.push_back(std::move(*warning));
  data.page = page_of(plan, intervals, calibrations, !options.no_what_if, progress);
  if (asks_for_run(options)) {
    auto run = whole_run_of(options, plan, shown.run);
    if (!run) return tl::unexpected(run.error());
    data.whole_run = std::move(*run);
  }
  if (shown.run != nullptr) return true;
  data.title = fmt::format("{} on {}", shown.loaded->file.model.name, shown.loaded->file.cluster.name);
  data.subtitle = plan::describe(shown.loaded->file.spec);
  data.prediction = std::move(plan.prediction);
  if (!plan.is_replay) return true;
  data.schedule = std::move(plan.schedule);
  data.predicted = std::move(plan.timeline);
  return true;
}

/// The parts of a page that scripts want too.
nlohmann::json json_of(const reports::ReportData& data, const std::string& path) {
  nlohmann::json json = reports::report_json(path, data.runs, data.scaling ? &*data.scaling : nullptr);
  json["plan"] = data.page && data.prediction ? reports::plan_page_json(*data.prediction, *data.page) : nullptr;
  json["compared"] = reports::compared_json(data.compared);
  json["whole_run"] = data.whole_run ? reports::whole_run_json(*data.whole_run) : nullptr;
  json["search"] = data.search ? reports::plan_json(*data.search) : nullptr;
  return json;
}

/// The report in the format of `--format`. A scaling study is a file of its own.
std::string file_of(const reports::ReportData& data, const std::string& format, base::Diagnostics& warnings) {
  if (format == "html") return reports::report_html(data, chart_library(warnings));
  if (data.scaling) return scaling_file(*data.scaling, format);
  if (format == "md") return reports::report_markdown(data);
  if (format == "csv") return reports::report_csv(data);
  nlohmann::json whole = json_of(data, "");
  for (const char* elsewhere : {"path", "scaling", "study"}) whole.erase(elsewhere);
  whole["title"] = data.title;
  whole["subtitle"] = data.subtitle;
  return reports::report_json_file(whole);
}

/// What binds the plan, how sure that is, and the page's tables that the terminal also shows.
std::string text_of(const reports::ReportData& data, const reports::TableStyle& style) {
  std::string out;
  const auto add = [&](reports::Table table, const char* title) {
    if (table.title.empty()) table.title = title;
    out += (out.empty() ? "" : "\n") + reports::text_of(table, style);
  };
  if (data.page && data.prediction)
    out += reports::wrapped(reports::binding_of(*data.prediction).sentence, style.width) + "\n" +
           evidence_paragraphs(data.page->heading, *data.prediction, style);
  if (data.compared.size() > 1) {
    add(reports::differences_table(data.compared), "What differs");
    add(reports::compared_table(data.compared), "Beside each other");
  }
  if (data.whole_run) {
    add(reports::lengths_table(*data.whole_run), "The whole run");
    add(reports::failures_table(*data.whole_run), "");
  }
  return out;
}

Outcome run_report(const ReportOptions& asked, const Context& context) {
  if (auto refused = refused_ending(asked)) return *refused;
  ReportOptions formatted = with_jobs_apart(asked);
  formatted.format = format_of(asked);
  formatted.output = output_of(asked);
  const auto named = with_job_named(std::move(formatted));
  if (!named) return usage(named.error().front().message, named.error().front().help);
  const ReportOptions& options = *named;
  if (!asked.scaling.empty() && options.scaling.empty())
    return usage("--scaling names no job", "runs and plans are shown beside a study of jobs: --scaling job.yaml run");
  if (auto refused = refused_scaling(options, context)) return *refused;
  const Inputs inputs = sorted_out(options.inputs);
  if (options.inputs.empty() && options.held_out.empty() && options.job.empty() && options.scaling.empty())
    return usage("there is nothing to report on",
                 "name a run directory, a plan file or a job file; --scaling plans a job for more devices");
  // In a scaling study each point has its own tokens.
  FailureOptions but_tokens = options.failures;
  but_tokens.tokens = 0;
  const bool of_scaling =
      !options.scaling.empty() && !but_tokens.any() && !options.compute_optimal && options.budget_flops <= 0;
  if (asks_for_run(options) && options.inputs.empty() && !of_scaling)
    return usage("a whole run needs a plan, but none was given", "name a plan file or a run directory");
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
             "calibrate without it, or leave out --hold-out",
             {}});

  const std::vector<Group> groups = grouped(*runs, beliefs);
  reports::ReportData data;
  if (!groups.empty()) {
    const LoadedPlan& shown = shown_of(groups).runs.front()->loaded;
    data.title = fmt::format("{} on {}", shown.file.model.name, shown.file.cluster.name);
    data.subtitle = plan::describe(shown.file.spec);
    show(data, shown_of(groups), beliefs);
  }
  const auto intervals = load_intervals(context.catalog);
  if (!intervals) return bad_input(intervals.error());
  std::optional<Ranked> ranked;
  const auto plans = load_plans(context, inputs, options, beliefs, *intervals, ranked, outcome);
  if (!plans) {
    if (outcome.exit_code == kOk) outcome.exit_code = kBadInput;
    outcome.diagnostics.insert(outcome.diagnostics.end(), plans.error().begin(), plans.error().end());
  }
  if (outcome.exit_code != kOk) return outcome;
  Shown full;
  if (!groups.empty()) {
    const Run& run = *shown_of(groups).runs.front();
    full = {&run.loaded, &run, run.directory};
  } else if (!plans->empty()) {
    const NamedPlan& first = plans->front();
    full = {&first.loaded, nullptr, first.name, first.saved ? &*first.saved : nullptr};
  }
  if (full.loaded != nullptr) {
    const Interrupt interrupt;
    Progress progress(context.terminal.progress && !context.quiet);
    if (options.output != kStandardInput)
      print_early(known_at_once(full, heading_of(*full.loaded, *intervals, beliefs.after), context.terminal.style),
                  context.json, context.terminal);
    if (auto added = add_plan(data, full, options, *intervals, beliefs.after, progress, outcome.diagnostics); !added)
      return usage(added.error().front().message, added.error().front().help);
    if (options.inputs.size() > 1)
      data.compared = compared_of(*plans, groups, *intervals, beliefs.after, full.loaded, outcome.diagnostics);
    name_after_all(data, full.name);
    if (Interrupt::requested()) {
      outcome.exit_code = kInterrupted;
      return outcome;
    }
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
    if (auto warning = long_sequence(*job)) outcome.diagnostics.push_back(std::move(*warning));
    add_search(data, *job, beliefs, *intervals);
    name_after(data, fmt::format("{} on {}", job->model->name, job->cluster->name));
  } else if (ranked) {
    data.search_heading = std::move(ranked->heading);
    data.search = std::move(ranked->result);
  } else if (full.loaded != nullptr && full.run == nullptr && full.saved == nullptr && options.scaling.empty() &&
             !options.no_what_if && options.format != "csv") {
    add_search(data, job_of(*full.loaded), beliefs, *intervals);
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
    data.title = title_of(*data.scaling);
  }
  data.provenance = provenance_of(options, context, full.loaded);

  const cost::ScalingStudy* study = data.scaling ? &*data.scaling : nullptr;
  outcome.json = json_of(data, options.output).dump();
  const std::string file = file_of(data, options.format, outcome.diagnostics);
  if (options.output == "-") {
    outcome.text = file;
    return outcome;
  }
  context.outputs.write(options.output, file);
  outcome.text = text_of(data, context.terminal.style);
  if (!data.runs.empty()) outcome.text += reports::runs_text(data.runs, context.terminal.style);
  if (study != nullptr)
    outcome.text +=
        (outcome.text.empty() ? "" : "\n") + reports::scaling_text(*study, context.terminal.style, options.all);
  outcome.text += fmt::format("\n{} {}\n", context.outputs.wrote(), fs::absolute(options.output).string());
  return outcome;
}

}  // namespace

Verb report_verb() {
  return verb_of<ReportOptions>({
      .name = "report",
      .says = "A page of jobs, plans and runs: predicted and measured, side by side",
      .examples =
          "  orrery report runs/first --calibration calibration.yaml -o report.html\n"
          "  orrery report --scaling job.yaml --gpus 64,128,256,512 -o scaling.html   of a cluster that is not here\n"
          "  orrery report --scaling job.yaml --clusters dgx-a100,hgx-h100 -o clusters.html\n"
          "  orrery report --scaling job.yaml --weak --gpus 8,64,512 --format csv -o -\n"
          "  orrery report job.yaml                                  its best plan, and others, in report.html\n"
          "  orrery report plan.yaml -o plan.html                                     a plan as predicted\n"
          "  orrery report a.yaml b.yaml -o both.html                                 how plans differ\n"
          "  orrery report a.yaml b.yaml --format csv -o -                            the same for a spreadsheet\n"
          "  orrery report predicted.json plan.yaml -o then.html                      of `orrery simulate --json`\n"
          "  orrery report plan.yaml --tokens 300e9 -o run.html                       a whole run, with failures",
      .flags = add_report_flags,
      .run = run_report,
      .outputs = [](const ReportOptions& o) -> std::vector<OutputFile> {
        return {{.path = output_of(o), .kind = FileKind::page, .stream = true}};
      },
      .inputs = [](const ReportOptions& o) -> std::vector<std::string> {
        return all_of({o.inputs, o.held_out, {o.job}, o.scaling, o.measured, o.calibrations});
      },
  });
}

}  // namespace orrery::apps

// calibrate: fits coefficients to measured runs and writes them with their provenance.
#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "apps/files.h"
#include "apps/verbs/measure/calibrate.h"
#include "apps/verbs/runs.h"
#include "reports/json.h"
#include "reports/tables/text.h"

namespace orrery::apps {

namespace {

/// Number of a run's steps that are fitted: the first ones are skipped.
int fitted_steps(const Run& run, int skipped) {
  int last = -1;
  for (const plan::Span& span : run.timeline.spans) last = std::max(last, span.iteration);
  return std::max(0, last + 1 - skipped);
}

/// What weakens a fit without invalidating it.
std::vector<std::string> weaknesses(const std::vector<const Run*>& fitted, int skipped) {
  constexpr int kFewSteps = 5;  // with fewer, a median means little
  std::vector<std::string> notes;
  if (fitted.size() == 1)
    notes.push_back(
        "fitted to one run: effects that differ between plans (message sizes, groups) cannot be told apart");
  for (const Run* run : fitted)
    if (const int steps = fitted_steps(*run, skipped); steps < kFewSteps)
      notes.push_back(fmt::format("{}: {} measured steps after the first; {} or more give a steadier fit",
                                  run->directory, steps, kFewSteps));
  return notes;
}

Outcome run_calibrate(const CalibrateOptions& options, const Context& context) {
  if (!options.rows.empty()) return calibrate_to_rows(options, context);
  std::vector<std::string> left_out;
  auto runs = load_runs(context.catalog, options.runs, options.held_out, left_out);
  if (!runs) return bad_input(runs.error());
  const auto known = load_calibrations(context.catalog, {});
  if (!known) return bad_input(known.error());
  const auto before = pricing_of(*runs, *known);
  if (!before) return bad_input(before.error());

  cost::FitOptions fit;
  fit.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  fit.name = std::filesystem::path(options.output).stem().string();
  std::vector<const Run*> used;
  for (const Run& run : *runs)
    if (!run.held_out && !run.timeline.oversubscribed) used.push_back(&run);
  const std::vector<std::string> notes = weaknesses(used, fit.skip_iterations);
  std::vector<cost::FittedTo> sources;
  for (const Run* run : used) sources.push_back({run->directory, run->fingerprint});
  auto fitted = cost::fit(fit_runs(std::move(*runs)), *before, fit);
  if (!fitted) return bad_input(fitted.error());
  fitted->result.notes.insert(fitted->result.notes.end(), notes.begin(), notes.end());
  fitted->result.notes.insert(fitted->result.notes.begin(), left_out.begin(), left_out.end());
  fitted->calibration.fitted_to = std::move(sources);

  context.outputs.write(options.output, cost::write_calibration(fitted->calibration));
  Outcome outcome;
  outcome.diagnostics =
      no_better(fitted->result, "runs", options.output,
                "before using the file, measure more steps and more kinds of plans on an idle machine");
  outcome.json = reports::calibrate_json(fitted->result).dump();
  outcome.text = reports::fit_text(fitted->result, context.terminal.style);
  outcome.text += fmt::format("\n{} {}    next: orrery simulate PLAN --calibration {}\n", context.outputs.wrote(),
                              options.output, options.output);
  return outcome;
}

void add_calibrate_flags(Flags flags, CalibrateOptions& o) {
  const Flag runs = flags.option("RUN", o.runs, "Run directories");
  flags.option("-o,--output", o.output, "Calibration file to write; with --rows a stack").required().value("FILE");
  const Flag rows = flags.option("--rows", o.rows, "Fit a stack to runs of any framework, given as YAML rows or CSV")
                        .excludes(runs)
                        .value("FILE…");
  flags.option("--like", o.like, "Stack of the same family to start from").needs(rows).value("STACK");
  flags.option("--cluster", o.cluster, "Cluster that the rows ran on; default: found by their device")
      .needs(rows)
      .value("CLUSTER");
  flags.option("--hold-out", o.held_out, "Run that judges the fit and is not fitted; may be repeated")
      .excludes(rows)
      .one_each()
      .value("RUN");
}

}  // namespace

Verb calibrate_verb() {
  return verb_of<CalibrateOptions>({
      .name = "calibrate",
      .says = "Fit coefficients to measured runs",
      .examples = "  orrery calibrate runs/first -o calibration.yaml        learn from what was measured\n"
                  "  orrery calibrate --rows mine.csv -o my-stack.yaml      a stack out of a handful of step times",
      .flags = add_calibrate_flags,
      .run = run_calibrate,
      .outputs = [](const CalibrateOptions& o) -> std::vector<OutputFile> {
        return {{o.output, o.rows.empty() ? FileKind::calibration : FileKind::stack}};
      },
      .inputs = [](const CalibrateOptions& o) -> std::vector<std::string> {
        return all_of({o.runs, o.rows, o.held_out, {o.like, o.cluster}});
      },
      .missing =
          [](const CalibrateOptions& o) {
            return std::string(o.runs.empty() && o.rows.empty() ? "RUN or --rows" : "");
          },
  });
}

}  // namespace orrery::apps

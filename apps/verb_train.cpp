// train: starts the worker on this machine's ranks, shows progress, and reads back what it wrote.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/inputs.h"
#include "apps/interrupt.h"
#include "apps/verbs.h"
#include "base/units.h"
#include "exec/supervise.h"
#include "reports/json.h"
#include "reports/text.h"

namespace orrery::apps {
namespace {

std::string progress_line(const exec::StepReport& report) {
  const double share = report.steps > 0 ? static_cast<double>(report.step) / static_cast<double>(report.steps) : 0;
  const double left = static_cast<double>(report.steps - report.step) * report.step_time_s;
  return fmt::format("{} {}/{}  loss {:.4f}  {} a step  {} tokens/s  {} left", bar(share, 24), report.step,
                     report.steps, report.loss, base::human(base::Seconds{report.step_time_s}),
                     base::human_count(report.tokens_per_s), base::human(base::Seconds{left}));
}

int exit_code_of(exec::RunEnd end) {
  switch (end) {
    case exec::RunEnd::completed: return kOk;
    case exec::RunEnd::stopped: return kInterrupted;
    case exec::RunEnd::failed: return kFailure;
    case exec::RunEnd::timed_out: return kFailure;
    case exec::RunEnd::not_started: return kMissing;
  }
  return kFailure;
}

reports::TrainSummary summary_of(const std::string& run, const exec::Completion& done) {
  reports::TrainSummary summary;
  summary.directory = run;
  summary.steps = done.steps;
  summary.first_loss = done.first_loss;
  summary.final_loss = done.final_loss;
  summary.step_time_s = done.step_time_s;
  summary.tokens_per_s = done.tokens_per_s;
  summary.memory_peak_bytes = done.memory_peak_bytes;
  summary.completed = done.completed;
  summary.backend = done.backend;
  return summary;
}

}  // namespace

Outcome run_train(const TrainOptions& options, const Context& context) {
  const auto loaded = load_plan(context.catalog, options.plan);
  if (!loaded) return bad_input(loaded.error());

  exec::TrainCommand command;
  command.worker = program_folder() / "orrery-worker";
  command.ranks = loaded->file.spec.ranks();
  command.plan = options.plan;
  command.run = options.run;
  command.steps = options.steps.value_or(0);
  command.threads = options.threads;
  command.backend = loaded->file.cluster.device().kind == clusters::DeviceKind::gpu ? "cuda" : "cpu";
  command.resume = options.resume;
  command.checkpoint_every = options.checkpoint_every;
  command.recompute_whole_layer = loaded->stack.recompute_whole_layer;

  Progress progress(context.terminal.progress);
  exec::RunWatchers watchers;
  watchers.step = [&](const exec::StepReport& report) { progress.line(progress_line(report)); };
  watchers.message = [&](const std::string& text) {
    if (context.quiet) return;
    progress.clear();
    std::fprintf(stderr, "%s\n", text.c_str());
  };
  const Interrupt interrupt;
  const exec::RunOutcome run = exec::supervise(command, watchers, &Interrupt::requested());
  progress.clear();

  Outcome outcome;
  outcome.exit_code = exit_code_of(run.end);
  if (run.end == exec::RunEnd::failed &&
      (run.exit_code == kBadInput || run.exit_code == kCheckFailed || run.exit_code == kMissing))
    outcome.exit_code = run.exit_code;  // the worker's own codes mean the same
  if (run.completion) {
    const reports::TrainSummary summary = summary_of(options.run, *run.completion);
    outcome.json = reports::train_json(summary).dump();
    outcome.text = reports::train_text(summary, context.terminal.style);
  }
  outcome.diagnostics = run.diagnostics;
  if (auto warning = changed_mathematics(loaded->plan.spec(), options.plan))
    outcome.diagnostics.insert(outcome.diagnostics.begin(), std::move(*warning));
  for (base::Diagnostic& one : outcome.diagnostics)
    if (one.where.file.empty()) one.where.file = options.plan;  // what has no place of its own is asked for there
  const bool said = std::any_of(run.diagnostics.begin(), run.diagnostics.end(),
                                [](const auto& one) { return one.severity == base::Severity::error; });
  if (run.end != exec::RunEnd::completed && !said) {
    const bool stopped = run.end == exec::RunEnd::stopped;
    outcome.diagnostics.push_back(base::Diagnostic{stopped ? base::Severity::warning : base::Severity::error,
                                                   "R0005",
                                                   {},
                                                   run.reason,
                                                   stopped ? "go on with --resume" : run.error_tail,
                                                   {}});
  }
  return outcome;
}

}  // namespace orrery::apps

// simulate: lowers a plan, proves the schedule, replays it and prints the result.
#include <fmt/core.h>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/output.h"
#include "apps/plan_warnings.h"
#include "apps/verbs/goodput.h"
#include "apps/verbs/plan/evidence.h"
#include "apps/verbs/plan/plan_json.h"
#include "apps/verbs/plan/plan_rows.h"
#include "apps/verbs/verb.h"
#include "clusters/read.h"
#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "reports/json.h"
#include "reports/tables/text.h"
#include "reports/trace.h"
#include "sim/simulate.h"

namespace orrery::apps {

namespace {

struct SimulateOptions {
  std::string plan;
  std::string trace;     ///< Chrome trace to write
  std::string timeline;  ///< predicted timeline.json to write
  std::string beside;    ///< plan of another job that runs on the same cluster at the same time
  FailureOptions failures;
  std::vector<std::string> calibrations;
};

using Clock = std::chrono::steady_clock;

double since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

base::Diagnostic problem(std::string code, const std::string& file, std::string message, std::string help) {
  return {base::Severity::error, std::move(code), {file, 1, 1, 1}, std::move(message), std::move(help), {}};
}

/// Replays another plan's step beside the first's. Their nodes alternate, so that both are under every leaf.
base::Result<sim::Simulation> beside(const LoadedPlan& first, const plan::Schedule& schedule,
                                     const SimulateOptions& options, const Context& context,
                                     const std::vector<cost::Calibration>& calibrations, bool spans,
                                     sim::Simulation& changed) {
  const auto second = load_plan_argument(context.catalog, options.beside);
  if (!second) return tl::unexpected(second.error());
  const clusters::Cluster &a = first.file.cluster, &b = second->file.cluster;
  if (!a.shape || !(a.shape == b.shape) || !(a.devices == b.devices) || a.devices_per_node != b.devices_per_node) {
    return tl::unexpected(base::Diagnostics{
        problem("P93", options.beside, "the two plans are for different kinds of machines or switches",
                "plan both for the same regular cluster; `plan --gpus N` uses part of one")});
  }
  for (const LoadedPlan* one : {&first, &*second})
    if (one->plan.spec().stages.asynchronous())
      return tl::unexpected(base::Diagnostics{problem(
          "P34", options.beside, "a pipeline that never drains has no step that starts together with another job's",
          "simulate it alone, or beside a plan of schedule: 1f1b")});
  const auto both = clusters::resized(a, a.size() + b.size());
  if (!both) return tl::unexpected(both.error());
  const auto cluster = std::make_shared<const clusters::Cluster>(*both);
  const cost::Pricing prices[2] = {cost::Pricing(cluster, first.stack, calibrations),
                                   cost::Pricing(cluster, second->stack, calibrations)};
  const plan::Schedule other = lower_for(second->plan, second->stack);
  if (base::Diagnostics faults = plan::check(other); !faults.empty()) return tl::unexpected(faults);
  std::vector<sim::JobInCompany> jobs = {{&first.plan, &schedule, &prices[0], {}},
                                         {&second->plan, &other, &prices[1], {}}};
  for (int node = 0, placed[2] = {0, 0}; node < cluster->nodes; ++node) {
    const bool turn = node % 2 == 1;
    const bool to_second = placed[1] < b.nodes && (turn || placed[0] == a.nodes);
    ++placed[to_second ? 1 : 0];
    for (int d = 0; d < a.devices_per_node; ++d)
      jobs[to_second ? 1 : 0].devices.push_back(node * a.devices_per_node + d);
  }
  std::vector<sim::Simulation> results = sim::simulate(jobs, {.spans = spans});
  changed = std::move(results[0]);
  return std::move(results[1]);
}

/// The forward passes of an evaluation, if the job asks for one, from the same lowering as the step.
void add_evaluation(const LoadedPlan& loaded, const cost::Pricing& pricing, double step_s, nlohmann::json& json,
                    std::string& text, const reports::TableStyle& style) {
  const auto& evaluation = loaded.file.job.training.evaluation;
  if (!evaluation) return;
  const plan::Schedule schedule = plan::lower(loaded.plan, {.forward_only = true});
  const double batch_s = sim::simulate(loaded.plan, schedule, pricing, {.spans = false}).prediction.step_time_s;
  const double time_s = batch_s * static_cast<double>(evaluation->batches);
  json["evaluation"] = {{"time_s", time_s}, {"batch_time_s", batch_s}, {"every_steps", evaluation->every}};
  say(text,
      fmt::format("Evaluation takes {} after every {}: {} of the run.", reports::time_text(time_s),
                  reports::count_text(evaluation->every, "step"),
                  reports::percent(time_s / (time_s + step_s * static_cast<double>(evaluation->every)))),
      style);
}

/// The first steps of a run, if they differ from later ones, and the time of the whole run.
void add_start(const LoadedPlan& loaded, const plan::Schedule& schedule, const cost::Pricing& pricing, double step_s,
               nlohmann::json& json, std::string& text, const reports::TableStyle& style) {
  const std::int64_t steps = loaded.file.job.training.steps;
  const std::int64_t first = std::min(steps, schedule.steady_from());
  if (first == 0) return;
  const sim::Simulation whole = sim::simulate(loaded.plan, schedule, pricing, {.spans = false, .training_step = 0});
  const double first_s = whole.prediction.step_time_s;
  const double run_s = static_cast<double>(first) * first_s + static_cast<double>(steps - first) * step_s;
  json["start"] = {{"steps", first}, {"step_time_s", first_s}, {"run_time_s", run_s}};
  say(text,
      fmt::format("The first {} of {} steps reduce gradients in full and take {} each, the others {}: {} in total.",
                  reports::count_text(first), reports::count_text(steps), reports::time_text(first_s),
                  reports::time_text(step_s), reports::time_text(run_s)),
      style);
}

Outcome run_simulate(const SimulateOptions& options, const Context& context) {
  const auto loaded = load_plan_argument(context.catalog, options.plan);
  if (!loaded) return bad_input(loaded.error());
  const auto calibrations = load_calibrations(context.catalog, options.calibrations);
  if (!calibrations) return bad_input(calibrations.error());

  const auto intervals = load_intervals(context.catalog);
  if (!intervals) return bad_input(intervals.error());
  const reports::TableStyle& style = context.terminal.style;
  const reports::PlanHeading heading = heading_of(*loaded, *intervals, *calibrations);
  print_early(reports::heading_text(heading, style) + "\n", context.json, context.terminal);

  const auto cluster = std::make_shared<const clusters::Cluster>(loaded->file.cluster);
  const cost::Pricing pricing(cluster, loaded->stack, *calibrations);
  const auto began = Clock::now();
  const plan::Schedule schedule = lower_for(loaded->plan, loaded->stack);
  if (base::Diagnostics faults = plan::check(schedule); !faults.empty())
    return {kCheckFailed, {}, {}, std::move(faults)};
  const bool spans = !options.trace.empty() || !options.timeline.empty();
  sim::Simulation simulation = sim::simulate(loaded->plan, schedule, pricing, {.spans = spans});
  const double alone = simulation.prediction.step_time_s;
  std::optional<sim::Simulation> other;
  if (!options.beside.empty()) {
    auto found = beside(*loaded, schedule, options, context, *calibrations, spans, simulation);
    if (!found) return bad_input(found.error());
    other = std::move(*found);
  }
  simulation.prediction.simulation_seconds = since(began);

  Outcome outcome;
  nlohmann::json json = reports::simulate_json(simulation.prediction);
  json["plan_file"] = plan_file_json(loaded->file);
  outcome.text = reports::prediction_text(simulation.prediction, style);
  add_evidence(heading, simulation.prediction, !other, json, outcome.text, style);
  add_start(*loaded, schedule, pricing, simulation.prediction.step_time_s, json, outcome.text, style);
  add_evaluation(*loaded, pricing, simulation.prediction.step_time_s, json, outcome.text, style);
  if (auto added = add_goodput(options.failures, *loaded, schedule, pricing, simulation.prediction.step_time_s,
                               context.terminal.style, json, outcome.text);
      !added)
    return usage(added.error().front().message, added.error().front().help);
  if (other) {
    json["step_time_alone_s"] = alone;
    json["beside"] = reports::simulate_json(other->prediction);
    say(outcome.text,
        fmt::format("Alone this one takes {}. Beside it a step of {} takes {}.", reports::time_text(alone),
                    options.beside, reports::time_text(other->prediction.step_time_s)),
        style);
  }
  outcome.json = json.dump();
  const auto wrote = [&](const std::string& what, const std::string& file, const std::string& text) {
    context.outputs.write(file, text);
    outcome.text += fmt::format("\n{} the {} {}\n", context.outputs.wrote(), what, file);
  };
  if (!options.trace.empty()) wrote("trace", options.trace, reports::trace_json(simulation.timeline, schedule));
  if (!options.timeline.empty())
    wrote("timeline", options.timeline, plan::write_timeline(simulation.timeline, schedule));
  if (simulation.spans_left_out > 0)
    outcome.diagnostics.push_back(base::Diagnostic{
        base::Severity::warning,
        "P98",
        {options.plan, 1, 1, 1},
        fmt::format("the timeline leaves out {} of {} spans, which repeat those of earlier micro-batches",
                    simulation.spans_left_out,
                    simulation.spans_left_out + static_cast<std::int64_t>(simulation.timeline.spans.size())),
        "predictions count all of them; with fewer micro-batches the timeline is complete",
        {}});
  if (auto warning = changed_mathematics(loaded->plan.spec(), placing(*loaded)))
    outcome.diagnostics.push_back(std::move(*warning));
  if (loaded->warning) outcome.diagnostics.push_back(*loaded->warning);
  if (const auto& p = simulation.prediction; p.memory_peak_bytes > p.memory_capacity_bytes)
    outcome.diagnostics.push_back(base::Diagnostic{base::Severity::warning,
                                                   "P92",
                                                   {options.plan, 1, 1, 1},
                                                   "the plan needs more memory than the device has",
                                                   "`orrery explain " + options.plan + "` shows what fills it",
                                                   {}});
  return outcome;
}

void add_simulate_flags(Flags flags, SimulateOptions& o) {
  flags.option("PLAN", o.plan, "Plan file").required();
  flags.option("--trace", o.trace, "Write a Chrome trace, which Perfetto opens").value("FILE");
  flags.option("--timeline", o.timeline, "Write the predicted timeline.json").value("FILE");
  flags
      .option("--beside", o.beside,
              "Another job at the same time on the same machines and switches; the nodes of both alternate")
      .value("PLAN");
  add_failures(flags, o.failures, "--run-tokens");
  add_calibrations(flags, o.calibrations);
}

}  // namespace

Verb simulate_verb() {
  return verb_of<SimulateOptions>({
      .name = "simulate",
      .says = "Predict one training step of a plan by replaying its schedule",
      .examples = "  orrery simulate plan.yaml --trace trace.json           open the trace in Perfetto\n"
                  "  orrery simulate plan.yaml --fleet young --restart-time '5 min'   what failures leave",
      .flags = add_simulate_flags,
      .run = run_simulate,
      .outputs = [](const SimulateOptions& o) -> std::vector<OutputFile> {
        return {{o.trace, FileKind::trace}, {o.timeline, FileKind::timeline}};
      },
      .inputs = [](const SimulateOptions& o) -> std::vector<std::string> {
        return all_of({{o.plan, o.beside}, o.calibrations});
      },
  });
}

}  // namespace orrery::apps

// simulate: lowers a plan, proves the schedule, replays it, and says what came out.
#include <fmt/core.h>
#include <chrono>

#include <nlohmann/json.hpp>

#include "apps/files.h"
#include "apps/inputs.h"
#include "apps/verbs.h"
#include "plan/check.h"
#include "plan/lower.h"
#include "reports/json.h"
#include "reports/text.h"
#include "reports/trace.h"
#include "sim/simulate.h"

namespace orrery::apps {

Outcome run_simulate(const SimulateOptions& options, const Context& context) {
  const auto loaded = load_plan(context.catalog, options.plan);
  if (!loaded) return bad_input(loaded.error());
  const auto calibrations = load_calibrations(context.catalog, options.calibrations);
  if (!calibrations) return bad_input(calibrations.error());

  const auto cluster = std::make_shared<const clusters::Cluster>(loaded->file.cluster);
  const cost::Pricing pricing(cluster, loaded->stack, *calibrations);
  const auto began = std::chrono::steady_clock::now();
  const plan::Schedule schedule = lower_for(loaded->plan, loaded->stack);
  if (base::Diagnostics faults = plan::check(schedule); !faults.empty())
    return {kCheckFailed, {}, {}, std::move(faults)};
  sim::Simulation simulation = sim::simulate(loaded->plan, schedule, pricing);
  simulation.prediction.simulation_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();

  Outcome outcome;
  outcome.json = reports::simulate_json(simulation.prediction).dump();
  outcome.text = reports::prediction_text(simulation.prediction, context.terminal.style);
  const auto wrote = [&](const std::string& what, const std::string& file, const std::string& text) {
    write_file(file, text);
    outcome.text += fmt::format("\nWrote the {} {}\n", what, file);
  };
  if (!options.trace.empty()) wrote("trace", options.trace, reports::trace_json(simulation.timeline, schedule));
  if (!options.timeline.empty())
    wrote("timeline", options.timeline, plan::write_timeline(simulation.timeline, schedule));
  if (const auto& p = simulation.prediction; p.memory_peak_bytes > p.memory_capacity_bytes)
    outcome.diagnostics.push_back(base::Diagnostic{base::Severity::warning,
                                                   "P92",
                                                   {options.plan, 1, 1, 1},
                                                   "the plan needs more memory than the device has",
                                                   "`orrery explain " + options.plan + "` says what fills it",
                                                   {}});
  return outcome;
}

}  // namespace orrery::apps

// A plan's page: heading, operators, what-ifs, and where its numbers come from.
#include "apps/verbs/report/report_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "apps/interrupt.h"
#include "apps/verbs/plan/plan_rows.h"
#include "apps/verbs/plan/what_if.h"
#include "apps/verbs/report/report_saved.h"
#include "cost/parameters/parameters.h"
#include "reports/tables/tables.h"
#include "reports/trace.h"
#include "sim/explain/operators.h"
#include "sim/explain/sensitivity.h"
#include "sim/simulate.h"

namespace orrery::apps {
namespace {

constexpr std::size_t kMostSensitivities = 12;
constexpr std::size_t kMostTrace = std::size_t{1} << 20;  // bytes, so that the page can be mailed

reports::Table coefficients_of(const cost::Pricing& pricing) {
  using reports::Align;
  reports::Table table{"Coefficients", {{"name", Align::left}, {"value"}, {"source", Align::left}}, {}, {}};
  for (const auto& [name, parameter] : pricing.calibration().parameters)
    table.rows.push_back(
        {name, reports::coefficient_text(parameter.value, cost::name_of(parameter.unit)), parameter.source});
  return table;
}

/// The same figures, but for the last digits, which another compiler may round differently.
bool same_figures(const cost::Prediction& a, const cost::Prediction& b) {
  const auto same = [](double x, double y) { return std::abs(x - y) <= 1e-9 * std::max(std::abs(x), std::abs(y)); };
  return same(a.step_time_s, b.step_time_s) && same(a.memory_peak_bytes, b.memory_peak_bytes) &&
         same(a.memory_capacity_bytes, b.memory_capacity_bytes) && same(a.cost_per_step_usd, b.cost_per_step_usd);
}

}  // namespace

PlanToShow plan_to_show(const std::string& name, const LoadedPlan& loaded,
                        const std::vector<cost::Calibration>& calibrations, const reports::SavedPrediction* saved) {
  PlanToShow out{name,
                 &loaded,
                 lower_for(loaded.plan, loaded.stack),
                 {std::make_shared<const clusters::Cluster>(loaded.file.cluster), loaded.stack, calibrations},
                 {},
                 {},
                 saved};
  sim::Simulation simulation = sim::simulate(loaded.plan, out.schedule, out.pricing, {.spans = true});
  out.prediction = std::move(simulation.prediction);
  out.timeline = std::move(simulation.timeline);
  if (saved == nullptr || same_figures(saved->prediction, out.prediction)) return out;
  out.is_replay = false;
  out.prediction = saved->prediction;
  out.timeline = {};
  return out;
}

reports::PlanHeading heading_of(const PlanToShow& shown, const cost::Intervals& intervals,
                                const std::vector<cost::Calibration>& calibrations) {
  reports::PlanHeading heading = heading_of(*shown.loaded, intervals, calibrations);
  if (shown.saved != nullptr) rest_on(heading, *shown.saved);
  return heading;
}

std::optional<base::Diagnostic> not_the_replay(const PlanToShow& shown) {
  if (shown.is_replay) return std::nullopt;
  return base::Diagnostic{
      base::Severity::warning,
      "E0209",
      {shown.name, 0, 0, 1},
      fmt::format("the figures of this prediction ({} a step) are not those of its plan's replay today: they are "
                  "shown as they were saved, without timeline, operators and what other numbers would change",
                  reports::time_text(shown.prediction.step_time_s)),
      "it was made with other calibrations, by another version, or beside another job; name the plan for today's",
      {}};
}

reports::PlanPage page_of(const PlanToShow& shown, const cost::Intervals& intervals,
                          const std::vector<cost::Calibration>& calibrations, bool what_if, Progress& progress) {
  reports::PlanPage page;
  page.heading = heading_of(shown, intervals, calibrations);
  page.saved = !shown.is_replay;
  if (page.saved) return page;
  page.operators = sim::operators_of(shown.schedule, shown.pricing, cost::mean_share(shown.loaded->plan));
  page.topology = reports::topology_of(shown.loaded->file.cluster, shown.prediction.links);
  page.coefficients = coefficients_of(shown.pricing);
  if (!shown.timeline.spans.empty()) {
    std::string trace = reports::trace_json(shown.timeline, shown.schedule);
    if (trace.size() <= kMostTrace) page.trace = std::move(trace);
  }
  if (!what_if) return page;
  const sim::Question question = question_of(*shown.loaded, calibrations, intervals);
  const auto go_on = [&](const std::string& what) {
    progress.line("replaying: " + what);
    return !Interrupt::requested();
  };
  page.sensitivities = sim::sensitivities(question, kMostSensitivities, go_on);
  page.neighbours = sim::neighbours(question, go_on);
  progress.clear();
  return page;
}

}  // namespace orrery::apps

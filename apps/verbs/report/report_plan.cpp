// A plan's page: heading, operators, what-ifs, and where its numbers come from.
#include "apps/verbs/report/report_plan.h"

#include <algorithm>

#include "apps/interrupt.h"
#include "apps/verbs/plan/plan_rows.h"
#include "apps/verbs/plan/what_if.h"
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

}  // namespace

PlanToShow plan_to_show(const std::string& name, const LoadedPlan& loaded,
                        const std::vector<cost::Calibration>& calibrations) {
  PlanToShow out{name,
                 &loaded,
                 lower_for(loaded.plan, loaded.stack),
                 {std::make_shared<const clusters::Cluster>(loaded.file.cluster), loaded.stack, calibrations},
                 {},
                 {}};
  sim::Simulation simulation = sim::simulate(loaded.plan, out.schedule, out.pricing, {.spans = true});
  out.prediction = std::move(simulation.prediction);
  out.timeline = std::move(simulation.timeline);
  return out;
}

reports::PlanPage page_of(const PlanToShow& shown, const cost::Intervals& intervals,
                          const std::vector<cost::Calibration>& calibrations, bool what_if, Progress& progress) {
  reports::PlanPage page;
  page.heading = heading_of(*shown.loaded, intervals, calibrations);
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

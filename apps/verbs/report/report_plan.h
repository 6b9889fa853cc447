#pragma once
/// What a report says about one plan, and about several beside each other.
#include <optional>
#include <string>
#include <vector>

#include "apps/inputs.h"
#include "apps/terminal.h"
#include "apps/verbs/report/report_data.h"
#include "apps/verbs/report/report_options.h"
#include "reports/report.h"

namespace orrery::apps {

/// A plan and all that is derived from it once.
struct PlanToShow {
  std::string name;  ///< as the user named it
  const LoadedPlan* loaded = nullptr;
  plan::Schedule schedule;
  cost::Pricing pricing;
  cost::Prediction prediction;
  plan::Timeline timeline;
};
[[nodiscard]] PlanToShow plan_to_show(const std::string& name, const LoadedPlan& loaded,
                                      const std::vector<cost::Calibration>& calibrations);

/// Operators, coefficients and the trace; with `what_if` also what other splits and numbers would change.
[[nodiscard]] reports::PlanPage page_of(const PlanToShow& shown, const cost::Intervals& intervals,
                                        const std::vector<cost::Calibration>& calibrations, bool what_if,
                                        Progress& progress);

/// Whether the options ask for anything about a whole run.
[[nodiscard]] bool asks_for_run(const ReportOptions& options);
/// The run of a plan that the options ask for and, if there is one, what a real run's directory says.
[[nodiscard]] base::Result<reports::WholeRun> whole_run_of(const ReportOptions& options, const PlanToShow& shown,
                                                           const Run* real);

/// Inputs with their hashes, versions, this machine, and sources of the shown plan's numbers (null: no plan).
[[nodiscard]] std::vector<reports::Provenance> provenance_of(const ReportOptions& options, const Context& context,
                                                             const LoadedPlan* shown);

}  // namespace orrery::apps

#pragma once
/// What a report says of one plan, and of several things beside each other.
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/inputs.h"
#include "apps/terminal.h"
#include "apps/verbs/report_data.h"
#include "apps/verbs/verbs.h"
#include "reports/report.h"

namespace orrery::apps {

/// A plan with all that is made of it once.
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

[[nodiscard]] reports::PlanHeading heading_of(const LoadedPlan& loaded, const cost::Intervals& intervals,
                                              const std::vector<cost::Calibration>& calibrations);

/// Operators, coefficients and the trace; with `what_if` also what other splits and other numbers would make of it.
[[nodiscard]] reports::PlanPage page_of(const PlanToShow& shown, const cost::Intervals& intervals,
                                        const std::vector<cost::Calibration>& calibrations, bool what_if,
                                        Progress& progress);

/// Whether anything of a whole run is asked for.
[[nodiscard]] bool asks_for_run(const ReportOptions& options);
/// The run that the options ask for, of a plan; beside it what a real run's directory says, where there is one.
[[nodiscard]] base::Result<reports::WholeRun> whole_run_of(const ReportOptions& options, const PlanToShow& shown,
                                                           const Run* real);

/// Inputs with their hashes, versions, this machine, and sources of the shown plan's numbers; null: none is shown.
[[nodiscard]] std::vector<reports::Provenance> provenance_of(const ReportOptions& options, const Context& context,
                                                             const LoadedPlan* shown);

}  // namespace orrery::apps

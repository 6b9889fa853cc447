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
#include "reports/saved.h"

namespace orrery::apps {

/// A plan and all that is derived from it once.
struct PlanToShow {
  std::string name;  ///< as the user named it
  const LoadedPlan* loaded = nullptr;
  plan::Schedule schedule;
  cost::Pricing pricing;
  cost::Prediction prediction;
  plan::Timeline timeline;
  const reports::SavedPrediction* saved = nullptr;  ///< if the figures were predicted before
  bool is_replay = true;  ///< false: the saved figures are not those of the replay, so nothing of it is shown
};
[[nodiscard]] PlanToShow plan_to_show(const std::string& name, const LoadedPlan& loaded,
                                      const std::vector<cost::Calibration>& calibrations,
                                      const reports::SavedPrediction* saved = nullptr);
[[nodiscard]] reports::PlanHeading heading_of(const PlanToShow& shown, const cost::Intervals& intervals,
                                              const std::vector<cost::Calibration>& calibrations);
/// A warning if the replay gives other figures than those that were saved.
[[nodiscard]] std::optional<base::Diagnostic> not_the_replay(const PlanToShow& shown);

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

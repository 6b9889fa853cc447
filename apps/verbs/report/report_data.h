#pragma once
/// Turns runs and prices into what the report shows.
#include <string>
#include <vector>

#include "apps/inputs.h"
#include "apps/verbs/runs.h"
#include "cost/results.h"
#include "reports/report.h"

namespace orrery::apps {

/// Prices before and after calibration, which differ only in the given calibrations.
struct Beliefs {
  std::vector<cost::Calibration> before, after;
};

/// Runs of one plan: their median against its prediction. Runs keep their order within a group.
struct Group {
  std::vector<const Run*> runs;
  cost::MeasuredRun measured;
  cost::Prediction predicted;  ///< after calibration, by replay
};

/// One group per plan, in the order in which plans first appear.
[[nodiscard]] std::vector<Group> grouped(const std::vector<Run>& runs, const Beliefs& beliefs);

/// The group shown in detail: the fastest of those with the most ranks.
[[nodiscard]] const Group& shown_of(const std::vector<Group>& groups);

/// Adds prediction, timelines, memory and losses of that group.
void show(reports::ReportData& data, const Group& group, const Beliefs& beliefs);

/// Errors and residuals of both beliefs over all runs, and the coefficients that differ between them.
[[nodiscard]] cost::FitResult fit_of(const std::vector<Run>& runs, const cost::Pricing& before,
                                     const cost::Pricing& after);

}  // namespace orrery::apps

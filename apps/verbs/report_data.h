#pragma once
/// From runs and prices to what the report shows.
#include <string>
#include <vector>

#include "apps/inputs.h"
#include "apps/verbs/runs.h"
#include "cost/results.h"
#include "reports/report.h"

namespace orrery::apps {

/// Prices before and after calibration: the same but for the given calibrations.
struct Beliefs {
  std::vector<cost::Calibration> before, after;
};

/// Runs of one plan: their median against its predictions. The runs keep their order within a group.
struct Group {
  std::vector<const Run*> runs;
  cost::MeasuredRun measured;
  cost::Prediction predicted;  ///< after calibration, by replay
};

/// One group per plan, in the order in which plans first appear.
[[nodiscard]] std::vector<Group> grouped(const std::vector<Run>& runs, const Beliefs& beliefs);

/// The group shown in detail: the fastest with the most ranks.
[[nodiscard]] const Group& shown_of(const std::vector<Group>& groups);

/// Prediction, timelines, memory and losses of that group.
void show(reports::ReportData& data, const Group& group, const Beliefs& beliefs);

/// Errors and residuals of both beliefs over all runs, and the coefficients in which they differ.
[[nodiscard]] cost::FitResult fit_of(const std::vector<Run>& runs, const cost::Pricing& before,
                                     const cost::Pricing& after);

}  // namespace orrery::apps

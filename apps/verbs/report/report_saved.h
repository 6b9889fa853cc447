#pragma once
/// Predictions that `simulate --json` or `plan --json` printed, as inputs of a report.
#include <optional>
#include <string>

#include "apps/inputs.h"
#include "cost/results.h"
#include "reports/saved.h"

namespace orrery::apps {

/// A prediction and the plan that it is of; of `plan` the first one, with the others as `search`.
struct SavedPlan {
  LoadedPlan loaded;
  reports::SavedPrediction saved;
  std::optional<cost::SearchResult> search;
  reports::PlanHeading search_heading;  ///< with the evidence of these plans
};

/// E0125 for what other verbs print, or a verb that failed; errors in what was printed, with their place.
[[nodiscard]] base::Result<SavedPlan> load_saved(const Catalog& catalog, const std::string& name,
                                                 const cost::Intervals& intervals);

/// Puts into a heading what the saved figures of a plan rest on, for it and the plans that its stack prices too.
void rest_on(reports::PlanHeading& heading, const reports::SavedPrediction& saved);

}  // namespace orrery::apps

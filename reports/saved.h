#pragma once
/// Reads back what `simulate --json` and `plan --json` print (docs/json.md), so that a report can show a prediction as
/// it was made. Findings go to the document of the cursor; keys that this version does not know are passed over.
#include "base/yaml.h"
#include "cost/results.h"
#include "reports/tables/plan_table.h"

namespace orrery::reports {

/// A prediction without its plan: the caller reads that.
struct SavedPrediction {
  cost::Prediction prediction;
  Evidence evidence;  ///< with the spread that gives the saved intervals again
};

/// The `result` of simulate, or one of the `plans` of plan. E0102 if it has no step time.
[[nodiscard]] SavedPrediction read_prediction(const base::Cursor& at);
/// The `search` of plan, without its plans.
[[nodiscard]] cost::SearchResult read_search(const base::Cursor& at);

}  // namespace orrery::reports

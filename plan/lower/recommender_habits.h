#pragma once
/// What software does otherwise when it trains a recommendation model.
#include "plan/lower/lower.h"

namespace orrery::plan {

/// Properties of the software stack. As they begin here Orrery's own executors run.
struct RecommenderHabits {
  /// A step ends in what runs report: the norm of all gradients, and the loss over all ranks.
  bool reports = true;
  /// Ranks send each other the indices of their samples; without, each reads those of the whole batch.
  bool exchanges_indices = true;
};

/// A plan of any model, lowered; `habits` are of those with tables.
[[nodiscard]] Schedule lower(const Plan& plan, const LowerOptions& options, const RecommenderHabits& habits);

}  // namespace orrery::plan

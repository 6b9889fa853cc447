#pragma once
/// How software stacks differ in training a recommendation model.
#include "plan/lower/lower.h"

namespace orrery::plan {

/// Properties of the software stack. The defaults are how Orrery's own executors work.
struct RecommenderHabits {
  /// A step ends with what runs report: the norm of all gradients, and the loss over all ranks.
  bool reports = true;
  /// Ranks send each other the indices of their samples. Otherwise each reads those of the whole batch.
  bool exchanges_indices = true;
};

/// Lowers a plan of any model; `habits` apply to models with tables.
[[nodiscard]] Schedule lower(const Plan& plan, const LowerOptions& options, const RecommenderHabits& habits);

}  // namespace orrery::plan

#pragma once
/// The end of a recommendation model's step: the norm of all gradients, updates of all but the sharded tables, the
/// loss.
/// Private to plan/.
#include "plan/lower/class_builder.h"
#include "plan/spec/table_layout.h"

namespace orrery::plan {

struct RecommenderEnd {
  ClassBuilder& build;
  const PlanSpec& spec;
  const TableLayout& layout;
  GroupId data, tables;  ///< of all ranks; none: alone
  /// One element each; with a parameter server, one for each worker.
  BufferId norm_squared, coefficient;
  BufferId lookups;     ///< of each row of replicated tables, if its update needs them
  bool reports = true;  ///< the step ends in norm and loss over all ranks
};

/// Norm and updates, added to the open block. `norm_squared` must already have the squares of the sharded tables'
/// gradients.
void lower_updates(const RecommenderEnd& end);
/// The loss over all ranks, added to the open block.
void report_loss(const RecommenderEnd& end);

/// The update of `elements` values of the replicated tables: from gradient and lookups to parameters, all of them
/// views.
[[nodiscard]] models::Op replicated_update(const RecommenderEnd& end, std::int64_t elements, int gradient, int lookups,
                                           int parameters);

}  // namespace orrery::plan

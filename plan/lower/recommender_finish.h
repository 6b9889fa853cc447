#pragma once
/// The end of a recommendation model's step: the norm of all gradients, updates of what is no sharded table, the loss.
/// Private to plan/.
#include "plan/lower/class_builder.h"
#include "plan/spec/table_layout.h"

namespace orrery::plan {

struct RecommenderEnd {
  ClassBuilder& build;
  const PlanSpec& spec;
  const TableLayout& layout;
  GroupId data, tables;  ///< of all ranks; none: alone
  /// An element each, and of a parameter server one for each worker.
  BufferId norm_squared, coefficient;
  BufferId lookups;     ///< of each row of replicated tables, where its update asks for them
  bool reports = true;  ///< the step ends in norm and loss over all ranks
};

/// These add to the block that is open. Norm and updates; the squares of the sharded tables' gradients are in
/// `norm_squared` by then.
void lower_updates(const RecommenderEnd& end);
/// The loss over all ranks.
void report_loss(const RecommenderEnd& end);

/// The update of the replicated tables, of `elements` values from gradient and lookups to parameters, all views.
[[nodiscard]] models::Op replicated_update(const RecommenderEnd& end, std::int64_t elements, int gradient, int lookups,
                                           int parameters);

}  // namespace orrery::plan

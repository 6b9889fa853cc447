#pragma once
/// What plans of recommendation models obey, and what of them others do not have. Private to plan/.
#include "plan/plan.h"

namespace orrery::plan {

/// Of a model with tables: all of it that a plan of others is checked for, too.
[[nodiscard]] base::Diagnostics refused_tables(const models::Recommender& model, const clusters::Cluster& cluster,
                                               const PlanSpec& spec);
/// Of a model without tables.
[[nodiscard]] base::Diagnostics refused_without_tables(const PlanSpec& spec);

}  // namespace orrery::plan

#pragma once
/// What plans of recommendation models obey, and what of them others do not have.
#include "plan/spec/plan.h"

namespace orrery::plan {

/// Of a model with tables: all of it that a plan of others is checked for, too.
[[nodiscard]] base::Diagnostics refused_tables(const models::Recommender& model, const clusters::Cluster& cluster,
                                               const PlanSpec& spec);
/// Of a model without tables.
[[nodiscard]] base::Diagnostics refused_without_tables(const PlanSpec& spec);

/// E0669: what is predicted of a recommendation model, and not executed.
[[nodiscard]] base::Diagnostics refused_execution(const models::Model& model, const clusters::Cluster& cluster,
                                                  const PlanSpec& spec);

/// E0662: what of a job's training a recommendation model has not.
[[nodiscard]] base::Diagnostics refused_training(const Training& training);

}  // namespace orrery::plan

#pragma once
/// Rules for plans of recommendation models, and for what only these may have.
#include "plan/spec/plan.h"

namespace orrery::plan {

/// Complete check of a model with tables, including the rules it shares with other models.
[[nodiscard]] base::Diagnostics refused_tables(const models::Recommender& model, const clusters::Cluster& cluster,
                                               const PlanSpec& spec);
/// Refuses what only plans of models with tables can have.
[[nodiscard]] base::Diagnostics refused_without_tables(const PlanSpec& spec);

/// E0670: runs whose checkpoints would lack what the steps in flight have read.
[[nodiscard]] base::Diagnostics refused_resume(const PlanSpec& spec);

/// E0669: recommendation models in a precision, or with a server, that is predicted but not executed.
[[nodiscard]] base::Diagnostics refused_execution(const models::Model& model, const clusters::Cluster& cluster,
                                                  const PlanSpec& spec);

/// E0662: training settings that a recommendation model does not have.
[[nodiscard]] base::Diagnostics refused_training(const Training& training);
/// What a recommendation model is trained with if its job names no optimizer: row-wise Adagrad, which keeps one state
/// for each row of a table. A job's usual AdamW would decay rows that no sample looks up.
[[nodiscard]] Optimizer usual_table_optimizer();

/// E0664: generated samples for another model than one for recommendations.
[[nodiscard]] base::Diagnostics refused_data(const models::Model& model, const Training& training);

}  // namespace orrery::plan

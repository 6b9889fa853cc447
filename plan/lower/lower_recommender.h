#pragma once
/// Lowering of recommendation models. Private to plan/.
#include "plan/lower/recommender_habits.h"

namespace orrery::plan {

/// One class of all ranks: MLPs on every rank, tables as the plan's placement says. Synchronous: indices go to the
/// ranks that have the tables; pooled vectors come back while the bottom MLP runs forward; their gradients are sent
/// while it runs backward.
[[nodiscard]] Schedule lower_recommender(const Plan& plan, const LowerOptions& options,
                                         const RecommenderHabits& habits = {});

/// A parameter that every rank has whole.
[[nodiscard]] ParameterRange range_of_parameter(const std::string& name, const std::vector<std::int64_t>& shape,
                                                double stddev);

}  // namespace orrery::plan

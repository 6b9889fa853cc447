#pragma once
/// A recommendation model's parameters as ranges of buckets.
#include <vector>

#include "models/recommender.h"
#include "plan/schedule/schedule.h"
#include "plan/spec/table_layout.h"

namespace orrery::plan {

/// Weights and biases of MLPs and cross layers, in their order.
[[nodiscard]] std::vector<ParameterRange> dense_ranges(const std::vector<models::DenseParameter>& parameters);

/// Tables that every rank holds, one behind the other, as the layout has them.
[[nodiscard]] std::vector<ParameterRange> replicated_ranges(const TableLayout& layout,
                                                            const models::Recommender& model);

}  // namespace orrery::plan

#pragma once
/// A recommendation model's parameters as ranges of buckets.
#include <utility>
#include <vector>

#include "models/recommender.h"
#include "plan/schedule/schedule.h"
#include "plan/spec/table_layout.h"

namespace orrery::plan {

/// Weights and biases of MLPs and cross layers, in their order.
[[nodiscard]] std::vector<ParameterRange> dense_ranges(const std::vector<models::DenseParameter>& parameters);

/// Tables that every rank holds, one after another in the layout's order.
[[nodiscard]] std::vector<ParameterRange> replicated_ranges(const TableLayout& layout,
                                                            const models::Recommender& model);

/// An operator over n rows of m columns; k means what the kind says.
[[nodiscard]] inline models::Op op_of(models::OpKind kind, std::int64_t n, std::int64_t m, std::int64_t k,
                                      std::vector<int> in, std::vector<int> out) {
  models::Op op;
  op.kind = kind;
  op.n = n;
  op.m = m;
  op.k = k;
  op.in = std::move(in);
  op.out = std::move(out);
  return op;
}

}  // namespace orrery::plan

// Places of norms and factors.
#include "plan/outline/factors.h"

namespace orrery::plan {

bool is_factored(const models::Tensor& tensor) {
  return tensor.logical_shape.size() == 2 && tensor.logical_shape[0] > 1 && tensor.logical_shape[1] > 1;
}

FactorCount factor_count(const models::Tensor& tensor) {
  if (!is_factored(tensor)) return {tensor.elements(), 0};
  const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1];
  const std::int64_t across = tensor.split_axis == 0 ? columns : rows;
  return {1 + rows + columns, tensor.split_axis < 0 ? 0 : 1 + across};
}

FactorLayout place_factors(std::vector<Bucket>& buckets, OptimizerKind optimizer, bool apart) {
  FactorLayout layout;
  if (!traits_of(optimizer).takes_norms()) return layout;
  const auto each_range = [&](bool experts, const auto& take) {
    for (Bucket& bucket : buckets)
      if (!bucket.frozen && (bucket.experts && apart) == experts)
        for (ParameterRange& range : bucket.ranges) take(range);
  };
  for (const bool experts : {false, true})
    each_range(experts, [&](ParameterRange& range) { range.norms = layout.parameters++; });
  if (!traits_of(optimizer).factored()) return layout;
  const auto place = [&](bool experts, bool meets) {
    const auto take = [&](std::int64_t& at, std::int64_t count, bool met) {
      if (met != meets) return;
      at = layout.factors.elements;
      layout.factors.elements += count;
      if (met) layout.factors.met += count;
    };
    each_range(experts, [&](ParameterRange& range) {
      const models::Tensor& t = range.tensor;
      if (!is_factored(t)) return take(range.factor_sum, t.elements(), false);
      take(range.factor_sum, 1, t.split_axis >= 0);
      take(range.factor_rows, t.shape[0], t.split_axis == 1);
      take(range.factor_columns, t.shape[1], t.split_axis == 0);
    });
  };
  place(true, false);
  place(true, true);
  place(false, true);
  place(false, false);
  return layout;
}

std::int64_t parameter_alignment(OptimizerKind optimizer) {
  return traits_of(optimizer).quantised() ? models::kQuantisedBlock : kParameterAlignment;
}

}  // namespace orrery::plan

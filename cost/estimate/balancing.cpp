// Sums of the routing choices over layers and ranks.
#include "cost/estimate/balancing.h"

#include <algorithm>

#include "cost/estimate/update.h"

namespace orrery::cost {

namespace {

constexpr auto kType = models::DType::fp32;

std::int64_t values_of(const models::Experts& experts) {
  return 2 * experts.count + 1;
}
std::int64_t mixed_layers(const std::vector<LayerRun>& layers_of) {
  std::int64_t mixed = 0;
  for (const LayerRun& run : layers_of)
    if (run.costs->in(LayerBucket::experts).elements + run.costs->in(LayerBucket::experts).frozen > 0)
      mixed += run.count;
  return mixed;
}

double all_reduce(const Pricing& pricing, const StageGroups& groups, std::int64_t elements,
                  const std::vector<int>& members) {
  if (members.size() < 2) return 0;
  const base::Bytes bytes{static_cast<double>(elements * models::size_of(kType))};
  return groups.lockstep.at(pricing)
      .collective_time(plan::CollectiveKind::all_reduce, bytes, members, plan::Stream::data)
      .value;
}
/// Ranks of a tensor group that route rows of their own have each counted a part of the choices.
std::vector<int> counting(const plan::PlanSpec& spec, const StageGroups& groups) {
  return spec.mesh.routes_own_rows() ? groups.tensor : std::vector<int>{};
}

}  // namespace

models::Op zeroed_tally(const models::Experts& experts, const std::vector<LayerRun>& layers_of) {
  return flat(models::OpKind::fill_zero, kType,
              std::max<std::int64_t>(1, mixed_layers(layers_of)) * values_of(experts));
}

double pooling_time(const Pricing& pricing, const models::Model& model, const plan::PlanSpec& spec,
                    const std::vector<LayerRun>& layers_of, const StageGroups& groups) {
  const std::int64_t values = values_of(model.experts);
  models::Op pool = flat(models::OpKind::sum_pieces, kType, values);
  pool.n = std::max<std::int64_t>(1, mixed_layers(layers_of));
  return pricing.compute_time(plan::Step{}).value + pricing.op_time(pool).value +
         all_reduce(pricing, groups, values, loss_members(spec)) +
         all_reduce(pricing, groups, values, counting(spec, groups));
}

double balancing_time(const Pricing& pricing, const models::Model& model, const plan::PlanSpec& spec,
                      const std::vector<LayerRun>& layers_of, const StageGroups& groups) {
  const models::Experts& experts = model.experts;
  if (!experts.any()) return 0;
  const auto op = [&](const models::Op& one) { return pricing.op_time(one).value; };
  const auto sum = [&](std::int64_t elements, const std::vector<int>& members) {
    return all_reduce(pricing, groups, elements, members);
  };
  const double dispatch = pricing.compute_time(plan::Step{}).value;
  const std::int64_t values = values_of(experts), mixed = mixed_layers(layers_of);
  const std::vector<int> counts = counting(spec, groups);
  double t = pooling_time(pricing, model, spec, layers_of, groups) + dispatch +
             op(flat(models::OpKind::balance_losses, kType, experts.count));
  if (mixed > 0) {
    for (const std::vector<int>* members : {&groups.data, &groups.copies, &counts}) t += sum(mixed * values, *members);
    if (experts.bias_rate > 0 && !model.lora.any())
      t += dispatch + static_cast<double>(mixed) * op(flat(models::OpKind::balance_bias, kType, experts.count));
  }
  // Squares of experts' gradients are summed apart, over the ranks that divide the experts.
  if (spec.squares_experts_apart())
    t += dispatch + op(flat(models::OpKind::fill_zero, kType, 1)) + op(flat(models::OpKind::add_scaled, kType, 1)) +
         sum(1, groups.experts) + sum(1, spec.squares_parts_apart() ? groups.of_experts.tensor : std::vector<int>{});
  return t;
}

}  // namespace orrery::cost

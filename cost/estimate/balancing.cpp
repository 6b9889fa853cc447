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
    if (run.costs->expert_elements > 0) mixed += run.count;
  return mixed;
}

}  // namespace

models::Op zeroed_tally(const models::Experts& experts, const std::vector<LayerRun>& layers_of) {
  return flat(models::OpKind::fill_zero, kType,
              std::max<std::int64_t>(1, mixed_layers(layers_of)) * values_of(experts));
}

double balancing_time(const Pricing& pricing, const models::Experts& experts, const plan::PlanSpec& spec,
                      const std::vector<LayerRun>& layers_of, const StageGroups& groups) {
  if (!experts.any()) return 0;
  const auto op = [&](const models::Op& one) { return pricing.op_time(one).value; };
  const auto all_reduce = [&](std::int64_t elements, const std::vector<int>& members) {
    const base::Bytes bytes{static_cast<double>(elements * models::size_of(kType))};
    return members.size() < 2
               ? 0
               : groups.lockstep.at(pricing)
                     .collective_time(plan::CollectiveKind::all_reduce, bytes, members, plan::Stream::data)
                     .value;
  };
  const double dispatch = pricing.compute_time(plan::Step{}).value;
  const std::int64_t values = values_of(experts), mixed = mixed_layers(layers_of);
  models::Op pool = flat(models::OpKind::sum_pieces, kType, values);
  pool.n = std::max<std::int64_t>(1, mixed);
  double t = 2 * dispatch + op(pool) + op(flat(models::OpKind::balance_losses, kType, experts.count)) +
             all_reduce(values, loss_members(spec));
  if (mixed > 0) t += all_reduce(mixed * values, groups.data) + all_reduce(mixed * values, groups.copies);
  if (spec.mesh.expert > 1 && !partitions(spec)) t += dispatch + all_reduce(1, groups.experts);
  return t;
}

}  // namespace orrery::cost

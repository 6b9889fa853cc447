/// Which operators and messages depend on how evenly data is spread.
#include "cost/prices/mean_share.h"

#include <algorithm>
#include <cmath>

#include "plan/spec/table_layout.h"

namespace orrery::cost {
namespace {

double rows_of(const plan::PlanSpec& spec, const models::Experts& experts) {
  if (experts.count == 0) return 1;
  // Expert ranks have `local` experts each. A token chooses at most all of them.
  const auto ranks = static_cast<double>(std::max(1, spec.mesh.expert)), chosen = static_cast<double>(experts.chosen);
  const double local = std::floor(static_cast<double>(experts.count) / ranks);
  double most = std::min(spec.tokens.imbalance, ranks * std::min(chosen, local) / chosen);
  if (experts.capacity_factor > 0) most = std::min(most, experts.capacity_factor);
  return 1 / std::max(1.0, most);
}

MeanShare lookups_of(const plan::TableLayout& layout) {
  double lookups = 0, most_lookups = 0, pooled = 0;
  for (int rank = 0; rank < layout.ranks; ++rank) {
    const double own = layout.values_looked_up(rank);
    lookups += own / layout.ranks;
    most_lookups = std::max(most_lookups, own);
    for (const plan::PooledWay way : plan::kEveryWay)
      pooled += static_cast<double>(layout.pooled_values(rank, way, plan::PooledType::fp32));
  }
  MeanShare share;
  if (most_lookups > 0) share.lookups = lookups / most_lookups;
  if (const std::int64_t most = layout.heaviest().values; most > 0)
    share.pooled = std::min(1.0, pooled / static_cast<double>(most));
  return share;
}

/// Whether the operator computes on rows that stand in slots. Operators that move tokens into slots and back (`chosen`
/// > 0) are priced by tokens: every rank has equally many.
bool is_in_slots(const models::Op& op) {
  return op.slots > 0 && op.chosen == 0;
}

std::int64_t part(std::int64_t of, double share) {
  return std::max<std::int64_t>(1, std::llround(static_cast<double>(of) * share));
}

}  // namespace

MeanShare mean_share(const plan::Plan& plan) {
  if (const auto& tables = plan.model().recommender)
    return lookups_of(plan::make_table_layout(*tables, plan.spec(), plan.cluster().devices_per_node));
  MeanShare share;
  share.rows = rows_of(plan.spec(), plan.model().experts);
  return share;
}

models::Op of_mean_rank(models::Op op, const MeanShare& share) {
  using K = models::OpKind;
  if (is_in_slots(op)) op.expected *= share.rows;
  const bool looks_up =
      op.kind == K::embedding_bag || op.kind == K::embedding_bag_squares || op.kind == K::embedding_bag_update;
  if (looks_up || op.kind == K::cache_rows) op.n = part(op.n, share.lookups);
  if (looks_up && op.k > 0) op.k = part(op.k, share.pooled);
  if (looks_up && op.capacity > 0) op.capacity = part(op.capacity, share.lookups);
  return op;
}

double share_of_message(const plan::Step& step, const MeanShare& share) {
  return step.counted.any() ? share.rows : 1;
}

}  // namespace orrery::cost

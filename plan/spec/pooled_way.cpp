// Ways of pooled vectors.
#include "plan/spec/pooled_way.h"

namespace orrery::plan {
namespace {

// Whether each part of the columns has its rows on the ranks of one node.
bool by_nodes(const TablePlace& place, int ranks, int per_node) {
  if (per_node < 2 || ranks % per_node != 0 || ranks == per_node || place.row_parts() != per_node) return false;
  for (std::size_t i = 0; i < place.ranks.size(); ++i) {
    const int first = place.ranks[i - i % static_cast<std::size_t>(per_node)];
    if (place.ranks[i] / per_node != first / per_node) return false;
  }
  return true;
}

}  // namespace

PooledWay way_of(const TablePlace& place, int ranks, int per_node, PooledType forward, bool server) {
  if (place.replicated || server || forward == PooledType::int8) return PooledWay::exchange;
  if (ranks > 1 && place.columns == 1 && place.row_parts() == ranks) return PooledWay::ranks;
  return by_nodes(place, ranks, per_node) ? PooledWay::node : PooledWay::exchange;
}

PooledShares shares_of(PooledWay way, int ranks, int per_node) {
  const double all = 1 - 1.0 / ranks, mine = ranks > per_node ? 1.0 / per_node : 1;  // of what leaves the node
  switch (way) {
    case PooledWay::exchange: break;
    case PooledWay::ranks: return {all * mine, all * (1 - mine)};
    case PooledWay::node: return {mine * (1 - static_cast<double>(per_node) / ranks), 1 - mine};
  }
  return {all, 0};
}

}  // namespace orrery::plan

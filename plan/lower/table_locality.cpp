// Distinct rows in a step, and how full its messages are.
#include "plan/lower/table_locality.h"

#include <algorithm>
#include <cmath>

namespace orrery::plan {
namespace {

std::int64_t touched(const TableLayout& layout, const TableShard& shard, std::int64_t samples) {
  const TableLayout::Table& table = layout.tables[static_cast<std::size_t>(shard.table)];
  const double share = static_cast<double>(shard.rows()) / static_cast<double>(std::max<std::int64_t>(1, table.rows));
  const double lookups = static_cast<double>(samples) * table.mean_hot * share;
  return std::min(shard.rows(), static_cast<std::int64_t>(std::ceil(lookups)));
}

}  // namespace

std::int64_t most_distinct_rows(const TableLayout& layout) {
  std::int64_t most = 0;
  for (int rank = 0; rank < layout.ranks; ++rank) {
    std::int64_t sum = 0;
    for (std::size_t i = layout.begin(rank); i < layout.end(rank); ++i)
      sum += touched(layout, layout.shards[i], layout.samples * layout.ranks);
    most = std::max(most, sum);
  }
  return most;
}

std::int64_t distinct_replicated_rows(const TableLayout& layout) {
  std::int64_t sum = 0;
  for (const TableShard& shard : layout.replicated) sum += touched(layout, shard, layout.samples);
  return sum;
}

double mean_slot_share(const TableLayout& layout, PooledWay way, PooledType type) {
  double sum = 0;
  for (int rank = 0; rank < layout.ranks; ++rank) sum += static_cast<double>(layout.pooled_values(rank, way, type));
  return sum / static_cast<double>(layout.ranks * layout.most_pooled_values(way, type));
}

double mean_share(const TableLayout& layout, PooledEnd end, PooledType type) {
  double filled = 0;
  for (const PooledWay way : kEveryWay)
    if (layout.uses(way))
      filled += static_cast<double>(layout.slots(end, way, type).elements()) * mean_slot_share(layout, way, type);
  return filled / static_cast<double>(layout.pooled_elements(end, type));
}

std::int64_t replicated_lookups(const TableLayout& layout) {
  double sum = 0;
  for (const TableShard& shard : layout.replicated)
    sum += static_cast<double>(layout.samples) * layout.tables[static_cast<std::size_t>(shard.table)].mean_hot;
  return std::llround(sum);
}

bool alike(const TableLayout& layout, PooledWay way, PooledType type) {
  for (int rank = 0; rank < layout.ranks; ++rank)
    if (layout.pooled_values(rank, way, type) != layout.most_pooled_values(way, type)) return false;
  return true;
}

double mean_index_share(const TableLayout& layout) {
  double sum = 0;
  for (int rank = 0; rank < layout.ranks; ++rank) sum += layout.expected_lookups(rank);
  const std::int64_t ranks = layout.ranks;
  return std::min(1.0, sum / static_cast<double>(ranks * ranks * layout.most_indices));
}

}  // namespace orrery::plan

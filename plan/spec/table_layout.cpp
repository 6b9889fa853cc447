// Computes offsets from places of tables.
#include "plan/spec/table_layout.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/ensure.h"
#include "plan/spec/table_hits.h"
#include "plan/spec/table_tiers.h"

namespace orrery::plan {
namespace {

constexpr std::int64_t kScaleBytes = 4;

// A shard's bag is at most as long as the table's.
std::int64_t most_indices_of(const TableLayout& layout, int rank) {
  std::int64_t sum = 0;
  for (std::size_t i = layout.begin(rank); i < layout.end(rank); ++i)
    sum += layout.samples * layout.tables[static_cast<std::size_t>(layout.shards[i].table)].multi_hot;
  return sum;
}

std::int64_t power_of_two(std::int64_t least) {
  std::int64_t out = 1;
  while (out < least) out *= 2;
  return out;
}

// Parts outside the device on all ranks: their rows, and how many of them are expected to move.
class FarTables {
 public:
  FarTables(TableLayout& layout, const PlanSpec& spec) : layout_(layout), spec_(spec) {}

  void of_rank(int rank) {
    std::array<TableLayout::Far, kSpaces> here{};
    std::array<double, kSpaces> fetched{};
    std::int64_t book = 0;
    for (std::size_t i = layout_.begin(rank); i < layout_.end(rank); ++i) {
      TableShard& shard = layout_.shards[i];
      if (!shard.cached()) continue;
      TableLayout::Far& far = here[static_cast<std::size_t>(shard.space)];
      shard.far_offset = far.elements;
      shard.far_state = far.rows;
      shard.book = book;
      far.elements += shard.elements();
      far.rows += shard.rows();
      const std::int64_t moved = std::min(shard.slots, layout_.most_looked_up(shard));
      far.moved_rows += moved;
      far.moved_elements += moved * shard.columns();
      fetched[static_cast<std::size_t>(shard.space)] += fetched_rows(shard) * static_cast<double>(shard.columns());
      book += book_words(shard.slots);
    }
    layout_.most_book = std::max(layout_.most_book, book);
    for (std::size_t s = 0; s < kSpaces; ++s) {
      TableLayout::Far& most = layout_.far[s];
      most.elements = std::max(most.elements, here[s].elements);
      most.rows = std::max(most.rows, here[s].rows);
      most.moved_rows = std::max(most.moved_rows, here[s].moved_rows);
      most.moved_elements = std::max(most.moved_elements, here[s].moved_elements);
      most_fetched_[s] = std::max(most_fetched_[s], fetched[s]);
    }
  }
  void finish() {
    for (std::size_t s = 0; s < kSpaces; ++s)
      if (layout_.far[s].moved_elements > 0)
        layout_.far[s].expected = std::min(1.0, most_fetched_[s] / static_cast<double>(layout_.far[s].moved_elements));
  }

 private:
  // If a table's rows are split, the rows of a part are as frequent as those of the whole table.
  double fetched_rows(const TableShard& shard) {
    const TableLayout::Table& table = layout_.tables[static_cast<std::size_t>(shard.table)];
    const double parts = static_cast<double>(table.rows) / static_cast<double>(shard.rows());
    const std::tuple key(table.rows, table.mean_hot, shard.rows(), shard.slots);
    const auto [found, anew] = known_.try_emplace(key, 0.0);
    if (anew)
      found->second =
          expect_hits(table.rows, spec_.embedding.skew, static_cast<double>(spec_.shape.batch) * table.mean_hot,
                      static_cast<double>(shard.slots) * parts)
              .fetched /
          parts;
    return found->second;
  }
  TableLayout& layout_;
  const PlanSpec& spec_;
  std::array<double, kSpaces> most_fetched_{};
  std::map<std::tuple<std::int64_t, double, std::int64_t, std::int64_t>, double> known_;
};

void place_shards(TableLayout& layout, const models::Recommender& model, const PlanSpec& spec,
                  const std::vector<TablePlace>& places) {
  std::int64_t squares = 0;
  for (std::size_t t = 0; t < places.size(); ++t) {
    const TablePlace& place = places[t];
    if (place.replicated) continue;
    const int row_parts = place.row_parts();
    const PooledWay way = way_of(place, layout.ranks, layout.ranks_per_node, layout.forward, spec.states.has_server());
    std::vector<std::int64_t> bases(static_cast<std::size_t>(row_parts), -1);
    if (place.columns > 1)
      for (std::int64_t& base : bases) {
        base = squares;
        squares += layout.samples * layout.ranks * model.tables[t].multi_hot;
      }
    for (int c = 0; c < place.columns; ++c)
      for (int r = 0; r < row_parts; ++r) {
        TableShard shard;
        shard.table = static_cast<int>(t);
        shard.rank = place.ranks[static_cast<std::size_t>(c * row_parts + r)];
        shard.way = way;
        shard.row_begin = model.tables[t].rows * r / row_parts;
        shard.row_end = model.tables[t].rows * (r + 1) / row_parts;
        shard.column_begin = model.embedding_dim * c / place.columns;
        shard.column_end = model.embedding_dim * (c + 1) / place.columns;
        shard.squares = bases[static_cast<std::size_t>(r)];
        shard.first_columns = c == 0;
        const TableTier tier = spec.embedding.tiers.of(t);
        shard.space = tier.space;
        shard.row_bytes = row_bytes(model, spec, place.columns);
        if (shard.cached()) shard.slots = slots_of(model, spec, tier, shard.rows(), place.columns);
        layout.shards.push_back(shard);
      }
  }
  layout.squares = squares;
  std::stable_sort(layout.shards.begin(), layout.shards.end(),
                   [](const TableShard& a, const TableShard& b) { return a.rank < b.rank; });
}

// Offsets of each rank's shards.
void number_shards(TableLayout& layout) {
  layout.first.assign(static_cast<std::size_t>(layout.ranks) + 1, layout.shards.size());
  layout.of_rank.resize(static_cast<std::size_t>(layout.ranks));
  std::size_t at = 0;
  for (int rank = 0; rank < layout.ranks; ++rank) {
    layout.first[static_cast<std::size_t>(rank)] = at;
    std::int64_t elements = 0, rows = 0;
    std::array<TableLayout::OfWay, kPooledWays>& ways = layout.of_rank[static_cast<std::size_t>(rank)];
    for (; at < layout.shards.size() && layout.shards[at].rank == rank; ++at) {
      TableShard& shard = layout.shards[at];
      TableLayout::OfWay& way = ways[static_cast<std::size_t>(shard.way)];
      shard.offset = elements;
      shard.state = rows;
      shard.column = way.columns;
      elements += shard.device_rows() * shard.columns();
      rows += shard.device_rows();
      way.columns += shard.columns();
      ++way.shards;
    }
    layout.most_elements = std::max(layout.most_elements, elements);
    layout.most_rows = std::max(layout.most_rows, rows);
    for (std::size_t w = 0; w < kPooledWays; ++w)
      layout.most_columns[w] = std::max(layout.most_columns[w], ways[w].columns);
  }
}

// What arrives at the owner of samples: each exchanged shard by itself, and one sum for each group of other shards.
void join_parts(TableLayout& layout) {
  std::array<PooledSlots, kPooledWays> slots;
  for (const PooledWay way : kEveryWay)
    slots[static_cast<std::size_t>(way)] = layout.slots(PooledEnd::samples, way, PooledType::fp32);
  // Rows' parts in the order of the rows: their sums are added as a tree.
  std::vector<TableShard> arriving = layout.shards;
  std::ranges::stable_sort(arriving, {}, [](const TableShard& shard) {
    return std::tuple(shard.table, shard.column_begin, shard.row_begin);
  });
  for (const TableShard& shard : arriving) {
    const int every = shard.way == PooledWay::exchange ? 1
                      : shard.way == PooledWay::node   ? layout.ranks_per_node
                                                       : layout.ranks;
    if (shard.rank % every != 0) continue;
    const PooledSlots& of = slots[static_cast<std::size_t>(shard.way)];
    layout.parts.push_back({shard.table, shard.column_begin, shard.columns(),
                            of.offset + shard.rank / every * of.slot + shard.column,
                            layout.columns_of(shard.rank, shard.way)});
  }
}

}  // namespace

models::DType dtype_of(PooledType type) {
  switch (type) {
    case PooledType::fp32: return models::DType::fp32;
    case PooledType::bf16: return models::DType::bf16;
    case PooledType::fp16: return models::DType::fp16;
    case PooledType::int8: return models::DType::uint8;
  }
  return models::DType::fp32;
}

std::int64_t TableLayout::columns_of(int rank, PooledWay way) const {
  return of_rank[static_cast<std::size_t>(rank)][static_cast<std::size_t>(way)].columns;
}

std::int64_t TableLayout::pooled_values(int rank, PooledWay way, PooledType type) const {
  const OfWay& mine = of_rank[static_cast<std::size_t>(rank)][static_cast<std::size_t>(way)];
  return samples * (mine.columns + (type == PooledType::int8 ? kScaleBytes * mine.shards : 0));
}

std::int64_t TableLayout::most_pooled_values(PooledWay way, PooledType type) const {
  std::int64_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) most = std::max(most, pooled_values(rank, way, type));
  return most;
}

PooledSlots TableLayout::slots(PooledEnd end, PooledWay way, PooledType type) const {
  PooledSlots out;
  for (const PooledWay one : kEveryWay) {
    out.offset += out.elements();
    out.slot = most_pooled_values(one, type);
    out.count = end == PooledEnd::tables || one == PooledWay::exchange ? ranks : one == PooledWay::node ? nodes() : 1;
    if (one == way) break;
  }
  return out;
}

std::int64_t TableLayout::pooled_elements(PooledEnd end, PooledType type) const {
  const PooledSlots last = slots(end, kEveryWay[kPooledWays - 1], type);
  return last.offset + last.elements();
}

std::int64_t TableLayout::slot_of(PooledWay way, int rank) const {
  // A reduce-scatter leaves each rank of a node the samples of all ranks that have its place in theirs.
  return way == PooledWay::node ? rank % ranks_per_node * nodes() + rank / ranks_per_node : rank;
}

int TableLayout::owner_of(PooledEnd end, PooledWay way, std::int64_t slot, int rank) const {
  if (end == PooledEnd::tables || way == PooledWay::ranks) return rank;
  return static_cast<int>(slot) * (way == PooledWay::node ? ranks_per_node : 1);
}

double TableLayout::expected_lookups(int rank) const {
  double sum = 0;
  for (std::size_t i = begin(rank); i < end(rank); ++i) {
    const Table& table = tables[static_cast<std::size_t>(shards[i].table)];
    sum += static_cast<double>(samples * ranks) * table.mean_hot * static_cast<double>(shards[i].rows()) /
           static_cast<double>(table.rows);
  }
  return sum;
}

std::int64_t TableLayout::most_looked_up(const TableShard& shard) const {
  return std::min(shard.rows(), samples * ranks * tables[static_cast<std::size_t>(shard.table)].multi_hot);
}

std::int64_t book_index(std::int64_t slots) {
  return power_of_two(2 * slots);
}

std::int64_t book_words(std::int64_t slots) {
  return kBookHeader + kBookColumns * slots + book_index(slots);
}

double TableLayout::values_looked_up(int rank) const {
  double values = 0;
  for (std::size_t i = begin(rank); i < end(rank); ++i) {
    const Table& table = tables[static_cast<std::size_t>(shards[i].table)];
    values += static_cast<double>(samples * ranks * shards[i].columns()) * table.mean_hot *
              static_cast<double>(shards[i].rows()) / static_cast<double>(table.rows);
  }
  return values;
}

TableLayout::Lookups TableLayout::heaviest() const {
  Lookups most;
  double heaviest = -1;
  for (int rank = 0; rank < ranks; ++rank) {
    const double values = values_looked_up(rank);
    const double count = expected_lookups(rank);
    if (count <= 0 || values <= heaviest) continue;
    heaviest = values;
    most.count = std::llround(count);
    most.width = std::max<std::int64_t>(1, std::llround(values / count));
    most.values = 0;
    for (const PooledWay way : kEveryWay) most.values += ranks * pooled_values(rank, way, PooledType::fp32);
  }
  return most;
}

TableLayout make_table_layout(const models::Recommender& model, const PlanSpec& spec, int per_node) {
  TableLayout layout;
  layout.ranks = spec.mesh.ranks();
  layout.ranks_per_node = std::clamp(per_node, 1, layout.ranks);
  layout.samples = spec.shape.batch / spec.mesh.data;
  layout.embedding_dim = model.embedding_dim;
  layout.words = model.lookup_words();
  layout.forward = spec.embedding.forward;
  layout.backward = spec.embedding.backward;
  const std::vector<TablePlace>& places = spec.embedding.placement.places();
  ENSURE(places.size() == model.tables.size(), "{} places of {} tables", places.size(), model.tables.size());
  for (std::size_t t = 0; t < model.tables.size(); ++t) {
    const models::Table& table = model.tables[t];
    layout.tables.push_back({.rows = table.rows,
                             .multi_hot = table.multi_hot,
                             .mean = table.pooling == models::Pooling::mean && !table.weighs(),
                             .first_index = layout.indices,
                             .replicated = places[t].replicated,
                             .varies = table.varies(),
                             .mean_hot = table.mean_hot()});
    layout.indices += table.multi_hot;
    if (!places[t].replicated) continue;
    TableShard all{.table = static_cast<int>(t), .row_end = table.rows, .column_end = model.embedding_dim};
    all.offset = layout.replicated_elements;
    all.state = layout.replicated_rows;
    all.column = layout.replicated_columns;
    layout.replicated_elements += all.elements();
    layout.replicated_rows += all.rows();
    layout.replicated_columns += all.columns();
    layout.replicated.push_back(all);
  }
  place_shards(layout, model, spec, places);
  number_shards(layout);
  join_parts(layout);
  for (int rank = 0; rank < layout.ranks; ++rank) {
    layout.most_shards = std::max(layout.most_shards, layout.shards_of(rank));
    layout.most_indices = std::max(layout.most_indices, most_indices_of(layout, rank));
  }
  if (spec.embedding.tiers.empty()) return layout;
  FarTables far(layout, spec);
  for (int rank = 0; rank < layout.ranks; ++rank) far.of_rank(rank);
  far.finish();
  return layout;
}

}  // namespace orrery::plan

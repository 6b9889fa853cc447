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

// Parts outside the device, of all ranks: their rows, and what of them is expected to move.
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
  // Of a table whose rows are split those of a part are as frequent as all of them.
  double fetched_rows(const TableShard& shard) {
    const TableLayout::Table& table = layout_.tables[static_cast<std::size_t>(shard.table)];
    const double parts = static_cast<double>(table.rows) / static_cast<double>(shard.rows());
    const std::tuple key(table.rows, table.multi_hot, shard.rows(), shard.slots);
    const auto [found, anew] = known_.try_emplace(key, 0.0);
    if (anew)
      found->second = expect_hits(table.rows, spec_.embedding.skew, static_cast<double>(spec_.batch * table.multi_hot),
                                  static_cast<double>(shard.slots) * parts)
                          .fetched /
                      parts;
    return found->second;
  }
  TableLayout& layout_;
  const PlanSpec& spec_;
  std::array<double, kSpaces> most_fetched_{};
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>, double> known_;
};

void place_shards(TableLayout& layout, const models::Recommender& model, const PlanSpec& spec,
                  const std::vector<TablePlace>& places) {
  std::int64_t squares = 0;
  for (std::size_t t = 0; t < places.size(); ++t) {
    const TablePlace& place = places[t];
    if (place.replicated) continue;
    const int row_parts = place.row_parts();
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

std::int64_t TableLayout::columns_of(int rank) const {
  if (begin(rank) == end(rank)) return 0;
  const TableShard& last = shards[end(rank) - 1];
  return last.column + last.columns();
}

std::int64_t TableLayout::pooled_values(int rank, PooledType type) const {
  const std::int64_t scales = type == PooledType::int8 ? kScaleBytes * shards_of(rank) : 0;
  return samples * (columns_of(rank) + scales);
}

std::int64_t TableLayout::most_pooled_values(PooledType type) const {
  std::int64_t most = 0;
  for (int rank = 0; rank < ranks; ++rank) most = std::max(most, pooled_values(rank, type));
  return most;
}

double TableLayout::expected_lookups(int rank) const {
  double sum = 0;
  for (std::size_t i = begin(rank); i < end(rank); ++i) {
    const Table& table = tables[static_cast<std::size_t>(shards[i].table)];
    sum += static_cast<double>(samples * ranks * table.multi_hot) * static_cast<double>(shards[i].rows()) /
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

TableLayout::Lookups TableLayout::heaviest() const {
  Lookups most;
  double heaviest = -1;
  for (int rank = 0; rank < ranks; ++rank) {
    double values = 0;
    for (std::size_t i = begin(rank); i < end(rank); ++i) {
      const Table& table = tables[static_cast<std::size_t>(shards[i].table)];
      values += static_cast<double>(samples * ranks * table.multi_hot * shards[i].columns()) *
                static_cast<double>(shards[i].rows()) / static_cast<double>(table.rows);
    }
    const double count = expected_lookups(rank);
    if (count <= 0 || values <= heaviest) continue;
    heaviest = values;
    most.count = std::llround(count);
    most.width = std::max<std::int64_t>(1, std::llround(values / count));
    most.values = ranks * pooled_values(rank, PooledType::fp32);
  }
  return most;
}

TableLayout make_table_layout(const models::Recommender& model, const PlanSpec& spec) {
  TableLayout layout;
  layout.ranks = spec.ranks();
  layout.samples = spec.batch / spec.data;
  layout.embedding_dim = model.embedding_dim;
  layout.forward = spec.embedding.forward;
  layout.backward = spec.embedding.backward;
  const std::vector<TablePlace>& places = spec.embedding.placement.places();
  ENSURE(places.size() == model.tables.size(), "{} places of {} tables", places.size(), model.tables.size());
  for (std::size_t t = 0; t < model.tables.size(); ++t) {
    const models::Table& table = model.tables[t];
    layout.tables.push_back(
        {table.rows, table.multi_hot, table.pooling == models::Pooling::mean, layout.indices, places[t].replicated});
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
  layout.first.assign(static_cast<std::size_t>(layout.ranks) + 1, layout.shards.size());
  std::size_t at = 0;
  for (int rank = 0; rank < layout.ranks; ++rank) {
    layout.first[static_cast<std::size_t>(rank)] = at;
    std::int64_t elements = 0, rows = 0, columns = 0;
    for (; at < layout.shards.size() && layout.shards[at].rank == rank; ++at) {
      TableShard& shard = layout.shards[at];
      shard.offset = elements;
      shard.state = rows;
      shard.column = columns;
      elements += shard.device_rows() * shard.columns();
      rows += shard.device_rows();
      columns += shard.columns();
    }
    layout.most_elements = std::max(layout.most_elements, elements);
    layout.most_rows = std::max(layout.most_rows, rows);
    layout.most_columns = std::max(layout.most_columns, columns);
  }
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

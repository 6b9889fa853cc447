// Shards of tables as parts of logical tensors.
#include "exec/state/table_shards.h"

#include <algorithm>

#include "models/recommender.h"
#include "plan/spec/table_layout.h"

namespace orrery::exec {
namespace {

plan::ParameterRange range_of_table(const plan::TableLayout& layout, int table, std::int64_t columns) {
  const plan::TableLayout::Table& of = layout.tables[static_cast<std::size_t>(table)];
  plan::ParameterRange range;
  range.name = models::table_name(table);
  range.tensor.name = range.name;
  range.tensor.role = models::TensorRole::parameter;
  range.tensor.shape = {of.rows, columns};
  range.tensor.logical_shape = {of.rows, layout.embedding_dim};
  range.tensor.split_axis = columns < layout.embedding_dim ? 1 : -1;
  range.tensor.initial_stddev = models::table_stddev({of.rows, models::Pooling::sum, of.multi_hot});
  range.elements = range.tensor.elements();
  range.replicated = range.tensor.split_axis < 0;
  return range;
}

// The states of `weights`, which have one per value or one per row.
class TableStates {
 public:
  TableStates(const plan::Schedule& schedule)
      : layout_(*schedule.tables), by_value_(plan::traits_of(schedule.spec.states.optimizer).table_states.by_value) {}

  // Second states of values come after all first ones, of which there are `values`. `state`: where the states of its
  // rows begin, if there is one per row.
  void add(std::vector<HeldShard>& out, const HeldShard& weights, const plan::TableShard& shard, plan::BufferId buffer,
           std::int64_t values, std::int64_t state) const {
    HeldShard held = weights;
    held.range.tensor.initial_stddev = 0;
    held.buffer = buffer;
    held.state = State::first_moment;
    if (by_value_ == 0) {
      held.range = of_rows(shard.table);
      held.tensor_rank = 0;
      held.begin = shard.row_begin;
      held.end = shard.row_end;
      held.offset = state;
      held.writes = weights.writes && shard.first_columns;
      out.push_back(held);
      return;
    }
    out.push_back(held);
    if (by_value_ == 1) return;
    held.state = State::second_moment;
    held.offset += values;
    out.push_back(held);
  }

 private:
  [[nodiscard]] plan::ParameterRange of_rows(int table) const {
    plan::ParameterRange range = range_of_table(layout_, table, layout_.embedding_dim);
    range.tensor.shape = range.tensor.logical_shape = {layout_.tables[static_cast<std::size_t>(table)].rows};
    range.tensor.initial_stddev = 0;
    range.elements = range.tensor.elements();
    return range;
  }
  const plan::TableLayout& layout_;
  int by_value_;  // 2 at most
};

/// The rows of all replicated tables whose states the rank has; `alone`: no other rank has them.
struct Rows {
  std::int64_t begin = 0, end = 0;
  bool alone = false;
};
Rows rows_with_states(const plan::Schedule& schedule, const plan::RankClass& rank_class, int rank) {
  const plan::TableLayout& layout = *schedule.tables;
  for (const plan::Bucket& bucket : rank_class.buckets)
    if (bucket.embedding && bucket.received.exists()) {  // a parameter server's shard
      const std::int64_t rows = bucket.shard_elements() / layout.embedding_dim, index = schedule.spec.shard_index(rank);
      return {index * rows, (index + 1) * rows, true};
    }
  return {0, layout.replicated_rows, false};
}

}  // namespace

std::vector<HeldShard> held_shards(const plan::Schedule& schedule, int rank) {
  std::vector<HeldShard> out;
  if (!schedule.tables) return out;
  const plan::TableLayout& layout = *schedule.tables;
  const plan::RankClass& rank_class = schedule.class_of(rank);
  const TableStates states(schedule);
  for (std::size_t i = layout.begin(rank); i < layout.end(rank); ++i) {
    const plan::TableShard& shard = layout.shards[i];
    HeldShard held;
    held.range = range_of_table(layout, shard.table, shard.columns());
    held.tensor_rank = static_cast<int>(shard.column_begin / shard.columns());
    held.begin = shard.row_begin * shard.columns();
    held.end = shard.row_end * shard.columns();
    const plan::RankClass::FarTables& far = rank_class.far[static_cast<std::size_t>(shard.space)];
    held.buffer = shard.cached() ? far.values : rank_class.tables;
    held.offset = shard.cached() ? shard.far_offset : shard.offset;
    out.push_back(held);
    if (!rank_class.table_states) continue;
    if (shard.cached())
      states.add(out, held, shard, far.states, layout.far[static_cast<std::size_t>(shard.space)].elements,
                 shard.far_state);
    else
      states.add(out, held, shard, rank_class.table_states, layout.most_elements, shard.state);
  }
  if (!rank_class.replicated_states) return out;
  const Rows mine = rows_with_states(schedule, rank_class, rank);
  for (plan::TableShard shard : layout.replicated) {
    const std::int64_t first = shard.state, begin = std::max(first, mine.begin);
    const std::int64_t end = std::min(first + shard.rows(), mine.end);
    if (begin >= end) continue;
    shard.row_begin = begin - first;
    shard.row_end = end - first;
    HeldShard held;
    held.range = range_of_table(layout, shard.table, layout.embedding_dim);
    held.begin = shard.row_begin * layout.embedding_dim;
    held.end = shard.row_end * layout.embedding_dim;
    held.offset = (begin - mine.begin) * layout.embedding_dim;
    held.writes = mine.alone || shard.table % layout.ranks == rank;
    states.add(out, held, shard, rank_class.replicated_states, (mine.end - mine.begin) * layout.embedding_dim,
               begin - mine.begin);
  }
  return out;
}

std::vector<plan::ParameterRange> sharded_tables(const plan::Schedule& schedule) {
  std::vector<plan::ParameterRange> out;
  if (!schedule.tables) return out;
  for (std::size_t t = 0; t < schedule.tables->tables.size(); ++t)
    if (!schedule.tables->tables[t].replicated)
      out.push_back(range_of_table(*schedule.tables, static_cast<int>(t), schedule.tables->embedding_dim));
  return out;
}

}  // namespace orrery::exec

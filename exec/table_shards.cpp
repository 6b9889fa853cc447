// Shards of tables as parts of logical tensors.
#include "exec/table_shards.h"

#include "models/recommender.h"
#include "plan/table_layout.h"

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

plan::ParameterRange range_of_states(const plan::TableLayout& layout, int table) {
  plan::ParameterRange range = range_of_table(layout, table, layout.embedding_dim);
  range.tensor.shape = range.tensor.logical_shape = {layout.tables[static_cast<std::size_t>(table)].rows};
  range.tensor.initial_stddev = 0;
  range.elements = range.tensor.elements();
  return range;
}

}  // namespace

std::vector<HeldShard> held_shards(const plan::Schedule& schedule, int rank) {
  std::vector<HeldShard> out;
  if (!schedule.tables) return out;
  const plan::TableLayout& layout = *schedule.tables;
  const plan::RankClass& rank_class = schedule.class_of(rank);
  for (std::size_t i = layout.begin(rank); i < layout.end(rank); ++i) {
    const plan::TableShard& shard = layout.shards[i];
    HeldShard held;
    held.range = range_of_table(layout, shard.table, shard.columns());
    held.tensor_rank = static_cast<int>(shard.column_begin / shard.columns());
    held.begin = shard.row_begin * shard.columns();
    held.end = shard.row_end * shard.columns();
    held.buffer = rank_class.tables;
    held.offset = shard.offset;
    out.push_back(held);
    if (rank_class.table_states < 0) continue;
    out.push_back({State::first_moment, range_of_states(layout, shard.table), 0, shard.row_begin, shard.row_end,
                   rank_class.table_states, shard.state, shard.first_columns});
  }
  if (rank_class.replicated_states < 0) return out;
  for (const plan::TableShard& shard : layout.replicated)
    out.push_back({State::first_moment, range_of_states(layout, shard.table), 0, 0, shard.rows(),
                   rank_class.replicated_states, shard.state, shard.table % layout.ranks == rank});
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

// Embedding tables: indices sorted out by rank, sums of rows, and updates with duplicates merged in the order of the
// step's samples, block by block as all sums over samples are (sample_blocks.h), so that no placement changes a sum.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/ensure.h"
#include "exec/cpu/bags.h"
#include "exec/cpu/machine.h"
#include "exec/cpu/merged_rows.h"
#include "exec/cpu/sample_blocks.h"
#include "exec/data/row_blocks.h"
#include "exec/engine/lookups.h"
#include "exec/engine/row_cache.h"
#include "plan/spec/table_layout.h"

namespace orrery::exec {
namespace {

using plan::TableLayout;
using plan::TableShard;

std::int32_t* int_output(const Call& call, std::size_t index, std::int64_t elements) {
  const Operand& out = call.out[index];
  ENSURE(out.elements >= elements && out.dtype == models::DType::int32, "output {} of {} holds {} of {} values", index,
         models::name_of(call.op.kind), out.elements, elements);
  return reinterpret_cast<std::int32_t*>(out.data);
}

/// The lookups of a sample in a replicated table.
struct Bag {
  const std::int32_t* lookups;
  std::int64_t length;
};
Bag bag_of(const TableLayout& layout, const std::int32_t* indices, std::int64_t sample, const TableShard& of) {
  const TableLayout::Table& table = layout.tables[static_cast<std::size_t>(of.table)];
  const std::int32_t* const lookups = indices + (sample * layout.indices + table.first_index) * layout.words;
  return {lookups, bag_length(layout, of.table, lookups)};
}

/// Sums of bags over a part of a table: those of each block of the table's rows by themselves, added as a tree
/// (exec/data/row_blocks.h).
class BagSums {
 public:
  BagSums(const Machine& machine, const TableLayout& layout, const TableShard& shard)
      : sum_(layout.words == 2 ? machine.kernels.sum_weighted_rows : machine.kernels.sum_rows),
        width_(shard.columns()) {
    const std::int64_t rows = layout.tables[static_cast<std::size_t>(shard.table)].rows;
    for (std::int64_t block = 1; block < kBlocksOfRows; ++block) {
      const std::int64_t first = first_of_block(rows, block);
      divided_ = divided_ || (first > shard.row_begin && first < shard.row_end);
      first_[static_cast<std::size_t>(block) - 1] = static_cast<std::int32_t>(first - shard.row_begin);
    }
  }
  /// `rows`: of each lookup, which itself may name a place in a cache. `known`: lookups in all, whose rows are asked
  /// for ahead.
  void sum(const float* table, const std::int32_t* lookups, const std::int32_t* rows, std::int64_t count,
           std::int64_t known, float* total) const {
    sum_(table, lookups, {rows, divided_ ? first_.data() : nullptr}, count, known, width_, total);
  }

 private:
  decltype(Kernels::sum_rows) sum_;
  std::int64_t width_;
  bool divided_ = false;                                 ///< it has rows of several blocks
  std::array<std::int32_t, kBlocksOfRows - 1> first_{};  ///< of the part, the first row of each block but the first
};

std::array<plan::PooledSlots, plan::kPooledWays> slots_at_tables(const TableLayout& layout) {
  std::array<plan::PooledSlots, plan::kPooledWays> out;
  for (const plan::PooledWay way : plan::kEveryWay)
    out[static_cast<std::size_t>(way)] = layout.slots(plan::PooledEnd::tables, way, plan::PooledType::fp32);
  return out;
}

/// Where the columns of each sample of the step begin among pooled values at the tables, members outermost; by way.
using SamplePlaces = std::array<std::vector<std::int64_t>, plan::kPooledWays>;

void find_samples(const TableLayout& layout, int rank, SamplePlaces& places) {
  const auto slots = slots_at_tables(layout);
  for (const plan::PooledWay way : plan::kEveryWay) {
    const plan::PooledSlots& of = slots[static_cast<std::size_t>(way)];
    std::vector<std::int64_t>& of_way = places[static_cast<std::size_t>(way)];
    of_way.clear();
    if (!layout.uses(way)) continue;
    const std::int64_t columns = layout.columns_of(rank, way);
    for (int m = 0; m < layout.ranks; ++m)
      for (std::int64_t i = 0; i < layout.samples; ++i)
        of_way.push_back(of.offset + layout.slot_of(way, m) * of.slot + i * columns);
  }
}

// The counts that this rank and each other rank exchange, forward and backward; then those that its place exchanges
// with the same place of each other node.
void count_pooled(const Call& call, const TableLayout& layout) {
  constexpr std::size_t kCounts = 4, kFirst = 2;
  const int own = call.context.rank, nodes = layout.nodes();
  const auto put = [&](std::size_t which, plan::PooledWay way, int member, std::int32_t* counts) {
    const int other = member * (way == plan::PooledWay::node ? layout.ranks_per_node : 1);
    const bool backward = which >= 2, of_own = which == 0 || which == 3;
    counts[member] = static_cast<std::int32_t>(
        layout.pooled_values(of_own ? own : other, way, backward ? layout.backward : layout.forward));
  };
  for (std::size_t which = 0; which < kCounts; ++which) {
    std::int32_t* const counts = int_output(call, kFirst + which, layout.ranks);
    for (int rank = 0; rank < layout.ranks; ++rank) put(which, plan::PooledWay::exchange, rank, counts);
  }
  if (call.out.size() <= kFirst + kCounts) return;
  std::int32_t* const counts = int_output(call, kFirst + kCounts, static_cast<std::int64_t>(kCounts) * nodes);
  for (std::size_t which = 0; which < kCounts; ++which)
    for (int node = 0; node < nodes; ++node)
      put(which, plan::PooledWay::node, node, counts + static_cast<int>(which) * nodes);
}

/// Memory that is kept from step to step.
struct MergedRoom {
  Merged::Room merged;
  SamplePlaces places;
  std::vector<double> squares;
};
MergedRoom& room_of_thread() {
  thread_local MergedRoom room;
  return room;
}

/// The lookups of this rank's shards, as it received them, and the gradients of all members' samples.
class MergedShards {
 public:
  MergedShards(const Call& call, const TableLayout& layout, const Bags& bags, MergedRoom& room)
      : layout_(layout),
        bags_(bags),
        rank_(call.context.rank),
        shards_(layout.shards_of(rank_)),
        starts_(run_starts(bags, shards_)),
        places_(room.places),
        merged_(call.input(2, layout.pooled_elements(plan::PooledEnd::tables, plan::PooledType::fp32)),
                sample_blocks(layout.ranks * bags.samples, layout.ranks * bags.samples).samples, room.merged) {
    find_samples(layout, rank_, places_);
  }
  [[nodiscard]] const TableShard& shard(std::int64_t s) const {
    return layout_.shards[layout_.begin(rank_) + static_cast<std::size_t>(s)];
  }
  const Merged& gather(std::int64_t s) {
    const TableShard& of = shard(s);
    merged_.begin(bags_.words == 2);
    for (std::int64_t m = bags_.first; m < bags_.last; ++m) {
      const auto at = static_cast<std::size_t>(m * (shards_ + 1) + s);
      const std::int32_t* lookup = bags_.lookup(starts_[at]);
      check_rows(bags_, starts_[at], starts_[at + 1], of.rows());
      const std::int32_t* lengths = bags_.lengths_of(m, s);
      for (std::int64_t i = 0; i < bags_.samples; ++i)
        for (std::int32_t j = 0; j < lengths[i]; ++j, lookup += bags_.words)
          merged_.add(lookup, static_cast<std::int32_t>(m * bags_.samples + i));
    }
    const std::vector<std::int64_t>& places = places_[static_cast<std::size_t>(of.way)];
    merged_.end(of.rows(), [&](std::int32_t sample) { return places[static_cast<std::size_t>(sample)] + of.column; });
    return merged_;
  }

 private:
  const TableLayout& layout_;
  const Bags& bags_;
  int rank_;
  std::int64_t shards_;
  std::vector<std::int64_t> starts_;
  SamplePlaces& places_;
  Merged merged_;
};

/// How a row changes by its summed gradient. Adagrad is fbgemm's EXACT_ROWWISE_ADAGRAD: one state per row, from the
/// mean of the squares of its gradient. Adam is fbgemm's ADAM: two moments per value; the second ones lie `second`
/// after the first.
class RowUpdate {
 public:
  RowUpdate(const Machine& machine, const Call& call, const TableLayout& layout, float* values, float* states,
            std::int64_t second)
      : kernels_(machine.kernels),
        rule_(call.op.rule),
        width_(static_cast<double>(layout.embedding_dim)),
        values_(values),
        states_(states),
        second_(second) {
    sgd_.rate = static_cast<float>(call.context.learning_rate);
    epsilon_ = static_cast<float>(call.context.epsilon);
    if (rule_ != models::UpdateRule::adam) return;
    const auto time = static_cast<double>(call.context.step + 1);
    adam_ = adam_factors(call, {false, time});
    adam_.step = static_cast<float>(call.context.learning_rate / (1 - std::pow(call.context.beta1, time)));
  }
  /// The number of states for tables with this many values and rows.
  static std::int64_t states_of(models::UpdateRule rule, std::int64_t values, std::int64_t rows) {
    return rule == models::UpdateRule::adam ? 2 * values : rows;
  }
  [[nodiscard]] bool wants_squares() const { return rule_ == models::UpdateRule::adagrad; }
  /// `at`: the row's first column among the values; `row`: its state; `squares`: those of its whole gradient, if
  /// wanted.
  void apply(std::int64_t at, std::int64_t row, const float* gradient, std::int64_t columns, double squares) const {
    float* const values = values_ + at;
    if (rule_ == models::UpdateRule::adam)
      return kernels_.adamw(gradient, values, states_ + at, states_ + second_ + at, columns, adam_);
    SgdFactors step = sgd_;
    if (rule_ == models::UpdateRule::adagrad) {
      float& state = states_[row];
      state += static_cast<float>(squares / width_);
      step.rate = sgd_.rate / (std::sqrt(state) + epsilon_);
    }
    kernels_.sgd(gradient, values, nullptr, columns, step);
  }
  void ask_for(std::int64_t at, std::int64_t columns) const {
    Merged::ask_for(values_ + at, columns);
    if (rule_ != models::UpdateRule::adam) return;
    Merged::ask_for(states_ + at, columns);
    Merged::ask_for(states_ + second_ + at, columns);
  }

 private:
  const Kernels& kernels_;
  models::UpdateRule rule_;
  double width_;  ///< of whole rows
  float *values_, *states_;
  std::int64_t second_;
  SgdFactors sgd_;
  AdamWFactors adam_;
  float epsilon_ = 0;
};

}  // namespace

void run_bucketise_indices(Machine& machine, const Call& call) {
  static_cast<void>(machine);
  const TableLayout& layout = call.tables();
  const std::int64_t n = layout.samples;
  const std::int64_t words = layout.words, room = layout.most_indices * words;
  const std::int32_t* indices = call.ids(0, n * layout.indices * words);
  std::int32_t* lengths = int_output(call, 0, layout.ranks * layout.most_shards * n);
  std::int32_t* values = int_output(call, 1, layout.ranks * room);
  for (int rank = 0; rank < layout.ranks; ++rank) {
    std::int32_t* of_rank = lengths + rank * layout.most_shards * n;
    std::int32_t* const slot = values + rank * room;
    std::int32_t* next = slot;
    for (std::size_t s = layout.begin(rank); s < layout.end(rank); ++s, of_rank += n) {
      const TableShard& shard = layout.shards[s];
      const TableLayout::Table& table = layout.tables[static_cast<std::size_t>(shard.table)];
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int32_t* const bag = indices + (i * layout.indices + table.first_index) * words;
        const std::int32_t* const behind = bag + bag_length(layout, shard.table, bag) * words;
        std::int32_t* const first = next;
        for (const std::int32_t* lookup = bag; lookup < behind; lookup += words) {
          check_lookup(layout, shard.table, i, *lookup);
          if (*lookup < shard.row_begin || *lookup >= shard.row_end) continue;
          ENSURE(next - slot < room, "more indices than the {} that a slot has room for", layout.most_indices);
          *next++ = static_cast<std::int32_t>(*lookup - shard.row_begin);
          if (words == 2) *next++ = lookup[1];
        }
        of_rank[i] = static_cast<std::int32_t>((next - first) / words);
      }
    }
    std::fill(of_rank, lengths + (rank + 1) * layout.most_shards * n, 0);
  }
  count_pooled(call, layout);
}

void run_embedding_bag(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const Bags bags = bags_of(call, layout);
  const int rank = call.context.rank;
  const std::int64_t shards = layout.shards_of(rank), n = layout.samples;
  if (shards == 0) return;
  const float* tables = call.input(2, layout.most_elements);
  float* pooled = call.output(0, layout.pooled_elements(plan::PooledEnd::tables, plan::PooledType::fp32));
  const auto slots = slots_at_tables(layout);
  const std::vector<std::int64_t> starts = run_starts(bags, shards);
  const std::int32_t* row_of = call.in.size() > 3 ? call.ids(3, bags.members * bags.room * bags.words) : bags.values;
  machine.pool.each(bags.members * shards, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t m = task / shards, s = task % shards;
      const TableShard& shard = layout.shards[layout.begin(rank) + static_cast<std::size_t>(s)];
      const BagSums sums(machine, layout, shard);
      std::int64_t at = starts[static_cast<std::size_t>(m * (shards + 1) + s)];
      const std::int64_t last = starts[static_cast<std::size_t>(m * (shards + 1) + s + 1)];
      check_rows(bags, at, last, shard.device_rows());
      const std::int32_t* lengths = bags.lengths_of(m, s);
      const std::int64_t columns = layout.columns_of(rank, shard.way);
      const plan::PooledSlots& of = slots[static_cast<std::size_t>(shard.way)];
      float* sum = pooled + of.offset + layout.slot_of(shard.way, static_cast<int>(m)) * of.slot + shard.column;
      for (std::int64_t i = 0; i < n; ++i, sum += columns) {
        sums.sum(tables + shard.offset, bags.lookup(at), row_of + at * bags.words, lengths[i], last - at, sum);
        at += lengths[i];
      }
    }
  });
}

void run_embedding_bag_squares(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const Bags bags = bags_of(call, layout);
  const int rank = call.context.rank;
  const std::int64_t shards = layout.shards_of(rank);
  float* squares = call.output(0, layout.squares);
  std::memset(squares, 0, static_cast<std::size_t>(layout.squares) * sizeof(float));
  if (shards == 0) return;
  MergedShards of_rank(call, layout, bags, room_of_thread());
  for (std::int64_t s = 0; s < shards; ++s) {
    const TableShard& shard = of_rank.shard(s);
    if (shard.squares < 0) continue;
    const Merged& merged = of_rank.gather(s);
    const std::int64_t width = shard.columns();
    machine.pool.each(merged.rows(), rows_per_chunk(width), [&](std::int64_t begin, std::int64_t end, int thread) {
      float* room = machine.scratch.get(thread, Merged::room_for(width));
      for (std::int64_t g = begin; g < end; ++g)
        squares[shard.squares + g] = static_cast<float>(squares_of_columns(
            machine.kernels, merged.sum(g, machine.kernels, width, room), width, layout.embedding_dim));
    });
  }
}

void run_embedding_bag_update(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const Bags bags = bags_of(call, layout);
  const int rank = call.context.rank;
  const std::int64_t shards = layout.shards_of(rank);
  if (shards == 0) return;
  const float* whole_squares = call.in.size() > 3 ? call.optional_input(3, layout.squares) : nullptr;
  std::span<std::int32_t> books;
  if (call.in.size() > 4)
    books = {reinterpret_cast<std::int32_t*>(call.in[4].data), static_cast<std::size_t>(call.in[4].elements)};
  float* tables = call.output(0, layout.most_elements);
  float* states = call.out[1].data == nullptr
                      ? nullptr
                      : call.output(1, RowUpdate::states_of(call.op.rule, layout.most_elements, layout.most_rows));
  float* total = call.output(2, 1);
  const RowUpdate update(machine, call, layout, tables, states, layout.most_elements);
  MergedRoom& room_of_all = room_of_thread();
  MergedShards of_rank(call, layout, bags, room_of_all);
  std::vector<double>& by_row = room_of_all.squares;
  double all = static_cast<double>(total[0]);
  for (std::int64_t s = 0; s < shards; ++s) {
    const TableShard& shard = of_rank.shard(s);
    const Merged& merged = of_rank.gather(s);
    const std::int64_t width = shard.columns(), groups = merged.rows(), ahead = Merged::rows_ahead(width);
    by_row.resize(static_cast<std::size_t>(groups));
    const std::optional<RowCache> cache = shard.cached() ? std::optional<RowCache>({books, shard}) : std::nullopt;
    const auto place = [&](std::int64_t group) {
      const std::int64_t row = merged.row(group);
      return cache ? cache->place_of(static_cast<std::int32_t>(row)) : row;
    };
    machine.pool.each(groups, rows_per_chunk(width), [&](std::int64_t begin, std::int64_t end, int thread) {
      float* room = machine.scratch.get(thread, Merged::room_for(width));
      for (std::int64_t g = begin; g < end; ++g) {
        const std::int64_t row = place(g);
        if (g + ahead < groups) update.ask_for(shard.offset + place(g + ahead) * width, width);
        const float* gradient = merged.sum(g, machine.kernels, width, room);
        const double mine = machine.kernels.sum_of_squares(gradient, width);
        by_row[static_cast<std::size_t>(g)] = mine;
        const double whole = !update.wants_squares() ? 0
                             : shard.squares >= 0 && whole_squares != nullptr
                                 ? static_cast<double>(whole_squares[shard.squares + g])
                                 : squares_of_columns(machine.kernels, gradient, width, layout.embedding_dim);
        update.apply(shard.offset + row * width, shard.state + row, gradient, width, whole);
      }
    });
    for (const double one : by_row) all += one;
  }
  total[0] = static_cast<float>(all);
}

void run_embedding_lookup(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const std::int64_t n = layout.samples, columns = layout.replicated_columns;
  const std::int32_t* indices = call.ids(0, n * layout.indices * layout.words);
  const float* tables = call.input(1, layout.replicated_elements);
  float* out = call.output(0, n * columns);
  for (std::int64_t i = 0; i < n; ++i)
    for (const TableShard& shard : layout.replicated) {
      const Bag bag = bag_of(layout, indices, i, shard);
      for (std::int64_t j = 0; j < bag.length; ++j) check_lookup(layout, shard.table, i, bag.lookups[j * layout.words]);
    }
  std::vector<BagSums> sums;
  for (const TableShard& shard : layout.replicated) sums.emplace_back(machine, layout, shard);
  machine.pool.each(n, rows_per_chunk(columns), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::size_t t = 0; t < sums.size(); ++t) {
        const TableShard& shard = layout.replicated[t];
        const Bag bag = bag_of(layout, indices, i, shard);
        sums[t].sum(tables + shard.offset, bag.lookups, bag.lookups, bag.length, bag.length,
                    out + i * columns + shard.column);
      }
  });
}

namespace {

// Counts per row. A float counts exactly up to 2^24, and beyond that stays above 0.
void count_lookups(const TableLayout& layout, const std::int32_t* indices, float* counts) {
  for (std::int64_t i = 0; i < layout.samples; ++i)
    for (const TableShard& shard : layout.replicated) {
      const Bag bag = bag_of(layout, indices, i, shard);
      for (std::int64_t j = 0; j < bag.length; ++j) ++counts[shard.state + bag.lookups[j * layout.words]];
    }
}

}  // namespace

void run_embedding_lookup_grad(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const std::int64_t n = layout.samples, d = layout.embedding_dim, columns = layout.replicated_columns;
  const std::int32_t* indices = call.ids(0, n * layout.indices * layout.words);
  const float* dy = call.input(1, n * columns);
  const std::int64_t elements = call.out[0].elements;  // including padding, because ranks sum it
  float* gradients = call.output(0, elements);
  std::memset(gradients, 0, static_cast<std::size_t>(elements) * sizeof(float));
  if (call.out.size() > 1) {
    float* counts = call.output(1, layout.replicated_rows);
    std::fill_n(counts, call.out[1].elements, 0.0F);
    count_lookups(layout, indices, counts);
  }
  Merged merged(dy, sample_blocks(n * layout.ranks, n).samples, room_of_thread().merged);
  for (const TableShard& shard : layout.replicated) {
    merged.begin(layout.words == 2);
    for (std::int64_t i = 0; i < n; ++i) {
      const Bag bag = bag_of(layout, indices, i, shard);
      for (std::int64_t j = 0; j < bag.length; ++j)
        merged.add(bag.lookups + j * layout.words, static_cast<std::int32_t>(i));
    }
    merged.end(shard.rows(), [&](std::int32_t sample) { return sample * columns + shard.column; });
    machine.pool.each(merged.rows(), rows_per_chunk(d), [&](std::int64_t begin, std::int64_t end, int thread) {
      float* room = machine.scratch.get(thread, Merged::room_for(d));
      for (std::int64_t g = begin; g < end; ++g)
        std::memcpy(gradients + shard.offset + merged.row(g) * d, merged.sum(g, machine.kernels, d, room),
                    static_cast<std::size_t>(d) * sizeof(float));
    });
  }
}

// A row that nobody has looked up has a gradient of zeros, which changes neither it nor its states, except with Adam.
// Updates all rows of the replicated tables, or a server's shard of them.
void run_table_update(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const std::int64_t d = layout.embedding_dim, rows = call.op.m / d;
  const bool adam = call.op.rule == models::UpdateRule::adam;
  const float* gradients = call.input(0, rows * d);
  const float* lookups = adam ? call.input(1, rows) : nullptr;
  float* states = call.out.size() > 1 && call.out[1].data != nullptr
                      ? call.output(1, RowUpdate::states_of(call.op.rule, rows * d, rows))
                      : nullptr;
  const RowUpdate update(machine, call, layout, call.output(0, rows * d), states, rows * d);
  machine.pool.each(rows, rows_per_chunk(d), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* gradient = gradients + row * d;
      if (adam ? lookups[row] == 0 : machine.kernels.sum_of_squares(gradient, d) == 0) continue;
      const double squares = update.wants_squares() ? squares_of_columns(machine.kernels, gradient, d, d) : 0;
      update.apply(row * d, row, gradient, d, squares);
    }
  });
}

}  // namespace orrery::exec

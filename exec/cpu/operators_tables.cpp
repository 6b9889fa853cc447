// Embedding tables: indices sorted out by rank, sums of rows, and updates with duplicates merged in the order of the
// step's samples, so that no placement changes a sum.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/ensure.h"
#include "exec/cpu/machine.h"
#include "exec/failure.h"
#include "plan/table_layout.h"

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

void check_index(const TableLayout& layout, const TableShard& shard, std::int64_t sample, std::int64_t index) {
  const TableLayout::Table& table = layout.tables[static_cast<std::size_t>(shard.table)];
  if (index >= 0 && index < table.rows) return;
  throw Failure(fmt::format("sample {} of the batch looks up row {} of table {}, which has {}", sample, index,
                            shard.table, table.rows),
                FailureKind::input);
}

/// Where the bag of (member, sample) begins in a shard's run of indices, of all members.
struct Bags {
  const std::int32_t* lengths = nullptr;
  const std::int32_t* values = nullptr;
  std::int64_t members = 0, samples = 0, most_shards = 0, room = 0;

  [[nodiscard]] const std::int32_t* lengths_of(std::int64_t member, std::int64_t shard) const {
    return lengths + (member * most_shards + shard) * samples;
  }
};

Bags bags_of(const Call& call, const TableLayout& layout) {
  Bags bags;
  bags.members = layout.ranks;
  bags.samples = layout.samples;
  bags.most_shards = layout.most_shards;
  bags.room = layout.most_indices;
  bags.lengths = call.ids(0, bags.members * bags.most_shards * bags.samples);
  bags.values = call.ids(1, bags.members * bags.room);
  return bags;
}

/// First index of each (member, shard) run, members outermost.
std::vector<std::int64_t> run_starts(const Bags& bags, std::int64_t shards) {
  std::vector<std::int64_t> starts(static_cast<std::size_t>(bags.members * (shards + 1)));
  for (std::int64_t m = 0; m < bags.members; ++m) {
    std::int64_t at = 0;
    for (std::int64_t s = 0; s < shards; ++s) {
      starts[static_cast<std::size_t>(m * (shards + 1) + s)] = m * bags.room + at;
      const std::int32_t* lengths = bags.lengths_of(m, s);
      for (std::int64_t i = 0; i < bags.samples; ++i) at += lengths[i];
    }
    starts[static_cast<std::size_t>(m * (shards + 1) + shards)] = m * bags.room + at;
    if (at > bags.room)
      throw Failure(fmt::format("{} indices from rank {}, of which a slot has room for {}", at, m, bags.room));
  }
  return starts;
}

constexpr std::int64_t kAhead = 8;  // rows that are asked for before they are added

void add_row(const float* row, float* sum, std::int64_t width) {
  for (std::int64_t j = 0; j < width; ++j) sum[j] += row[j];
}

/// One lookup of a shard: its row, and which sample of the step asked.
struct Lookup {
  std::int32_t row = 0;
  std::int32_t sample = 0;  ///< member * samples + sample
};

/// Lookups of a shard by row, those of a row in the order of their samples: a radix sort, which keeps what is equal in
/// order.
class Merged {
 public:
  void gather(const Bags& bags, const std::vector<std::int64_t>& starts, std::int64_t shards, std::int64_t shard,
              const TableShard& of) {
    lookups_.clear();
    for (std::int64_t m = 0; m < bags.members; ++m) {
      const std::int32_t* value = bags.values + starts[static_cast<std::size_t>(m * (shards + 1) + shard)];
      const std::int32_t* lengths = bags.lengths_of(m, shard);
      for (std::int64_t i = 0; i < bags.samples; ++i)
        for (std::int32_t j = 0; j < lengths[i]; ++j, ++value) {
          ENSURE(*value >= 0 && *value < of.rows(), "row {} of a part with {}", *value, of.rows());
          lookups_.push_back({*value, static_cast<std::int32_t>(m * bags.samples + i)});
        }
    }
    sort(of.rows());
    groups_.clear();
    for (std::size_t i = 0; i < lookups_.size(); ++i)
      if (i == 0 || lookups_[i].row != lookups_[i - 1].row) groups_.push_back(i);
    groups_.push_back(lookups_.size());
  }
  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(groups_.size()) - 1; }
  [[nodiscard]] std::int64_t row(std::int64_t group) const {
    return lookups_[groups_[static_cast<std::size_t>(group)]].row;
  }
  /// The sum of the gradients of a row; `sum` has room for the shard's columns.
  template <class GradientOf>
  void sum(std::int64_t group, const GradientOf& gradient_of, std::int64_t width, float* out) const {
    std::size_t at = groups_[static_cast<std::size_t>(group)];
    const std::size_t end = groups_[static_cast<std::size_t>(group) + 1];
    std::memcpy(out, gradient_of(lookups_[at].sample), static_cast<std::size_t>(width) * sizeof(float));
    for (++at; at < end; ++at) add_row(gradient_of(lookups_[at].sample), out, width);
  }

 private:
  void sort(std::int64_t rows) {
    constexpr int kBits = 11;
    constexpr std::size_t kDigits = std::size_t{1} << kBits;
    other_.resize(lookups_.size());
    for (int shift = 0; (std::int64_t{1} << shift) < rows; shift += kBits) {
      std::size_t counts[kDigits + 1] = {};
      const auto digit = [&](const Lookup& l) {
        return (static_cast<std::size_t>(l.row) >> static_cast<unsigned>(shift)) & (kDigits - 1);
      };
      for (const Lookup& l : lookups_) ++counts[digit(l) + 1];
      for (std::size_t d = 0; d < kDigits; ++d) counts[d + 1] += counts[d];
      for (const Lookup& l : lookups_) other_[counts[digit(l)]++] = l;
      lookups_.swap(other_);
    }
  }
  std::vector<Lookup> lookups_, other_;
  std::vector<std::size_t> groups_;
};

/// Gradients as received: slot of a member, sample, this rank's columns.
struct PooledRows {
  const float* data = nullptr;
  std::int64_t samples = 0, columns = 0, slot = 0;
  [[nodiscard]] const float* at(std::int32_t sample, std::int64_t column) const {
    return data + (sample / samples) * slot + (sample % samples) * columns + column;
  }
};

PooledRows gradients_of(const Call& call, const TableLayout& layout) {
  const std::int64_t slot = layout.samples * layout.most_columns;
  return {call.input(2, layout.ranks * slot), layout.samples, layout.columns_of(call.context.rank), slot};
}

double squares_of(const float* values, std::int64_t count) {
  double sum = 0;
  for (std::int64_t j = 0; j < count; ++j) sum += static_cast<double>(values[j]) * static_cast<double>(values[j]);
  return sum;
}

/// fbgemm's EXACT_ROWWISE_ADAGRAD: one state a row, the mean of squares of its gradient.
struct RowRule {
  models::UpdateRule rule{};
  float rate = 0, epsilon = 0;
  double width = 1;  ///< of whole rows

  void apply(float* row, const float* gradient, std::int64_t columns, float* state, double squares) const {
    float step = rate;
    if (rule == models::UpdateRule::adagrad) {
      *state += static_cast<float>(squares / width);
      step = rate / (std::sqrt(*state) + epsilon);
    }
    for (std::int64_t j = 0; j < columns; ++j) row[j] -= step * gradient[j];
  }
};

RowRule rule_of(const Call& call, const TableLayout& layout) {
  return {call.op.rule, static_cast<float>(call.context.learning_rate), static_cast<float>(call.context.epsilon),
          static_cast<double>(layout.embedding_dim)};
}

}  // namespace

void run_bucketise_indices(Machine& machine, const Call& call) {
  static_cast<void>(machine);
  const TableLayout& layout = call.tables();
  const std::int64_t n = layout.samples;
  const std::int32_t* indices = call.ids(0, n * layout.indices);
  std::int32_t* lengths = int_output(call, 0, layout.ranks * layout.most_shards * n);
  std::int32_t* values = int_output(call, 1, layout.ranks * layout.most_indices);
  for (int rank = 0; rank < layout.ranks; ++rank) {
    std::int32_t* of_rank = lengths + rank * layout.most_shards * n;
    std::int32_t* const slot = values + rank * layout.most_indices;
    std::int32_t* next = slot;
    for (std::size_t s = layout.begin(rank); s < layout.end(rank); ++s, of_rank += n) {
      const TableShard& shard = layout.shards[s];
      const TableLayout::Table& table = layout.tables[static_cast<std::size_t>(shard.table)];
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int32_t* bag = indices + i * layout.indices + table.first_index;
        std::int32_t* const first = next;
        for (std::int64_t j = 0; j < table.multi_hot; ++j) {
          check_index(layout, shard, i, bag[j]);
          if (bag[j] < shard.row_begin || bag[j] >= shard.row_end) continue;
          ENSURE(next - slot < layout.most_indices, "more indices than the {} that a slot has room for",
                 layout.most_indices);
          *next++ = static_cast<std::int32_t>(bag[j] - shard.row_begin);
        }
        of_rank[i] = static_cast<std::int32_t>(next - first);
      }
    }
    std::fill(of_rank, lengths + (rank + 1) * layout.most_shards * n, 0);
  }
  const int own = call.context.rank;
  for (int rank = 0; rank < layout.ranks; ++rank) {
    const auto put = [&](std::size_t output, int whose, plan::PooledType type) {
      int_output(call, output, layout.ranks)[rank] = static_cast<std::int32_t>(layout.pooled_values(whose, type));
    };
    put(2, own, layout.forward);
    put(3, rank, layout.forward);
    put(4, rank, layout.backward);
    put(5, own, layout.backward);
  }
}

void run_embedding_bag(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const Bags bags = bags_of(call, layout);
  const int rank = call.context.rank;
  const std::int64_t shards = layout.shards_of(rank), columns = layout.columns_of(rank), n = layout.samples;
  if (shards == 0) return;
  const float* tables = call.input(2, layout.most_elements);
  const std::int64_t slot = n * layout.most_columns;
  float* pooled = call.output(0, layout.ranks * slot);
  const std::vector<std::int64_t> starts = run_starts(bags, shards);
  machine.pool.each(bags.members * shards, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t m = task / shards, s = task % shards;
      const TableShard& shard = layout.shards[layout.begin(rank) + static_cast<std::size_t>(s)];
      const std::int64_t width = shard.columns();
      const float* rows = tables + shard.offset;
      const std::int32_t* value = bags.values + starts[static_cast<std::size_t>(m * (shards + 1) + s)];
      const std::int32_t* const last = bags.values + starts[static_cast<std::size_t>(m * (shards + 1) + s + 1)];
      const std::int32_t* lengths = bags.lengths_of(m, s);
      for (std::int64_t i = 0; i < n; ++i) {
        float* sum = pooled + m * slot + i * columns + shard.column;
        if (lengths[i] == 0) std::memset(sum, 0, static_cast<std::size_t>(width) * sizeof(float));
        for (std::int32_t j = 0; j < lengths[i]; ++j, ++value) {
          if (value + kAhead < last) {
            const float* ahead = rows + value[kAhead] * width;
            for (std::int64_t line = 0; line < width; line += 16) __builtin_prefetch(ahead + line);
          }
          ENSURE(*value >= 0 && *value < shard.rows(), "row {} of a part with {}", *value, shard.rows());
          const float* row = rows + *value * width;
          if (j == 0)
            std::memcpy(sum, row, static_cast<std::size_t>(width) * sizeof(float));
          else
            add_row(row, sum, width);
        }
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
  const PooledRows gradients = gradients_of(call, layout);
  const std::vector<std::int64_t> starts = run_starts(bags, shards);
  Merged merged;
  for (std::int64_t s = 0; s < shards; ++s) {
    const TableShard& shard = layout.shards[layout.begin(rank) + static_cast<std::size_t>(s)];
    if (shard.squares < 0) continue;
    merged.gather(bags, starts, shards, s, shard);
    const std::int64_t width = shard.columns();
    machine.pool.each(merged.rows(), rows_per_chunk(width), [&](std::int64_t begin, std::int64_t end, int thread) {
      float* sum = machine.scratch.get(thread, width);
      for (std::int64_t g = begin; g < end; ++g) {
        merged.sum(
            g, [&](std::int32_t sample) { return gradients.at(sample, shard.column); }, width, sum);
        squares[shard.squares + g] = static_cast<float>(squares_of(sum, width));
      }
    });
  }
}

void run_embedding_bag_update(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const Bags bags = bags_of(call, layout);
  const int rank = call.context.rank;
  const std::int64_t shards = layout.shards_of(rank);
  if (shards == 0) return;
  const PooledRows gradients = gradients_of(call, layout);
  const float* whole_squares = call.in.size() > 3 ? call.input(3, layout.squares) : nullptr;
  float* tables = call.output(0, layout.most_elements);
  float* states = call.out[1].data != nullptr ? call.output(1, layout.most_rows) : nullptr;
  float* total = call.output(2, 1);
  const RowRule rule = rule_of(call, layout);
  const std::vector<std::int64_t> starts = run_starts(bags, shards);
  Merged merged;
  std::vector<double> by_row;
  double all = static_cast<double>(total[0]);
  for (std::int64_t s = 0; s < shards; ++s) {
    const TableShard& shard = layout.shards[layout.begin(rank) + static_cast<std::size_t>(s)];
    merged.gather(bags, starts, shards, s, shard);
    const std::int64_t width = shard.columns();
    by_row.assign(static_cast<std::size_t>(merged.rows()), 0);
    machine.pool.each(merged.rows(), rows_per_chunk(width), [&](std::int64_t begin, std::int64_t end, int thread) {
      float* sum = machine.scratch.get(thread, width);
      for (std::int64_t g = begin; g < end; ++g) {
        const std::int64_t row = merged.row(g);
        float* const values = tables + shard.offset + row * width;
        __builtin_prefetch(values, 1);
        merged.sum(
            g, [&](std::int32_t sample) { return gradients.at(sample, shard.column); }, width, sum);
        const double mine = squares_of(sum, width);
        by_row[static_cast<std::size_t>(g)] = mine;
        const double whole = shard.squares >= 0 && whole_squares != nullptr
                                 ? static_cast<double>(whole_squares[shard.squares + g])
                                 : mine;
        rule.apply(values, sum, width, states != nullptr ? states + shard.state + row : nullptr, whole);
      }
    });
    for (const double one : by_row) all += one;
  }
  total[0] = static_cast<float>(all);
}

void run_embedding_lookup(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const std::int64_t n = layout.samples, d = layout.embedding_dim, columns = layout.replicated_columns;
  const std::int32_t* indices = call.ids(0, n * layout.indices);
  const float* tables = call.input(1, layout.replicated_elements);
  float* out = call.output(0, n * columns);
  for (std::int64_t i = 0; i < n; ++i)
    for (const TableShard& shard : layout.replicated) {
      const TableLayout::Table& table = layout.tables[static_cast<std::size_t>(shard.table)];
      for (std::int64_t j = 0; j < table.multi_hot; ++j)
        check_index(layout, shard, i, indices[i * layout.indices + table.first_index + j]);
    }
  machine.pool.each(n, rows_per_chunk(columns), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i)
      for (const TableShard& shard : layout.replicated) {
        const TableLayout::Table& table = layout.tables[static_cast<std::size_t>(shard.table)];
        const std::int32_t* bag = indices + i * layout.indices + table.first_index;
        float* sum = out + i * columns + shard.column;
        std::memset(sum, 0, static_cast<std::size_t>(d) * sizeof(float));
        for (std::int64_t j = 0; j < table.multi_hot; ++j) add_row(tables + shard.offset + bag[j] * d, sum, d);
      }
  });
}

// Threads share columns, not rows: each adds all samples in order.
void run_embedding_lookup_grad(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const std::int64_t n = layout.samples, d = layout.embedding_dim, columns = layout.replicated_columns;
  const std::int32_t* indices = call.ids(0, n * layout.indices);
  const float* dy = call.input(1, n * columns);
  const std::int64_t elements = call.out[0].elements;  // padding too: it is summed over ranks
  float* gradients = call.output(0, elements);
  std::memset(gradients, 0, static_cast<std::size_t>(elements) * sizeof(float));
  machine.pool.each(d, columns_per_chunk(n), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = 0; i < n; ++i)
      for (const TableShard& shard : layout.replicated) {
        const TableLayout::Table& table = layout.tables[static_cast<std::size_t>(shard.table)];
        const std::int32_t* bag = indices + i * layout.indices + table.first_index;
        for (std::int64_t j = 0; j < table.multi_hot; ++j)
          add_row(dy + i * columns + shard.column + begin, gradients + shard.offset + bag[j] * d + begin, end - begin);
      }
  });
}

// Rows that nobody has looked up have a gradient of zeros, which moves neither them nor their states.
void run_table_update(Machine& machine, const Call& call) {
  const TableLayout& layout = call.tables();
  const std::int64_t d = layout.embedding_dim, rows = layout.replicated_rows;
  const float* gradients = call.input(0, rows * d);
  float* tables = call.output(0, rows * d);
  float* states = call.out.size() > 1 && call.out[1].data != nullptr ? call.output(1, rows) : nullptr;
  const RowRule rule = rule_of(call, layout);
  machine.pool.each(rows, rows_per_chunk(d), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* gradient = gradients + row * d;
      const double squares = squares_of(gradient, d);
      if (squares == 0) continue;
      rule.apply(tables + row * d, gradient, d, states != nullptr ? states + row : nullptr, squares);
    }
  });
}

}  // namespace orrery::exec

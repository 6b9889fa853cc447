// Sums rows of embedding tables: a bag's rows in the forward pass, and in backward the gradients of a row that several
// samples looked up. Rows are anywhere in memory; prefetching them hides its latency.
#include <bit>

#include "exec/cpu/simd/functions.h"

namespace orrery::exec::simd::ORRERY_SIMD_LEVEL {

namespace {

constexpr Count kBytesAhead = 8192;  // more hides nothing further, less leaves a core waiting
constexpr Count kLine = 64;

ORRERY_INLINE Count rows_ahead(Count width) {
  const Count rows = kBytesAhead / (width * 4 + 1) + 1;
  return rows < 2 ? 2 : rows;
}

ORRERY_INLINE void ask_for(const float* row, Count width) {
  for (Count i = 0; i < width; i += kLine / 4) __builtin_prefetch(row + i);
}

// Rows as they are, or each times its weight.
struct Plain {
  template <class V>
  V operator()(V value, Count) const {
    return value;
  }
};
template <class WeightAt>
struct Weighted {
  WeightAt weight_at;
  template <class V>
  V operator()(V value, Count i) const {
    return value * weight_at(i);
  }
};

// Where the rows of each of four blocks end among a bag's.
struct Ends {
  Count at[4];
};
ORRERY_INLINE Ends one_block(Count count) {
  return {{count, count, count, count}};
}
template <int Words>
ORRERY_INLINE Ends ends_of(const RowBlocks& blocks, Count count) {
  if (blocks.first == nullptr || count < 2) return one_block(count);
  Ends ends = {{0, 0, 0, count}};
  for (int block = 0; block < 3; ++block) {
    const std::int32_t first = blocks.first[block];
    std::int32_t below = 0;
    for (Count i = 0; i < count; ++i) below += blocks.rows[i * Words] < first ? 1 : 0;
    ends.at[block] = below;
  }
  return ends;
}

template <class V>
ORRERY_INLINE V load_as(const float* p) {
  if constexpr (sizeof(V) == sizeof(float))
    return *p;
  else
    return load(p);
}

// N vectors (or values) of the rows at `column`, kept in registers over all rows of a block.
template <int N, class V, class RowAt, class Take, class Ask>
ORRERY_INLINE void sum_run(RowAt row_at, Take take, Count from, Count to, Count column, V (&sums)[N], Ask ask) {
  constexpr Count kLanes = sizeof(V) / sizeof(float);
  for (int v = 0; v < N; ++v) sums[v] = take(load_as<V>(row_at(from) + column + v * kLanes), from);
  ask(from);
  for (Count i = from + 1; i < to; ++i) {
    ask(i);
    const float* row = row_at(i) + column;
    for (int v = 0; v < N; ++v) sums[v] += take(load_as<V>(row + v * kLanes), i);
  }
}

template <int N, class V, class RowAt, class Take, class Ask>
ORRERY_INLINE void sum_columns(RowAt row_at, Take take, const Ends& ends, Count column, float* total, Ask ask) {
  V all[N] = {};
  bool more = false;
  for (int pair = 0; pair < 2; ++pair) {
    const Count from = pair == 0 ? 0 : ends.at[1], middle = ends.at[2 * pair], to = ends.at[2 * pair + 1];
    if (from == to) continue;
    V sums[N];
    const bool both = from != middle && middle != to;
    sum_run(row_at, take, from, both ? middle : to, column, sums, ask);
    if (both) {
      V others[N];
      sum_run(row_at, take, middle, to, column, others, ask);
      for (int v = 0; v < N; ++v) sums[v] += others[v];
    }
    for (int v = 0; v < N; ++v) all[v] = more ? all[v] + sums[v] : sums[v];
    more = true;
  }
  for (int v = 0; v < N; ++v) {
    if constexpr (sizeof(V) == sizeof(float))
      total[column + v] = all[v];
    else
      store(total + column + v * W, all[v]);
  }
}

template <class RowAt, class Take, class Ask>
ORRERY_INLINE void sum_columns_of(RowAt row_at, Take take, const Ends& ends, Count column, Count width, float* total,
                                  Ask ask) {
  constexpr int kMost = vector_bytes >= 64 ? 16 : 8;  // half of the registers, or a few more
  const Count left = width - column;
  if (left >= kMost * W) return sum_columns<kMost, F>(row_at, take, ends, column, total, ask);
  if (left >= 4 * W) return sum_columns<4, F>(row_at, take, ends, column, total, ask);
  if (left >= W) return sum_columns<1, F>(row_at, take, ends, column, total, ask);
  sum_columns<1, float>(row_at, take, ends, column, total, ask);
}

ORRERY_INLINE Count columns_at_once(Count left) {
  constexpr int kMost = vector_bytes >= 64 ? 16 : 8;
  return left >= kMost * W ? kMost * W : left >= 4 * W ? 4 * W : left >= W ? W : 1;
}

template <class RowAt, class Take>
ORRERY_INLINE void sum_all(RowAt row_at, Take take, const Ends& ends, Count known, Count width, float* total) {
  if (ends.at[3] == 0) {
    for (Count j = 0; j < width; ++j) total[j] = 0;
    return;
  }
  // The first pass over the rows prefetches them; later passes find them in the cache.
  const Count ahead = rows_ahead(width);
  const auto ask = [=](Count i) {
    if (i + ahead < known) ask_for(row_at(i + ahead), width);
  };
  sum_columns_of(row_at, take, ends, 0, width, total, ask);
  for (Count column = columns_at_once(width); column < width; column += columns_at_once(width - column))
    sum_columns_of(row_at, take, ends, column, width, total, [](Count) {});
}

}  // namespace

void sum_rows(const float* rows, const std::int32_t* index, const RowBlocks& blocks, Count count, Count known,
              Count width, float* total) {
  sum_all([=](Count i) { return rows + index[i] * width; }, Plain(), ends_of<1>(blocks, count), known, width, total);
}

void sum_weighted_rows(const float* rows, const std::int32_t* lookups, const RowBlocks& blocks, Count count,
                       Count known, Count width, float* total) {
  const auto weight_at = [=](Count i) { return std::bit_cast<float>(lookups[2 * i + 1]); };
  sum_all([=](Count i) { return rows + lookups[2 * i] * width; }, Weighted<decltype(weight_at)>{weight_at},
          ends_of<2>(blocks, count), known, width, total);
}

void sum_parts(const float* base, const std::int64_t* starts, Count count, Count known, Count width, float* total) {
  sum_all([=](Count i) { return base + starts[i]; }, Plain(), one_block(count), known, width, total);
}

void sum_weighted_parts(const float* base, const std::int64_t* starts, const float* weights, Count count, Count known,
                        Count width, float* total) {
  const auto weight_at = [=](Count i) { return weights[i]; };
  sum_all([=](Count i) { return base + starts[i]; }, Weighted<decltype(weight_at)>{weight_at}, one_block(count), known,
          width, total);
}

}  // namespace orrery::exec::simd::ORRERY_SIMD_LEVEL

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

// N vectors of the rows at `column`, kept in registers over all rows.
template <int N, class RowAt, class Take, class Ask>
ORRERY_INLINE void sum_columns(RowAt row_at, Take take, Count count, Count column, float* total, Ask ask) {
  F sums[N];
  for (int v = 0; v < N; ++v) sums[v] = take(load(row_at(0) + column + v * W), 0);
  ask(0);
  for (Count i = 1; i < count; ++i) {
    ask(i);
    const float* row = row_at(i) + column;
    for (int v = 0; v < N; ++v) sums[v] += take(load(row + v * W), i);
  }
  for (int v = 0; v < N; ++v) store(total + column + v * W, sums[v]);
}

template <class RowAt, class Take, class Ask>
ORRERY_INLINE void sum_columns_of(RowAt row_at, Take take, Count count, Count column, Count width, float* total,
                                  Ask ask) {
  constexpr int kMost = vector_bytes >= 64 ? 16 : 8;  // half of the registers, or a few more
  const Count left = width - column;
  if (left >= kMost * W) return sum_columns<kMost>(row_at, take, count, column, total, ask);
  if (left >= 4 * W) return sum_columns<4>(row_at, take, count, column, total, ask);
  if (left >= W) return sum_columns<1>(row_at, take, count, column, total, ask);
  float one = take(row_at(0)[column], 0);
  ask(0);
  for (Count i = 1; i < count; ++i) {
    ask(i);
    one += take(row_at(i)[column], i);
  }
  total[column] = one;
}

ORRERY_INLINE Count columns_at_once(Count left) {
  constexpr int kMost = vector_bytes >= 64 ? 16 : 8;
  return left >= kMost * W ? kMost * W : left >= 4 * W ? 4 * W : left >= W ? W : 1;
}

template <class RowAt, class Take>
ORRERY_INLINE void sum_all(RowAt row_at, Take take, Count count, Count known, Count width, float* total) {
  if (count == 0) {
    for (Count j = 0; j < width; ++j) total[j] = 0;
    return;
  }
  // The first pass over the rows prefetches them; later passes find them in the cache.
  const Count ahead = rows_ahead(width);
  const auto ask = [=](Count i) {
    if (i + ahead < known) ask_for(row_at(i + ahead), width);
  };
  sum_columns_of(row_at, take, count, 0, width, total, ask);
  for (Count column = columns_at_once(width); column < width; column += columns_at_once(width - column))
    sum_columns_of(row_at, take, count, column, width, total, [](Count) {});
}

}  // namespace

void sum_rows(const float* rows, const std::int32_t* index, Count count, Count known, Count width, float* total) {
  sum_all([=](Count i) { return rows + index[i] * width; }, Plain(), count, known, width, total);
}

void sum_weighted_rows(const float* rows, const std::int32_t* lookups, Count count, Count known, Count width,
                       float* total) {
  const auto weight_at = [=](Count i) { return std::bit_cast<float>(lookups[2 * i + 1]); };
  sum_all([=](Count i) { return rows + lookups[2 * i] * width; }, Weighted<decltype(weight_at)>{weight_at}, count,
          known, width, total);
}

void sum_parts(const float* base, const std::int64_t* starts, Count count, Count known, Count width, float* total) {
  sum_all([=](Count i) { return base + starts[i]; }, Plain(), count, known, width, total);
}

void sum_weighted_parts(const float* base, const std::int64_t* starts, const float* weights, Count count, Count known,
                        Count width, float* total) {
  const auto weight_at = [=](Count i) { return weights[i]; };
  sum_all([=](Count i) { return base + starts[i]; }, Weighted<decltype(weight_at)>{weight_at}, count, known, width,
          total);
}

}  // namespace orrery::exec::simd::ORRERY_SIMD_LEVEL

// Matrix products one of whose factors is met once, as an expert's weights are: a library that packs it for later rows
// waits for memory meanwhile. Here a block of the left factor stays in the second cache, the right one passes by in
// panels, and while tiles are computed the next panel and the tiles' own places are asked for. Each element is a sum in
// the order of k, by blocks that depend on k alone, so that no division of rows or columns changes it.
// Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication (2008), sections 4 and 5; a tile's shape as
// in Van Zee and van de Geijn, BLIS (2015), section 4.
#include "exec/cpu/simd/functions.h"
#if ORRERY_SIMD_BYTES >= 32
#include <immintrin.h>

namespace orrery::exec::simd::ORRERY_SIMD_LEVEL {

namespace {

// A tile's sums, two vectors of the right factor and a value of the left one fill the registers.
constexpr int kTall = ORRERY_SIMD_BYTES == 64 ? 14 : 6;
constexpr int kWide = 2 * W;
// Of a packed block: half of a second cache of 1 to 2 MiB, and a panel of the right factor about a first cache.
constexpr Count kRows = 512, kDepth = 320;
constexpr Count kChunk = 16;  // steps of a tile between requests for memory
constexpr Count kLineValues = 16;

ORRERY_INLINE F fused(F a, F b, F c) {
#if ORRERY_SIMD_BYTES == 64
  return _mm512_fmadd_ps(a, b, c);
#else
  return _mm256_fmadd_ps(a, b, c);
#endif
}
ORRERY_INLINE F everywhere(float value) {
#if ORRERY_SIMD_BYTES == 64
  return _mm512_set1_ps(value);
#else
  return _mm256_set1_ps(value);
#endif
}

// The first `count` < W values; the other lanes are zero.
ORRERY_INLINE F load_first(const float* p, Count count) {
#if ORRERY_SIMD_BYTES == 64
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1), p);
#else
  const I lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  return _mm256_maskload_ps(p, reinterpret_cast<__m256i>(lanes < static_cast<std::int32_t>(count)));
#endif
}

template <int... L>
struct Lanes {};
template <int N>
using FirstLanes = Lanes<__integer_pack(N)...>;

// Rows whose numbers differ by H exchange what lies off the diagonal of each square of 2H lanes.
template <int H, int... L>
ORRERY_INLINE void exchange(F& upper, F& lower, Lanes<L...>) {
  const F a = upper, b = lower;
  upper = __builtin_shuffle(a, b, I{((L & H) != 0 ? W + L - H : L)...});
  lower = __builtin_shuffle(a, b, I{((L & H) != 0 ? W + L : L + H)...});
}
template <int H = 1>
ORRERY_INLINE void transpose(F (&rows)[W]) {
  if constexpr (H < W) {
    for (int i = 0; i < W; ++i)
      if ((i & H) == 0) exchange<H>(rows[i], rows[i + H], FirstLanes<W>());
    transpose<2 * H>(rows);
  }
}

// A panel is (depth, width). This packs up to W of its columns from rows that lie along the depth; columns of which
// there are no more become zeros, also behind the panel.
ORRERY_INLINE void pack_across(const float* from, Count stride, Count columns, Count depth, Count width, float* to) {
  for (Count k = 0; k < depth; k += W) {
    const Count some = depth - k < W ? depth - k : W;
    F rows[W];
    for (int i = 0; i < W; ++i)
      rows[i] = i >= columns ? F{} : some == W ? load(from + i * stride + k) : load_first(from + i * stride + k, some);
    transpose(rows);
    for (int i = 0; i < W; ++i)
      if (i < some) store(to + (k + i) * width, rows[i]);
  }
}
// All of a panel from rows that lie along its width, likewise.
ORRERY_INLINE void pack_along(const float* from, Count stride, Count columns, Count depth, Count width, float* to) {
  for (Count k = 0; k < depth; ++k, from += stride, to += width) {
    Count i = 0;
    for (; i + W <= columns; i += W) store(to + i, load(from + i));
    for (; i < width; i += W) store(to + i, i < columns ? load_first(from + i, columns - i) : F{});
  }
}
ORRERY_INLINE void pack(bool across, const float* from, Count stride, Count columns, Count depth, Count width,
                        float* to) {
  if (!across) return pack_along(from, stride, columns, depth, width, to);
  for (Count i = 0; i < width; i += W) pack_across(from + i * stride, stride, columns - i, depth, width, to + i);
}

// Lines that will be read soon: `left` of them, `across` side by side in rows `stride` values apart.
struct Soon {
  const float* from;
  Count stride, left, across, at;
  ORRERY_MEMBER void ask() {
    if (left <= 0) return;
    __builtin_prefetch(from + at * kLineValues);
    --left;
    if (++at < across) return;
    at = 0;
    from += stride;
  }
};

struct Target {
  float* c;
  Count stride, columns;
  bool adds;
};
ORRERY_INLINE void put(float* c, F value, Count columns, bool adds) {
  if (columns >= W)
    store(c, adds ? load(c) + value : value);
  else if (columns > 0)
    store_part(c, adds ? load_part(c, columns) + value : value, columns);
}

template <int R>
ORRERY_INLINE void add_step(const float* a, const float* b, F (&sums)[R][2]) {
  const F left = load(b), right = load(b + W);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const F value = everywhere(a[r]);
    sums[r][0] = fused(value, left, sums[r][0]);
    sums[r][1] = fused(value, right, sums[r][1]);
  }
}

// R rows of the result from a panel of the left factor of that width, and one of the right factor. Loops over sums are
// unrolled, or else the sums would not stay in registers.
template <int R>
void compute_tile(const float* a, const float* b, Count depth, const Target& to, Soon& soon, Count requests) {
  F sums[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = F{};
  Count row = 0, k = 0;
  for (; k + kChunk <= depth; k += kChunk) {
    for (const Count some = row + 2; row < some && row < R; ++row) {
      __builtin_prefetch(to.c + row * to.stride, 1);
      __builtin_prefetch(to.c + row * to.stride + kLineValues, 1);
    }
    for (Count i = 0; i < requests; ++i) soon.ask();
    for (Count i = k; i < k + kChunk; ++i) add_step<R>(a + i * R, b + i * kWide, sums);
  }
  for (; k < depth; ++k) add_step<R>(a + k * R, b + k * kWide, sums);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    put(to.c + r * to.stride, sums[r][0], to.columns, to.adds);
    put(to.c + r * to.stride + W, sums[r][1], to.columns - W, to.adds);
  }
}
template <int R = kTall>
ORRERY_INLINE void tile_of(Count rows, const float* a, const float* b, Count depth, const Target& to, Soon& soon,
                           Count requests) {
  if (rows == R) return compute_tile<R>(a, b, depth, to, soon, requests);
  if constexpr (R > 1) tile_of<R - 1>(rows, a, b, depth, to, soon, requests);
}

// `total` in as few pieces of at most `most` as will do, as equal as can be.
struct Parts {
  Count total, count;
  ORRERY_MEMBER Parts(Count all, Count most) : total(all), count((all + most - 1) / most) {}
  ORRERY_MEMBER Count begin(Count i) const { return total * i / count; }
  ORRERY_MEMBER Count size(Count i) const { return begin(i + 1) - begin(i); }
};

// What is asked for while a panel of the right factor is used: the panel to its right, if whole.
ORRERY_INLINE Soon panel_after(const Product& p, Count k, Count depth, Count column) {
  if (column + 2 * kWide > p.n) return {p.b, 0, 0, 1, 0};
  if (p.trans_b)
    return {p.b + (column + kWide) * p.ldb + k, p.ldb, kWide * (depth / kLineValues), depth / kLineValues, 0};
  return {p.b + k * p.ldb + column + kWide, p.ldb, depth * (kWide / kLineValues), kWide / kLineValues, 0};
}

// Some rows and some of k, for all columns.
void add_block(const Product& p, Count first, Count rows, Count k, Count depth, float* room) {
  const Parts panels(rows, kTall);
  float* const right = room;
  float* const left = room + depth * kWide;
  for (Count i = 0; i < panels.count; ++i) {
    const Count row = first + panels.begin(i), height = panels.size(i);
    pack(!p.trans_a, p.a + (p.trans_a ? k * p.lda + row : row * p.lda + k), p.lda, height, depth, height,
         left + panels.begin(i) * depth);
  }
  const Count chunks = panels.count * (depth / kChunk);
  for (Count column = 0; column < p.n; column += kWide) {
    const Count columns = p.n - column < kWide ? p.n - column : kWide;
    pack(p.trans_b, p.b + (p.trans_b ? column * p.ldb + k : k * p.ldb + column), p.ldb, columns, depth, kWide, right);
    Soon soon = panel_after(p, k, depth, column);
    const Count requests = chunks > 0 ? (soon.left + chunks - 1) / chunks : 0;
    for (Count i = 0; i < panels.count; ++i) {
      float* const c = p.c + (first + panels.begin(i)) * p.ldc + column;
      tile_of(panels.size(i), left + panels.begin(i) * depth, right, depth, {c, p.ldc, columns, p.adds || k > 0}, soon,
              requests);
    }
  }
}

}  // namespace

Count product_room(const Product& p) {
  const Count rows = p.m < kRows ? p.m : kRows, depth = p.k < kDepth ? p.k : kDepth;
  return (rows + kWide) * depth + 2 * W;
}

void product(const Product& p, float* room) {
  const Parts depths(p.k, kDepth), blocks(p.m, kRows);
  for (Count d = 0; d < depths.count; ++d)
    for (Count i = 0; i < blocks.count; ++i)
      add_block(p, blocks.begin(i), blocks.size(i), depths.begin(d), depths.size(d), room);
}

}  // namespace orrery::exec::simd::ORRERY_SIMD_LEVEL

#endif

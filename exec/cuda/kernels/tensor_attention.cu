// Flash attention on tensor cores, by warp-wide products of 16 x 16 tiles: Dao, "FlashAttention-2" (2023), with 64
// queries by 64 keys to a block and 16 rows to each of its 4 warps. Operands are in 16 bits, scores and sums in fp32;
// probabilities are rounded to 16 bits before they meet the values. Backward is two kernels, as in attention.cu, so
// that no sum needs atomics; what it accumulates stays in registers.
#include <mma.h>

#include "exec/cuda/kernels/attention_device.h"

namespace orrery::exec::cuda {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kTile = 64;               // queries, and keys, of a block
constexpr int kStrip = 16;              // rows of a warp
constexpr int kBlock = 128;             // threads: kTile / kStrip warps
constexpr int kSpare = 8;               // elements by which rows in shared memory are longer, against bank conflicts
constexpr int kScorePitch = kTile + 4;  // floats
constexpr int kProbabilityPitch = kTile + kSpare;  // 16-bit elements
constexpr int kHalfRow = kTile / 2;                // columns of a lane: two lanes share a row of scores
constexpr int kDrawWords = kTile * kTile / 32;     // a bit for each score of a tile
static_assert(kTile / kStrip * kWarp == kBlock && kHalfRow == 32);

template <class T>
using RowsA = wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major>;
template <class T>
using RowsB = wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major>;
template <class T>
using ColumnsB = wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major>;
using Sums = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

/// Shared memory, handed out piece by piece; every piece is a multiple of 16 bytes.
struct Shared {
  char* next;
  template <class T>
  __device__ T* take(int elements) {
    T* out = reinterpret_cast<T*>(next);
    next += static_cast<std::size_t>(elements) * sizeof(T);
    return out;
  }
};

/// Rows first..first+63 of a matrix into shared memory, 16 bytes at a time; rows past the sequence become zero.
template <class T, int Dim>
__device__ inline void load_rows(T* tile, const T* source, int64_t first, int64_t stride, int64_t sequence) {
  constexpr int kEach = kWidth<T>;
  constexpr int kPacks = Dim / kEach;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kPacks; i += kBlock) {
    const int row = i / kPacks;
    const int column = i % kPacks * kEach;
    uint4 word{0, 0, 0, 0};
    if (first + row < sequence) word = *reinterpret_cast<const uint4*>(source + (first + row) * stride + column);
    *reinterpret_cast<uint4*>(tile + row * (Dim + kSpare) + column) = word;
  }
}

/// scores (16 x 64) = strip (16 x Dim) of a tile times the rows of another, transposed.
template <class T, int Dim>
__device__ inline void products(float* scores, const T* strip, const T* rows) {
  constexpr unsigned kPitch = Dim + kSpare;
#pragma unroll
  for (int n = 0; n < kTile / 16; ++n) {
    Sums sum;
    wmma::fill_fragment(sum, 0.0F);
#pragma unroll
    for (int k = 0; k < Dim / 16; ++k) {
      RowsA<T> a;
      ColumnsB<T> b;
      wmma::load_matrix_sync(a, strip + 16 * k, kPitch);
      wmma::load_matrix_sync(b, rows + 16 * n * kPitch + 16 * k, kPitch);
      wmma::mma_sync(sum, a, b, sum);
    }
    wmma::store_matrix_sync(scores + 16 * n, sum, kScorePitch, wmma::mem_row_major);
  }
}

/// sums (16 x Dim) += weights (16 x 64) times rows (64 x Dim).
template <class T, int Dim>
__device__ inline void accumulate(Sums* sums, const T* weights, const T* rows) {
  constexpr unsigned kPitch = Dim + kSpare;
#pragma unroll
  for (int k = 0; k < kTile / 16; ++k) {
    RowsA<T> a;
    wmma::load_matrix_sync(a, weights + 16 * k, kProbabilityPitch);
#pragma unroll
    for (int n = 0; n < Dim / 16; ++n) {
      RowsB<T> b;
      wmma::load_matrix_sync(b, rows + 16 * k * kPitch + 16 * n, kPitch);
      wmma::mma_sync(sums[n], a, b, sums[n]);
    }
  }
}

__device__ inline float pair_sum(float v) {  // over the two lanes of a row
  return v + __shfl_xor_sync(kAllLanes, v, 1);
}
__device__ inline float pair_max(float v) {
  return fmaxf(v, __shfl_xor_sync(kAllLanes, v, 1));
}

/// A lane's part of its warp's strip: half of one row.
struct Lane {
  int warp, row, first;  // row of the strip; the first of its kHalfRow columns
  __device__ Lane()
      : warp(static_cast<int>(threadIdx.x) / kWarp),
        row(static_cast<int>(threadIdx.x) % kWarp / 2),
        first(static_cast<int>(threadIdx.x) % 2 * kHalfRow) {}
};

/// Rows [first, last) of a strip of sums, through the warp's shared memory, to rows of 16-bit values; `adds` to them.
template <class T, int Dim>
__device__ inline void write_strip(T* to, int64_t stride, int64_t first, int64_t last, float* room, const Sums* sums,
                                   bool adds) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int n = 0; n < Dim / 16; ++n) {
    __syncwarp();
    wmma::store_matrix_sync(room, sums[n], kScorePitch, wmma::mem_row_major);
    __syncwarp();
    const int row = lane / 2;
    const int column = lane % 2 * 8;
    if (row < first || row >= last) continue;
    for (int e = 0; e < 8; ++e) {
      T* target = to + row * stride + 16 * n + column + e;
      const float value = room[row * kScorePitch + column + e];
      put(target, adds ? widen(*target) + value : value);
    }
  }
}

/// Bit `place` of a row's draws.
__device__ inline float dropped(const Layout& l, unsigned kept, int place, float value) {
  return (kept >> place & 1U) != 0 ? value * l.masks.draw.scale : 0.0F;
}

// `Drops`: probabilities meet the values under their masks. Kernels without have nothing to carry for it.
template <class T, int Dim, bool Drops>
__global__ void __launch_bounds__(kBlock) forward_kernel(Layout l, int64_t tiles, Inputs<T> in, T* y, float* lse) {
  ORRERY_DYNAMIC_SHARED(raw);
  Shared shared{reinterpret_cast<char*>(raw)};
  T* q = shared.take<T>(kTile * (Dim + kSpare));
  T* k = shared.take<T>(kTile * (Dim + kSpare));
  T* v = shared.take<T>(kTile * (Dim + kSpare));
  const Lane lane;
  float* scores = shared.take<float>(kTile * kScorePitch) + lane.warp * kStrip * kScorePitch;
  constexpr int kOutPitch = Dim + 4;
  float* out = shared.take<float>(kTile * kOutPitch) + lane.warp * kStrip * kOutPitch;
  T* p = shared.take<T>(kTile * kProbabilityPitch) + lane.warp * kStrip * kProbabilityPitch;
  const Place at = place_of(tiles, l.heads);
  if ((at.tile + 1) * kTile <= l.first_query) return;  // the whole block
  const int64_t query = at.tile * kTile + lane.warp * kStrip + lane.row;
  const int64_t key_base = at.batch * l.sequence * l.kv_width + static_cast<int64_t>(at.head / l.group) * Dim;
  load_rows<T, Dim>(q, in.q + at.batch * l.sequence * l.width + static_cast<int64_t>(at.head) * Dim, at.tile * kTile,
                    l.width, l.sequence);
  float* own_out = out + lane.row * kOutPitch + lane.first / kHalfRow * (Dim / 2);
  for (int d = 0; d < Dim / 2; ++d) own_out[d] = 0;
  float top = -INFINITY;
  float sum = 0;
  QueryDraw draw{};
  if constexpr (Drops) draw = draw_of(l, key_of(l.masks.draw), at.batch, at.head, query);
  const int64_t last = tiles_seen(l, at.tile, kTile);
  const float bend_slope = slope_of(l, at.head);
  for (int64_t tile = first_tile_seen(l, at.tile, kTile); tile < last; ++tile) {
    __syncthreads();
    load_rows<T, Dim>(k, in.k + key_base, tile * kTile, l.kv_width, l.sequence);
    load_rows<T, Dim>(v, in.v + key_base, tile * kTile, l.kv_width, l.sequence);
    __syncthreads();
    products<T, Dim>(scores, q + lane.warp * kStrip * (Dim + kSpare), k);
    __syncwarp();
    float* row = scores + lane.row * kScorePitch + lane.first;
    const int64_t first_key = tile * kTile + lane.first;
    const bool bends = l.cap > 0 || l.alibi_heads > 0;
    const float scale = bends ? 1.0F : l.scale;
    if (bends)
      for (int j = 0; j < kHalfRow; ++j) row[j] = bent(l, bend_slope, query, first_key + j, row[j] * l.scale);
    float best = top;
    for (int j = 0; j < kHalfRow; ++j)
      if (!masked(l, query, first_key + j)) best = fmaxf(best, row[j] * scale);
    best = pair_max(best);
    const float shrink = top == -INFINITY ? 0.0F : __expf(top - best);
    float part = 0;
    unsigned kept = 0;
    if constexpr (Drops) kept = kept_keys<kHalfRow>(l, draw, first_key);
    for (int j = 0; j < kHalfRow; ++j) {
      const float value = masked(l, query, first_key + j) ? 0.0F : __expf(row[j] * scale - best);
      put(p + lane.row * kProbabilityPitch + lane.first + j, Drops ? dropped(l, kept, j, value) : value);
      part += value;
    }
    sum = sum * shrink + pair_sum(part);
    top = best;
    for (int d = 0; d < Dim / 2; ++d) own_out[d] *= shrink;
    __syncwarp();
    Sums sums[Dim / 16];
#pragma unroll
    for (int n = 0; n < Dim / 16; ++n) wmma::load_matrix_sync(sums[n], out + 16 * n, kOutPitch, wmma::mem_row_major);
    accumulate<T, Dim>(sums, p, v);
#pragma unroll
    for (int n = 0; n < Dim / 16; ++n) wmma::store_matrix_sync(out + 16 * n, sums[n], kOutPitch, wmma::mem_row_major);
    __syncwarp();
  }
  const bool works = query < l.sequence && query >= l.first_query;
  const float here = top + logf(sum);
  float* own_lse = lse + (at.batch * l.heads + at.head) * l.sequence + query;
  const Merged m = works && l.accumulate ? merge(*own_lse, here) : Merged{here, 0, 1};
  __syncwarp();  // both lanes of a row have read the old one
  if (!works) return;
  if (lane.first == 0) *own_lse = m.lse;
  T* target = y + ((at.batch * l.sequence + query) * l.heads + at.head) * Dim + lane.first / kHalfRow * (Dim / 2);
  for (int d = 0; d < Dim / 2; ++d) {
    const float value = own_out[d] / sum;
    put(target + d, l.accumulate ? m.keep * widen(target[d]) + m.add * value : value);
  }
}

/// delta = dy . y of every query and head: a warp for each.
template <class T>
__global__ void __launch_bounds__(kThreads)
    delta_kernel(Layout l, int64_t rows, const T* dy, const T* y, float* delta) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (index >= rows) return;                                      // the whole warp
  const int64_t head = index % l.heads, token = index / l.heads;  // as y lies
  float sum = 0;
  for (int d = static_cast<int>(threadIdx.x) % kWarp; d < l.dim; d += kWarp)
    sum += widen(dy[index * l.dim + d]) * widen(y[index * l.dim + d]);
  sum = warp_sum(sum);
  const int64_t batch = token / l.sequence, query = token % l.sequence;
  if (threadIdx.x % kWarp == 0) delta[(batch * l.heads + head) * l.sequence + query] = sum;
}

template <class T, int Dim, bool Drops>
__global__ void __launch_bounds__(kBlock)
    dq_kernel(Layout l, int64_t tiles, Inputs<T> in, Saved<T> saved, const float* delta, Gradients<T> to) {
  ORRERY_DYNAMIC_SHARED(raw);
  Shared shared{reinterpret_cast<char*>(raw)};
  T* q = shared.take<T>(kTile * (Dim + kSpare));
  T* g = shared.take<T>(kTile * (Dim + kSpare));
  T* k = shared.take<T>(kTile * (Dim + kSpare));
  T* v = shared.take<T>(kTile * (Dim + kSpare));
  const Lane lane;
  float* scores = shared.take<float>(kTile * kScorePitch) + lane.warp * kStrip * kScorePitch;
  float* dp = shared.take<float>(kTile * kScorePitch) + lane.warp * kStrip * kScorePitch;
  T* ds = shared.take<T>(kTile * kProbabilityPitch) + lane.warp * kStrip * kProbabilityPitch;
  const Place at = place_of(tiles, l.heads);
  if ((at.tile + 1) * kTile <= l.first_query) return;  // the whole block
  const int64_t strip = at.tile * kTile + lane.warp * kStrip;
  const int64_t query = strip + lane.row;
  const bool real = query < l.sequence && query >= l.first_query;
  const int64_t q_base = at.batch * l.sequence * l.width + static_cast<int64_t>(at.head) * Dim;
  const int64_t key_base = at.batch * l.sequence * l.kv_width + static_cast<int64_t>(at.head / l.group) * Dim;
  const int64_t y_stride = static_cast<int64_t>(l.heads) * Dim;
  const int64_t y_base = at.batch * l.sequence * y_stride + static_cast<int64_t>(at.head) * Dim;
  load_rows<T, Dim>(q, in.q + q_base, at.tile * kTile, l.width, l.sequence);
  load_rows<T, Dim>(g, saved.dy + y_base, at.tile * kTile, y_stride, l.sequence);
  const int64_t statistic = (at.batch * l.heads + at.head) * l.sequence + query;
  const float lse = real ? saved.lse[statistic] : 0.0F;
  const float own_delta = real ? delta[statistic] : 0.0F;
  Sums sums[Dim / 16];
#pragma unroll
  for (int n = 0; n < Dim / 16; ++n) wmma::fill_fragment(sums[n], 0.0F);
  QueryDraw draw{};
  if constexpr (Drops) draw = draw_of(l, key_of(l.masks.draw), at.batch, at.head, query);
  const int64_t last = tiles_seen(l, at.tile, kTile);
  const float bend_slope = slope_of(l, at.head);
  for (int64_t tile = first_tile_seen(l, at.tile, kTile); tile < last; ++tile) {
    __syncthreads();
    load_rows<T, Dim>(k, in.k + key_base, tile * kTile, l.kv_width, l.sequence);
    load_rows<T, Dim>(v, in.v + key_base, tile * kTile, l.kv_width, l.sequence);
    __syncthreads();
    products<T, Dim>(scores, q + lane.warp * kStrip * (Dim + kSpare), k);
    products<T, Dim>(dp, g + lane.warp * kStrip * (Dim + kSpare), v);
    __syncwarp();
    const int place = lane.row * kScorePitch + lane.first;
    unsigned kept = 0;
    if constexpr (Drops) kept = kept_keys<kHalfRow>(l, draw, tile * kTile + lane.first);
    for (int j = 0; j < kHalfRow; ++j) {
      const int64_t key = tile * kTile + lane.first + j;
      const bool seen = real && !masked(l, query, key);
      float bend;
      const float score = bent(l, bend_slope, query, key, scores[place + j] * l.scale, bend);
      const float p = seen ? __expf(score - lse) : 0.0F;
      const float slope = Drops ? dropped(l, kept, j, dp[place + j]) : dp[place + j];
      put(ds + lane.row * kProbabilityPitch + lane.first + j, p * (slope - own_delta) * l.scale * bend);
    }
    __syncwarp();
    accumulate<T, Dim>(sums, ds, k);
  }
  const int64_t rows = l.sequence - strip < kStrip ? l.sequence - strip : kStrip;
  const int64_t skipped = l.first_query > strip ? l.first_query - strip : 0;
  write_strip<T, Dim>(to.q + q_base + strip * l.width, l.width, skipped, rows, scores, sums, l.accumulate);
}

template <class T, int Dim, bool Drops>
__global__ void __launch_bounds__(kBlock)
    dkv_kernel(Layout l, int64_t tiles, Inputs<T> in, Saved<T> saved, const float* delta, Gradients<T> to) {
  ORRERY_DYNAMIC_SHARED(raw);
  Shared shared{reinterpret_cast<char*>(raw)};
  T* q = shared.take<T>(kTile * (Dim + kSpare));
  T* g = shared.take<T>(kTile * (Dim + kSpare));
  T* k = shared.take<T>(kTile * (Dim + kSpare));
  T* v = shared.take<T>(kTile * (Dim + kSpare));
  const Lane lane;
  float* scores = shared.take<float>(kTile * kScorePitch) + lane.warp * kStrip * kScorePitch;
  float* dp = shared.take<float>(kTile * kScorePitch) + lane.warp * kStrip * kScorePitch;
  T* p = shared.take<T>(kTile * kProbabilityPitch) + lane.warp * kStrip * kProbabilityPitch;
  T* ds = shared.take<T>(kTile * kProbabilityPitch) + lane.warp * kStrip * kProbabilityPitch;
  float* lses = shared.take<float>(kTile);
  float* deltas = shared.take<float>(kTile);
  unsigned* kept_words = shared.take<unsigned>(Drops ? kDrawWords : 0);  // two for each query: of this tile's keys
  const Place at = place_of(tiles, l.key_heads);
  const int64_t strip = at.tile * kTile + lane.warp * kStrip;
  const int64_t key = strip + lane.row;
  const int64_t key_base = at.batch * l.sequence * l.kv_width + static_cast<int64_t>(at.head) * Dim;
  const int64_t y_stride = static_cast<int64_t>(l.heads) * Dim;
  load_rows<T, Dim>(k, in.k + key_base, at.tile * kTile, l.kv_width, l.sequence);
  load_rows<T, Dim>(v, in.v + key_base, at.tile * kTile, l.kv_width, l.sequence);
  Sums dk[Dim / 16];
  Sums dv[Dim / 16];
#pragma unroll
  for (int n = 0; n < Dim / 16; ++n) {
    wmma::fill_fragment(dk[n], 0.0F);
    wmma::fill_fragment(dv[n], 0.0F);
  }
  const bool any = at.tile * kTile < l.keys;
  uint64_t random_key = 0;
  if constexpr (Drops) random_key = key_of(l.masks.draw);
  const int of_strip = lane.warp * kStrip + lane.row;  // this lane's key within the tile
  const int64_t from = l.first_query / kTile;
  const int64_t first_tile = l.causal && at.tile > from ? at.tile : from;
  const int64_t last_tile = tiles_seeing(l, at.tile, kTile, tiles);
  for (int shared_head = 0; any && shared_head < l.group; ++shared_head) {
    const int64_t head = static_cast<int64_t>(at.head) * l.group + shared_head;
    const int64_t y_base = at.batch * l.sequence * y_stride + head * Dim;
    const int64_t statistics = (at.batch * l.heads + head) * l.sequence;
    const float bend_slope = slope_of(l, static_cast<int>(head));
    for (int64_t tile = first_tile; tile < last_tile; ++tile) {
      __syncthreads();
      load_rows<T, Dim>(q, in.q + at.batch * l.sequence * l.width + head * Dim, tile * kTile, l.width, l.sequence);
      load_rows<T, Dim>(g, saved.dy + y_base, tile * kTile, y_stride, l.sequence);
      for (int i = static_cast<int>(threadIdx.x); i < kTile; i += kBlock) {
        const int64_t query = tile * kTile + i;
        lses[i] = query < l.sequence ? saved.lse[statistics + query] : 0.0F;
        deltas[i] = query < l.sequence ? delta[statistics + query] : 0.0F;
      }
      if constexpr (Drops) {
        for (int i = static_cast<int>(threadIdx.x); i < kDrawWords; i += kBlock) {
          const QueryDraw draw = draw_of(l, random_key, at.batch, head, tile * kTile + i / 2);
          kept_words[i] = kept_keys<kHalfRow>(l, draw, at.tile * kTile + i % 2 * kHalfRow);
        }
      }
      __syncthreads();
      products<T, Dim>(scores, k + lane.warp * kStrip * (Dim + kSpare), q);  // keys by queries
      products<T, Dim>(dp, v + lane.warp * kStrip * (Dim + kSpare), g);
      __syncwarp();
      const int place = lane.row * kScorePitch + lane.first;
      for (int j = 0; j < kHalfRow; ++j) {
        const int64_t query = tile * kTile + lane.first + j;
        const bool seen = query < l.sequence && !masked(l, query, key);
        float bend;
        const float score = bent(l, bend_slope, query, key, scores[place + j] * l.scale, bend);
        const float value = seen ? __expf(score - lses[lane.first + j]) : 0.0F;
        const int cell = lane.row * kProbabilityPitch + lane.first + j;
        unsigned kept = 0;
        if constexpr (Drops) kept = kept_words[2 * (lane.first + j) + of_strip / kHalfRow];
        const int bit = of_strip % kHalfRow;
        const float slope = Drops ? dropped(l, kept, bit, dp[place + j]) : dp[place + j];
        put(p + cell, Drops ? dropped(l, kept, bit, value) : value);
        put(ds + cell, value * (slope - deltas[lane.first + j]) * l.scale * bend);
      }
      __syncwarp();
      accumulate<T, Dim>(dv, p, g);
      accumulate<T, Dim>(dk, ds, q);
    }
  }
  const int64_t rows = l.sequence - strip < kStrip ? l.sequence - strip : kStrip;
  write_strip<T, Dim>(to.k + key_base + strip * l.kv_width, l.kv_width, 0, rows, scores, dk, false);
  write_strip<T, Dim>(to.v + key_base + strip * l.kv_width, l.kv_width, 0, rows, scores, dv, false);
}

int64_t tiles_of(const Layout& l) {
  return (l.sequence + kTile - 1) / kTile;
}

/// Shared memory of `matrices` tiles of rows, `scores` of fp32 scores, `weights` of 16-bit ones, and `floats` more.
template <class Kernel>
std::size_t shared_bytes(Kernel* kernel, int dim, int matrices, int scores, int weights, int floats) {
  const int bytes = 2 * matrices * kTile * (dim + kSpare) + 4 * scores * kTile * kScorePitch +
                    2 * weights * kTile * kProbabilityPitch + 4 * floats;
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "attention, shared memory");
  return static_cast<std::size_t>(bytes);
}

template <class T, int Dim, bool Drops>
void forward_of(cudaStream_t stream, const Layout& l, int64_t batch, const Inputs<T>& in, T* y, float* lse) {
  const int64_t tiles = tiles_of(l);
  const dim3 grid = row_grid(batch * l.heads * tiles, "attention");
  const std::size_t bytes = shared_bytes(forward_kernel<T, Dim, Drops>, Dim, 3, 1, 1, kTile * (Dim + 4));
  ORRERY_LAUNCH((forward_kernel<T, Dim, Drops>), grid, dim3(kBlock), bytes, stream, l, tiles, in, y, lse);
  check_launch("attention");
}

template <class T, int Dim, bool Drops>
void backward_of(cudaStream_t stream, const Layout& l, int64_t batch, const Inputs<T>& in, const Saved<T>& saved,
                 const Gradients<T>& out, float* delta) {
  const int64_t tiles = tiles_of(l), rows = batch * l.sequence * l.heads;
  constexpr int kRows = kThreads / kWarp;
  ORRERY_LAUNCH(delta_kernel<T>, row_grid((rows + kRows - 1) / kRows, "attention_grad"), dim3(kThreads), 0, stream, l,
                rows, saved.dy, saved.y, delta);
  check_launch("attention_grad, deltas");
  const std::size_t dq_bytes = shared_bytes(dq_kernel<T, Dim, Drops>, Dim, 4, 2, 1, 0);
  ORRERY_LAUNCH((dq_kernel<T, Dim, Drops>), row_grid(batch * l.heads * tiles, "attention_grad"), dim3(kBlock), dq_bytes,
                stream, l, tiles, in, saved, delta, out);
  check_launch("attention_grad, queries");
  const std::size_t dkv_bytes =
      shared_bytes(dkv_kernel<T, Dim, Drops>, Dim, 4, 2, 2, 2 * kTile + (Drops ? kDrawWords : 0));
  ORRERY_LAUNCH((dkv_kernel<T, Dim, Drops>), row_grid(batch * l.key_heads * tiles, "attention_grad"), dim3(kBlock),
                dkv_bytes, stream, l, tiles, in, saved, delta, out);
  check_launch("attention_grad, keys");
}

/// body(std::integral_constant) with the head width.
template <class Body>
void by_width(int dim, const Body& body) {
  switch (dim) {
    case 16: return body(std::integral_constant<int, 16>());
    case 32: return body(std::integral_constant<int, 32>());
    case 64: return body(std::integral_constant<int, 64>());
    case 80: return body(std::integral_constant<int, 80>());
    case 96: return body(std::integral_constant<int, 96>());
    case 128: return body(std::integral_constant<int, 128>());
    default: throw Failure("CUDA: attention: no tensor-core kernel for this head width");
  }
}

}  // namespace

template <class T>
void tensor_forward(cudaStream_t stream, const Layout& l, int64_t batch, const Inputs<T>& in, T* y, float* lse) {
  by_width(l.dim, [&](auto width) {
    constexpr int kDim = decltype(width)::value;
    l.masks.draw.step ? forward_of<T, kDim, true>(stream, l, batch, in, y, lse)
                      : forward_of<T, kDim, false>(stream, l, batch, in, y, lse);
  });
}

template <class T>
void tensor_backward(cudaStream_t stream, const Layout& l, int64_t batch, const Inputs<T>& in, const Saved<T>& saved,
                     const Gradients<T>& out, float* delta) {
  by_width(l.dim, [&](auto width) {
    constexpr int kDim = decltype(width)::value;
    l.masks.draw.step ? backward_of<T, kDim, true>(stream, l, batch, in, saved, out, delta)
                      : backward_of<T, kDim, false>(stream, l, batch, in, saved, out, delta);
  });
}

#define ORRERY_INSTANTIATE(T)                                                                            \
  template void tensor_forward(cudaStream_t, const Layout&, int64_t, const Inputs<T>&, T*, float*);      \
  template void tensor_backward(cudaStream_t, const Layout&, int64_t, const Inputs<T>&, const Saved<T>&, \
                                const Gradients<T>&, float*);
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda

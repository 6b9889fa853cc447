// Flash attention on tensor cores, by warp-wide products of 16 x 16 tiles: Dao, "FlashAttention-2" (2023), with 64
// queries by 64 keys per block and 16 rows for each of its 4 warps. Operands are in 16 bits, scores and sums in fp32;
// probabilities are rounded to 16 bits before they multiply the values. Backward is two kernels, as in attention.cu, so
// that no sum needs atomics. Accumulators stay in registers. While a tile is computed, the next one is loaded into
// shared memory, from compute capability 8.0 on by asynchronous copies.
#include "exec/cuda/kernels/tensor_tiles.h"

namespace orrery::exec::cuda {
namespace {

using namespace tensor_tiles;

// `Drops`: probabilities multiply the values under their dropout masks. Kernels without it carry nothing for dropout.
template <class T, int Dim, bool Drops>
__global__ void __launch_bounds__(kBlock) forward_kernel(Layout l, int64_t tiles, Inputs<T> in, T* y, float* lse) {
  ORRERY_DYNAMIC_SHARED(raw);
  Shared shared{reinterpret_cast<char*>(raw)};
  T* rows = shared.take<T>(4 * kRows<Dim>);  // keys and values, two of each
  const Lane lane;
  float* scores = shared.take<float>(kTile * kScorePitch) + lane.warp * kStrip * kScorePitch;
  T* p = reinterpret_cast<T*>(scores);
  float* factors = scores + kFactorsAt;
  const Place at = place_of(tiles, l.heads);
  if ((at.tile + 1) * kTile <= l.first_query) return;  // the whole block
  const int64_t strip = at.tile * kTile + lane.warp * kStrip;
  const int64_t query = strip + lane.row;
  const int64_t key_base = at.batch * l.sequence * l.kv_width + static_cast<int64_t>(at.head / l.group) * Dim;
  // Queries stay in registers; they come through the keys' room.
  load_rows<T, Dim>(rows, in.q + at.batch * l.sequence * l.width + static_cast<int64_t>(at.head) * Dim, at.tile * kTile,
                    l.width, l.sequence);
  arrived();
  __syncthreads();
  HeldStrip<T, Dim> q;
#pragma unroll
  for (int k = 0; k < Dim / 16; ++k) q.tiles[k] = SharedStrip<T, Dim>{rows + lane.warp * kStrip * (Dim + kSpare)}(k);
  __syncthreads();
  Sums out[Dim / 16];
#pragma unroll
  for (int n = 0; n < Dim / 16; ++n) wmma::fill_fragment(out[n], 0.0F);
  float top = -INFINITY;
  float sum = 0;
  QueryDraw draw{};
  if constexpr (Drops) draw = draw_of(l, key_of(l.masks.draw), at.batch, at.head, query);
  const int64_t first_tile = first_tile_seen(l, at.tile, kTile);
  const float bend_slope = slope_of(l, at.head);
  const auto load_tile = [&](int64_t step, int buffer) {
    const int64_t tile = first_tile + step;
    T* k = rows + 2 * buffer * kRows<Dim>;
    load_rows<T, Dim>(k, in.k + key_base, tile * kTile, l.kv_width, l.sequence);
    load_rows<T, Dim>(k + kRows<Dim>, in.v + key_base, tile * kTile, l.kv_width, l.sequence);
  };
  const auto work = [&](int64_t step, int buffer) {
    const T* k = rows + 2 * buffer * kRows<Dim>;
    const int64_t first_key = (first_tile + step) * kTile;
    products<T, Dim>(scores, q, k);
    __syncwarp();
    float values[kHalfRow];
    read_scores(values, scores, lane);
    __syncwarp();
    const Seen seen = keys_seen(l, query, first_key);
    const bool bends = l.cap > 0 || l.alibi_heads > 0;
    const float scale = bends ? 1.0F : l.scale;
    if (bends) {
#pragma unroll
      for (int j = 0; j < kHalfRow; ++j)
        values[j] = bent(l, bend_slope, query, first_key + lane.column(j), values[j] * l.scale);
    }
    float best = top;
#pragma unroll
    for (int j = 0; j < kHalfRow; ++j)
      if (seen(lane.column(j))) best = fmaxf(best, values[j] * scale);
    best = pair_max(best);
    const float shrink = top == -INFINITY ? 0.0F : __expf(top - best);
    float part = 0;
#pragma unroll
    for (int j = 0; j < kHalfRow; ++j) {
      values[j] = seen(lane.column(j)) ? __expf(values[j] * scale - best) : 0.0F;
      part += values[j];
    }
    sum = sum * shrink + pair_sum(part);
    top = best;
    if constexpr (Drops) {
      const KeptRow kept = kept_of(l, draw, first_key, lane);
#pragma unroll
      for (int j = 0; j < kHalfRow; ++j) values[j] = dropped(l, kept, lane.column(j), values[j]);
    }
    write_weights(p, values, lane);
#pragma unroll
    for (int i = 0; i < 2 * kEach; i += kEach)
      store<kEach>(factors + lane.row * kFactorPitch + lane.column(i), Pack<kEach>{{shrink, shrink, shrink, shrink}});
    __syncwarp();
    scale_rows<Dim>(out, factors);
    accumulate<T, Dim>(out, p, k + kRows<Dim>);
  };
  each_step<2>(tiles_seen(l, at.tile, kTile) - first_tile, load_tile, work);
  const bool works = query < l.sequence && query >= l.first_query;
  const float here = top + logf(sum);
  float* own_lse = lse + (at.batch * l.heads + at.head) * l.sequence + query;
  const Merged m = works && l.accumulate ? merge(*own_lse, here) : Merged{here, 0, 1};
  __syncwarp();  // both lanes of a row have read the old one
  if (works && lane.half == 0) *own_lse = m.lse;
  write_strip<T, Dim>(y + ((at.batch * l.sequence + strip) * l.heads + at.head) * Dim,
                      static_cast<int64_t>(l.heads) * Dim, l.first_query - strip, l.sequence - strip, scores, out, lane,
                      Finish{l.accumulate, m.keep, m.add, sum});
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
  T* q = shared.take<T>(kRows<Dim>);
  T* g = shared.take<T>(kRows<Dim>);
  constexpr int kBuffers = kBackwardBuffers<Dim>;
  T* rows = shared.take<T>(2 * kBuffers * kRows<Dim>);  // keys and values
  const Lane lane;
  float* scores = shared.take<float>(kTile * kScorePitch) + lane.warp * kStrip * kScorePitch;
  float* slopes = shared.take<float>(kTile * kScorePitch) + lane.warp * kStrip * kScorePitch;
  T* ds = reinterpret_cast<T*>(scores);
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
  const int64_t first_tile = first_tile_seen(l, at.tile, kTile);
  const float bend_slope = slope_of(l, at.head);
  const auto load_tile = [&](int64_t step, int buffer) {
    const int64_t tile = first_tile + step;
    T* k = rows + 2 * buffer * kRows<Dim>;
    load_rows<T, Dim>(k, in.k + key_base, tile * kTile, l.kv_width, l.sequence);
    load_rows<T, Dim>(k + kRows<Dim>, in.v + key_base, tile * kTile, l.kv_width, l.sequence);
  };
  const auto work = [&](int64_t step, int buffer) {
    const T* k = rows + 2 * buffer * kRows<Dim>;
    const int64_t first_key = (first_tile + step) * kTile;
    products<T, Dim>(scores, SharedStrip<T, Dim>{q + lane.warp * kStrip * (Dim + kSpare)}, k);
    products<T, Dim>(slopes, SharedStrip<T, Dim>{g + lane.warp * kStrip * (Dim + kSpare)}, k + kRows<Dim>);
    __syncwarp();
    float values[kHalfRow];
    read_scores(values, scores, lane);
    __syncwarp();
    KeptRow kept{};
    if constexpr (Drops) kept = kept_of(l, draw, first_key, lane);
    const Seen seen = real ? keys_seen(l, query, first_key) : Seen{0, 0};
#pragma unroll
    for (int i = 0; i < kHalfRow; i += kEach) {
      const int column = lane.column(i);
      Pack<kEach> dp = load<kEach>(slopes + lane.row * kScorePitch + column);
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        float bend;
        const float score = bent(l, bend_slope, query, first_key + column + e, values[i + e] * l.scale, bend);
        const float p = seen(column + e) ? __expf(score - lse) : 0.0F;
        if constexpr (Drops) dp.v[e] = dropped(l, kept, column + e, dp.v[e]);
        dp.v[e] = p * (dp.v[e] - own_delta) * l.scale * bend;
      }
      store<kEach>(ds + lane.row * kProbabilityPitch + column, dp);
    }
    __syncwarp();
    accumulate<T, Dim>(sums, ds, k);
  };
  each_step<kBuffers>(tiles_seen(l, at.tile, kTile) - first_tile, load_tile, work);
  write_strip<T, Dim>(to.q + q_base + strip * l.width, l.width, l.first_query - strip, l.sequence - strip, scores, sums,
                      lane, Finish{l.accumulate});
}

template <class T, int Dim, bool Drops>
__global__ void __launch_bounds__(kBlock)
    dkv_kernel(Layout l, int64_t tiles, Inputs<T> in, Saved<T> saved, const float* delta, Gradients<T> to) {
  ORRERY_DYNAMIC_SHARED(raw);
  Shared shared{reinterpret_cast<char*>(raw)};
  T* k = shared.take<T>(kRows<Dim>);
  T* v = shared.take<T>(kRows<Dim>);
  constexpr int kBuffers = kBackwardBuffers<Dim>;
  T* rows = shared.take<T>(2 * kBuffers * kRows<Dim>);  // queries and gradients
  const Lane lane;
  float* scores = shared.take<float>(kTile * kScorePitch) + lane.warp * kStrip * kScorePitch;
  float* slopes = shared.take<float>(kTile * kScorePitch) + lane.warp * kStrip * kScorePitch;
  T* p = reinterpret_cast<T*>(scores);
  T* ds = p + kStrip * kProbabilityPitch;
  float* statistics = shared.take<float>(2 * kBuffers * kTile);  // log-sum-exps and deltas
  // Two words for each query: of this tile's keys.
  unsigned* kept_words = shared.take<unsigned>(Drops ? kBuffers * kDrawWords : 0);
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
  uint64_t random_key = 0;
  if constexpr (Drops) random_key = key_of(l.masks.draw);
  const int of_strip = lane.warp * kStrip + lane.row;  // this lane's key within the tile
  const int64_t from = l.first_query / kTile;
  const int64_t first_tile = l.causal && at.tile > from ? at.tile : from;
  const int64_t of_head =
      tiles_seeing(l, at.tile, kTile, tiles) - first_tile;  // steps: the queries' heads one after the other
  const int64_t steps = at.tile * kTile < l.keys && of_head > 0 ? of_head * l.group : 0;
  const auto load_tile = [&](int64_t step, int buffer) {
    const int64_t head = static_cast<int64_t>(at.head) * l.group + step / of_head;
    const int64_t first = (first_tile + step % of_head) * kTile;
    T* q = rows + 2 * buffer * kRows<Dim>;
    load_rows<T, Dim>(q, in.q + at.batch * l.sequence * l.width + head * Dim, first, l.width, l.sequence);
    load_rows<T, Dim>(q + kRows<Dim>, saved.dy + at.batch * l.sequence * y_stride + head * Dim, first, y_stride,
                      l.sequence);
    const int64_t of_queries = (at.batch * l.heads + head) * l.sequence;
    float* lses = statistics + 2 * buffer * kTile;
    for (int i = static_cast<int>(threadIdx.x); i < kTile; i += kBlock) {
      const bool there = first + i < l.sequence;
      const int64_t query = of_queries + (there ? first + i : 0);
      copy<4>(lses + i, saved.lse + query, there);
      copy<4>(lses + kTile + i, delta + query, there);
    }
    if constexpr (Drops) {
      for (int i = static_cast<int>(threadIdx.x); i < kDrawWords; i += kBlock) {
        const QueryDraw draw = draw_of(l, random_key, at.batch, head, first + i / 2);
        kept_words[buffer * kDrawWords + i] = kept_keys<kHalfRow>(l, draw, at.tile * kTile + i % 2 * kHalfRow);
      }
    }
  };
  const auto work = [&](int64_t step, int buffer) {
    const T* q = rows + 2 * buffer * kRows<Dim>;
    const T* g = q + kRows<Dim>;
    const float* lses = statistics + 2 * buffer * kTile;
    products<T, Dim>(scores, SharedStrip<T, Dim>{k + lane.warp * kStrip * (Dim + kSpare)}, q);  // keys by queries
    products<T, Dim>(slopes, SharedStrip<T, Dim>{v + lane.warp * kStrip * (Dim + kSpare)}, g);
    __syncwarp();
    float values[kHalfRow];
    read_scores(values, scores, lane);
    __syncwarp();
    const int64_t first_query = (first_tile + step % of_head) * kTile;
    const Seen seen = queries_seeing(l, key, first_query);
    const float bend_slope = slope_of(l, at.head * l.group + static_cast<int>(step / of_head));
#pragma unroll
    for (int i = 0; i < kHalfRow; i += kEach) {
      const int column = lane.column(i);
      const Pack<kEach> lse = load<kEach>(lses + column), sums = load<kEach>(lses + kTile + column);
      Pack<kEach> dp = load<kEach>(slopes + lane.row * kScorePitch + column);
      Pack<kEach> weights;
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        float bend;
        const float score = bent(l, bend_slope, first_query + column + e, key, values[i + e] * l.scale, bend);
        const float value = seen(column + e) ? __expf(score - lse.v[e]) : 0.0F;
        weights.v[e] = value;
        if constexpr (Drops) {
          const unsigned kept = kept_words[buffer * kDrawWords + 2 * (column + e) + of_strip / kHalfRow];
          weights.v[e] = dropped(l, kept, of_strip % kHalfRow, value);
          dp.v[e] = dropped(l, kept, of_strip % kHalfRow, dp.v[e]);
        }
        dp.v[e] = value * (dp.v[e] - sums.v[e]) * l.scale * bend;
      }
      store<kEach>(p + lane.row * kProbabilityPitch + column, weights);
      store<kEach>(ds + lane.row * kProbabilityPitch + column, dp);
    }
    __syncwarp();
    accumulate<T, Dim>(dv, p, g);
    accumulate<T, Dim>(dk, ds, q);
  };
  each_step<kBuffers>(steps, load_tile, work);
  write_strip<T, Dim>(to.k + key_base + strip * l.kv_width, l.kv_width, 0, l.sequence - strip, scores, dk, lane,
                      Finish{false});
  write_strip<T, Dim>(to.v + key_base + strip * l.kv_width, l.kv_width, 0, l.sequence - strip, scores, dv, lane,
                      Finish{false});
}

int64_t tiles_of(const Layout& l) {
  return (l.sequence + kTile - 1) / kTile;
}

/// Shared memory of `matrices` tiles of rows, `scores` of fp32 scores, and `floats` more.
template <class Kernel>
std::size_t shared_bytes(Kernel* kernel, int dim, int matrices, int scores, int floats) {
  const int bytes = 2 * matrices * kTile * (dim + kSpare) + 4 * scores * kTile * kScorePitch + 4 * floats;
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "attention, shared memory");
  return static_cast<std::size_t>(bytes);
}

template <class T, int Dim, bool Drops>
void forward_of(cudaStream_t stream, const Layout& l, int64_t batch, const Inputs<T>& in, T* y, float* lse) {
  const int64_t tiles = tiles_of(l);
  const dim3 grid = row_grid(batch * l.heads * tiles, "attention");
  const std::size_t bytes = shared_bytes(forward_kernel<T, Dim, Drops>, Dim, 4, 1, 0);
  ORRERY_LAUNCH((forward_kernel<T, Dim, Drops>), grid, dim3(kBlock), bytes, stream, l, tiles, in, y, lse);
  check_launch("attention");
}

template <class T, int Dim, bool Drops>
void backward_of(cudaStream_t stream, const Layout& l, int64_t batch, const Inputs<T>& in, const Saved<T>& saved,
                 const Gradients<T>& out, float* delta) {
  const int64_t tiles = tiles_of(l), rows = batch * l.sequence * l.heads;
  constexpr int kBuffers = kBackwardBuffers<Dim>, kMatrices = 2 + 2 * kBuffers;
  constexpr int kWarps = kThreads / kWarp;
  ORRERY_LAUNCH(delta_kernel<T>, row_grid((rows + kWarps - 1) / kWarps, "attention_grad"), dim3(kThreads), 0, stream, l,
                rows, saved.dy, saved.y, delta);
  check_launch("attention_grad, deltas");
  const std::size_t dq_bytes = shared_bytes(dq_kernel<T, Dim, Drops>, Dim, kMatrices, 2, 0);
  ORRERY_LAUNCH((dq_kernel<T, Dim, Drops>), row_grid(batch * l.heads * tiles, "attention_grad"), dim3(kBlock), dq_bytes,
                stream, l, tiles, in, saved, delta, out);
  check_launch("attention_grad, queries");
  const std::size_t dkv_bytes =
      shared_bytes(dkv_kernel<T, Dim, Drops>, Dim, kMatrices, 2, kBuffers * (2 * kTile + (Drops ? kDrawWords : 0)));
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

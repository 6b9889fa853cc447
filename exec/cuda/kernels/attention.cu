// Attention over packed heads in fp32, tile by tile with an online softmax: Dao et al., "FlashAttention" (2022),
// algorithms 1 and 4, and "FlashAttention-2" (2023) for keeping the log-sum-exp. Backward is two kernels, one block per
// tile of queries for dq and one per tile of keys for dk and dv, so that no sum needs atomics. The unfused form stores
// the probabilities, as models/operators/op.h says, and reads them in backward. Ring attention is the same over one
// block of keys (Liu, Zaharia, Abbeel, "Ring Attention with Blockwise Transformers", 2023), merged by its log-sum-exp.
// Dropout applies to the probabilities when they multiply the values: sums, log-sum-exp and what is saved do not
// contain it.
#include "exec/cuda/kernels/attention_device.h"

namespace orrery::exec::cuda {
namespace {

constexpr int kTile = 32;              // queries, and keys, of a tile
constexpr int kLanes = 8;              // threads that share a row of a tile: kTile * kLanes == kThreads
constexpr int kEach = kTile / kLanes;  // columns of a tile of scores per thread
constexpr int kPitch = kTile + 1;      // of a tile of scores in shared memory
static_assert(kTile * kLanes == kThreads);

__device__ inline float lane_sum(float v) {  // over the kLanes threads of a row
  for (int offset = kLanes / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(kAllLanes, v, offset);
  return v;
}

__device__ inline float lane_max(float v) {
  for (int offset = kLanes / 2; offset > 0; offset /= 2) v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, offset));
  return v;
}

/// Rows first..first+31 of a matrix whose rows are `stride` apart into shared memory, rows dim + 1 apart (so that a
/// column's elements lie in different banks); rows past the sequence become zero.
template <class T>
__device__ inline void load_tile(float* tile, const T* source, int64_t first, int64_t stride, const Layout& l) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * l.dim; i += kThreads) {
    const int row = i / l.dim;
    const int column = i % l.dim;
    const int64_t t = first + row;
    tile[row * (l.dim + 1) + column] = t < l.sequence ? widen(source[t * stride + column]) : 0.0F;
  }
}

/// out[e] = a[row_a] . b[lane + kLanes * e], rows of two tiles.
__device__ inline void dots(const float* a, const float* b, int row_a, int lane, int dim, float* out) {
  for (int e = 0; e < kEach; ++e) out[e] = 0;
  const float* left = a + row_a * (dim + 1);
  const float* right = b + lane * (dim + 1);
  for (int d = 0; d < dim; ++d) {
    const float v = left[d];
#pragma unroll
    for (int e = 0; e < kEach; ++e) out[e] += v * right[e * kLanes * (dim + 1) + d];
  }
}

/// Scores of one query row against a tile of keys, -inf where masked. `bends` (null: not needed) gets the factors by
/// which a cap multiplies their gradients.
__device__ inline void scores(const Layout& l, const float* q, const float* k, int row, int lane, float slope,
                              int64_t query, int64_t first_key, float* s, float* bends = nullptr) {
  dots(q, k, row, lane, l.dim, s);
  for (int e = 0; e < kEach; ++e) {
    const int64_t key = first_key + lane + kLanes * e;
    float bend;
    const float score = bent(l, slope, query, key, s[e] * l.scale, bend);
    s[e] = masked(l, query, key) ? -INFINITY : score;
    if (bends) bends[e] = bend;
  }
}

static_assert(kTile / 8 <= kLanes);
/// Which keys of a tile are kept for one query, a bit for each; its lanes share the draws. All of a warp must call it.
__device__ inline unsigned kept_of_row(const Layout& l, const QueryDraw& draw, int lane, int64_t first_key) {
  unsigned kept = 0;
  if (lane < kTile / 8) kept = kept_keys<8>(l, draw, first_key + 8 * lane) << (8 * lane);
  for (int offset = kLanes / 2; offset > 0; offset /= 2) kept |= __shfl_xor_sync(kAllLanes, kept, offset);
  return kept;
}

/// Dropout's factors of the keys lane, lane + kLanes, … of a row; 1 without dropout.
__device__ inline void factors_of_row(const Layout& l, uint64_t key, int64_t batch, int64_t head, int64_t query,
                                      int lane, int64_t first_key, float* factors) {
  for (int e = 0; e < kEach; ++e) factors[e] = 1;
  if (!l.masks.draw.step) return;  // the same in the whole grid
  const unsigned kept = kept_of_row(l, draw_of(l, key, batch, head, query), lane, first_key);
  for (int e = 0; e < kEach; ++e) factors[e] = (kept >> (lane + kLanes * e) & 1U) != 0 ? l.masks.draw.scale : 0.0F;
}
__device__ inline uint64_t key_of(const Layout& l) {
  return l.masks.draw.step ? key_of(l.masks.draw) : 0;
}

/// Block: 32 queries of one head. Shared: q, k-or-v, probabilities. A row's running maximum is finite from the first
/// tile in which the row sees a key; rows that see no key are left as they are.
template <class T, int PerLane>
__global__ void __launch_bounds__(kThreads) attention_kernel(Layout l, Inputs<T> in, T* y, float* lse, T* stored) {
  ORRERY_DYNAMIC_SHARED(shared);
  float* q = shared;
  float* kv = q + kTile * (l.dim + 1);
  float* p = kv + kTile * (l.dim + 1);
  const Place at = place_of(l.tiles, l.heads);
  if ((at.tile + 1) * kTile <= l.first_query) return;  // the whole block
  const int row = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t query = at.tile * kTile + row;
  const bool works = query < l.sequence && query >= l.first_query;
  const int64_t key_base = at.batch * l.sequence * l.kv_width + static_cast<int64_t>(at.head / l.group) * l.dim;
  const T* keys = in.k + key_base;
  const T* values = in.v + key_base;
  load_tile(q, in.q + at.batch * l.sequence * l.width + static_cast<int64_t>(at.head) * l.dim, at.tile * kTile, l.width,
            l);
  float acc[PerLane];
#pragma unroll
  for (int i = 0; i < PerLane; ++i) acc[i] = 0;
  float top = -INFINITY;
  float sum = 0;
  const int64_t tiles = tiles_seen(l, at.tile, kTile);
  const uint64_t random_key = key_of(l);
  const float slope = slope_of(l, at.head);
  float s[kEach];
  float factors[kEach];
  for (int64_t tile = first_tile_seen(l, at.tile, kTile); tile < tiles; ++tile) {
    __syncthreads();
    load_tile(kv, keys, tile * kTile, l.kv_width, l);
    __syncthreads();
    scores(l, q, kv, row, lane, slope, query, tile * kTile, s);
    float best = s[0];
    for (int e = 1; e < kEach; ++e) best = fmaxf(best, s[e]);
    best = fmaxf(top, lane_max(best));
    const float shrink = top == -INFINITY ? 0.0F : expf(top - best);
    float part = 0;
    factors_of_row(l, random_key, at.batch, at.head, query, lane, tile * kTile, factors);
    for (int e = 0; e < kEach; ++e) {
      const float v = best == -INFINITY ? 0.0F : expf(s[e] - best);
      p[row * kPitch + lane + kLanes * e] = v * factors[e];
      part += v;
    }
    sum = sum * shrink + lane_sum(part);
    top = best;
    __syncthreads();
    load_tile(kv, values, tile * kTile, l.kv_width, l);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < PerLane; ++i) {
      const int d = lane + kLanes * i;
      if (d >= l.dim) continue;
      float value = acc[i] * shrink;
      for (int j = 0; j < kTile; ++j) value += p[row * kPitch + j] * kv[j * (l.dim + 1) + d];
      acc[i] = value;
    }
  }
  const float here = top + logf(sum);
  const int64_t saved_row = (at.batch * l.heads + at.head) * l.sequence + query;
  const float before = works && l.accumulate ? lse[saved_row] : 0.0F;
  __syncthreads();  // all lanes of a row have read it before one of them writes it
  if (works) {
    T* out = y + ((at.batch * l.sequence + query) * l.heads + at.head) * l.dim;
    const Merged m = l.accumulate ? merge(before, here) : Merged{here, 0, 1};
#pragma unroll
    for (int i = 0; i < PerLane; ++i) {
      const int d = lane + kLanes * i;
      if (d >= l.dim) continue;
      const float value = acc[i] / sum;
      put(out + d, l.accumulate ? m.keep * widen(out[d]) + m.add * value : value);
    }
    if (l.flash && lane == 0) lse[saved_row] = m.lse;
  }
  if (l.flash) return;
  for (int64_t tile = 0; tile < l.tiles; ++tile) {  // the probabilities, zero where masked
    __syncthreads();
    load_tile(kv, keys, tile * kTile, l.kv_width, l);
    __syncthreads();
    scores(l, q, kv, row, lane, slope, query, tile * kTile, s);
    for (int e = 0; e < kEach; ++e) {
      const int64_t key = tile * kTile + lane + kLanes * e;
      if (query < l.sequence && key < l.sequence) put(stored + saved_row * l.sequence + key, expf(s[e] - here));
    }
  }
}

/// Probabilities of one query row over a tile of keys: from the log-sum-exp, or as stored. `bends`: as in scores().
template <class T>
__device__ inline void probabilities(const Layout& l, const float* q, const float* k, const Saved<T>& saved,
                                     int64_t saved_row, int row, int lane, float slope, int64_t query,
                                     int64_t first_key, float* p, float* bends) {
  const bool real_row = query < l.sequence && query >= l.first_query;
  if (l.flash || l.cap > 0) {
    scores(l, q, k, row, lane, slope, query, first_key, p, bends);
  } else {
    for (int e = 0; e < kEach; ++e) bends[e] = 1;
  }
  if (l.flash) {
    const float lse = real_row ? saved.lse[saved_row] : 0.0F;
    for (int e = 0; e < kEach; ++e) p[e] = real_row ? expf(p[e] - lse) : 0.0F;
    return;
  }
  for (int e = 0; e < kEach; ++e) {
    const int64_t key = first_key + lane + kLanes * e;
    const bool real = real_row && !masked(l, query, key);
    p[e] = real ? widen(saved.probabilities[saved_row * l.sequence + key]) : 0.0F;
  }
}

/// dy . y of one query row: the row's sum of p * dp.
template <class T>
__device__ inline float row_delta(const Layout& l, const float* dy_tile, const T* y_row, int row, int lane, bool real) {
  float part = 0;
  if (real)
    for (int d = lane; d < l.dim; d += kLanes) part += dy_tile[row * (l.dim + 1) + d] * widen(y_row[d]);
  return lane_sum(part);
}

/// Block: 32 queries of one head. Shared: q, dy, k, v, ds.
template <class T, int PerLane>
__global__ void __launch_bounds__(kThreads)
    attention_dq_kernel(Layout l, Inputs<T> in, Saved<T> saved, Gradients<T> out) {
  ORRERY_DYNAMIC_SHARED(shared);
  const int size = kTile * (l.dim + 1);
  float* q = shared;
  float* g = q + size;
  float* k = g + size;
  float* v = k + size;
  float* ds = v + size;
  const Place at = place_of(l.tiles, l.heads);
  if ((at.tile + 1) * kTile <= l.first_query) return;  // the whole block
  const int row = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t query = at.tile * kTile + row;
  const int64_t q_base = at.batch * l.sequence * l.width + static_cast<int64_t>(at.head) * l.dim;
  const int64_t key_base = at.batch * l.sequence * l.kv_width + static_cast<int64_t>(at.head / l.group) * l.dim;
  const int64_t y_stride = static_cast<int64_t>(l.heads) * l.dim;
  const int64_t y_base = at.batch * l.sequence * y_stride + static_cast<int64_t>(at.head) * l.dim;
  load_tile(q, in.q + q_base, at.tile * kTile, l.width, l);
  load_tile(g, saved.dy + y_base, at.tile * kTile, y_stride, l);
  __syncthreads();
  const float delta = row_delta(l, g, saved.y + y_base + query * y_stride, row, lane, query < l.sequence);
  const int64_t saved_row = (at.batch * l.heads + at.head) * l.sequence + query;
  float acc[PerLane];
#pragma unroll
  for (int i = 0; i < PerLane; ++i) acc[i] = 0;
  const int64_t tiles = tiles_seen(l, at.tile, kTile);
  const uint64_t random_key = key_of(l);
  const float slope = slope_of(l, at.head);
  for (int64_t tile = first_tile_seen(l, at.tile, kTile); tile < tiles; ++tile) {
    __syncthreads();
    load_tile(k, in.k + key_base, tile * kTile, l.kv_width, l);
    load_tile(v, in.v + key_base, tile * kTile, l.kv_width, l);
    __syncthreads();
    float p[kEach];
    float dp[kEach];
    float bends[kEach];
    probabilities(l, q, k, saved, saved_row, row, lane, slope, query, tile * kTile, p, bends);
    dots(g, v, row, lane, l.dim, dp);
    float factors[kEach];
    factors_of_row(l, random_key, at.batch, at.head, query, lane, tile * kTile, factors);
    for (int e = 0; e < kEach; ++e)
      ds[row * kPitch + lane + kLanes * e] = p[e] * (factors[e] * dp[e] - delta) * l.scale * bends[e];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < PerLane; ++i) {
      const int d = lane + kLanes * i;
      if (d >= l.dim) continue;
      for (int j = 0; j < kTile; ++j) acc[i] += ds[row * kPitch + j] * k[j * (l.dim + 1) + d];
    }
  }
  if (query >= l.sequence || query < l.first_query) return;
  T* dq = out.q + q_base + query * l.width;
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    const int d = lane + kLanes * i;
    if (d < l.dim) put(dq + d, l.accumulate ? widen(dq[d]) + acc[i] : acc[i]);
  }
}

/// Block: 32 keys of one key head; adds up over the query heads that share it, then over tiles of queries, in order.
/// Shared: q, dy, k, v, p, ds. While scores are computed `row` is a query; while sums are, it is a key.
template <class T, int PerLane>
__global__ void __launch_bounds__(kThreads)
    attention_dkv_kernel(Layout l, Inputs<T> in, Saved<T> saved, Gradients<T> out) {
  ORRERY_DYNAMIC_SHARED(shared);
  const int size = kTile * (l.dim + 1);
  float* q = shared;
  float* g = q + size;
  float* k = g + size;
  float* v = k + size;
  float* ps = v + size;
  float* ds = ps + kTile * kPitch;
  const Place at = place_of(l.tiles, l.key_heads);
  const int row = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t key_base = at.batch * l.sequence * l.kv_width + static_cast<int64_t>(at.head) * l.dim;
  const int64_t y_stride = static_cast<int64_t>(l.heads) * l.dim;
  load_tile(k, in.k + key_base, at.tile * kTile, l.kv_width, l);
  load_tile(v, in.v + key_base, at.tile * kTile, l.kv_width, l);
  float dk[PerLane];
  float dv[PerLane];
#pragma unroll
  for (int i = 0; i < PerLane; ++i) dk[i] = dv[i] = 0;
  const bool any = at.tile * kTile < l.keys;
  const uint64_t random_key = key_of(l);
  const int64_t first_tile = l.causal && at.tile > l.first_query / kTile ? at.tile : l.first_query / kTile;
  const int64_t last_tile = tiles_seeing(l, at.tile, kTile, l.tiles);
  for (int shared_head = 0; any && shared_head < l.group; ++shared_head) {
    const int head = at.head * l.group + shared_head;
    const int64_t y_base = at.batch * l.sequence * y_stride + static_cast<int64_t>(head) * l.dim;
    const T* queries = in.q + at.batch * l.sequence * l.width + static_cast<int64_t>(head) * l.dim;
    const float slope = slope_of(l, head);
    for (int64_t tile = first_tile; tile < last_tile; ++tile) {
      const int64_t query = tile * kTile + row;
      const int64_t saved_row = (at.batch * l.heads + head) * l.sequence + query;
      __syncthreads();
      load_tile(q, queries, tile * kTile, l.width, l);
      load_tile(g, saved.dy + y_base, tile * kTile, y_stride, l);
      __syncthreads();
      const float delta = row_delta(l, g, saved.y + y_base + query * y_stride, row, lane, query < l.sequence);
      float p[kEach];
      float dp[kEach];
      float bends[kEach];
      probabilities(l, q, k, saved, saved_row, row, lane, slope, query, at.tile * kTile, p, bends);
      dots(g, v, row, lane, l.dim, dp);
      float factors[kEach];
      factors_of_row(l, random_key, at.batch, head, query, lane, at.tile * kTile, factors);
      for (int e = 0; e < kEach; ++e) {
        ps[row * kPitch + lane + kLanes * e] = p[e] * factors[e];
        ds[row * kPitch + lane + kLanes * e] = p[e] * (factors[e] * dp[e] - delta) * l.scale * bends[e];
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < PerLane; ++i) {
        const int d = lane + kLanes * i;
        if (d >= l.dim) continue;
        for (int j = 0; j < kTile; ++j) {
          dv[i] += ps[j * kPitch + row] * g[j * (l.dim + 1) + d];
          dk[i] += ds[j * kPitch + row] * q[j * (l.dim + 1) + d];
        }
      }
    }
  }
  const int64_t key = at.tile * kTile + row;
  if (key >= l.sequence) return;
  const int64_t target = key_base + key * l.kv_width;
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    const int d = lane + kLanes * i;
    if (d >= l.dim) continue;
    put(out.k + target + d, dk[i]);
    put(out.v + target + d, dv[i]);
  }
}

Layout layout_of(const AttentionShape& shape) {
  if (shape.head_dim < 1 || shape.head_dim > kMaxHeadDim)
    throw Failure("CUDA: attention: heads wider than " + std::to_string(kMaxHeadDim) + " are not supported");
  Layout l{};
  l.sequence = shape.sequence;
  l.tiles = (shape.sequence + kTile - 1) / kTile;
  l.heads = shape.heads;
  l.key_heads = shape.kv_heads;
  l.group = shape.heads / shape.kv_heads;
  l.dim = shape.head_dim;
  l.width = static_cast<int64_t>(shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  l.kv_width = l.width;
  l.causal = shape.causal;
  l.flash = shape.flash;
  l.keys = shape.sequence;
  l.scale =
      static_cast<float>(shape.score_scale > 0 ? shape.score_scale : 1.0 / sqrt(static_cast<double>(shape.head_dim)));
  l.cap = static_cast<float>(shape.cap);
  l.window = shape.window;
  l.alibi_heads = shape.alibi_heads;
  l.first_head = shape.first_head;
  l.masks = shape.masks;
  return l;
}

/// Shared memory of `matrices` tiles of rows and `squares` tiles of scores. Above 48 KiB a kernel must ask for it; the
/// largest here, 139 KiB at head width 256, is within the 163 KiB of sm_80 and the 227 KiB of sm_90.
template <class Kernel>
std::size_t shared_bytes(Kernel* kernel, const Layout& l, int matrices, int squares) {
  const int floats = matrices * kTile * (l.dim + 1) + squares * kTile * kPitch;
  const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
  if (bytes > 48 * 1024)
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(bytes)),
          "attention, shared memory");
  return bytes;
}

template <class T, int PerLane>
void launch_forward(cudaStream_t stream, const AttentionShape& shape, const Layout& l, const Inputs<T>& in, T* y,
                    float* lse, T* stored) {
  const dim3 grid = row_grid(shape.batch * l.heads * l.tiles, "attention");
  const std::size_t bytes = shared_bytes(attention_kernel<T, PerLane>, l, 2, 1);
  ORRERY_LAUNCH((attention_kernel<T, PerLane>), grid, dim3(kThreads), bytes, stream, l, in, y, lse, stored);
  check_launch("attention");
}

template <class T>
void forward(cudaStream_t stream, const AttentionShape& shape, const Layout& l, const Inputs<T>& in, T* y, float* lse,
             T* stored) {
  if constexpr (sizeof(T) == 2)
    if (fits_tensor_cores(l, in)) return tensor_forward(stream, l, shape.batch, in, y, lse);
  if (l.dim <= 8 * kLanes) return launch_forward<T, 8>(stream, shape, l, in, y, lse, stored);
  if (l.dim <= 16 * kLanes) return launch_forward<T, 16>(stream, shape, l, in, y, lse, stored);
  launch_forward<T, 32>(stream, shape, l, in, y, lse, stored);
}

template <class T, int PerLane>
void launch_backward(cudaStream_t stream, const AttentionShape& shape, const Layout& l, const Inputs<T>& in,
                     const Saved<T>& saved, const Gradients<T>& out) {
  const dim3 queries = row_grid(shape.batch * l.heads * l.tiles, "attention_grad");
  const std::size_t dq_bytes = shared_bytes(attention_dq_kernel<T, PerLane>, l, 4, 1);
  ORRERY_LAUNCH((attention_dq_kernel<T, PerLane>), queries, dim3(kThreads), dq_bytes, stream, l, in, saved, out);
  check_launch("attention_grad, queries");
  const dim3 keys = row_grid(shape.batch * l.key_heads * l.tiles, "attention_grad");
  const std::size_t dkv_bytes = shared_bytes(attention_dkv_kernel<T, PerLane>, l, 4, 2);
  ORRERY_LAUNCH((attention_dkv_kernel<T, PerLane>), keys, dim3(kThreads), dkv_bytes, stream, l, in, saved, out);
  check_launch("attention_grad, keys");
}

template <class T>
void backward(cudaStream_t stream, const AttentionShape& shape, const Layout& l, const Inputs<T>& in,
              const Saved<T>& saved, const Gradients<T>& out, KernelScratch scratch) {
  if constexpr (sizeof(T) == 2) {
    const auto deltas = static_cast<std::size_t>(shape.batch * shape.heads * shape.sequence) * sizeof(float);
    if (fits_tensor_cores(l, in) && deltas <= scratch.bytes && packs<T>(l.dim, saved.dy, saved.y))
      return tensor_backward(stream, l, shape.batch, in, saved, out, static_cast<float*>(scratch.data));
  }
  if (l.dim <= 8 * kLanes) return launch_backward<T, 8>(stream, shape, l, in, saved, out);
  if (l.dim <= 16 * kLanes) return launch_backward<T, 16>(stream, shape, l, in, saved, out);
  launch_backward<T, 32>(stream, shape, l, in, saved, out);
}

/// The parts of a packed row.
int64_t keys_at(const AttentionShape& s) {
  return static_cast<int64_t>(s.heads) * s.head_dim;
}
int64_t values_at(const AttentionShape& s) {
  return static_cast<int64_t>(s.heads + s.kv_heads) * s.head_dim;
}

Layout ring_layout(const AttentionShape& shape, const RingBlock& block) {
  Layout l = layout_of(shape);
  l.kv_width = 2 * static_cast<int64_t>(shape.kv_heads) * shape.head_dim;
  l.causal = block.triangle;
  l.flash = true;
  l.first_query = block.first_query;
  l.keys = block.keys;
  l.accumulate = block.accumulate;
  return l;
}

}  // namespace

template <class T>
void attention(cudaStream_t stream, const AttentionShape& shape, const T* qkv, T* y, void* saved) {
  const Inputs<T> in{qkv, qkv + keys_at(shape), qkv + values_at(shape)};
  forward(stream, shape, layout_of(shape), in, y, static_cast<float*>(saved), static_cast<T*>(saved));
}

template <class T>
void attention_grad(cudaStream_t stream, const AttentionShape& shape, const T* dy, const T* qkv, const T* y,
                    const void* saved, T* dqkv, KernelScratch scratch) {
  const Inputs<T> in{qkv, qkv + keys_at(shape), qkv + values_at(shape)};
  const Gradients<T> out{dqkv, dqkv + keys_at(shape), dqkv + values_at(shape)};
  backward(stream, shape, layout_of(shape), in,
           Saved<T>{dy, y, static_cast<const float*>(saved), static_cast<const T*>(saved)}, out, scratch);
}

template <class T>
void ring_attention(cudaStream_t stream, const AttentionShape& shape, const RingBlock& block, const T* qkv, const T* kv,
                    T* y, float* lse) {
  const Inputs<T> in{qkv, kv, kv + static_cast<int64_t>(shape.kv_heads) * shape.head_dim};
  T* nothing = nullptr;
  forward(stream, shape, ring_layout(shape, block), in, y, lse, nothing);
}

template <class T>
void ring_attention_grad(cudaStream_t stream, const AttentionShape& shape, const RingBlock& block, const T* dy,
                         const T* qkv, const T* y, const float* lse, const T* kv, T* dqkv, T* dkv,
                         KernelScratch scratch) {
  const int64_t values = static_cast<int64_t>(shape.kv_heads) * shape.head_dim;
  const Inputs<T> in{qkv, kv, kv + values};
  backward(stream, shape, ring_layout(shape, block), in, Saved<T>{dy, y, lse, nullptr},
           Gradients<T>{dqkv, dkv, dkv + values}, scratch);
}

#define ORRERY_INSTANTIATE(T)                                                                                          \
  template void attention(cudaStream_t, const AttentionShape&, const T*, T*, void*);                                   \
  template void attention_grad(cudaStream_t, const AttentionShape&, const T*, const T*, const T*, const void*, T*,     \
                               KernelScratch);                                                                         \
  template void ring_attention(cudaStream_t, const AttentionShape&, const RingBlock&, const T*, const T*, T*, float*); \
  template void ring_attention_grad(cudaStream_t, const AttentionShape&, const RingBlock&, const T*, const T*,         \
                                    const T*, const float*, const T*, T*, T*, KernelScratch);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda

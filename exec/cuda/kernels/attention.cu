// Attention over packed heads in fp32, tile by tile with an online softmax: Dao et al., "FlashAttention" (2022),
// algorithms 1 and 4, and "FlashAttention-2" (2023) for keeping the log-sum-exp. Backward is two kernels, one block per
// tile of queries for dq and one per tile of keys for dk and dv, so that no sum needs atomics. The unfused form
// stores the probabilities, as models/op.h says, and reads them in backward.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/kernels.h"

namespace orrery::exec::cuda {
namespace {

constexpr int kTile = 32;              // queries, and keys, of a tile
constexpr int kLanes = 8;              // threads that share a row of a tile: kTile * kLanes == kThreads
constexpr int kEach = kTile / kLanes;  // columns of a tile of scores per thread
constexpr int kPitch = kTile + 1;      // of a tile of scores in shared memory
static_assert(kTile * kLanes == kThreads);

struct Layout {
  int64_t sequence, tiles, width;  // width of a token's row in qkv
  int heads, group, dim;           // group: query heads per key head
  int key_heads;
  bool causal, flash;
  float scale;
};

/// Where a block works: one sequence and one head, from a one-dimensional grid with the tile running fastest.
struct Place {
  int64_t batch, tile;
  int head;
};

__device__ inline Place place_of(const Layout& l, int heads) {
  const int64_t index = blockIdx.x;
  const int64_t pair = index / l.tiles;
  return {pair / heads, index % l.tiles, static_cast<int>(pair % heads)};
}

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
__device__ inline void load_tile(float* tile, const float* source, int64_t first, int64_t stride, const Layout& l) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * l.dim; i += kThreads) {
    const int row = i / l.dim;
    const int column = i % l.dim;
    const int64_t t = first + row;
    tile[row * (l.dim + 1) + column] = t < l.sequence ? source[t * stride + column] : 0.0F;
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

__device__ inline bool masked(const Layout& l, int64_t query, int64_t key) {
  return key >= l.sequence || (l.causal && key > query);
}

/// Scores of one query row against a tile of keys, -inf where masked.
__device__ inline void scores(const Layout& l, const float* q, const float* k, int row, int lane, int64_t query,
                              int64_t first_key, float* s) {
  dots(q, k, row, lane, l.dim, s);
  for (int e = 0; e < kEach; ++e) s[e] = masked(l, query, first_key + lane + kLanes * e) ? -INFINITY : s[e] * l.scale;
}

/// Block: 32 queries of one head. Shared: q, k-or-v, probabilities. Every row sees key 0 in its first tile, so its
/// running maximum is finite from then on.
template <int PerLane>
__global__ void __launch_bounds__(kThreads) attention_kernel(Layout l, const float* qkv, float* y, float* saved) {
  ORRERY_DYNAMIC_SHARED(shared);
  float* q = shared;
  float* kv = q + kTile * (l.dim + 1);
  float* p = kv + kTile * (l.dim + 1);
  const Place at = place_of(l, l.heads);
  const int row = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t query = at.tile * kTile + row;
  const float* token = qkv + at.batch * l.sequence * l.width;
  const float* keys = token + static_cast<int64_t>(l.heads + at.head / l.group) * l.dim;
  const float* values = keys + static_cast<int64_t>(l.key_heads) * l.dim;
  load_tile(q, token + static_cast<int64_t>(at.head) * l.dim, at.tile * kTile, l.width, l);
  float acc[PerLane];
#pragma unroll
  for (int i = 0; i < PerLane; ++i) acc[i] = 0;
  float top = -INFINITY;
  float sum = 0;
  const int64_t tiles = l.causal ? at.tile + 1 : l.tiles;
  float s[kEach];
  for (int64_t tile = 0; tile < tiles; ++tile) {
    __syncthreads();
    load_tile(kv, keys, tile * kTile, l.width, l);
    __syncthreads();
    scores(l, q, kv, row, lane, query, tile * kTile, s);
    float best = s[0];
    for (int e = 1; e < kEach; ++e) best = fmaxf(best, s[e]);
    best = fmaxf(top, lane_max(best));
    const float shrink = expf(top - best);
    float part = 0;
    for (int e = 0; e < kEach; ++e) {
      const float v = expf(s[e] - best);
      p[row * kPitch + lane + kLanes * e] = v;
      part += v;
    }
    sum = sum * shrink + lane_sum(part);
    top = best;
    __syncthreads();
    load_tile(kv, values, tile * kTile, l.width, l);
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
  const float lse = top + logf(sum);
  const int64_t saved_row = (at.batch * l.heads + at.head) * l.sequence + query;
  if (query < l.sequence) {
    float* out = y + ((at.batch * l.sequence + query) * l.heads + at.head) * l.dim;
#pragma unroll
    for (int i = 0; i < PerLane; ++i) {
      const int d = lane + kLanes * i;
      if (d < l.dim) out[d] = acc[i] / sum;
    }
    if (l.flash && lane == 0) saved[saved_row] = lse;
  }
  if (l.flash) return;
  for (int64_t tile = 0; tile < l.tiles; ++tile) {  // the probabilities, zero where masked
    __syncthreads();
    load_tile(kv, keys, tile * kTile, l.width, l);
    __syncthreads();
    scores(l, q, kv, row, lane, query, tile * kTile, s);
    for (int e = 0; e < kEach; ++e) {
      const int64_t key = tile * kTile + lane + kLanes * e;
      if (query < l.sequence && key < l.sequence) saved[saved_row * l.sequence + key] = expf(s[e] - lse);
    }
  }
}

/// Probabilities of one query row over a tile of keys: from the log-sum-exp, or as stored.
__device__ inline void probabilities(const Layout& l, const float* q, const float* k, const float* saved,
                                     int64_t saved_row, int row, int lane, int64_t query, int64_t first_key, float* p) {
  if (l.flash) {
    scores(l, q, k, row, lane, query, first_key, p);
    const float lse = query < l.sequence ? saved[saved_row] : 0.0F;
    for (int e = 0; e < kEach; ++e) p[e] = query < l.sequence ? expf(p[e] - lse) : 0.0F;
    return;
  }
  for (int e = 0; e < kEach; ++e) {
    const int64_t key = first_key + lane + kLanes * e;
    const bool real = query < l.sequence && !masked(l, query, key);
    p[e] = real ? saved[saved_row * l.sequence + key] : 0.0F;
  }
}

/// dy . y of one query row: the row's sum of p * dp.
__device__ inline float row_delta(const Layout& l, const float* dy_tile, const float* y_row, int row, int lane,
                                  bool real) {
  float part = 0;
  if (real)
    for (int d = lane; d < l.dim; d += kLanes) part += dy_tile[row * (l.dim + 1) + d] * y_row[d];
  return lane_sum(part);
}

/// Block: 32 queries of one head. Shared: q, dy, k, v, ds.
template <int PerLane>
__global__ void __launch_bounds__(kThreads)
    attention_dq_kernel(Layout l, const float* dy, const float* qkv, const float* y, const float* saved, float* dqkv) {
  ORRERY_DYNAMIC_SHARED(shared);
  const int size = kTile * (l.dim + 1);
  float* q = shared;
  float* g = q + size;
  float* k = g + size;
  float* v = k + size;
  float* ds = v + size;
  const Place at = place_of(l, l.heads);
  const int row = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t query = at.tile * kTile + row;
  const float* token = qkv + at.batch * l.sequence * l.width;
  const float* keys = token + static_cast<int64_t>(l.heads + at.head / l.group) * l.dim;
  const float* values = keys + static_cast<int64_t>(l.key_heads) * l.dim;
  const int64_t y_stride = static_cast<int64_t>(l.heads) * l.dim;
  const int64_t y_base = at.batch * l.sequence * y_stride + static_cast<int64_t>(at.head) * l.dim;
  load_tile(q, token + static_cast<int64_t>(at.head) * l.dim, at.tile * kTile, l.width, l);
  load_tile(g, dy + y_base, at.tile * kTile, y_stride, l);
  __syncthreads();
  const float delta = row_delta(l, g, y + y_base + query * y_stride, row, lane, query < l.sequence);
  const int64_t saved_row = (at.batch * l.heads + at.head) * l.sequence + query;
  float acc[PerLane];
#pragma unroll
  for (int i = 0; i < PerLane; ++i) acc[i] = 0;
  const int64_t tiles = l.causal ? at.tile + 1 : l.tiles;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    __syncthreads();
    load_tile(k, keys, tile * kTile, l.width, l);
    load_tile(v, values, tile * kTile, l.width, l);
    __syncthreads();
    float p[kEach];
    float dp[kEach];
    probabilities(l, q, k, saved, saved_row, row, lane, query, tile * kTile, p);
    dots(g, v, row, lane, l.dim, dp);
    for (int e = 0; e < kEach; ++e) ds[row * kPitch + lane + kLanes * e] = p[e] * (dp[e] - delta) * l.scale;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < PerLane; ++i) {
      const int d = lane + kLanes * i;
      if (d >= l.dim) continue;
      for (int j = 0; j < kTile; ++j) acc[i] += ds[row * kPitch + j] * k[j * (l.dim + 1) + d];
    }
  }
  if (query >= l.sequence) return;
  float* out = dqkv + (at.batch * l.sequence + query) * l.width + static_cast<int64_t>(at.head) * l.dim;
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    const int d = lane + kLanes * i;
    if (d < l.dim) out[d] = acc[i];
  }
}

/// Block: 32 keys of one key head; adds up over the query heads that share it, then over tiles of queries, in order.
/// Shared: q, dy, k, v, p, ds. While scores are computed `row` is a query; while sums are, it is a key.
template <int PerLane>
__global__ void __launch_bounds__(kThreads)
    attention_dkv_kernel(Layout l, const float* dy, const float* qkv, const float* y, const float* saved, float* dqkv) {
  ORRERY_DYNAMIC_SHARED(shared);
  const int size = kTile * (l.dim + 1);
  float* q = shared;
  float* g = q + size;
  float* k = g + size;
  float* v = k + size;
  float* ps = v + size;
  float* ds = ps + kTile * kPitch;
  const Place at = place_of(l, l.key_heads);
  const int row = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const float* token = qkv + at.batch * l.sequence * l.width;
  const int64_t key_offset = static_cast<int64_t>(l.heads + at.head) * l.dim;
  const int64_t value_offset = key_offset + static_cast<int64_t>(l.key_heads) * l.dim;
  const int64_t y_stride = static_cast<int64_t>(l.heads) * l.dim;
  load_tile(k, token + key_offset, at.tile * kTile, l.width, l);
  load_tile(v, token + value_offset, at.tile * kTile, l.width, l);
  float dk[PerLane];
  float dv[PerLane];
#pragma unroll
  for (int i = 0; i < PerLane; ++i) dk[i] = dv[i] = 0;
  for (int shared_head = 0; shared_head < l.group; ++shared_head) {
    const int head = at.head * l.group + shared_head;
    const int64_t y_base = at.batch * l.sequence * y_stride + static_cast<int64_t>(head) * l.dim;
    for (int64_t tile = l.causal ? at.tile : 0; tile < l.tiles; ++tile) {
      const int64_t query = tile * kTile + row;
      const int64_t saved_row = (at.batch * l.heads + head) * l.sequence + query;
      __syncthreads();
      load_tile(q, token + static_cast<int64_t>(head) * l.dim, tile * kTile, l.width, l);
      load_tile(g, dy + y_base, tile * kTile, y_stride, l);
      __syncthreads();
      const float delta = row_delta(l, g, y + y_base + query * y_stride, row, lane, query < l.sequence);
      float p[kEach];
      float dp[kEach];
      probabilities(l, q, k, saved, saved_row, row, lane, query, at.tile * kTile, p);
      dots(g, v, row, lane, l.dim, dp);
      for (int e = 0; e < kEach; ++e) {
        ps[row * kPitch + lane + kLanes * e] = p[e];
        ds[row * kPitch + lane + kLanes * e] = p[e] * (dp[e] - delta) * l.scale;
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
  float* out = dqkv + (at.batch * l.sequence + key) * l.width;
#pragma unroll
  for (int i = 0; i < PerLane; ++i) {
    const int d = lane + kLanes * i;
    if (d >= l.dim) continue;
    out[key_offset + d] = dk[i];
    out[value_offset + d] = dv[i];
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
  l.causal = shape.causal;
  l.flash = shape.flash;
  l.scale = static_cast<float>(1.0 / sqrt(static_cast<double>(shape.head_dim)));
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

template <int PerLane>
void launch_forward(cudaStream_t stream, const AttentionShape& shape, const Layout& l, const float* qkv, float* y,
                    float* saved) {
  const dim3 grid = row_grid(shape.batch * l.heads * l.tiles, "attention");
  const std::size_t bytes = shared_bytes(attention_kernel<PerLane>, l, 2, 1);
  ORRERY_LAUNCH(attention_kernel<PerLane>, grid, dim3(kThreads), bytes, stream, l, qkv, y, saved);
  check_launch("attention");
}

template <int PerLane>
void launch_backward(cudaStream_t stream, const AttentionShape& shape, const Layout& l, const float* dy,
                     const float* qkv, const float* y, const float* saved, float* dqkv) {
  const dim3 queries = row_grid(shape.batch * l.heads * l.tiles, "attention_grad");
  const std::size_t dq_bytes = shared_bytes(attention_dq_kernel<PerLane>, l, 4, 1);
  ORRERY_LAUNCH(attention_dq_kernel<PerLane>, queries, dim3(kThreads), dq_bytes, stream, l, dy, qkv, y, saved, dqkv);
  check_launch("attention_grad, queries");
  const dim3 keys = row_grid(shape.batch * l.key_heads * l.tiles, "attention_grad");
  const std::size_t dkv_bytes = shared_bytes(attention_dkv_kernel<PerLane>, l, 4, 2);
  ORRERY_LAUNCH(attention_dkv_kernel<PerLane>, keys, dim3(kThreads), dkv_bytes, stream, l, dy, qkv, y, saved, dqkv);
  check_launch("attention_grad, keys");
}

}  // namespace

void attention(cudaStream_t stream, const AttentionShape& shape, const float* qkv, float* y, float* saved) {
  const Layout l = layout_of(shape);
  if (l.dim <= 8 * kLanes) return launch_forward<8>(stream, shape, l, qkv, y, saved);
  if (l.dim <= 16 * kLanes) return launch_forward<16>(stream, shape, l, qkv, y, saved);
  launch_forward<32>(stream, shape, l, qkv, y, saved);
}

void attention_grad(cudaStream_t stream, const AttentionShape& shape, const float* dy, const float* qkv, const float* y,
                    const float* saved, float* dqkv) {
  const Layout l = layout_of(shape);
  if (l.dim <= 8 * kLanes) return launch_backward<8>(stream, shape, l, dy, qkv, y, saved, dqkv);
  if (l.dim <= 16 * kLanes) return launch_backward<16>(stream, shape, l, dy, qkv, y, saved, dqkv);
  launch_backward<32>(stream, shape, l, dy, qkv, y, saved, dqkv);
}

}  // namespace orrery::exec::cuda

// Activations by their formulas (exec/engine/activations.h), caps of logits, and norms of the heads of q and k.
#include "exec/cuda/kernels/activations_device.h"
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/functions_device.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {
namespace {

template <class T>
struct SoftCap {
  const T* x;
  T* y;
  float cap;
  template <int N>
  __device__ void run(int64_t i) const {
    Pack<N> v = load<N>(x + i);
#pragma unroll
    for (int e = 0; e < N; ++e) v.v[e] = cap * tanh_for<T>(v.v[e] / cap);
    store(y + i, v);
  }
};

/// Packed heads of a token: `heads` of q, `key_heads` of k, as many of v.
struct Heads {
  int64_t heads, key_heads, dim;
  __device__ int64_t all() const { return heads + 2 * key_heads; }
  __device__ int64_t normed() const { return heads + key_heads; }
};

constexpr int kWarps = kThreads / kWarp;

/// A warp for each head of each token.
template <class T>
__global__ void __launch_bounds__(kThreads) head_norm_kernel(Heads h, const T* x, const T* weight_q, const T* weight_k,
                                                             T* y, float* rstd, int64_t tokens, float epsilon) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (index >= tokens * h.all()) return;  // the whole warp
  const int64_t head = index % h.all(), token = index / h.all();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const T* const from = x + index * h.dim;
  T* const to = y + index * h.dim;
  if (head >= h.normed()) {
    for (int64_t d = lane; d < h.dim; d += kWarp) to[d] = from[d];
    return;
  }
  float sum = 0;
  for (int64_t d = lane; d < h.dim; d += kWarp) sum += widen(from[d]) * widen(from[d]);
  const float r = 1.0F / sqrtf(warp_sum(sum) / static_cast<float>(h.dim) + epsilon);
  const T* const weight = head < h.heads ? weight_q : weight_k;
  for (int64_t d = lane; d < h.dim; d += kWarp) put(to + d, widen(from[d]) * r * widen(weight[d]));
  if (lane == 0) rstd[token * h.normed() + head] = r;
}

/// dx = rstd (dy w - x rstd^2 mean(dy w x)), a warp for each head of each token.
template <class T>
__global__ void __launch_bounds__(kThreads)
    head_norm_dx_kernel(Heads h, const T* dy, const T* x, const T* weight_q, const T* weight_k, const float* rstd,
                        T* dx, int64_t tokens) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (index >= tokens * h.all()) return;  // the whole warp
  const int64_t head = index % h.all(), token = index / h.all(), at = index * h.dim;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (head >= h.normed()) {
    if (dx != dy)
      for (int64_t d = lane; d < h.dim; d += kWarp) dx[at + d] = dy[at + d];
    return;
  }
  const T* const weight = head < h.heads ? weight_q : weight_k;
  float sum = 0;
  for (int64_t d = lane; d < h.dim; d += kWarp) sum += widen(dy[at + d]) * widen(weight[d]) * widen(x[at + d]);
  const float r = rstd[token * h.normed() + head];
  const float mean = warp_sum(sum) * r * r / static_cast<float>(h.dim);
  for (int64_t d = lane; d < h.dim; d += kWarp)
    put(dx + at + d, r * (widen(dy[at + d]) * widen(weight[d]) - widen(x[at + d]) * mean));
}

/// Sums of dy x rstd by column, over tokens and over the heads [first, first + count).
template <class T>
struct WeightSums {
  Heads h;
  const T* dy;
  const T* x;
  const float* rstd;
  GradientOf<T>* target;
  float* parts;  // (parts, dim); null: one part, added to the target
  int64_t rows, first, count, rows_per_part;
};

/// Block (32 columns, part) of (32, 32) threads: thread (x, y) adds rows y, y + 32, … of the part; then row 0 of the
/// threads adds the 32 sums.
template <class T>
__global__ void __launch_bounds__(kWarp* kWarp) head_weight_kernel(WeightSums<T> s) {
  __shared__ float sums[kWarp][kWarp + 1];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * s.rows_per_part;
  const int64_t end = begin + s.rows_per_part < s.rows ? begin + s.rows_per_part : s.rows;
  float sum = 0;
  if (column < s.h.dim)
    for (int64_t row = begin + threadIdx.y; row < end; row += kWarp) {
      const int64_t token = row / s.count, head = s.first + row % s.count;
      const int64_t at = (token * s.h.all() + head) * s.h.dim + column;
      sum += widen(s.dy[at]) * widen(s.x[at]) * s.rstd[token * s.h.normed() + head];
    }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= s.h.dim) return;
  float total = 0;
  for (int y = 0; y < kWarp; ++y) total += sums[y][threadIdx.x];
  if (s.parts)
    s.parts[blockIdx.y * s.h.dim + column] = total;
  else
    put(s.target + column, widen(s.target[column]) + total);
}

template <class G>
struct AddParts {
  const float* parts;
  G* target;
  int64_t count, dim;
  template <int N>
  __device__ void run(int64_t i) const {
    float sum = widen(target[i]);
    for (int64_t part = 0; part < count; ++part) sum += parts[part * dim + i];
    put(target + i, sum);
  }
};

template <class T>
void weight_sums(cudaStream_t stream, WeightSums<T> s, KernelScratch scratch) {
  constexpr int64_t kMostParts = 132, kLeastRows = 256;  // a block for each of an H200's multiprocessors
  dim3 grid = row_grid((s.h.dim + kWarp - 1) / kWarp, "head_norm_grad");
  const int64_t room = static_cast<int64_t>(scratch.bytes) / (static_cast<int64_t>(sizeof(float)) * s.h.dim);
  int64_t parts = s.rows / kLeastRows;
  parts = parts < kMostParts ? parts : kMostParts;
  parts = parts < room ? parts : room;
  if (parts < 1) parts = 1;
  s.rows_per_part = (s.rows + parts - 1) / parts;
  s.parts = parts > 1 ? static_cast<float*>(scratch.data) : nullptr;
  grid.y = static_cast<unsigned>(parts);
  ORRERY_LAUNCH(head_weight_kernel<T>, grid, dim3(kWarp, kWarp), 0, stream, s);
  check_launch("head_norm_grad, weights");
  if (parts > 1)
    launch_packs<1>(stream, s.h.dim, false, AddParts<GradientOf<T>>{s.parts, s.target, parts, s.h.dim},
                    "head_norm_grad, weights");
}

Heads heads_of(const AttentionShape& shape) {
  return {shape.heads, shape.kv_heads, shape.head_dim};
}

dim3 warps_for(int64_t warps, const char* name) {
  return row_grid((warps + kWarps - 1) / kWarps, name);
}

}  // namespace

// nvcc accepts kWidth<T> as a constant neither within a generic lambda nor after it.
template <class T>
void activate(cudaStream_t stream, models::Function function, const T* x, T* y, int64_t count) {
  constexpr int kPack = kWidth<T>;
  const bool whole = packs<T>(count, x, y);
  with_formula(function, [&]<class Formula>(Formula) {
    launch_packs<kPack>(stream, count, whole, Activate<T, Formula>{x, y}, "activate");
  });
}

template <class T>
void activate_grad(cudaStream_t stream, models::Function function, const T* dy, const T* x, T* dx, int64_t count) {
  constexpr int kPack = kWidth<T>;
  const bool whole = packs<T>(count, dy, x, dx);
  with_formula(function, [&]<class Formula>(Formula) {
    launch_packs<kPack>(stream, count, whole, ActivateGrad<T, Formula>{dy, x, dx}, "activate_grad");
  });
}

template <class T>
void gate(cudaStream_t stream, models::Function function, const T* x, T* y, int64_t rows, int64_t columns) {
  constexpr int kPack = kWidth<T>;
  const bool whole = packs<T>(columns, x, y);
  with_formula(function, [&]<class Formula>(Formula) {
    launch_packs<kPack>(stream, rows * columns, whole, Gate<T, Formula>{x, y, columns}, "gate");
  });
}

template <class T>
void gate_grad(cudaStream_t stream, models::Function function, const T* dy, const T* x, T* dx, int64_t rows,
               int64_t columns) {
  constexpr int kPack = kWidth<T>;
  const bool whole = packs<T>(columns, dy, x, dx);
  with_formula(function, [&]<class Formula>(Formula) {
    launch_packs<kPack>(stream, rows * columns, whole, GateGrad<T, Formula>{dy, x, dx, columns}, "gate_grad");
  });
}

template <class T>
void soft_cap(cudaStream_t stream, const T* x, T* y, int64_t count, float cap) {
  launch_packs<kWidth<T>>(stream, count, packs<T>(count, x, y), SoftCap<T>{x, y, cap}, "soft_cap");
}

template <class T>
void head_norm(cudaStream_t stream, const AttentionShape& shape, const T* x, const T* weight_q, const T* weight_k, T* y,
               float* rstd, float epsilon) {
  const Heads h = heads_of(shape);
  const int64_t tokens = shape.batch * shape.sequence;
  const int64_t warps = tokens * (h.heads + 2 * h.key_heads);
  ORRERY_LAUNCH(head_norm_kernel<T>, warps_for(warps, "head_norm"), dim3(kThreads), 0, stream, h, x, weight_q, weight_k,
                y, rstd, tokens, epsilon);
  check_launch("head_norm");
}

template <class T>
void head_norm_grad(cudaStream_t stream, const AttentionShape& shape, const T* dy, const T* x, const T* weight_q,
                    const T* weight_k, const float* rstd, T* dx, GradientOf<T>* dweight_q, GradientOf<T>* dweight_k,
                    KernelScratch scratch) {
  const Heads h = heads_of(shape);
  const int64_t tokens = shape.batch * shape.sequence;
  // First the weights' gradients: dx may overwrite what they read.
  weight_sums(stream, WeightSums<T>{h, dy, x, rstd, dweight_q, nullptr, tokens * h.heads, 0, h.heads, 0}, scratch);
  weight_sums(stream, WeightSums<T>{h, dy, x, rstd, dweight_k, nullptr, tokens * h.key_heads, h.heads, h.key_heads, 0},
              scratch);
  const int64_t warps = tokens * (h.heads + 2 * h.key_heads);
  ORRERY_LAUNCH(head_norm_dx_kernel<T>, warps_for(warps, "head_norm_grad"), dim3(kThreads), 0, stream, h, dy, x,
                weight_q, weight_k, rstd, dx, tokens);
  check_launch("head_norm_grad");
}

#define ORRERY_INSTANTIATE(T)                                                                                    \
  template void activate(cudaStream_t, models::Function, const T*, T*, int64_t);                                 \
  template void activate_grad(cudaStream_t, models::Function, const T*, const T*, T*, int64_t);                  \
  template void gate(cudaStream_t, models::Function, const T*, T*, int64_t, int64_t);                            \
  template void gate_grad(cudaStream_t, models::Function, const T*, const T*, T*, int64_t, int64_t);             \
  template void soft_cap(cudaStream_t, const T*, T*, int64_t, float);                                            \
  template void head_norm(cudaStream_t, const AttentionShape&, const T*, const T*, const T*, T*, float*, float); \
  template void head_norm_grad<T>(cudaStream_t, const AttentionShape&, const T*, const T*, const T*, const T*,   \
                                  const float*, T*, GradientOf<T>*, GradientOf<T>*, KernelScratch);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda

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

/// Packed q, k and v of a token, as runs of columns that are normed by themselves: a head each, or all of q and all of
/// k. The last runs are v's, which are only copied.
struct Runs {
  int64_t of_q, q_width, of_k, k_width, of_v, v_width;
  __device__ __host__ int64_t normed() const { return of_q + of_k; }
  __device__ __host__ int64_t all() const { return normed() + of_v; }
  __device__ int64_t columns() const { return of_q * q_width + of_k * k_width + of_v * v_width; }
  __device__ bool is_q(int64_t run) const { return run < of_q; }
  __device__ int64_t width(int64_t run) const { return run < of_q ? q_width : run < normed() ? k_width : v_width; }
  __device__ int64_t first(int64_t run) const {
    if (run < of_q) return run * q_width;
    if (run < normed()) return of_q * q_width + (run - of_q) * k_width;
    return of_q * q_width + of_k * k_width + (run - normed()) * v_width;
  }
};

constexpr int kWarps = kThreads / kWarp;

/// A warp for each run of each token.
template <class T>
__global__ void __launch_bounds__(kThreads)
    head_norm_kernel(Runs runs, const T* x, const T* weight_q, const T* weight_k, T* y, float* rstd, int64_t tokens,
                     float epsilon) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (index >= tokens * runs.all()) return;  // the whole warp
  const int64_t run = index % runs.all(), token = index / runs.all(), width = runs.width(run);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const T* const from = x + token * runs.columns() + runs.first(run);
  T* const to = y + token * runs.columns() + runs.first(run);
  if (run >= runs.normed()) {
    for (int64_t d = lane; d < width; d += kWarp) to[d] = from[d];
    return;
  }
  float sum = 0;
  for (int64_t d = lane; d < width; d += kWarp) sum += widen(from[d]) * widen(from[d]);
  const float r = 1.0F / sqrtf(warp_sum(sum) / static_cast<float>(width) + epsilon);
  const T* const weight = runs.is_q(run) ? weight_q : weight_k;
  for (int64_t d = lane; d < width; d += kWarp) put(to + d, widen(from[d]) * r * widen(weight[d]));
  if (lane == 0) rstd[token * runs.normed() + run] = r;
}

/// dx = rstd (dy w - x rstd^2 mean(dy w x)), a warp for each run of each token.
template <class T>
__global__ void __launch_bounds__(kThreads)
    head_norm_dx_kernel(Runs runs, const T* dy, const T* x, const T* weight_q, const T* weight_k, const float* rstd,
                        T* dx, int64_t tokens) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (index >= tokens * runs.all()) return;  // the whole warp
  const int64_t run = index % runs.all(), token = index / runs.all(), width = runs.width(run);
  const int64_t at = token * runs.columns() + runs.first(run);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (run >= runs.normed()) {
    if (dx != dy)
      for (int64_t d = lane; d < width; d += kWarp) dx[at + d] = dy[at + d];
    return;
  }
  const T* const weight = runs.is_q(run) ? weight_q : weight_k;
  float sum = 0;
  for (int64_t d = lane; d < width; d += kWarp) sum += widen(dy[at + d]) * widen(weight[d]) * widen(x[at + d]);
  const float r = rstd[token * runs.normed() + run];
  const float mean = warp_sum(sum) * r * r / static_cast<float>(width);
  for (int64_t d = lane; d < width; d += kWarp)
    put(dx + at + d, r * (widen(dy[at + d]) * widen(weight[d]) - widen(x[at + d]) * mean));
}

/// Sums of dy x rstd by column, over tokens and over the runs [first, first + count), which are `width` wide.
template <class T>
struct WeightSums {
  Runs runs;
  const T* dy;
  const T* x;
  const float* rstd;
  GradientOf<T>* target;
  float* parts;  // (parts, width); null: one part, added to the target
  int64_t width, rows, first, count, rows_per_part;
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
  if (column < s.width)
    for (int64_t row = begin + threadIdx.y; row < end; row += kWarp) {
      const int64_t token = row / s.count, run = s.first + row % s.count;
      const int64_t at = token * s.runs.columns() + s.runs.first(run) + column;
      sum += widen(s.dy[at]) * widen(s.x[at]) * s.rstd[token * s.runs.normed() + run];
    }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= s.width) return;
  float total = 0;
  for (int y = 0; y < kWarp; ++y) total += sums[y][threadIdx.x];
  if (s.parts)
    s.parts[blockIdx.y * s.width + column] = total;
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
  dim3 grid = row_grid((s.width + kWarp - 1) / kWarp, "head_norm_grad");
  const int64_t room = static_cast<int64_t>(scratch.bytes) / (static_cast<int64_t>(sizeof(float)) * s.width);
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
    launch_packs<1>(stream, s.width, false, AddParts<GradientOf<T>>{s.parts, s.target, parts, s.width},
                    "head_norm_grad, weights");
}

Runs runs_of(const AttentionShape& shape, bool joint) {
  const int64_t h = shape.heads, g = shape.kv_heads, d = shape.head_dim;
  if (joint) return {1, h * d, 1, g * d, 1, g * d};
  return {h, d, g, d, g, d};
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
void head_norm(cudaStream_t stream, const AttentionShape& shape, bool joint, const T* x, const T* weight_q,
               const T* weight_k, T* y, float* rstd, float epsilon) {
  const Runs runs = runs_of(shape, joint);
  const int64_t tokens = shape.batch * shape.sequence;
  ORRERY_LAUNCH(head_norm_kernel<T>, warps_for(tokens * runs.all(), "head_norm"), dim3(kThreads), 0, stream, runs, x,
                weight_q, weight_k, y, rstd, tokens, epsilon);
  check_launch("head_norm");
}

template <class T>
void head_norm_grad(cudaStream_t stream, const AttentionShape& shape, bool joint, const T* dy, const T* x,
                    const T* weight_q, const T* weight_k, const float* rstd, T* dx, GradientOf<T>* dweight_q,
                    GradientOf<T>* dweight_k, KernelScratch scratch) {
  const Runs r = runs_of(shape, joint);
  const int64_t tokens = shape.batch * shape.sequence;
  // First the weights' gradients: dx may overwrite what they read.
  weight_sums(stream, WeightSums<T>{r, dy, x, rstd, dweight_q, nullptr, r.q_width, tokens * r.of_q, 0, r.of_q, 0},
              scratch);
  weight_sums(stream, WeightSums<T>{r, dy, x, rstd, dweight_k, nullptr, r.k_width, tokens * r.of_k, r.of_q, r.of_k, 0},
              scratch);
  ORRERY_LAUNCH(head_norm_dx_kernel<T>, warps_for(tokens * r.all(), "head_norm_grad"), dim3(kThreads), 0, stream, r, dy,
                x, weight_q, weight_k, rstd, dx, tokens);
  check_launch("head_norm_grad");
}

#define ORRERY_INSTANTIATE(T)                                                                                          \
  template void activate(cudaStream_t, models::Function, const T*, T*, int64_t);                                       \
  template void activate_grad(cudaStream_t, models::Function, const T*, const T*, T*, int64_t);                        \
  template void gate(cudaStream_t, models::Function, const T*, T*, int64_t, int64_t);                                  \
  template void gate_grad(cudaStream_t, models::Function, const T*, const T*, T*, int64_t, int64_t);                   \
  template void soft_cap(cudaStream_t, const T*, T*, int64_t, float);                                                  \
  template void head_norm(cudaStream_t, const AttentionShape&, bool, const T*, const T*, const T*, T*, float*, float); \
  template void head_norm_grad<T>(cudaStream_t, const AttentionShape&, bool, const T*, const T*, const T*, const T*,   \
                                  const float*, T*, GradientOf<T>*, GradientOf<T>*, KernelScratch);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda

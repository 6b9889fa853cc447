// Cross-entropy over a vocabulary that tensor-parallel ranks share: row maximum, row sum and target logit, loss and
// gradient; the schedule has the all-reduces between them. If nothing is between them, maximum and sum are one pass
// (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018). If the gradient follows at once too, as
// in the loss in chunks, all of it is one kernel.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {
namespace {

constexpr int kLossThreads = 1024;
/// Most bytes of a row that stay in shared memory: a multiprocessor of an H200 has room for two such blocks, one of an
/// A100 for one.
constexpr std::size_t kMostKept = 112 * 1024;

template <class T>
__device__ inline float exp_for(float x) {
  if constexpr (sizeof(T) == 4) return expf(x);
  return __expf(x);  // error: 2 units in the last place of fp32 at the values here, which are at most 0
}

/// Turns the gradient by a capped logit into the gradient by the logit before the cap.
__device__ inline float uncapped(float gradient, float logit, float cap) {
  const float t = logit / cap;
  return gradient * (1.0F - t * t);
}

/// body(pack, first column, how many of the pack count) over a row; N elements at a time.
template <int N, class T, class Body>
__device__ inline void over_row(const T* row, int64_t valid, const Body& body) {
  for (int64_t c = static_cast<int64_t>(threadIdx.x) * N; c < valid; c += static_cast<int64_t>(blockDim.x) * N) {
    const int count = valid - c < N ? static_cast<int>(valid - c) : N;
    body(load<N>(row + c), c, count);
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    softmax_max_kernel(const T* logits, float* max, int64_t columns, int64_t valid) {
  const int64_t row = blockIdx.x;
  float best = -INFINITY;
  over_row<N>(logits + row * columns, valid, [&](const Pack<N>& v, int64_t, int count) {
#pragma unroll
    for (int e = 0; e < N; ++e)
      if (e < count) best = fmaxf(best, v.v[e]);
  });
  best = block_max(best);
  if (threadIdx.x == 0) max[row] = best;
}

template <class T>
__device__ inline void write_sums(const T* row_logits, float sum, const int32_t* targets, float* sums, int64_t row,
                                  int64_t rows, int64_t valid, int64_t first_id) {
  const int64_t target = static_cast<int64_t>(targets[row]) - first_id;
  sums[row] = targets[row] == -1 ? INFINITY : sum;  // such a row predicts nothing (exec/cpu/operators_loss.cpp)
  sums[rows + row] = target >= 0 && target < valid ? widen(row_logits[target]) : 0.0F;
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    softmax_sum_kernel(const T* logits, const float* max, const int32_t* targets, float* sums, int64_t rows,
                       int64_t columns, int64_t valid, int64_t first_id) {
  const int64_t row = blockIdx.x;
  const float top = max[row];
  float sum = 0;
  over_row<N>(logits + row * columns, valid, [&](const Pack<N>& v, int64_t, int count) {
#pragma unroll
    for (int e = 0; e < N; ++e)
      if (e < count) sum += exp_for<T>(v.v[e] - top);
  });
  sum = block_sum(sum);
  if (threadIdx.x == 0) write_sums(logits + row * columns, sum, targets, sums, row, rows, valid, first_id);
}

/// Maximum of a row so far, and the sum of exp(v - maximum). A thread takes packs of the row.
template <class T>
struct Online {
  float best = -INFINITY, sum = 0;
  template <int N>
  __device__ void take(const Pack<N>& v, int count) {
    float here = best;
#pragma unroll
    for (int e = 0; e < N; ++e)
      if (e < count) here = fmaxf(here, v.v[e]);
    if (here > best) {
      sum *= exp_for<T>(best - here);
      best = here;
    }
#pragma unroll
    for (int e = 0; e < N; ++e)
      if (e < count) sum += exp_for<T>(v.v[e] - best);
  }
  /// Joins the values of the whole block: `best` and `sum` become those of the row.
  __device__ void join() {
    const float top = block_max(best);
    sum = block_sum(best == -INFINITY ? 0.0F : sum * exp_for<T>(best - top));
    best = top;
  }
};

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    softmax_statistics_kernel(const T* logits, const int32_t* targets, float* max, float* sums, int64_t rows,
                              int64_t columns, int64_t valid, int64_t first_id) {
  const int64_t row = blockIdx.x;
  Online<T> online;
  over_row<N>(logits + row * columns, valid, [&](const Pack<N>& v, int64_t, int count) { online.take(v, count); });
  online.join();
  if (threadIdx.x != 0) return;
  max[row] = online.best;
  write_sums(logits + row * columns, online.sum, targets, sums, row, rows, valid, first_id);
}

/// The loss of all rows, in an order that depends only on the number of threads in a block.
__device__ inline void add_loss(const volatile float* max, const volatile float* sums, float* loss, int64_t rows,
                                float scale) {
  double sum = 0;
  for (int64_t row = threadIdx.x; row < rows; row += blockDim.x)
    if (!isinf(sums[row]))
      sum +=
          log(static_cast<double>(sums[row])) + static_cast<double>(max[row]) - static_cast<double>(sums[rows + row]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) loss[0] += static_cast<float>(static_cast<double>(scale) * sum);
}

/// One block: the rows are few next to the logits, and one block keeps the order fixed.
__global__ void __launch_bounds__(kLossThreads)
    cross_entropy_kernel(const float* max, const float* sums, float* loss, int64_t rows, float scale) {
  add_loss(max, sums, loss, rows, scale);
}

/// Block: one row, which is gone through twice. `Kept`: it stays in shared memory meanwhile, and each thread uses only
/// its own part; otherwise it is read again. The last block to finish adds up the loss.
template <class T, int N, bool Kept>
__global__ void __launch_bounds__(kLossThreads) whole_cross_entropy_kernel(WholeLoss<T> p) {
  ORRERY_DYNAMIC_SHARED(shared);
  __shared__ bool last;
  T* const kept = reinterpret_cast<T*>(shared);
  const int64_t row = blockIdx.x;
  T* const logits = p.logits + row * p.columns;
  const int64_t target = p.targets[row];
  const float of_target = target >= 0 && target < p.valid ? widen(logits[target]) : 0.0F;  // before it is overwritten
  Online<T> online;
  over_row<N>(logits, p.valid, [&](const Pack<N>& v, int64_t c, int count) {
    online.take(v, count);
    if constexpr (Kept) store(kept + c, v);
  });
  online.join();
  if (target < 0) online.sum = INFINITY;
  const float scale = p.scaling ? p.gradient_scale * p.scaling[0] : p.gradient_scale;
  const float factor = scale / online.sum;
  for (int64_t c = static_cast<int64_t>(threadIdx.x) * N; c < p.columns; c += static_cast<int64_t>(blockDim.x) * N) {
    Pack<N> v{};
    if (c < p.valid) v = load<N>(Kept ? kept + c : logits + c);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const float hot = c + e == target ? scale : 0.0F, logit = v.v[e];
      v.v[e] = c + e < p.valid ? factor * exp_for<T>(logit - online.best) - hot : 0.0F;
      if (p.cap > 0) v.v[e] = uncapped(v.v[e], logit, p.cap);
    }
    store(logits + c, v);
  }
  if (threadIdx.x == 0) {
    p.max[row] = online.best;
    p.sums[row] = online.sum;
    p.sums[p.rows + row] = of_target;
    __threadfence();  // a thread that sees the count sees these too
    last = atomicAdd(p.counter, 1U) == static_cast<unsigned>(p.rows - 1);
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  add_loss(p.max, p.sums, p.loss, p.rows, p.loss_scale);
  if (threadIdx.x == 0) *p.counter = 0;
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_grad_kernel(const T* logits, const float* max, const float* sums, const int32_t* targets,
                              const float* scaling, T* dlogits, int64_t columns, int64_t valid, int64_t first_id,
                              float scale, float cap) {
  const int64_t row = blockIdx.x;
  const float top = max[row];
  if (scaling) scale *= scaling[0];
  const float factor = scale / sums[row];
  const int64_t target = static_cast<int64_t>(targets[row]) - first_id;
  over_row<N>(logits + row * columns, columns, [&](Pack<N> v, int64_t c, int) {
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const float hot = c + e == target ? scale : 0.0F, logit = v.v[e];
      v.v[e] = c + e < valid ? factor * exp_for<T>(logit - top) - hot : 0.0F;
      if (cap > 0) v.v[e] = uncapped(v.v[e], logit, cap);
    }
    store(dlogits + row * columns + c, v);
  });
}

}  // namespace

template <class T>
void softmax_max(cudaStream_t stream, const T* logits, float* max, int64_t rows, int64_t columns, int64_t valid) {
  const dim3 grid = row_grid(rows, "softmax_max");
  if (packs<T>(columns, logits))
    ORRERY_LAUNCH((softmax_max_kernel<T, kWidth<T>>), grid, dim3(kThreads), 0, stream, logits, max, columns, valid);
  else
    ORRERY_LAUNCH((softmax_max_kernel<T, 1>), grid, dim3(kThreads), 0, stream, logits, max, columns, valid);
  check_launch("softmax_max");
}

template <class T>
void softmax_sum(cudaStream_t stream, const T* logits, const float* max, const int32_t* targets, float* sums,
                 int64_t rows, int64_t columns, int64_t valid, int64_t first_id) {
  const dim3 grid = row_grid(rows, "softmax_sum");
  if (packs<T>(columns, logits))
    ORRERY_LAUNCH((softmax_sum_kernel<T, kWidth<T>>), grid, dim3(kThreads), 0, stream, logits, max, targets, sums, rows,
                  columns, valid, first_id);
  else
    ORRERY_LAUNCH((softmax_sum_kernel<T, 1>), grid, dim3(kThreads), 0, stream, logits, max, targets, sums, rows,
                  columns, valid, first_id);
  check_launch("softmax_sum");
}

template <class T>
void softmax_statistics(cudaStream_t stream, const T* logits, const int32_t* targets, float* max, float* sums,
                        int64_t rows, int64_t columns, int64_t valid, int64_t first_id) {
  const dim3 grid = row_grid(rows, "softmax_max and softmax_sum");
  if (packs<T>(columns, logits))
    ORRERY_LAUNCH((softmax_statistics_kernel<T, kWidth<T>>), grid, dim3(kThreads), 0, stream, logits, targets, max,
                  sums, rows, columns, valid, first_id);
  else
    ORRERY_LAUNCH((softmax_statistics_kernel<T, 1>), grid, dim3(kThreads), 0, stream, logits, targets, max, sums, rows,
                  columns, valid, first_id);
  check_launch("softmax_max and softmax_sum");
}

void cross_entropy(cudaStream_t stream, const float* max, const float* sums, float* loss, int64_t rows, float scale) {
  ORRERY_LAUNCH(cross_entropy_kernel, dim3(1), dim3(kLossThreads), 0, stream, max, sums, loss, rows, scale);
  check_launch("cross_entropy");
}

namespace {

template <class T, int N>
void launch_whole(cudaStream_t stream, const WholeLoss<T>& loss) {
  const dim3 grid = row_grid(loss.rows, "cross_entropy");
  const std::size_t bytes = (static_cast<std::size_t>(loss.columns) * sizeof(T) + 15) / 16 * 16;
  auto* const kernel = whole_cross_entropy_kernel<T, N, true>;
  const bool fits = bytes <= kMostKept && cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                               static_cast<int>(bytes)) == cudaSuccess;
  if (fits) {
    ORRERY_LAUNCH((whole_cross_entropy_kernel<T, N, true>), grid, dim3(kLossThreads), bytes, stream, loss);
  } else {
    static_cast<void>(cudaGetLastError());  // a device whose blocks have less
    ORRERY_LAUNCH((whole_cross_entropy_kernel<T, N, false>), grid, dim3(kLossThreads), 0, stream, loss);
  }
  check_launch("cross_entropy");
}

}  // namespace

template <class T>
void whole_cross_entropy(cudaStream_t stream, const WholeLoss<T>& loss) {
  if (packs<T>(loss.columns, loss.logits)) return launch_whole<T, kWidth<T>>(stream, loss);
  launch_whole<T, 1>(stream, loss);
}

template <class T>
void cross_entropy_grad(cudaStream_t stream, const T* logits, const float* max, const float* sums,
                        const int32_t* targets, const float* scaling, T* dlogits, int64_t rows, int64_t columns,
                        int64_t valid, int64_t first_id, float scale, float cap) {
  const dim3 grid = row_grid(rows, "cross_entropy_grad");
  if (packs<T>(columns, logits, dlogits))
    ORRERY_LAUNCH((cross_entropy_grad_kernel<T, kWidth<T>>), grid, dim3(kThreads), 0, stream, logits, max, sums,
                  targets, scaling, dlogits, columns, valid, first_id, scale, cap);
  else
    ORRERY_LAUNCH((cross_entropy_grad_kernel<T, 1>), grid, dim3(kThreads), 0, stream, logits, max, sums, targets,
                  scaling, dlogits, columns, valid, first_id, scale, cap);
  check_launch("cross_entropy_grad");
}

#define ORRERY_INSTANTIATE(T)                                                                                         \
  template void softmax_max(cudaStream_t, const T*, float*, int64_t, int64_t, int64_t);                               \
  template void softmax_sum(cudaStream_t, const T*, const float*, const int32_t*, float*, int64_t, int64_t, int64_t,  \
                            int64_t);                                                                                 \
  template void softmax_statistics(cudaStream_t, const T*, const int32_t*, float*, float*, int64_t, int64_t, int64_t, \
                                   int64_t);                                                                          \
  template void whole_cross_entropy(cudaStream_t, const WholeLoss<T>&);                                               \
  template void cross_entropy_grad(cudaStream_t, const T*, const float*, const float*, const int32_t*, const float*,  \
                                   T*, int64_t, int64_t, int64_t, int64_t, float, float);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda

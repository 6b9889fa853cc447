// Cross-entropy over a vocabulary that tensor-parallel ranks share: row maximum, row sum and target logit, loss and
// gradient, with the all-reduces between them left to the schedule. Where nothing is between them, maximum and sum are
// one pass (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {
namespace {

constexpr int kLossThreads = 1024;

template <class T>
__device__ inline float exp_for(float x) {
  if constexpr (sizeof(T) == 4) return expf(x);
  return __expf(x);  // off by 2 units of the last place of fp32 at the magnitudes here, which are at most 0
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
  sums[row] = sum;
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

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    softmax_statistics_kernel(const T* logits, const int32_t* targets, float* max, float* sums, int64_t rows,
                              int64_t columns, int64_t valid, int64_t first_id) {
  const int64_t row = blockIdx.x;
  float best = -INFINITY;
  float sum = 0;
  over_row<N>(logits + row * columns, valid, [&](const Pack<N>& v, int64_t, int count) {
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
  });
  const float top = block_max(best);
  sum = block_sum(best == -INFINITY ? 0.0F : sum * exp_for<T>(best - top));
  if (threadIdx.x != 0) return;
  max[row] = top;
  write_sums(logits + row * columns, sum, targets, sums, row, rows, valid, first_id);
}

/// One block: the rows are few next to the logits, and one block keeps the order fixed.
__global__ void __launch_bounds__(kLossThreads)
    cross_entropy_kernel(const float* max, const float* sums, float* loss, int64_t rows, float scale) {
  double sum = 0;
  for (int64_t row = threadIdx.x; row < rows; row += blockDim.x)
    sum += log(static_cast<double>(sums[row])) + static_cast<double>(max[row]) - static_cast<double>(sums[rows + row]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) loss[0] += static_cast<float>(static_cast<double>(scale) * sum);
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_grad_kernel(const T* logits, const float* max, const float* sums, const int32_t* targets,
                              const float* scaling, T* dlogits, int64_t columns, int64_t valid, int64_t first_id,
                              float scale) {
  const int64_t row = blockIdx.x;
  const float top = max[row];
  if (scaling) scale *= scaling[0];
  const float factor = scale / sums[row];
  const int64_t target = static_cast<int64_t>(targets[row]) - first_id;
  over_row<N>(logits + row * columns, columns, [&](Pack<N> v, int64_t c, int) {
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const float hot = c + e == target ? scale : 0.0F;
      v.v[e] = c + e < valid ? factor * exp_for<T>(v.v[e] - top) - hot : 0.0F;
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

template <class T>
void cross_entropy_grad(cudaStream_t stream, const T* logits, const float* max, const float* sums,
                        const int32_t* targets, const float* scaling, T* dlogits, int64_t rows, int64_t columns,
                        int64_t valid, int64_t first_id, float scale) {
  const dim3 grid = row_grid(rows, "cross_entropy_grad");
  if (packs<T>(columns, logits, dlogits))
    ORRERY_LAUNCH((cross_entropy_grad_kernel<T, kWidth<T>>), grid, dim3(kThreads), 0, stream, logits, max, sums,
                  targets, scaling, dlogits, columns, valid, first_id, scale);
  else
    ORRERY_LAUNCH((cross_entropy_grad_kernel<T, 1>), grid, dim3(kThreads), 0, stream, logits, max, sums, targets,
                  scaling, dlogits, columns, valid, first_id, scale);
  check_launch("cross_entropy_grad");
}

#define ORRERY_INSTANTIATE(T)                                                                                         \
  template void softmax_max(cudaStream_t, const T*, float*, int64_t, int64_t, int64_t);                               \
  template void softmax_sum(cudaStream_t, const T*, const float*, const int32_t*, float*, int64_t, int64_t, int64_t,  \
                            int64_t);                                                                                 \
  template void softmax_statistics(cudaStream_t, const T*, const int32_t*, float*, float*, int64_t, int64_t, int64_t, \
                                   int64_t);                                                                          \
  template void cross_entropy_grad(cudaStream_t, const T*, const float*, const float*, const int32_t*, const float*,  \
                                   T*, int64_t, int64_t, int64_t, int64_t, float);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda

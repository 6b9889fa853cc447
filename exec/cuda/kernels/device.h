#pragma once
/// What kernels share: launching, reductions in a fixed order, and loops over elements. Kernels keep to the small part
/// of CUDA that tests/gpu/emulation also provides, so that their arithmetic and their barriers are tested without a
/// GPU.
#include <cuda_runtime.h>

#include <cstdint>

#include "exec/cuda/check.h"
#include "exec/cuda/kernels/kernels.h"

#ifndef ORRERY_LAUNCH  // the emulation brings its own
#define ORRERY_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)
#define ORRERY_DYNAMIC_SHARED(name) extern __shared__ __align__(128) float name[]
#endif

namespace orrery::exec::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kThreads = 256;  ///< of most blocks; a multiple of kWarp
inline constexpr unsigned kAllLanes = 0xffffffffU;
inline constexpr std::int64_t kMaxBlocks = 65536;  ///< of loops over elements; the loop strides over the rest

/// One block per row. gridDim.x holds 2^31 - 1 blocks (compute capability 3.0 and later).
inline dim3 row_grid(std::int64_t rows, const char* kernel) {
  if (rows < 1 || rows > 0x7fffffff) throw Failure(std::string("CUDA: ") + kernel + ": too many rows for one launch");
  return dim3(static_cast<unsigned>(rows));
}

inline void check_launch(const char* kernel) {
  check(cudaGetLastError(), kernel);
}

template <class T>
__device__ inline T warp_sum(T value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
}

/// Sum over a one-dimensional block of whole warps, the same bits in every thread and every run.
template <class T>
__device__ inline T block_sum(T value) {
  __shared__ T partial[kWarp];
  value = warp_sum(value);
  __syncthreads();  // others may still read the previous sum
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  T total = 0;
  for (unsigned warp = 0; warp < blockDim.x / kWarp; ++warp) total += partial[warp];
  return total;
}

__device__ inline float block_max(float value) {
  __shared__ float partial[kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  __syncthreads();
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  float total = partial[0];
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) total = fmaxf(total, partial[warp]);
  return total;
}

/// Position of row `own` of `sequence` rows; as exec::position_of.
__device__ inline std::int64_t position_of(const Positions& p, std::int64_t sequence, std::int64_t own) {
  if (p.context == 1) return own;
  const std::int64_t chunk = sequence / 2;
  return own < chunk ? p.part * chunk + own : (2 * p.context - 2 - p.part) * chunk + own;
}

/// body.run<N>(i) for every N-th i in [0, count), in any order; N divides count.
template <int N, class Body>
__global__ void __launch_bounds__(kThreads) each_pack(std::int64_t count, Body body) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count / N; i += stride)
    body.template run<N>(i * N);
}

/// Over `count` elements, N at a time if `whole` allows it, else one by one.
template <int N, class Body>
void launch_packs(cudaStream_t stream, std::int64_t count, bool whole, const Body& body, const char* name) {
  if (count <= 0) return;
  const std::int64_t items = whole ? count / N : count;
  const std::int64_t blocks = (items + kThreads - 1) / kThreads;
  const dim3 grid(static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks));
  if (whole)
    ORRERY_LAUNCH((each_pack<N, Body>), grid, dim3(kThreads), 0, stream, count, body);
  else
    ORRERY_LAUNCH((each_pack<1, Body>), grid, dim3(kThreads), 0, stream, count, body);
  check_launch(name);
}

}  // namespace orrery::exec::cuda

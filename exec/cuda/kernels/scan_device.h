#pragma once
/// Sums over the threads of a block before each thread.
#include "exec/cuda/kernels/device.h"

namespace orrery::exec::cuda {

/// The sum of `mine` over the threads before this one; `total`: over all. All threads of a block of kThreads must call
/// it.
__device__ inline int before_me(int mine, int& total) {
  __shared__ int of_warp[kThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  int upto = mine;
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const int other = __shfl_up_sync(kAllLanes, upto, static_cast<unsigned>(offset));
    if (lane >= offset) upto += other;
  }
  __syncthreads();  // others may still read the previous ones
  if (lane == kWarp - 1) of_warp[warp] = upto;
  __syncthreads();
  int first = 0;
  total = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) {
    if (w < warp) first += of_warp[w];
    total += of_warp[w];
  }
  return first + upto - mine;
}

}  // namespace orrery::exec::cuda

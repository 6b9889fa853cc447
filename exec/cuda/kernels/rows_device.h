#pragma once
/// Sums over the rows that have the same id, in the order of the rows: for tokens, and for rows chosen by data.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {

/// True in all threads if some ids[j], j < row, equals `id`.
__device__ inline bool seen_before(const int32_t* ids, int64_t row, int32_t id) {
  __shared__ int found;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  bool mine = false;
  for (int64_t j = threadIdx.x; j < row; j += blockDim.x) mine = mine || ids[j] == id;
  if (mine) found = 1;  // all writers write the same value
  __syncthreads();
  return found != 0;
}

/// Adds the rows of x at all places of `id` from `row` on, in order and times `scale`, to `kThreads` columns of the
/// id's row of the table. A block looks at kWindows * kThreads places at a time, lists the matching ones, and loads
/// kAhead rows at a time.
template <class T, class G>
__device__ void add_places(const int32_t* ids, const T* x, G* target, int32_t id, int64_t row, int64_t rows,
                           int64_t columns, float scale) {
  constexpr int kWindows = 4, kAhead = 8, kWarps = kThreads / kWarp;
  __shared__ unsigned matches[kWindows * kWarps];
  __shared__ int32_t found[kWindows * kThreads];  // places after `base`
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  const bool active = column < columns;
  float sum = active ? widen(target[column]) : 0.0F;
  for (int64_t base = row; base < rows; base += kWindows * kThreads) {
#pragma unroll
    for (int window = 0; window < kWindows; ++window) {
      const int64_t j = base + window * kThreads + threadIdx.x;
      const unsigned mask = __ballot_sync(kAllLanes, j < rows && ids[j] == id);
      if (lane == 0) matches[window * kWarps + warp] = mask;
    }
    __syncthreads();
    int total = 0;
    for (int at = 0; at < kWindows * kWarps; ++at) {
      const unsigned mask = matches[at];
      if (at % kWarps == warp && (mask >> lane & 1U) != 0)
        found[total + __popc(mask & ((1U << lane) - 1))] = at * kWarp + lane;
      total += __popc(mask);
    }
    __syncthreads();
    for (int first = 0; active && first < total; first += kAhead) {
      float values[kAhead];
#pragma unroll
      for (int e = 0; e < kAhead; ++e)
        if (first + e < total) values[e] = widen(x[(base + found[first + e]) * columns + column]);
#pragma unroll
      for (int e = 0; e < kAhead; ++e)
        if (first + e < total) sum += scale * values[e];
    }
    __syncthreads();
  }
  if (active) put(target + column, sum);
}

/// Block (row, stripe): works if `row` is the first place of its id, and the id is one of `held` from `first_id` on.
template <class T, class G>
__global__ void __launch_bounds__(kThreads)
    scanning_sums_kernel(const int32_t* ids, const T* x, G* table, int64_t rows, int64_t columns, int64_t first_id,
                         int64_t held, float scale) {
  const int64_t row = blockIdx.x;
  const int32_t id = ids[row];
  const int64_t local = static_cast<int64_t>(id) - first_id;
  if (local < 0 || local >= held) return;  // the same for the whole block; so is the next
  if (seen_before(ids, row, id)) return;
  add_places(ids, x, table + local * columns, id, row, rows, columns, scale);
}

/// One block for each of `rows` and each 256 columns.
inline dim3 row_stripes(int64_t rows, int64_t columns, const char* kernel) {
  dim3 grid = row_grid(rows, kernel);
  const int64_t stripes = (columns + kThreads - 1) / kThreads;
  if (stripes > 65535) throw Failure(std::string("CUDA: ") + kernel + ": too many columns");
  grid.y = static_cast<unsigned>(stripes);
  return grid;
}

}  // namespace orrery::exec::cuda

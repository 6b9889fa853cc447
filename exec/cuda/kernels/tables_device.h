#pragma once
/// What kernels of embedding tables share: rows of any width; a thread takes 4 columns at a time where they allow it.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/tables.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {

inline constexpr int kRowsAhead = 4;  ///< loads that are in flight at a time

/// The number of threads that share a row of `width` columns, N columns each at a time: a power of two, at least 8, at
/// most a warp.
inline int lanes_of(int64_t width, int n) {
  int lanes = 8;
  while (lanes < kWarp && lanes * n < width) lanes *= 2;
  return lanes;
}
/// Blocks for `items`, each of `lanes` threads.
inline dim3 lane_grid(int64_t items, int lanes, const char* kernel) {
  return row_grid((items * lanes + kThreads - 1) / kThreads, kernel);
}
/// This thread's item and its place among those that share it.
__device__ inline int64_t own_item(int lanes) {
  return (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / lanes;
}
__device__ inline int own_lane(int lanes) {
  return static_cast<int>(threadIdx.x) % lanes;
}

/// Sum over the threads that share an item. All lanes of a warp must call it.
template <class T>
__device__ inline T lane_sum(T value, int lanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
}

/// At the tables: where the pooled columns of a part begin for one member's sample.
__device__ inline int64_t place_at_tables(const TablePart& part, int64_t member, int64_t sample, int32_t per_node,
                                          int32_t nodes) {
  const int64_t slot = part.by_places ? member % per_node * nodes + member / per_node : member;
  return part.at + slot * part.slot + sample * part.stride;
}

/// The weight of a lookup of `words` int32.
__device__ inline float weight_of(const int32_t* lookup, int64_t words) {
  return words == 2 ? __uint_as_float(static_cast<uint32_t>(lookup[1])) : 1.0F;
}

/// Sum of `count` packs, in order, each times weight(i): at(i) is the address of the i-th, null where there is none.
template <int N, class At, class WeightOf>
__device__ inline Pack<N> sum_in_order(int64_t count, const At& at, const WeightOf& weight) {
  Pack<N> sum;
#pragma unroll
  for (int e = 0; e < N; ++e) sum.v[e] = 0;
  for (int64_t i = 0; i < count; i += kRowsAhead) {
    Pack<N> ahead[kRowsAhead];
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k) {
      const float* const from = i + k < count ? at(i + k) : nullptr;
      if (from) {
        ahead[k] = load<N>(from);
      } else {
#pragma unroll
        for (int e = 0; e < N; ++e) ahead[k].v[e] = 0;
      }
    }
#pragma unroll
    for (int k = 0; k < kRowsAhead; ++k) {
      const float factor = i + k < count ? weight(i + k) : 0;
#pragma unroll
      for (int e = 0; e < N; ++e) sum.v[e] += factor * ahead[k].v[e];
    }
  }
  return sum;
}

inline bool aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

}  // namespace orrery::exec::cuda

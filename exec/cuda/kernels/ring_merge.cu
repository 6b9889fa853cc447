// Adds a block of a ring to the result of the blocks before it, where a library has computed the block by itself.
#include "exec/cuda/kernels/attention_device.h"
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {
namespace {

/// Where element `i` of a block's (sequences, queries, heads, dim) is in rows of `stride` elements that hold all heads,
/// with `s.sequence` rows from one sequence to the next.
__device__ inline int64_t place_in_rows(const BlockPlace& s, int64_t i, int64_t stride) {
  const int64_t of_row = static_cast<int64_t>(s.heads) * s.dim, row = i / of_row;
  return (row / s.queries * s.sequence + row % s.queries) * stride + i % of_row;
}
/// Where the statistics of (sequence, head, query) are, among those of all heads.
__device__ inline int64_t place_in_statistics(const BlockPlace& s, int64_t batch, int64_t head, int64_t query) {
  return (batch * s.all_heads + head) * s.sequence + query;
}

template <class T>
struct MergeOutputs {
  BlockPlace s;
  const T* block;
  const float* block_lse;
  T* y;
  const float* lse;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t row = i / (static_cast<int64_t>(s.heads) * s.dim), head = i / s.dim % s.heads;
    const int64_t batch = row / s.queries, query = row % s.queries;
    const float here = block_lse[(batch * s.heads + head) * s.queries + query];
    const Merged weights = merge(lse[place_in_statistics(s, batch, head, query)], here);
    T* const to = y + place_in_rows(s, i, static_cast<int64_t>(s.all_heads) * s.dim);
    Pack<N> sum = load<N>(to);
    const Pack<N> more = load<N>(block + i);
#pragma unroll
    for (int e = 0; e < N; ++e) sum.v[e] = weights.keep * sum.v[e] + weights.add * more.v[e];
    store(to, sum);
  }
};

struct MergeStatistics {
  BlockPlace s;
  const float* block_lse;
  float* lse;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t row = i / s.queries;
    float& to = lse[place_in_statistics(s, row / s.heads, row % s.heads, i % s.queries)];
    to = merge(to, block_lse[i]).lse;
  }
};

template <class T>
struct AddQueries {
  BlockPlace s;
  const T* block;
  T* dq;
  int64_t stride;
  template <int N>
  __device__ void run(int64_t i) const {
    T* const to = dq + place_in_rows(s, i, stride);
    Pack<N> sum = load<N>(to);
    add_to(sum, block + i);
    store(to, sum);
  }
};

int64_t elements_of(const BlockPlace& s) {
  return s.batch * s.queries * s.heads * s.dim;
}

}  // namespace

template <class T>
void merge_ring_block(cudaStream_t stream, const BlockPlace& s, const T* block, const float* block_lse, T* y,
                      float* lse) {
  launch_packs<kWidth<T>>(stream, elements_of(s), packs<T>(s.dim, block, y),
                          MergeOutputs<T>{s, block, block_lse, y, lse}, "ring_attention, merging");
  launch_packs<1>(stream, s.batch * s.heads * s.queries, false, MergeStatistics{s, block_lse, lse},
                  "ring_attention, merging statistics");  // after the kernel that reads them
}

template <class T>
void add_ring_queries(cudaStream_t stream, const BlockPlace& s, const T* block, T* dq, int64_t stride) {
  const bool whole = packs<T>(s.dim, block, dq) && stride % kWidth<T> == 0;
  launch_packs<kWidth<T>>(stream, elements_of(s), whole, AddQueries<T>{s, block, dq, stride},
                          "ring_attention_grad, adding");
}

#define ORRERY_INSTANTIATE(T)                                                                          \
  template void merge_ring_block(cudaStream_t, const BlockPlace&, const T*, const float*, T*, float*); \
  template void add_ring_queries(cudaStream_t, const BlockPlace&, const T*, T*, int64_t);
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda

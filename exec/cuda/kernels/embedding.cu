// Token and position tables: look-up, and gradients summed in the order of the tokens.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/rows_device.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {
namespace {

template <class T>
struct Look {
  const int32_t* tokens;
  const T* table;
  T* x;
  int64_t columns, first_id, shard_rows;
  float scale;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t local = static_cast<int64_t>(tokens[i / columns]) - first_id;
    Pack<N> values{};
    if (local >= 0 && local < shard_rows) values = load<N>(table + local * columns + i % columns);
#pragma unroll
    for (int e = 0; e < N; ++e) values.v[e] *= scale;
    store(x + i, values);
  }
};

// With scratch: how often each row of the shard is asked for and where first, where its list begins, and the lists.
// Counting and filling use atomics on integers, whose sums and maxima do not depend on the order. The order within a
// list does, so the reader of the list sorts it.
struct Lists {
  int32_t* counts;   // shard_rows
  unsigned* firsts;  // shard_rows: the complement of the first place, so that the maximum is the first and 0 means none
  int32_t* ends;     // shard_rows: before filling where each list begins, after it where it ends
  int32_t* places;   // rows
};

struct Count {
  const int32_t* tokens;
  Lists lists;
  int64_t first_id, shard_rows;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t local = static_cast<int64_t>(tokens[i]) - first_id;
    if (local < 0 || local >= shard_rows) return;
    atomicAdd(lists.counts + local, 1);
    atomicMax(lists.firsts + local, ~static_cast<unsigned>(i));
  }
};

struct Fill {
  const int32_t* tokens;
  Lists lists;
  int64_t first_id, shard_rows;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t local = static_cast<int64_t>(tokens[i]) - first_id;
    if (local < 0 || local >= shard_rows) return;
    lists.places[atomicAdd(lists.ends + local, 1)] = static_cast<int32_t>(i);
  }
};

/// One block: each thread sums a run of counts, the sums of the runs are scanned in order, and each thread writes its
/// run.
constexpr int kScanThreads = 1024;
__global__ void __launch_bounds__(kScanThreads) begin_lists_kernel(Lists lists, int64_t shard_rows) {
  __shared__ int32_t totals[kScanThreads];
  const int64_t each = (shard_rows + kScanThreads - 1) / kScanThreads;
  const int64_t first = static_cast<int64_t>(threadIdx.x) * each;
  const int64_t last = first + each < shard_rows ? first + each : shard_rows;
  int32_t sum = 0;
  for (int64_t i = first; i < last; ++i) sum += lists.counts[i];
  totals[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned step = 1; step < kScanThreads; step *= 2) {  // Hillis and Steele 1986
    const int32_t below = threadIdx.x >= step ? totals[threadIdx.x - step] : 0;
    __syncthreads();
    totals[threadIdx.x] += below;
    __syncthreads();
  }
  int32_t begin = totals[threadIdx.x] - sum;
  for (int64_t i = first; i < last; ++i) {
    lists.ends[i] = begin;
    begin += lists.counts[i];
  }
}

constexpr int kShortList = kWarp;

/// Block (row, stripe): works if `row` is the first place of its token. Lists of up to a warp's width are sorted by
/// counting; for longer lists, which are few, one block looks through the tokens after the first.
template <class T>
__global__ void __launch_bounds__(kThreads)
    listed_grad_kernel(const int32_t* tokens, const T* dx, GradientOf<T>* dtable, Lists lists, int64_t rows,
                       int64_t columns, int64_t first_id, int64_t shard_rows, float scale) {
  __shared__ int32_t sorted[kShortList];
  const int64_t row = blockIdx.x;
  const int32_t token = tokens[row];
  const int64_t local = static_cast<int64_t>(token) - first_id;
  if (local < 0 || local >= shard_rows) return;  // the same in the whole block, like all branches except the last
  GradientOf<T>* target = dtable + local * columns;
  const int32_t count = lists.counts[local];
  if (count > kShortList) {
    if (lists.firsts[local] == ~static_cast<unsigned>(row))
      add_places(tokens, dx, target, token, row, rows, columns, scale);
    return;
  }
  const int32_t* list = lists.places + lists.ends[local] - count;
  if (static_cast<int32_t>(threadIdx.x) < count) {
    const int32_t mine = list[threadIdx.x];
    int before = 0;
    for (int32_t j = 0; j < count; ++j) before += list[j] < mine ? 1 : 0;
    sorted[before] = mine;
  }
  __syncthreads();
  if (sorted[0] != row) return;
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (column >= columns) return;
  float sum = widen(target[column]);
  for (int32_t j = 0; j < count; ++j) sum += scale * widen(dx[sorted[j] * columns + column]);
  put(target + column, sum);
}

template <class T>
struct PositionAdd {
  const T* x;
  const T* table;
  T* y;
  int64_t columns, sequence, first;
  Positions positions;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t place = position_of(positions, sequence, (first + i / columns) % sequence);
    Pack<N> sum = load<N>(x + i);
    const Pack<N> more = load<N>(table + place * columns + i % columns);
#pragma unroll
    for (int e = 0; e < N; ++e) sum.v[e] += more.v[e];
    store(y + i, sum);
  }
};

/// Element i of one sequence, over all sequences.
template <class T>
struct PositionGrad {
  const T* dx;
  GradientOf<T>* dtable;
  int64_t columns, sequence, batch;
  Positions positions;
  template <int N>
  __device__ void run(int64_t i) const {
    GradientOf<T>* target = dtable + position_of(positions, sequence, i / columns) * columns + i % columns;
    Pack<N> sum = load<N>(target);
    for (int64_t b = 0; b < batch; ++b) {
      const Pack<N> more = load<N>(dx + b * sequence * columns + i);
#pragma unroll
      for (int e = 0; e < N; ++e) sum.v[e] += more.v[e];
    }
    store(target, sum);
  }
};

}  // namespace

template <class T>
void embedding(cudaStream_t stream, const int32_t* tokens, const T* table, T* x, int64_t rows, int64_t columns,
               int64_t first_id, int64_t shard_rows, float scale) {
  launch_packs<kWidth<T>>(stream, rows * columns, packs<T>(columns, table, x),
                          Look<T>{tokens, table, x, columns, first_id, shard_rows, scale}, "embedding");
}

template <class T>
void embedding_grad(cudaStream_t stream, const int32_t* tokens, const T* dx, GradientOf<T>* dtable, int64_t rows,
                    int64_t columns, int64_t first_id, int64_t shard_rows, float scale, KernelScratch scratch) {
  const dim3 grid = row_stripes(rows, columns, "embedding_grad");
  const std::size_t needed = static_cast<std::size_t>(3 * shard_rows + rows) * sizeof(int32_t);
  if (scratch.bytes < needed) {
    ORRERY_LAUNCH((scanning_sums_kernel<T, GradientOf<T>>), grid, dim3(kThreads), 0, stream, tokens, dx, dtable, rows,
                  columns, first_id, shard_rows, scale);
    return check_launch("embedding_grad");
  }
  auto* ints = static_cast<int32_t*>(scratch.data);
  const Lists lists{ints, reinterpret_cast<unsigned*>(ints + shard_rows), ints + 2 * shard_rows, ints + 3 * shard_rows};
  check(cudaMemsetAsync(lists.counts, 0, static_cast<std::size_t>(2 * shard_rows) * sizeof(int32_t), stream),
        "embedding_grad, counts");
  launch_packs<1>(stream, rows, false, Count{tokens, lists, first_id, shard_rows}, "embedding_grad, counts");
  ORRERY_LAUNCH(begin_lists_kernel, dim3(1), dim3(kScanThreads), 0, stream, lists, shard_rows);
  check_launch("embedding_grad, lists");
  launch_packs<1>(stream, rows, false, Fill{tokens, lists, first_id, shard_rows}, "embedding_grad, lists");
  ORRERY_LAUNCH(listed_grad_kernel<T>, grid, dim3(kThreads), 0, stream, tokens, dx, dtable, lists, rows, columns,
                first_id, shard_rows, scale);
  check_launch("embedding_grad");
}

template <class T>
void position_add(cudaStream_t stream, const T* x, const T* table, T* y, int64_t rows, int64_t columns,
                  int64_t sequence, int64_t first, const Positions& positions) {
  launch_packs<kWidth<T>>(stream, rows * columns, packs<T>(columns, x, table, y),
                          PositionAdd<T>{x, table, y, columns, sequence, first, positions}, "position_add");
}

template <class T>
void position_grad(cudaStream_t stream, const T* dx, GradientOf<T>* dtable, int64_t rows, int64_t columns,
                   int64_t sequence, const Positions& positions) {
  launch_packs<kWidth<T>>(stream, sequence * columns, packs<T>(columns, dx, dtable),
                          PositionGrad<T>{dx, dtable, columns, sequence, rows / sequence, positions}, "position_grad");
}

#define ORRERY_INSTANTIATE(T)                                                                                        \
  template void embedding(cudaStream_t, const int32_t*, const T*, T*, int64_t, int64_t, int64_t, int64_t, float);    \
  template void embedding_grad<T>(cudaStream_t, const int32_t*, const T*, GradientOf<T>*, int64_t, int64_t, int64_t, \
                                  int64_t, float, KernelScratch);                                                    \
  template void position_add(cudaStream_t, const T*, const T*, T*, int64_t, int64_t, int64_t, int64_t,               \
                             const Positions&);                                                                      \
  template void position_grad<T>(cudaStream_t, const T*, GradientOf<T>*, int64_t, int64_t, int64_t, const Positions&);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda

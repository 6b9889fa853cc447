// Gradients of biases: sums over rows, 16 bytes a load. Blocks of 32 packs of columns by as many parts of the rows as
// fill the device leave a sum for each part; a second pass adds those up in order.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {
namespace {

constexpr int kWarps = kThreads / kWarp;
constexpr int kAhead = 4;  // rows of a warp under way
/// Six blocks for each of an H200's 132 multiprocessors, which can hold six with 40 registers a thread: about 98 KB of
/// loads are under way in each, and 22 KB are enough to hide 600 ns of memory latency at 4.8 TB/s.
constexpr int64_t kEnoughBlocks = 792;
constexpr int64_t kLeastRows = kWarps * kAhead;  // of a part

/// Block (stripe, part): warp w sums rows w, w + kWarps, … of the part, each lane N columns of them; then the warps'
/// sums are added in order, into the part's row of (parts, columns).
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    sums_of_parts(const T* dy, float* parts, int64_t rows, int64_t columns, int64_t rows_per_part) {
  __shared__ float sums[kWarps][kWarp * N];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t stripe = static_cast<int64_t>(blockIdx.x) * kWarp * N, column = stripe + lane * N;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * rows_per_part;
  const int64_t last = first + rows_per_part < rows ? first + rows_per_part : rows;
  Pack<N> sum{};
  if (column < columns) {
    int64_t row = first + warp;
    for (; row + (kAhead - 1) * kWarps < last; row += kAhead * kWarps) {
      Pack<N> v[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) v[i] = load<N>(dy + (row + i * kWarps) * columns + column);
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
#pragma unroll
        for (int e = 0; e < N; ++e) sum.v[e] += v[i].v[e];
    }
    for (; row < last; row += kWarps) add_to(sum, dy + row * columns + column);
  }
#pragma unroll
  for (int e = 0; e < N; ++e) sums[warp][e * kWarp + lane] = sum.v[e];  // neighbouring lanes, neighbouring banks
  __syncthreads();
  if (threadIdx.x >= kWarp * N) return;
  const int64_t own = stripe + lane * N + warp;  // warp e has element e of each lane's
  if (own >= columns) return;
  float total = 0;
  for (int w = 0; w < kWarps; ++w) total += sums[w][threadIdx.x];
  parts[blockIdx.y * columns + own] = total;
}

/// Block (32, 32): thread (x, y) adds parts y, y + 32, … of column 32 * block + x; then row 0 of the threads adds the
/// 32 sums in order, and adds the total to the result or stores it.
template <class G>
__global__ void __launch_bounds__(kWarp* kWarp)
    add_sums_of_parts(const float* parts, int64_t count, int64_t columns, G* target, bool adds) {
  __shared__ float sums[kWarp][kWarp + 1];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0;
  if (column < columns)
    for (int64_t part = threadIdx.y; part < count; part += kWarp) sum += parts[part * columns + column];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = 0;
  for (int y = 0; y < kWarp; ++y) total += sums[y][threadIdx.x];
  put(target + column, (adds ? widen(target[column]) : 0.0F) + total);
}

template <class T, int N>
void launch_sums(cudaStream_t stream, const T* dy, float* parts, dim3 grid, int64_t rows, int64_t columns,
                 int64_t rows_per_part) {
  ORRERY_LAUNCH((sums_of_parts<T, N>), grid, dim3(kThreads), 0, stream, dy, parts, rows, columns, rows_per_part);
  check_launch("bias_grad");
}

}  // namespace

template <class T>
void bias_grad(cudaStream_t stream, const T* dy, GradientOf<T>* dbias, int64_t rows, int64_t columns,
               KernelScratch scratch, bool adds) {
  if (rows < 1 && adds) return;
  const bool whole = packs<T>(columns, dy);
  const int64_t across = kWarp * (whole ? kWidth<T> : 1);
  dim3 grid = row_grid((columns + across - 1) / across, "bias_grad");
  const auto at_most = [](int64_t value, int64_t most) { return value < most ? value : most; };
  int64_t parts = at_most((kEnoughBlocks + grid.x - 1) / grid.x, rows < 1 ? 1 : (rows + kLeastRows - 1) / kLeastRows);
  parts = at_most(parts, static_cast<int64_t>(scratch.bytes) / (static_cast<int64_t>(sizeof(float)) * columns));
  if (parts < 1) throw Failure("CUDA: bias_grad: too many columns for the scratch memory");
  const int64_t rows_per_part = (rows + parts - 1) / parts;
  grid.y = static_cast<unsigned>(parts);
  auto* const sums = static_cast<float*>(scratch.data);
  if (whole)
    launch_sums<T, kWidth<T>>(stream, dy, sums, grid, rows, columns, rows_per_part);
  else
    launch_sums<T, 1>(stream, dy, sums, grid, rows, columns, rows_per_part);
  ORRERY_LAUNCH(add_sums_of_parts<GradientOf<T>>, row_grid((columns + kWarp - 1) / kWarp, "bias_grad"),
                dim3(kWarp, kWarp), 0, stream, sums, parts, columns, dbias, adds);
  check_launch("bias_grad");
}

#define ORRERY_INSTANTIATE(T) \
  template void bias_grad<T>(cudaStream_t, const T*, GradientOf<T>*, int64_t, int64_t, KernelScratch, bool);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda

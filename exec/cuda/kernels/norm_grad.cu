// Backward pass of norms. Each element of dy and x is read once: the lanes of a row keep it in registers for its two
// sums and for dx, together with the sums of their columns over the block's rows. Blocks store these sums, and a second
// kernel adds them in a fixed order, so that results repeat bit by bit.
#include "exec/cuda/kernels/norm_grad.h"

#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {
namespace {

constexpr int64_t kMostNormBlocks = 264;  // two for each of an H200's multiprocessors: 128 registers a thread
constexpr int64_t kLeastRowsOfAGroup = 4;

/// 16 bytes of a row as they lie in memory.
template <class T>
__device__ inline Pack<kWidth<T>> unpacked(uint4 word) {
  T values[kWidth<T>];
  memcpy(static_cast<void*>(values), &word, sizeof(word));
  Pack<kWidth<T>> out;
#pragma unroll
  for (int e = 0; e < kWidth<T>; ++e) out.v[e] = widen(values[e]);
  return out;
}

/// Sums over the lanes that share a row, the same bits in each lane. The lanes are one warp, or `Warps` warps, which
/// all call this together. `turn` alternates from call to call, because late warps still read the sums of the call
/// before.
template <int Warps>
__device__ inline void row_sums(float& a, float& b, int turn) {
  a = warp_sum(a);
  b = warp_sum(b);
  if constexpr (Warps > 1) {
    __shared__ float partial[2][kThreads / kWarp][2];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    if (threadIdx.x % kWarp == 0) {
      partial[turn][warp][0] = a;
      partial[turn][warp][1] = b;
    }
    __syncthreads();
    a = b = 0;
#pragma unroll
    for (int w = 0; w < Warps; ++w) {
      a += partial[turn][warp / Warps * Warps + w][0];
      b += partial[turn][warp / Warps * Warps + w][1];
    }
  }
}

/// Block i has rows [i * rows_per_block, …); each of its groups of `Warps` warps takes one of them after the other.
/// Lane l of a group has columns (l + p * lanes) * N … + N - 1 for p < Packs. `parts`: (2, blocks, columns), of the
/// weight's gradient and of the bias's.
template <class T, int Packs, int Warps, bool Layer>
__global__ void __launch_bounds__(kThreads, 2)
    norm_grad_kernel(NormGradient<T> n, float* parts, int64_t rows_per_block) {
  constexpr int kEach = kWidth<T>, kLanes = kWarp * Warps, kGroups = kThreads / kLanes;
  ORRERY_DYNAMIC_SHARED(totals);  // (2, columns), where several groups share a block
  const int lane = static_cast<int>(threadIdx.x) % kLanes, group = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * rows_per_block;
  const int64_t end = begin + rows_per_block < n.rows ? begin + rows_per_block : n.rows;
  const float per_column = 1.0F / static_cast<float>(n.columns);
  const int columns = static_cast<int>(n.columns);
  const auto column_of = [&](int p) { return (lane + p * kLanes) * kEach; };
  const auto word_of = [&](const T* from, int p) { return *reinterpret_cast<const uint4*>(from + column_of(p)); };
  float scaled[Packs][kEach] = {}, plain[Packs][kEach] = {};
  int turn = 0;
  for (int64_t first = begin; first < end; first += kGroups, turn ^= 1) {  // all groups go round as often
    const int64_t row = first + group;
    const bool works = row < end;
    const int64_t base = row * n.columns;
    uint4 dy[Packs], x[Packs], more[Packs];
#pragma unroll
    for (int p = 0; p < Packs; ++p) {
      const bool held = works && column_of(p) < columns;
      dy[p] = held ? word_of(n.dy + base, p) : uint4{0, 0, 0, 0};
      x[p] = held ? word_of(n.x + base, p) : uint4{0, 0, 0, 0};
      more[p] = held && n.addend ? word_of(n.addend + base, p) : uint4{0, 0, 0, 0};
    }
    const float scale = works ? n.rstd[row] : 0.0F;
    const float mu = Layer && works ? n.mean[row] : 0.0F;
    float sum = 0, dot = 0;
#pragma unroll
    for (int p = 0; p < Packs; ++p) {
      if (column_of(p) >= columns) continue;
      const Pack<kEach> g = unpacked<T>(dy[p]), v = unpacked<T>(x[p]), w = load<kEach>(n.weight + column_of(p));
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const float normed = (v.v[e] - mu) * scale;
        sum += g.v[e] * w.v[e];
        dot += g.v[e] * w.v[e] * normed;
        scaled[p][e] += g.v[e] * normed;
        if constexpr (Layer) plain[p][e] += g.v[e];
      }
    }
    row_sums<Warps>(sum, dot, turn);
    const float mean_g = Layer ? sum * per_column : 0.0F, mean_dot = dot * per_column;
#pragma unroll
    for (int p = 0; p < Packs; ++p) {
      if (!works || column_of(p) >= columns) continue;
      Pack<kEach> g = unpacked<T>(dy[p]);
      const Pack<kEach> v = unpacked<T>(x[p]), w = load<kEach>(n.weight + column_of(p)), a = unpacked<T>(more[p]);
#pragma unroll
      for (int e = 0; e < kEach; ++e)
        g.v[e] = scale * (g.v[e] * w.v[e] - mean_g - (v.v[e] - mu) * scale * mean_dot) + a.v[e];
      store(n.dx + base + column_of(p), g);
    }
  }
  // Groups one after the other, for an order that is always the same.
  for (int g = 0; g + 1 < kGroups; ++g) {
    if (group == g) {
#pragma unroll
      for (int p = 0; p < Packs; ++p) {
        if (column_of(p) >= columns) continue;
#pragma unroll
        for (int e = 0; e < kEach; ++e) {
          float* const at = totals + column_of(p) + e;
          at[0] = scaled[p][e] + (g > 0 ? at[0] : 0.0F);
          if constexpr (Layer) at[columns] = plain[p][e] + (g > 0 ? at[columns] : 0.0F);
        }
      }
    }
    __syncthreads();
  }
  if (group + 1 != kGroups) return;
#pragma unroll
  for (int p = 0; p < Packs; ++p) {
    if (column_of(p) >= columns) continue;
    float* const to = parts + static_cast<int64_t>(blockIdx.x) * n.columns + column_of(p);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const float* const at = totals + column_of(p) + e;
      to[e] = scaled[p][e] + (kGroups > 1 ? at[0] : 0.0F);
      if constexpr (Layer) to[gridDim.x * n.columns + e] = plain[p][e] + (kGroups > 1 ? at[columns] : 0.0F);
    }
  }
}

/// Block (32, 32) at (stripe, which): thread (tx, ty) adds parts ty, ty + 32 ... of column 32 * stripe + tx; then row 0
/// of the threads adds these 32 sums in order.
template <class T>
__global__ void __launch_bounds__(kWarp* kWarp)
    add_norm_parts_kernel(NormGradient<T> n, const float* parts, int64_t count) {
  __shared__ float partial[kWarp][kWarp + 1];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const float* const from = parts + static_cast<int64_t>(blockIdx.y) * count * n.columns + column;
  float sum = 0;
  if (column < n.columns)
    for (int64_t part = threadIdx.y; part < count; part += kWarp) sum += from[part * n.columns];
  partial[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= n.columns) return;
  GradientOf<T>* const target = (blockIdx.y == 0 ? n.dweight : n.dbias) + column;
  float total = n.adds ? widen(*target) : 0.0F;
  for (int lane = 0; lane < kWarp; ++lane) total += partial[lane][threadIdx.x];
  put(target, total);
}

template <class T, int Packs, int Warps, bool Layer>
bool launch_norm_grad(cudaStream_t stream, const NormGradient<T>& n, KernelScratch scratch, const char* name) {
  constexpr int kGroups = kThreads / (kWarp * Warps);
  const int64_t part = (Layer ? 2 : 1) * n.columns * static_cast<int64_t>(sizeof(float));
  const int64_t wanted = (n.rows + kGroups * kLeastRowsOfAGroup - 1) / (kGroups * kLeastRowsOfAGroup);
  const int64_t most = wanted < kMostNormBlocks ? wanted : kMostNormBlocks;
  if (most * part > static_cast<int64_t>(scratch.bytes)) return false;
  const int64_t rows_per_block = (n.rows + most - 1) / most;
  const int64_t blocks = (n.rows + rows_per_block - 1) / rows_per_block;
  float* const parts = static_cast<float*>(scratch.data);
  const std::size_t shared = kGroups > 1 ? static_cast<std::size_t>(part) : 0;
  ORRERY_LAUNCH((norm_grad_kernel<T, Packs, Warps, Layer>), row_grid(blocks, name), dim3(kThreads), shared, stream, n,
                parts, rows_per_block);
  check_launch(name);
  dim3 grid = row_grid((n.columns + kWarp - 1) / kWarp, name);
  grid.y = n.dbias ? 2 : 1;
  ORRERY_LAUNCH(add_norm_parts_kernel<T>, grid, dim3(kWarp, kWarp), 0, stream, n, parts, blocks);
  check_launch(name);
  return true;
}

/// Chooses how much of a row each lane has: the fewest warps per row that keep its sums in registers.
template <class T, bool Layer>
bool by_columns(cudaStream_t stream, const NormGradient<T>& n, KernelScratch scratch, const char* name) {
  constexpr int64_t kOfAWarp = kWarp * kWidth<T>;  // columns, with a pack a lane
  if (n.columns <= 3 * kOfAWarp) return launch_norm_grad<T, 3, 1, Layer>(stream, n, scratch, name);
  if (n.columns <= 2 * 3 * kOfAWarp) return launch_norm_grad<T, 3, 2, Layer>(stream, n, scratch, name);
  if (n.columns <= 4 * 2 * kOfAWarp) return launch_norm_grad<T, 2, 4, Layer>(stream, n, scratch, name);
  if (n.columns <= 8 * 2 * kOfAWarp) return launch_norm_grad<T, 2, 8, Layer>(stream, n, scratch, name);
  if (n.columns <= 8 * 3 * kOfAWarp) return launch_norm_grad<T, 3, 8, Layer>(stream, n, scratch, name);
  return false;
}

}  // namespace

template <class T>
bool norm_grad_in_one_pass(cudaStream_t stream, const NormGradient<T>& n, KernelScratch scratch, const char* name) {
  if (!packs<T>(n.columns, n.dy, n.x, n.weight, n.addend, n.dx)) return false;
  return n.mean ? by_columns<T, true>(stream, n, scratch, name) : by_columns<T, false>(stream, n, scratch, name);
}

#define ORRERY_INSTANTIATE(T) \
  template bool norm_grad_in_one_pass(cudaStream_t, const NormGradient<T>&, KernelScratch, const char*);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda

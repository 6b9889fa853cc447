// Products of experts: tiles of 64 x 64, one per block, through shared memory; sums in fp32. A kernel makes the list of
// tiles from the counts, so that a product begins without the host. In 16 bits the products run on tensor cores.
#include <mma.h>

#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/experts.h"
#include "exec/cuda/kernels/scan_device.h"
#include "exec/cuda/kernels/values.h"
#include "models/operators/fp8.h"

namespace orrery::exec::cuda {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kTile = 64;  // rows and columns of a result

/// A matrix from a tile's corner on: element (i, j) is at i * row + j * column, one of which is 1.
template <class T>
struct Corner {
  const T* data;
  int64_t row, column;
  int64_t rows, columns;  // that are there
};

/// On fp32 cores: a thread has 4 x 4 elements of the tile, 16 apart.
struct SingleTile {
  static constexpr int kBlock = kThreads, kDepth = 16, kPitch = kTile + 1, kEach = 4;
  float sums[kEach][kEach] = {};

  template <class A, class B>
  __device__ void add(const Corner<A>& a, const Corner<B>& b, bool tf32) {
    __shared__ float left[kDepth * kPitch], right[kDepth * kPitch];  // (depth, row) and (depth, column)
    const int x = static_cast<int>(threadIdx.x) % 16, y = static_cast<int>(threadIdx.x) / 16;
    for (int64_t k = 0; k < a.columns; k += kDepth) {
      __syncthreads();  // no thread reads the last ones any more
      take(left, a.data + k * a.column, a.row, a.column, a.rows, a.columns - k, tf32);
      take(right, b.data + k * b.row, b.column, b.row, b.columns, b.rows - k, tf32);
      __syncthreads();
#pragma unroll
      for (int d = 0; d < kDepth; ++d)
#pragma unroll
        for (int i = 0; i < kEach; ++i)
#pragma unroll
          for (int j = 0; j < kEach; ++j) sums[i][j] += left[d * kPitch + y + 16 * i] * right[d * kPitch + x + 16 * j];
    }
  }

  template <class C>
  __device__ void write(C* to, int64_t pitch, int64_t rows, int64_t columns, float scale, bool adds) const {
    const int x = static_cast<int>(threadIdx.x) % 16, y = static_cast<int>(threadIdx.x) / 16;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        if (y + 16 * i >= rows || x + 16 * j >= columns) continue;
        C* const at = to + (y + 16 * i) * pitch + x + 16 * j;
        put(at, scale * sums[i][j] + (adds ? widen(*at) : 0.0F));
      }
  }

 private:
  /// Loads kTile vectors that lie `along` apart, kDepth elements of each, `down` apart; elements beyond the end become
  /// zero. Neighbouring threads load neighbours in memory.
  template <class T>
  static __device__ void take(float* tile, const T* from, int64_t along, int64_t down, int64_t vectors, int64_t depth,
                              bool tf32) {
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += kBlock) {
      const int vector = down == 1 ? i / kDepth : i % kTile, d = down == 1 ? i % kDepth : i / kTile;
      const float value = vector < vectors && d < depth ? widen(from[vector * along + d * down]) : 0.0F;
      tile[d * kPitch + vector] = tf32 ? models::tf32_value(value) : value;
    }
  }
};

/// On tensor cores: four warps, each with a quarter of the tile. Matrices lie in shared memory as in the device's
/// memory: TurnedA, one row for each step of depth; TurnedB, one row for each column of the result.
template <class T, bool TurnedA, bool TurnedB>
struct TensorTile {
  static constexpr int kBlock = 128, kDepth = 32, kSpare = 8;
  static constexpr int kPitchA = (TurnedA ? kTile : kDepth) + kSpare, kPitchB = (TurnedB ? kDepth : kTile) + kSpare;
  static constexpr int kRowsA = TurnedA ? kDepth : kTile, kRowsB = TurnedB ? kTile : kDepth;
  static constexpr unsigned kPitch = kTile + 8;  // of sums
  using LayoutA = std::conditional_t<TurnedA, wmma::col_major, wmma::row_major>;
  using LayoutB = std::conditional_t<TurnedB, wmma::col_major, wmma::row_major>;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2][2];

  __device__ TensorTile() {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) wmma::fill_fragment(sums[i][j], 0.0F);
  }

  __device__ void add(const Corner<T>& a, const Corner<T>& b, bool) {
    alignas(16) __shared__ T left[kRowsA * kPitchA];
    alignas(16) __shared__ T right[kRowsB * kPitchB];
    const int warp = static_cast<int>(threadIdx.x) / kWarp, row = warp / 2 * 32, column = warp % 2 * 32;
    for (int64_t k = 0; k < a.columns; k += kDepth) {
      __syncthreads();  // no thread reads the last ones any more
      if constexpr (TurnedA)
        take<kRowsA, kTile, kPitchA>(left, a.data + k * a.column, a.column, a.columns - k, a.rows);
      else
        take<kRowsA, kDepth, kPitchA>(left, a.data + k, a.row, a.rows, a.columns - k);
      if constexpr (TurnedB)
        take<kRowsB, kDepth, kPitchB>(right, b.data + k, b.column, b.columns, b.rows - k);
      else
        take<kRowsB, kTile, kPitchB>(right, b.data + k * b.row, b.row, b.rows - k, b.columns);
      __syncthreads();
#pragma unroll
      for (int d = 0; d < kDepth; d += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, T, LayoutA> of_a[2];
        wmma::fragment<wmma::matrix_b, 16, 16, 16, T, LayoutB> of_b[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int r = row + 16 * i, c = column + 16 * i;
          wmma::load_matrix_sync(of_a[i], left + (TurnedA ? d * kPitchA + r : r * kPitchA + d), kPitchA);
          wmma::load_matrix_sync(of_b[i], right + (TurnedB ? c * kPitchB + d : d * kPitchB + c), kPitchB);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int j = 0; j < 2; ++j) wmma::mma_sync(sums[i][j], of_a[i], of_b[j], sums[i][j]);
      }
    }
  }

  template <class C>
  __device__ void write(C* to, int64_t pitch, int64_t rows, int64_t columns, float scale, bool adds) const {
    alignas(16) __shared__ float tile[kTile * kPitch];
    const int warp = static_cast<int>(threadIdx.x) / kWarp, row = warp / 2 * 32, column = warp % 2 * 32;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j)
        wmma::store_matrix_sync(tile + static_cast<unsigned>(row + 16 * i) * kPitch + column + 16 * j, sums[i][j],
                                kPitch, wmma::mem_row_major);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kBlock) {
      const int r = i / kTile, c = i % kTile;
      if (r >= rows || c >= columns) continue;
      C* const at = to + r * pitch + c;
      put(at, scale * tile[static_cast<unsigned>(r) * kPitch + c] + (adds ? widen(*at) : 0.0F));
    }
  }

 private:
  /// Rows x Columns elements, `stride` from row to row; 16 bytes at a time where they are all there and aligned.
  template <int Rows, int Columns, int Pitch>
  static __device__ void take(T* tile, const T* from, int64_t stride, int64_t rows, int64_t columns) {
    constexpr int kPack = kWidth<T>;
    const bool whole = reinterpret_cast<std::uintptr_t>(from) % 16 == 0 && stride % kPack == 0;
    for (int i = static_cast<int>(threadIdx.x) * kPack; i < Rows * Columns; i += kBlock * kPack) {
      const int row = i / Columns, column = i % Columns;
      T* const to = tile + row * Pitch + column;
      const T* const at = from + row * stride + column;
      if (whole && row < rows && column + kPack <= columns) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(at);
        continue;
      }
#pragma unroll
      for (int e = 0; e < kPack; ++e) put(to + e, row < rows && column + e < columns ? widen(at[e]) : 0.0F);
    }
  }
};

template <class T, bool TurnedA, bool TurnedB>
struct TileOf {
  using Type = TensorTile<T, TurnedA, TurnedB>;
};
template <bool TurnedA, bool TurnedB>
struct TileOf<float, TurnedA, TurnedB> {
  using Type = SingleTile;
};

/// Up to kTile rows of one expert that stand together.
struct RowTile {
  int32_t first, rows, expert;
};

int64_t most_tiles(const RowSlots& s) {
  return (s.rows() + kTile - 1) / kTile + s.slots * s.experts;
}

/// before[i] = the sum of value(j) over j < i, by one block.
template <class Value>
__device__ inline void sum_before(int64_t count, int32_t* before, const Value& value) {
  int32_t total = 0;
  for (int64_t base = 0; base < count; base += kThreads) {
    const int64_t i = base + threadIdx.x;
    int all = 0;
    const int own = before_me(i < count ? value(i) : 0, all);
    if (i < count) before[i] = total + own;
    total += all;
  }
}

/// `tiles`: expert by expert, so that blocks that run together share a matrix; tiles without rows follow after the
/// last. `rows` and `cut`: room for the counts before each expert of each slot.
struct TileList {
  RowTile* tiles;
  int64_t most;
  int32_t* rows;
  int32_t* cut;
};

__global__ void __launch_bounds__(kThreads) list_tiles_kernel(RowSlots s, TileList list) {
  const int64_t all = s.slots * s.experts;
  for (int64_t i = threadIdx.x; i < list.most; i += kThreads) list.tiles[i].rows = 0;
  sum_before(all, list.rows, [&](int64_t i) { return s.counts[i]; });
  sum_before(all, list.cut,
             [&](int64_t i) { return (s.counts[i % s.slots * s.experts + i / s.slots] + kTile - 1) / kTile; });
  __syncthreads();
  for (int64_t i = threadIdx.x; i < all; i += kThreads) {
    const int64_t expert = i / s.slots, slot = i % s.slots, at = slot * s.experts + expert;
    const int64_t first = slot * s.capacity + list.rows[at] - list.rows[slot * s.experts], rows = s.counts[at];
    RowTile* next = list.tiles + list.cut[i];
    for (int64_t row = 0; row < rows; row += kTile)
      *next++ = {static_cast<int32_t>(first + row), static_cast<int32_t>(rows - row < kTile ? rows - row : kTile),
                 static_cast<int32_t>(expert)};
  }
}

/// Block (tile of rows, tile of columns).
template <class T>
__global__ void __launch_bounds__(kThreads) grouped_forward_kernel(GroupedProduct<T> p, const RowTile* tiles) {
  const RowTile rows = tiles[blockIdx.x];
  if (rows.rows == 0) return;
  const int64_t of_side = (p.n + kTile - 1) / kTile, side = blockIdx.y / of_side;
  const int64_t column = blockIdx.y % of_side * kTile, width = (p.second ? 2 : 1) * p.n;
  const int64_t columns = p.n - column < kTile ? p.n - column : kTile;
  const T* const w = (side == 0 ? p.first : p.second) + rows.expert * p.n * p.k + column * p.k;
  typename TileOf<T, false, true>::Type tile;
  tile.add(Corner<T>{p.a + rows.first * p.k, p.k, 1, rows.rows, p.k}, Corner<T>{w, 1, p.k, p.k, columns}, p.tf32);
  tile.write(p.c + rows.first * width + side * p.n + column, width, rows.rows, columns, 1.0F, false);
}

template <class T>
__global__ void __launch_bounds__(kThreads) grouped_backward_kernel(GroupedProduct<T> p, const RowTile* tiles) {
  const RowTile rows = tiles[blockIdx.x];
  if (rows.rows == 0) return;
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kTile, width = (p.second ? 2 : 1) * p.k;
  const int64_t columns = p.n - column < kTile ? p.n - column : kTile;
  typename TileOf<T, false, false>::Type tile;
  for (int side = 0; side < (p.second ? 2 : 1); ++side) {
    const T* const w = (side == 0 ? p.first : p.second) + rows.expert * p.n * p.k + column;
    tile.add(Corner<T>{p.a + rows.first * width + side * p.k, width, 1, rows.rows, p.k},
             Corner<T>{w, p.n, 1, p.k, columns}, p.tf32);
  }
  tile.write(p.c + rows.first * p.n + column, p.n, rows.rows, columns, 1.0F, false);
}

/// Block (tile of columns, tile of rows of one or two gradients, expert): over the expert's rows in all slots.
template <class T>
__global__ void __launch_bounds__(kThreads) grouped_weight_kernel(GroupedWeightGradient<T> g, RowSlots s) {
  const int64_t expert = blockIdx.z, of_side = (g.m + kTile - 1) / kTile, side = blockIdx.y / of_side;
  const int64_t row = blockIdx.y % of_side * kTile, column = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t rows = g.m - row < kTile ? g.m - row : kTile, columns = g.n - column < kTile ? g.n - column : kTile;
  const int64_t width = (g.second ? 2 : 1) * g.m;
  typename TileOf<T, true, false>::Type tile;
  bool any = false;
  for (int64_t slot = 0; slot < s.slots; ++slot) {
    const int32_t* const counts = s.counts + slot * s.experts;
    int64_t first = slot * s.capacity;
    for (int64_t e = 0; e < expert; ++e) first += counts[e];
    if (counts[expert] == 0) continue;
    any = true;
    tile.add(Corner<T>{g.dy + first * width + side * g.m + row, 1, width, rows, counts[expert]},
             Corner<T>{g.x + first * g.n + column, g.n, 1, counts[expert], columns}, g.tf32);
  }
  if (g.adds && !any) return;
  tile.write((side == 0 ? g.first : g.second) + expert * g.m * g.n + row * g.n + column, g.n, rows, columns, 1.0F,
             g.adds);
}

template <class A, class B, class C>
__global__ void __launch_bounds__(kThreads) mixed_product_kernel(MixedProduct<A, B, C> p) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kTile, row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t rows = p.m - row < kTile ? p.m - row : kTile, columns = p.n - column < kTile ? p.n - column : kTile;
  const int64_t a_row = p.trans_a ? 1 : p.k, a_column = p.trans_a ? p.m : 1;
  const int64_t b_row = p.trans_b ? 1 : p.n, b_column = p.trans_b ? p.k : 1;
  SingleTile tile;
  tile.add(Corner<A>{p.a + row * a_row, a_row, a_column, rows, p.k},
           Corner<B>{p.b + column * b_column, b_row, b_column, p.k, columns}, false);
  tile.write(p.c + row * p.n + column, p.n, rows, columns, p.scale, p.adds);
}

dim3 tiles_for(int64_t x, int64_t y, int64_t z, const char* name) {
  constexpr int64_t kMost = 65535;  // of the second and third dimension
  if (y > kMost || z > kMost) throw Failure(std::string("CUDA: ") + name + ": too many tiles for one launch");
  dim3 grid = row_grid(x, name);
  grid.y = static_cast<unsigned>(y);
  grid.z = static_cast<unsigned>(z);
  return grid;
}
int64_t tiles_of(int64_t size) {
  return (size + kTile - 1) / kTile;
}

template <class T>
constexpr int kBlockOf = TileOf<T, false, false>::Type::kBlock;

}  // namespace

template <class T>
void grouped_matmul(cudaStream_t stream, const RowSlots& slots, const GroupedProduct<T>& product,
                    KernelScratch scratch) {
  const int64_t most = most_tiles(slots), experts = slots.slots * slots.experts;
  if (static_cast<std::size_t>(most) * sizeof(RowTile) + static_cast<std::size_t>(2 * experts) * sizeof(int32_t) >
      scratch.bytes)
    throw Failure("CUDA: grouped_matmul: more tiles than the workspace has room for");
  auto* const tiles = static_cast<RowTile*>(scratch.data);
  auto* const sums = reinterpret_cast<int32_t*>(tiles + most);
  ORRERY_LAUNCH(list_tiles_kernel, dim3(1), dim3(kThreads), 0, stream, slots,
                TileList{tiles, most, sums, sums + experts});
  check_launch("grouped_matmul, tiles");
  const char* const name = "grouped_matmul";
  if (product.transposed)
    ORRERY_LAUNCH(grouped_forward_kernel<T>, tiles_for(most, (product.second ? 2 : 1) * tiles_of(product.n), 1, name),
                  dim3(kBlockOf<T>), 0, stream, product, tiles);
  else
    ORRERY_LAUNCH(grouped_backward_kernel<T>, tiles_for(most, tiles_of(product.n), 1, name), dim3(kBlockOf<T>), 0,
                  stream, product, tiles);
  check_launch(name);
}

template <class T>
void grouped_weight_grad(cudaStream_t stream, const RowSlots& slots, const GroupedWeightGradient<T>& g) {
  const char* const name = "grouped_weight_grad";
  ORRERY_LAUNCH(grouped_weight_kernel<T>,
                tiles_for(tiles_of(g.n), (g.second ? 2 : 1) * tiles_of(g.m), slots.experts, name), dim3(kBlockOf<T>), 0,
                stream, g, slots);
  check_launch(name);
}

template <class A, class B, class C>
void mixed_product(cudaStream_t stream, const MixedProduct<A, B, C>& product) {
  const char* const name = "a product of two types";
  ORRERY_LAUNCH((mixed_product_kernel<A, B, C>), tiles_for(tiles_of(product.n), tiles_of(product.m), 1, name),
                dim3(SingleTile::kBlock), 0, stream, product);
  check_launch(name);
}

#define ORRERY_INSTANTIATE(T)                                                                           \
  template void grouped_matmul(cudaStream_t, const RowSlots&, const GroupedProduct<T>&, KernelScratch); \
  template void grouped_weight_grad(cudaStream_t, const RowSlots&, const GroupedWeightGradient<T>&);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE
#define ORRERY_INSTANTIATE(T)                                                  \
  template void mixed_product(cudaStream_t, const MixedProduct<float, T, T>&); \
  template void mixed_product(cudaStream_t, const MixedProduct<T, float, T>&);
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE
template void mixed_product(cudaStream_t, const MixedProduct<float, __nv_bfloat16, float>&);
template void mixed_product(cudaStream_t, const MixedProduct<float, __half, float>&);

}  // namespace orrery::exec::cuda

#pragma once
/// Tiles of attention on tensor cores: how they are loaded to shared memory, stored there without bank conflicts,
/// multiplied and masked. Private to tensor_attention.cu.
#include <mma.h>

#include "exec/cuda/kernels/attention_device.h"

namespace orrery::exec::cuda::tensor_tiles {

namespace wmma = nvcuda::wmma;

inline constexpr int kTile = 64;    // queries, and keys, of a block
inline constexpr int kStrip = 16;   // rows of a warp
inline constexpr int kBlock = 128;  // threads: kTile / kStrip warps

/// Shared memory has 32 banks of 4 bytes. Threads that take 16 bytes each are served 8 at a time, those that take 8
/// bytes 16 at a time; if two of these want different words of one bank, they wait for each other (CUDA C++ Programming
/// Guide, shared memory). True if every word has a bank of its own: `rows` rows, `pitch` words apart, with `lanes`
/// lanes side by side in each row that take `words` words each.
constexpr bool no_bank_twice(int pitch, int rows, int lanes, int words) {
  bool taken[32] = {};
  for (int row = 0; row < rows; ++row)
    for (int word = 0; word < lanes * words; ++word) {
      bool& bank = taken[(pitch * row + word) % 32];
      if (bank) return false;
      bank = true;
    }
  return true;
}

inline constexpr int kSpare = 8;               // elements added to each row in shared memory, against bank conflicts
inline constexpr int kScorePitch = kTile + 8;  // floats
inline constexpr int kProbabilityPitch = kTile + kSpare;  // 16-bit elements
inline constexpr int kFactorPitch = 24;                   // floats
inline constexpr int kHalfRow = kTile / 2;                // columns of a lane
inline constexpr int kEach = 4;                           // of these, columns side by side
inline constexpr int kDrawWords = kTile * kTile / 32;     // a bit for each score of a tile
// Two lanes share a row of scores and take 4 columns in turn: lane h of row r takes 16 bytes from bank 8 r + 4 h on, so
// 4 rows fill 32 banks. (With half a row for each lane, in rows of 68 floats, it was bank 4 r + j for both lanes and
// for rows r and r + 8: 4 words of each bank.) A product stores 8 bytes a lane, in 4 rows of 4 lanes (mma.m16n8k16 of
// the PTX ISA; a warp-wide product is two of these).
static_assert(no_bank_twice(kScorePitch, 4, 2, 4) && no_bank_twice(kScorePitch, 4, 4, 2));
static_assert(!no_bank_twice(68, 4, 2, 4));
// Probabilities are written 8 bytes a lane, and read as a product's left side: 16 bytes from each of 8 rows.
static_assert(no_bank_twice(kProbabilityPitch / 2, 8, 2, 2) && no_bank_twice(kProbabilityPitch / 2, 8, 1, 4));
static_assert(no_bank_twice(kFactorPitch, 4, 2, 4));
/// A strip of probabilities replaces its scores; after it come the factors of its rows, or a second strip.
inline constexpr int kFactorsAt = kStrip * kProbabilityPitch / 2;  // floats
static_assert(kFactorsAt + kStrip * kFactorPitch <= kStrip * kScorePitch && 2 * kFactorsAt <= kStrip * kScorePitch);
/// Elements of a tile of rows in shared memory.
template <int Dim>
inline constexpr int kRows = (Dim + kSpare) * kTile;
/// The number of tiles that backward holds at a time: with two tiles of wide heads, only one block would fit on a
/// multiprocessor with 228 KB.
template <int Dim>
inline constexpr int kBackwardBuffers = Dim <= 64 ? 2 : 1;
static_assert(kTile / kStrip * kWarp == kBlock && kHalfRow == 32);

template <class T>
using RowsA = wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major>;
template <class T>
using RowsB = wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major>;
template <class T>
using ColumnsB = wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major>;
using Sums = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

/// Shared memory, handed out piece by piece; every piece is a multiple of 16 bytes.
struct Shared {
  char* next;
  template <class T>
  __device__ T* take(int elements) {
    T* out = reinterpret_cast<T*>(next);
    next += static_cast<std::size_t>(elements) * sizeof(T);
    return out;
  }
};

/// Copies `Bytes` (4 or 16) from device to shared memory, or zeros if not `there`; complete once arrived() has
/// returned.
template <int Bytes>
__device__ inline void copy(void* to, const void* from, bool there) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto place = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int size = there ? Bytes : 0;
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(size) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(place), "l"(from), "r"(size) : "memory");
#else
  using Piece = typename Word<Bytes>::Type;
  Piece piece{};
  if (there) piece = *static_cast<const Piece*>(from);
  *static_cast<Piece*>(to) = piece;
#endif
}
__device__ inline void arrived() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/// Calls load(step, buffer) and work(step, buffer) for every step; with two buffers, the next step's load is in flight
/// meanwhile. Loads that began before have arrived when work begins.
template <int Buffers, class Load, class Work>
__device__ inline void each_step(int64_t steps, const Load& load, const Work& work) {
  if (Buffers > 1 && steps > 0) load(int64_t{0}, 0);
  for (int64_t step = 0; step < steps; ++step) {
    const int own = Buffers > 1 ? static_cast<int>(step % 2) : 0;
    if (Buffers == 1) {
      __syncthreads();  // no thread works on the last one any more
      load(step, 0);
    }
    arrived();
    __syncthreads();
    if (Buffers > 1 && step + 1 < steps) load(step + 1, 1 - own);  // no thread uses its contents any more
    work(step, own);
  }
  arrived();
}

/// Rows first..first+63 of a matrix into shared memory, 16 bytes at a time; rows past the sequence become zero.
template <class T, int Dim>
__device__ inline void load_rows(T* tile, const T* source, int64_t first, int64_t stride, int64_t sequence) {
  static_assert(no_bank_twice((Dim + kSpare) / 2, 8, 1, 4));  // 16 bytes from each of 8 rows, as products take them
  constexpr int kPacks = Dim / kWidth<T>;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kPacks; i += kBlock) {
    const int row = i / kPacks;
    const int column = i % kPacks * kWidth<T>;
    const bool there = first + row < sequence;
    copy<16>(tile + row * (Dim + kSpare) + column, there ? source + (first + row) * stride + column : source, there);
  }
}

/// The left side of products, a strip of 16 rows: in shared memory, or in registers.
template <class T, int Dim>
struct SharedStrip {
  const T* rows;
  __device__ RowsA<T> operator()(int k) const {
    RowsA<T> a;
    wmma::load_matrix_sync(a, rows + 16 * k, static_cast<unsigned>(Dim + kSpare));
    return a;
  }
};
template <class T, int Dim>
struct HeldStrip {
  RowsA<T> tiles[Dim / 16];
  __device__ const RowsA<T>& operator()(int k) const { return tiles[k]; }
};

/// scores (16 x 64) = strip (16 x Dim) times the rows of a tile, transposed.
template <class T, int Dim, class Strip>
__device__ inline void products(float* scores, const Strip& strip, const T* rows) {
  constexpr unsigned kPitch = Dim + kSpare;
  Sums sums[kTile / 16];
#pragma unroll
  for (int n = 0; n < kTile / 16; ++n) wmma::fill_fragment(sums[n], 0.0F);
#pragma unroll
  for (int k = 0; k < Dim / 16; ++k) {
    const RowsA<T> a = strip(k);
#pragma unroll
    for (int n = 0; n < kTile / 16; ++n) {
      ColumnsB<T> b;
      wmma::load_matrix_sync(b, rows + 16 * n * kPitch + 16 * k, kPitch);
      wmma::mma_sync(sums[n], a, b, sums[n]);
    }
  }
#pragma unroll
  for (int n = 0; n < kTile / 16; ++n)
    wmma::store_matrix_sync(scores + 16 * n, sums[n], kScorePitch, wmma::mem_row_major);
}

/// sums (16 x Dim) += weights (16 x 64) times rows (64 x Dim).
template <class T, int Dim>
__device__ inline void accumulate(Sums* sums, const T* weights, const T* rows) {
  constexpr unsigned kPitch = Dim + kSpare;
#pragma unroll
  for (int k = 0; k < kTile / 16; ++k) {
    RowsA<T> a;
    wmma::load_matrix_sync(a, weights + 16 * k, kProbabilityPitch);
#pragma unroll
    for (int n = 0; n < Dim / 16; ++n) {
      RowsB<T> b;
      wmma::load_matrix_sync(b, rows + 16 * k * kPitch + 16 * n, kPitch);
      wmma::mma_sync(sums[n], a, b, sums[n]);
    }
  }
}

__device__ inline float pair_sum(float v) {  // over the two lanes of a row
  return v + __shfl_xor_sync(kAllLanes, v, 1);
}
__device__ inline float pair_max(float v) {
  return fmaxf(v, __shfl_xor_sync(kAllLanes, v, 1));
}

/// A lane's part of its warp's strip: half of one row, in runs of 4 columns that alternate with the other half's.
struct Lane {
  int warp, row, half;  // row of the strip
  __device__ Lane()
      : warp(static_cast<int>(threadIdx.x) / kWarp),
        row(static_cast<int>(threadIdx.x) % kWarp / 2),
        half(static_cast<int>(threadIdx.x) % 2) {}
  /// The tile's column of this lane's value i.
  __device__ int column(int i) const { return 2 * kEach * (i / kEach) + kEach * half + i % kEach; }
};

/// Reads a lane's scores; after that, the warp may overwrite them.
__device__ inline void read_scores(float* to, const float* strip, const Lane& lane) {
#pragma unroll
  for (int i = 0; i < kHalfRow; i += kEach) {
    const Pack<kEach> four = load<kEach>(strip + lane.row * kScorePitch + lane.column(i));
#pragma unroll
    for (int e = 0; e < kEach; ++e) to[i + e] = four.v[e];
  }
}
/// Writes a lane's values to a strip of 16-bit values.
template <class T>
__device__ inline void write_weights(T* strip, const float* from, const Lane& lane) {
#pragma unroll
  for (int i = 0; i < kHalfRow; i += kEach) {
    Pack<kEach> four;
#pragma unroll
    for (int e = 0; e < kEach; ++e) four.v[e] = from[i + e];
    store<kEach>(strip + lane.row * kProbabilityPitch + lane.column(i), four);
  }
}

/// Multiplies every sum by its row's factor. A warp's sums are in its lanes in the hardware's layout; loading the
/// factors as such a tile gives them the same layout.
template <int Dim>
__device__ inline void scale_rows(Sums* sums, const float* factors) {
  Sums factor;
  wmma::load_matrix_sync(factor, factors, kFactorPitch, wmma::mem_row_major);
#pragma unroll
  for (int n = 0; n < Dim / 16; ++n)
#pragma unroll
    for (int i = 0; i < Sums::num_elements; ++i) sums[n].x[i] *= factor.x[i];
}

/// How a row of sums v is stored: v / sum, or keep * (what is there) + add * v / sum.
struct Finish {
  bool adds;
  float keep = 1, add = 1, sum = 1;
};

/// Writes rows [first, last) of a strip of sums, through the warp's shared memory, to rows of 16-bit values; `finish`
/// is that of the lane's row.
template <class T, int Dim>
__device__ inline void write_strip(T* to, int64_t stride, int64_t first, int64_t last, float* room, const Sums* sums,
                                   const Lane& lane, const Finish& finish) {
#pragma unroll
  for (int n = 0; n < Dim / 16; ++n) {
    __syncwarp();
    wmma::store_matrix_sync(room, sums[n], kScorePitch, wmma::mem_row_major);
    __syncwarp();
    if (lane.row < first || lane.row >= last) continue;
#pragma unroll
    for (int i = 0; i < 2 * kEach; i += kEach) {
      const Pack<kEach> four = load<kEach>(room + lane.row * kScorePitch + lane.column(i));
      T* target = to + lane.row * stride + 16 * n + lane.column(i);
      for (int e = 0; e < kEach; ++e) {
        const float value = four.v[e] / finish.sum;
        put(target + e, finish.adds ? finish.keep * widen(target[e]) + finish.add * value : value);
      }
    }
  }
}

/// Only columns [first, last) of a tile count.
struct Seen {
  int first, last;
  __device__ bool operator()(int column) const { return column >= first && column < last; }
};
__device__ inline int within_tile(int64_t place) {
  return static_cast<int>(place < 0 ? 0 : place > kTile ? kTile : place);
}
/// Which of the tile of keys from `first_key` on a query sees.
__device__ inline Seen keys_seen(const Layout& l, int64_t query, int64_t first_key) {
  if (query < l.first_query) return {0, 0};
  const int64_t end = l.causal && query + 1 < l.keys ? query + 1 : l.keys;
  return {l.window > 0 ? within_tile(query + 1 - l.window - first_key) : 0, within_tile(end - first_key)};
}
/// Which of the tile of queries from `first_query` on see a key.
__device__ inline Seen queries_seeing(const Layout& l, int64_t key, int64_t first_query) {
  if (key >= l.keys) return {0, 0};
  const int64_t begin = l.causal && key > l.first_query ? key : l.first_query;
  const int64_t end = l.window > 0 && key + l.window < l.sequence ? key + l.window : l.sequence;
  return {within_tile(begin - first_query), within_tile(end - first_query)};
}

/// Which keys of a tile a query keeps, one bit each, by halves of the tile. Each of a row's two lanes draws one half.
struct KeptRow {
  unsigned low, high;
};
__device__ inline KeptRow kept_of(const Layout& l, const QueryDraw& draw, int64_t first_key, const Lane& lane) {
  const unsigned own = kept_keys<kHalfRow>(l, draw, first_key + lane.half * kHalfRow);
  const unsigned other = __shfl_xor_sync(kAllLanes, own, 1);
  return lane.half == 0 ? KeptRow{own, other} : KeptRow{other, own};
}

/// `value` after dropout by bit `place` of a row's draws.
__device__ inline float dropped(const Layout& l, unsigned kept, int place, float value) {
  return (kept >> place & 1U) != 0 ? value * l.masks.draw.scale : 0.0F;
}
__device__ inline float dropped(const Layout& l, const KeptRow& kept, int column, float value) {
  return dropped(l, column < kHalfRow ? kept.low : kept.high, column % kHalfRow, value);
}

}  // namespace orrery::exec::cuda::tensor_tiles

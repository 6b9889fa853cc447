// Gist's lossless storage of the output of a ReLU (models/encoding.h): a bit for each value, and the values that are
// not zero, moved as bits. A block has a piece of the values; a scan between two passes counts those before each piece.
// Values that had no room are computed again, by blocks that see on the device whether they are needed.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/scan_device.h"
#include "exec/cuda/kernels/values.h"
#include "models/operators/fp8.h"

namespace orrery::exec::cuda {
namespace {

constexpr int kGroup = 8;                       // values of a thread: one byte of bits
constexpr int64_t kRound = kThreads * kGroup;   // values of a block at a time
constexpr int kRounds = kSparsePiece / kRound;  // of a piece
constexpr int kScanThreads = 1024;
static_assert(kSparsePiece % kRound == 0);

/// The unsigned integer that moves a T.
template <class T>
struct BitsOf {
  using Type = unsigned short;
};
template <>
struct BitsOf<float> {
  using Type = unsigned;
};

template <class U>
struct Group {
  U v[kGroup];
};

/// Values i to i + 7, of which those past `count` are zero. `whole`: addresses are multiples of 16 bytes.
template <class U>
__device__ inline Group<U> load_group(const U* from, int64_t i, int64_t count, bool whole) {
  Group<U> out;
  if (whole && i + kGroup <= count) {
    constexpr int kWords = kGroup * static_cast<int>(sizeof(U)) / 16;
    uint4 words[kWords];
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] = reinterpret_cast<const uint4*>(from + i)[w];
    memcpy(static_cast<void*>(out.v), static_cast<const void*>(words), sizeof(out.v));
  } else {
    for (int e = 0; e < kGroup; ++e) out.v[e] = i + e < count ? from[i + e] : U{0};
  }
  return out;
}
template <class U>
__device__ inline void store_group(U* to, int64_t i, int64_t count, bool whole, const Group<U>& group) {
  if (whole && i + kGroup <= count) {
    constexpr int kWords = kGroup * static_cast<int>(sizeof(U)) / 16;
    uint4 words[kWords];
    memcpy(static_cast<void*>(words), static_cast<const void*>(group.v), sizeof(group.v));
#pragma unroll
    for (int w = 0; w < kWords; ++w) reinterpret_cast<uint4*>(to + i)[w] = words[w];
  } else {
    for (int e = 0; e < kGroup && i + e < count; ++e) to[i + e] = group.v[e];
  }
}

/// Block: one piece. Bits, and how many of them are set.
template <class U>
__global__ void __launch_bounds__(kThreads)
    bits_kernel(const U* x, uint8_t* bits, int64_t* counts, int64_t count, bool whole) {
  int mine = 0;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t i = blockIdx.x * kSparsePiece + round * kRound + static_cast<int64_t>(threadIdx.x) * kGroup;
    if (i >= count) break;
    const Group<U> group = load_group(x, i, count, whole);
    unsigned set = 0;
#pragma unroll
    for (int e = 0; e < kGroup; ++e) set |= (group.v[e] != 0 ? 1U : 0U) << e;
    bits[i / kGroup] = static_cast<uint8_t>(set);
    mine += __popc(set);
  }
  const int all = block_sum(mine);
  if (threadIdx.x == 0) counts[blockIdx.x] = all;
}

/// The same of bits that are there.
__global__ void __launch_bounds__(kThreads) counts_kernel(const uint8_t* bits, int64_t* counts, int64_t count) {
  int mine = 0;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t i = blockIdx.x * kSparsePiece + round * kRound + static_cast<int64_t>(threadIdx.x) * kGroup;
    if (i < count) mine += __popc(bits[i / kGroup]);
  }
  const int all = block_sum(mine);
  if (threadIdx.x == 0) counts[blockIdx.x] = all;
}

/// One block: the count of each piece becomes the sum of the counts before it; `total` (null: not needed) gets the sum
/// of all.
__global__ void __launch_bounds__(kScanThreads) scan_kernel(int64_t* counts, int64_t pieces, int64_t* total) {
  __shared__ int64_t sums[2][kScanThreads];
  const int me = static_cast<int>(threadIdx.x);
  const int64_t each = (pieces + kScanThreads - 1) / kScanThreads;
  const int64_t first = me * each, last = first + each < pieces ? first + each : pieces;
  int64_t sum = 0;
  for (int64_t i = first; i < last; ++i) sum += counts[i];
  int now = 0;
  sums[now][me] = sum;
  for (int offset = 1; offset < kScanThreads; offset *= 2, now = 1 - now) {
    __syncthreads();
    sums[1 - now][me] = sums[now][me] + (me >= offset ? sums[now][me - offset] : 0);
  }
  __syncthreads();
  int64_t before = sums[now][me] - sum;
  for (int64_t i = first; i < last; ++i) {
    const int64_t here = counts[i];
    counts[i] = before;
    before += here;
  }
  if (total && me == kScanThreads - 1) *total = sums[now][me];
}

/// Block: one piece. Its values that are not zero go after those of the pieces before it.
template <class U>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const U* x, const uint8_t* bits, const int64_t* starts, const int64_t* kept, int64_t capacity,
                  U* values, int64_t count, bool whole) {
  if (*kept > capacity) return;  // the same in the whole grid
  U* to = values + starts[blockIdx.x];
  for (int round = 0; round < kRounds; ++round) {
    const int64_t i = blockIdx.x * kSparsePiece + round * kRound + static_cast<int64_t>(threadIdx.x) * kGroup;
    const unsigned set = i < count ? bits[i / kGroup] : 0U;
    int total = 0;
    int place = before_me(__popc(set), total);
    if (set != 0) {
      const Group<U> group = load_group(x, i, count, whole);
#pragma unroll
      for (int e = 0; e < kGroup; ++e)
        if ((set >> e & 1U) != 0) to[place++] = group.v[e];
    }
    to += total;
  }
}

template <class U>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(const U* values, const uint8_t* bits, const int64_t* starts, const int64_t* kept, int64_t capacity,
                   U* x, int64_t count, bool whole) {
  if (*kept > capacity) return;
  const U* from = values + starts[blockIdx.x];
  for (int round = 0; round < kRounds; ++round) {
    const int64_t i = blockIdx.x * kSparsePiece + round * kRound + static_cast<int64_t>(threadIdx.x) * kGroup;
    const unsigned set = i < count ? bits[i / kGroup] : 0U;
    int total = 0;
    int place = before_me(__popc(set), total);
    if (i < count) {
      Group<U> group;
#pragma unroll
      for (int e = 0; e < kGroup; ++e) group.v[e] = (set >> e & 1U) != 0 ? from[place++] : U{0};
      store_group(x, i, count, whole, group);
    }
    from += total;
  }
}

// -- what had no room -------------------------------------------------------------------------------------------------
constexpr int kSide = 64;   // of a tile of x
constexpr int kDepth = 16;  // of the products at a time
constexpr int kOwn = 4;     // rows and columns of a thread: kSide / 16
static_assert(kSide / kOwn * (kSide / kOwn) == kThreads);

template <class T>
struct Again {
  const T* a;
  const T* weight;
  const T* bias;
  const uint8_t* bits;
  const int64_t* kept;
  int64_t capacity;
  T* x;
  int64_t rows, columns, inner;
  bool tf32;  ///< the product that made x rounded its operands
};

template <class T>
__device__ inline float factor_of(T value, bool tf32) {
  return tf32 ? models::tf32_value(widen(value)) : widen(value);
}

/// Replaces a value that was above zero and is not above zero in this order of the sum.
template <class T>
__device__ inline float least_positive() {
  return 1.17549435e-38F;
}
template <>
__device__ inline float least_positive<__half>() {
  return 6.103515625e-05F;
}

/// Block: a tile of x = relu(a weight^T + bias), summed in fp32 in the order of `inner`, if the values were not kept.
/// The stored bits decide which values are zero, so that the gradient of the ReLU is the same.
template <class T>
__global__ void __launch_bounds__(kThreads) again_kernel(Again<T> p) {
  if (*p.kept <= p.capacity) return;  // the same in the whole grid
  __shared__ float left[kDepth][kSide + 1];
  __shared__ float right[kDepth][kSide + 1];
  const int64_t tiles = (p.columns + kSide - 1) / kSide;
  const int64_t first_row = blockIdx.x / tiles * kSide, first_column = blockIdx.x % tiles * kSide;
  const int me = static_cast<int>(threadIdx.x);
  const int row = me / (kSide / kOwn), column = me % (kSide / kOwn);  // and every 16th after these
  float sums[kOwn][kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
#pragma unroll
    for (int j = 0; j < kOwn; ++j) sums[i][j] = 0;
  for (int64_t depth = 0; depth < p.inner; depth += kDepth) {
    __syncthreads();
    for (int i = me; i < kSide * kDepth; i += kThreads) {
      const int64_t k = depth + i % kDepth;
      const int64_t r = first_row + i / kDepth, c = first_column + i / kDepth;
      left[i % kDepth][i / kDepth] = r < p.rows && k < p.inner ? factor_of(p.a[r * p.inner + k], p.tf32) : 0.0F;
      right[i % kDepth][i / kDepth] =
          c < p.columns && k < p.inner ? factor_of(p.weight[c * p.inner + k], p.tf32) : 0.0F;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      float of_rows[kOwn];
      float of_columns[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        of_rows[i] = left[k][row + i * (kSide / kOwn)];
        of_columns[i] = right[k][column + i * (kSide / kOwn)];
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
#pragma unroll
        for (int j = 0; j < kOwn; ++j) sums[i][j] += of_rows[i] * of_columns[j];
    }
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int64_t r = first_row + row + i * (kSide / kOwn), c = first_column + column + j * (kSide / kOwn);
      if (r >= p.rows || c >= p.columns) continue;
      const int64_t at = r * p.columns + c;
      float value = rounded<T>(p.bias ? sums[i][j] + widen(p.bias[c]) : sums[i][j]);
      if (value <= 0) value = least_positive<T>();
      put(p.x + at, (p.bits[at / kGroup] >> (at % kGroup) & 1) != 0 ? value : 0.0F);
    }
}

int64_t pieces_of(int64_t count, KernelScratch scratch, const char* name) {
  const int64_t pieces = (count + kSparsePiece - 1) / kSparsePiece;
  if (static_cast<std::size_t>(pieces) * sizeof(int64_t) > scratch.bytes)
    throw Failure(std::string("CUDA: ") + name + ": too many values at once");
  return pieces;
}

bool whole_words(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

}  // namespace

template <class T>
void sparse_encode(cudaStream_t stream, const T* x, const SparseBytes& to, int64_t count, KernelScratch scratch) {
  using U = typename BitsOf<T>::Type;
  const int64_t pieces = pieces_of(count, scratch, "sparse_encode");
  const dim3 grid = row_grid(pieces, "sparse_encode");
  auto* const starts = static_cast<int64_t*>(scratch.data);
  const auto* const from = reinterpret_cast<const U*>(x);
  const bool whole = whole_words(x);
  ORRERY_LAUNCH(bits_kernel<U>, grid, dim3(kThreads), 0, stream, from, to.bits, starts, count, whole);
  check_launch("sparse_encode, bits");
  ORRERY_LAUNCH(scan_kernel, dim3(1), dim3(kScanThreads), 0, stream, starts, pieces, to.count);
  check_launch("sparse_encode, places");
  ORRERY_LAUNCH(gather_kernel<U>, grid, dim3(kThreads), 0, stream, from, to.bits, starts, to.count, to.capacity,
                static_cast<U*>(to.values), count, whole);
  check_launch("sparse_encode, values");
}

template <class T>
void sparse_decode(cudaStream_t stream, const SparseBytes& from, const T* a, const T* weight, const T* bias, T* x,
                   int64_t rows, int64_t columns, int64_t inner, bool tf32, KernelScratch scratch) {
  using U = typename BitsOf<T>::Type;
  const int64_t count = rows * columns, pieces = pieces_of(count, scratch, "sparse_decode");
  const dim3 grid = row_grid(pieces, "sparse_decode");
  auto* const starts = static_cast<int64_t*>(scratch.data);
  int64_t* const nowhere = nullptr;
  ORRERY_LAUNCH(counts_kernel, grid, dim3(kThreads), 0, stream, from.bits, starts, count);
  check_launch("sparse_decode, counts");
  ORRERY_LAUNCH(scan_kernel, dim3(1), dim3(kScanThreads), 0, stream, starts, pieces, nowhere);
  check_launch("sparse_decode, places");
  ORRERY_LAUNCH(scatter_kernel<U>, grid, dim3(kThreads), 0, stream, static_cast<const U*>(from.values), from.bits,
                starts, from.count, from.capacity, reinterpret_cast<U*>(x), count, whole_words(x));
  check_launch("sparse_decode, values");
  if (!a || from.capacity >= count) return;  // everything has room
  const int64_t tiles = ((rows + kSide - 1) / kSide) * ((columns + kSide - 1) / kSide);
  const Again<T> again{a, weight, bias, from.bits, from.count, from.capacity, x, rows, columns, inner, tf32};
  ORRERY_LAUNCH(again_kernel<T>, row_grid(tiles, "sparse_decode"), dim3(kThreads), 0, stream, again);
  check_launch("sparse_decode, again");
}

#define ORRERY_INSTANTIATE(T)                                                                                       \
  template void sparse_encode(cudaStream_t, const T*, const SparseBytes&, int64_t, KernelScratch);                  \
  template void sparse_decode(cudaStream_t, const SparseBytes&, const T*, const T*, const T*, T*, int64_t, int64_t, \
                              int64_t, bool, KernelScratch);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda

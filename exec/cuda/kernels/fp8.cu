// Rounding to 8 bits: the largest magnitude of each operand, the power of two that follows from it, and the codes, with
// rows as they are or transposed. Each value is read twice, 16 bytes at a time, and its code is written once. The
// maximum is taken of integers, the bits of the magnitudes, so that it is the same in any order.
#include "exec/cuda/kernels/fp8.h"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {
namespace {

using models::Fp8;
using models::Fp8Casts;

constexpr int kPerLoad = 8;    // bf16 values in 16 bytes
constexpr int kPerStore = 16;  // codes in 16 bytes
constexpr int kTile = 64;      // rows and columns that a block turns
constexpr int kPitch = 68;     // bytes of a row of the turned tile: words of neighbouring rows are in other banks
constexpr int64_t kMaximumBlocks = 1024;

/// Operand 0 is A, 1 is B; each has a place of its own in the room.
__device__ inline unsigned* maximum_of(std::byte* room, unsigned operand) {
  return reinterpret_cast<unsigned*>(room + Fp8Casts::kMaxima) + operand;
}

__device__ inline unsigned larger(unsigned a, unsigned b) {
  return a > b ? a : b;
}

/// Block row 0 has A, block row 1 has B.
__global__ void __launch_bounds__(kThreads)
    largest_magnitudes(const uint4* a, int64_t count_a, const uint4* b, int64_t count_b, std::byte* room) {
  const uint4* const from = blockIdx.y == 0 ? a : b;
  const int64_t count = blockIdx.y == 0 ? count_a : count_b;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  unsigned most = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const uint4 words = from[i];
    const unsigned each[] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) most = larger(most, larger(each[w] & 0x7fffU, each[w] >> 16 & 0x7fffU));
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) most = larger(most, __shfl_xor_sync(kAllLanes, most, offset));
  if (threadIdx.x % kWarp == 0 && most > 0) atomicMax(maximum_of(room, blockIdx.y), most << 16);
}

/// Codes of two values, the first in the lower byte.
__device__ inline unsigned codes_of(float first, float second, Fp8 kind) {
  return __nv_cvt_float2_to_fp8x2(make_float2(first, second), __NV_SATFINITE,
                                  kind == Fp8::e4m3 ? __NV_E4M3 : __NV_E5M2);
}
__device__ inline unsigned codes_of(const Pack<kPerLoad>& v, int first, float scale, Fp8 kind) {
  return codes_of(v.v[first] * scale, v.v[first + 1] * scale, kind) |
         codes_of(v.v[first + 2] * scale, v.v[first + 3] * scale, kind) << 16;
}

/// An operand to round: its values, (rows,k) or transposed, its maximum, and where its codes go.
struct Rounding {
  ToRound values;
  int64_t k;
  std::byte* room;
  unsigned operand;
  std::byte* to;
};

/// One thread leaves what sums are multiplied by.
__device__ inline float scale_of(const Rounding& r) {
  const unsigned largest = *maximum_of(r.room, r.operand);
  if (blockIdx.x == 0 && threadIdx.x == 0)
    reinterpret_cast<float*>(r.room + Fp8Casts::kDescales)[r.operand] = models::fp8_descale(largest, r.values.kind);
  return models::fp8_scale(largest, r.values.kind);
}

__global__ void __launch_bounds__(kThreads) round_rows(Rounding r) {
  const Fp8 kind = r.values.kind;
  const float scale = scale_of(r);
  const int64_t count = r.values.rows * r.k / kPerStore;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const Pack<kPerLoad> low = load<kPerLoad>(r.values.from + i * kPerStore);
    const Pack<kPerLoad> high = load<kPerLoad>(r.values.from + i * kPerStore + kPerLoad);
    uint4 codes;
    codes.x = codes_of(low, 0, scale, kind);
    codes.y = codes_of(low, 4, scale, kind);
    codes.z = codes_of(high, 0, scale, kind);
    codes.w = codes_of(high, 4, scale, kind);
    reinterpret_cast<uint4*>(r.to)[i] = codes;
  }
}

/// From (k,rows) to (rows,k): a block turns a tile, by way of shared memory.
__global__ void __launch_bounds__(kThreads) round_turned(Rounding r) {
  __shared__ unsigned tile[kTile * kPitch / 4];  // codes, (rows, k)
  auto* const bytes = reinterpret_cast<unsigned char*>(tile);
  const Fp8 kind = r.values.kind;
  const float scale = scale_of(r);
  const int64_t rows = r.values.rows, tiles = (rows + kTile - 1) / kTile;
  const int64_t first_row = blockIdx.x % tiles * kTile, first_k = blockIdx.x / tiles * kTile;
  constexpr int kAcross = kTile / kPerLoad, kDown = kThreads / kAcross;
  const int row = static_cast<int>(threadIdx.x) % kAcross * kPerLoad;
  for (int down = static_cast<int>(threadIdx.x) / kAcross; down < kTile; down += kDown) {
    if (first_row + row >= rows || first_k + down >= r.k) continue;
    const Pack<kPerLoad> v = load<kPerLoad>(r.values.from + (first_k + down) * rows + first_row + row);
#pragma unroll
    for (int pair = 0; pair < kPerLoad; pair += 2) {
      const unsigned two = codes_of(v.v[pair] * scale, v.v[pair + 1] * scale, kind);
      bytes[(row + pair) * kPitch + down] = static_cast<unsigned char>(two);
      bytes[(row + pair + 1) * kPitch + down] = static_cast<unsigned char>(two >> 8);
    }
  }
  __syncthreads();
  static_assert(kThreads * kPerStore == kTile * kTile);
  constexpr int kPieces = kTile / kPerStore;
  const int own = static_cast<int>(threadIdx.x) / kPieces, at = static_cast<int>(threadIdx.x) % kPieces * kPerStore;
  if (first_row + own >= rows || first_k + at >= r.k) return;
  const unsigned* const from = tile + (own * kPitch + at) / 4;
  uint4 codes;
  codes.x = from[0];
  codes.y = from[1];
  codes.z = from[2];
  codes.w = from[3];
  *reinterpret_cast<uint4*>(r.to + (first_row + own) * r.k + first_k + at) = codes;
}

unsigned blocks_for(int64_t items, int64_t most) {
  const int64_t blocks = (items + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

}  // namespace

void round_operands(cudaStream_t stream, const ToRound& a, const ToRound& b, std::int64_t k, std::byte* room) {
  const Fp8Casts casts(a.rows, b.rows, k);
  check(cudaMemsetAsync(room, 0, static_cast<std::size_t>(Fp8Casts::kHeader), stream), "fp8: clearing maxima");
  const int64_t loads_a = a.rows * k / kPerLoad, loads_b = b.rows * k / kPerLoad;
  ORRERY_LAUNCH(largest_magnitudes, dim3(blocks_for(loads_a > loads_b ? loads_a : loads_b, kMaximumBlocks), 2),
                dim3(kThreads), 0, stream, reinterpret_cast<const uint4*>(a.from), loads_a,
                reinterpret_cast<const uint4*>(b.from), loads_b, room);
  check_launch("fp8: largest magnitudes");
  for (const Rounding& r : {Rounding{a, k, room, 0, room + casts.a}, Rounding{b, k, room, 1, room + casts.b}}) {
    const int64_t tiles = (r.values.rows + kTile - 1) / kTile * ((k + kTile - 1) / kTile);
    if (r.values.transposed)
      ORRERY_LAUNCH(round_turned, row_grid(tiles, "fp8"), dim3(kThreads), 0, stream, r);
    else
      ORRERY_LAUNCH(round_rows, dim3(blocks_for(r.values.rows * k / kPerStore, kMaxBlocks)), dim3(kThreads), 0, stream,
                    r);
    check_launch("fp8: rounding");
  }
}

}  // namespace orrery::exec::cuda

// AdamW on moments that are kept in 8 bits (Dettmers et al. 2022): a thread for each element of a quantisation block,
// which is widened, updated and quantised again in one launch.
#include "exec/cuda/kernels/update_device.h"
#include "models/operators/op.h"

namespace orrery::exec::cuda {
namespace {

constexpr int kBlock = static_cast<int>(models::kQuantisedBlock);
static_assert(kBlock == kThreads, "a thread for each element");

/// The code of the nearest value: how many bounds lie below, as exec::CodeBook::code_of.
__device__ inline int code_of(const float* bounds, float value) {
  int low = 0;
#pragma unroll
  for (int step = kCodes / 2; step > 0; step /= 2)
    if (bounds[low + step - 1] < value) low += step;
  return low;
}

/// A value's code in a block whose largest magnitude is `scale`.
__device__ inline uint8_t quantised(const DeviceBook& book, float value, float scale) {
  return static_cast<uint8_t>(scale == 0 ? book.zero : code_of(book.bounds, value / scale));
}

/// The range that has element `at`: ranges are in order and do not overlap.
__device__ inline const DeviceRange& range_of(const Tables& runs, int64_t at) {
  int64_t low = 0, high = runs.range_count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (runs.ranges[middle].begin <= at)
      low = middle;
    else
      high = middle;
  }
  return runs.ranges[low];
}

__global__ void __launch_bounds__(kThreads)
    adamw_8bit_kernel(Floats gradient, Target target, Moments8 moments, const DeviceBook* signed_book,
                      const DeviceBook* unsigned_book, Tables blocks, Tables runs, UpdateStep step) {
  __shared__ DeviceBook books[2];
  if (skips(step)) return;
  const RangeTile tile = blocks.tiles[blockIdx.x];
  if (tile.range < 0) return over_tile(tile, false, CopyOnly{target});
  for (int i = static_cast<int>(threadIdx.x); i < kCodes; i += kThreads)
    for (int which = 0; which < 2; ++which) {
      const DeviceBook& from = which == 0 ? *signed_book : *unsigned_book;
      books[which].values[i] = from.values[i];
      books[which].bounds[i] = from.bounds[i];
      if (i == 0) books[which].zero = from.zero;
    }
  const AdamFactors f = adam_factors(step, step.now->rate);  // and a barrier
  const int64_t at = tile.begin + threadIdx.x, place = tile.begin / kBlock;
  const bool works = static_cast<int32_t>(threadIdx.x) < tile.count;
  float m = 0;
  float v = 0;
  float p = 0;
  if (works) {
    const float keep = tile.decay != 0 ? static_cast<float>(1 - step.now->rate * step.decay) : 1.0F;
    const float g = load<1>(gradient, at).v[0] * f.gradient;
    m = f.beta1 * (books[0].values[moments.first[at]] * moments.first_scale[place]) + f.rest1 * g;
    v = f.beta2 * (books[1].values[moments.second[at]] * moments.second_scale[place]) + f.rest2 * (g * g);
    p = keep * load<1>(target.parameter, at).v[0] - f.rate * (m / (sqrtf(v) * f.denominator + f.epsilon));
  }
  const float first_scale = block_max(fabsf(m));
  const float second_scale = block_max(fabsf(v));
  if (works) {
    moments.first[at] = quantised(books[0], m, first_scale);
    moments.second[at] = quantised(books[1], v, second_scale);
    write_parameter(target, step, range_of(runs, at), at, Pack<1>{{p}});
  }
  if (threadIdx.x != 0) return;  // after block_max's barriers, all threads have read the old scales
  moments.first_scale[place] = first_scale;
  moments.second_scale[place] = second_scale;
}

}  // namespace

void adamw_8bit(cudaStream_t stream, Floats gradient, const Target& target, const Moments8& moments,
                const DeviceBook* signed_book, const DeviceBook* unsigned_book, const Tables& blocks,
                const Tables& runs, const UpdateStep& step) {
  if (blocks.tile_count == 0) return;
  ORRERY_LAUNCH(adamw_8bit_kernel, row_grid(blocks.tile_count, "adamw_8bit"), dim3(kThreads), 0, stream, gradient,
                target, moments, signed_book, unsigned_book, blocks, runs, step);
  check_launch("adamw_8bit");
}

}  // namespace orrery::exec::cuda

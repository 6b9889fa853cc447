// Gradient norm, clipping and AdamW over a flat vector. A table of tiles on the device says where weight decay applies
// and how squares count; the clipping coefficient is read from device memory, so the host never waits for the norm.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/kernels.h"

namespace orrery::exec::cuda {
namespace {

constexpr float kClipEpsilon = 1e-6F;  // as torch.nn.utils.clip_grad_norm_ and models/op.h

__global__ void __launch_bounds__(kThreads)
    squares_kernel(const float* gradient, const RangeTile* table, double* partials) {
  const RangeTile tile = table[blockIdx.x];
  double sum = 0;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < tile.count; i += kThreads) {
    const double g = static_cast<double>(gradient[tile.begin + i]);
    sum += g * g;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = tile.norm_weight * sum;
}

__global__ void __launch_bounds__(kThreads) sum_partials_kernel(const double* partials, int64_t tiles, float* total) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < tiles; i += kThreads) sum += partials[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) total[0] += static_cast<float>(sum);
}

__global__ void clip_kernel(const float* total, float* norm, float* coefficient, float clip_norm) {
  const float length = sqrtf(total[0]);
  const float ratio = clip_norm / (length + kClipEpsilon);
  norm[0] = length;
  // Written so that a norm that is no number stays visible in the coefficient.
  coefficient[0] = clip_norm > 0 && !(ratio >= 1.0F) ? ratio : 1.0F;
}

__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const float* gradient, const float* coefficient, float* parameter, float* first, float* second,
                 const RangeTile* table, AdamWStep step) {
  const RangeTile tile = table[blockIdx.x];
  const float clip = coefficient ? coefficient[0] : 1.0F;
  const float keep = tile.decay != 0 ? step.keep : 1.0F;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < tile.count; i += kThreads) {
    const int64_t at = tile.begin + i;
    const float g = gradient[at] * clip;
    const float m = step.beta1 * first[at] + step.rest1 * g;
    const float v = step.beta2 * second[at] + step.rest2 * g * g;
    first[at] = m;
    second[at] = v;
    parameter[at] = parameter[at] * keep - step.rate * m / (sqrtf(v) / step.root + step.epsilon);
  }
}

}  // namespace

void norm_squared(cudaStream_t stream, const float* gradient, const RangeTile* table, int64_t tiles, double* partials,
                  float* total) {
  if (tiles == 0) return;
  ORRERY_LAUNCH(squares_kernel, row_grid(tiles, "norm_squared"), dim3(kThreads), 0, stream, gradient, table, partials);
  check_launch("norm_squared");
  ORRERY_LAUNCH(sum_partials_kernel, dim3(1), dim3(kThreads), 0, stream, partials, tiles, total);
  check_launch("norm_squared, total");
}

void clip_coefficient(cudaStream_t stream, const float* total, float* norm, float* coefficient, float clip_norm) {
  ORRERY_LAUNCH(clip_kernel, dim3(1), dim3(1), 0, stream, total, norm, coefficient, clip_norm);
  check_launch("clip_coefficient");
}

void adamw(cudaStream_t stream, const float* gradient, const float* coefficient, float* parameter, float* first,
           float* second, const RangeTile* table, int64_t tiles, const AdamWStep& step) {
  if (tiles == 0) return;
  ORRERY_LAUNCH(adamw_kernel, row_grid(tiles, "adamw"), dim3(kThreads), 0, stream, gradient, coefficient, parameter,
                first, second, table, step);
  check_launch("adamw");
}

}  // namespace orrery::exec::cuda

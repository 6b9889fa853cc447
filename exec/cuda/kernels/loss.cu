// Cross-entropy over a vocabulary that tensor-parallel ranks share: row maximum, row sum and target logit, loss and
// gradient, with the all-reduces between them left to the schedule.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/kernels.h"

namespace orrery::exec::cuda {
namespace {

constexpr int kLossThreads = 1024;

__global__ void __launch_bounds__(kThreads)
    softmax_max_kernel(const float* logits, float* max, int64_t columns, int64_t valid) {
  const int64_t row = blockIdx.x;
  float best = -INFINITY;
  for (int64_t c = threadIdx.x; c < valid; c += blockDim.x) best = fmaxf(best, logits[row * columns + c]);
  best = block_max(best);
  if (threadIdx.x == 0) max[row] = best;
}

__global__ void __launch_bounds__(kThreads)
    softmax_sum_kernel(const float* logits, const float* max, const int32_t* targets, float* sums, int64_t rows,
                       int64_t columns, int64_t valid, int64_t first_id) {
  const int64_t row = blockIdx.x;
  const float top = max[row];
  float sum = 0;
  for (int64_t c = threadIdx.x; c < valid; c += blockDim.x) sum += expf(logits[row * columns + c] - top);
  sum = block_sum(sum);
  if (threadIdx.x != 0) return;
  const int64_t target = static_cast<int64_t>(targets[row]) - first_id;
  sums[row] = sum;
  sums[rows + row] = target >= 0 && target < valid ? logits[row * columns + target] : 0.0F;
}

/// One block: the rows are few next to the logits, and one block keeps the order fixed.
__global__ void __launch_bounds__(kLossThreads)
    cross_entropy_kernel(const float* max, const float* sums, float* loss, int64_t rows, float scale) {
  double sum = 0;
  for (int64_t row = threadIdx.x; row < rows; row += blockDim.x)
    sum += log(static_cast<double>(sums[row])) + static_cast<double>(max[row]) - static_cast<double>(sums[rows + row]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) loss[0] += static_cast<float>(static_cast<double>(scale) * sum);
}

__global__ void __launch_bounds__(kThreads)
    cross_entropy_grad_kernel(const float* logits, const float* max, const float* sums, const int32_t* targets,
                              float* dlogits, int64_t columns, int64_t valid, int64_t first_id, float scale) {
  const int64_t row = blockIdx.x;
  const float top = max[row];
  const float inverse = 1.0F / sums[row];
  const int64_t target = static_cast<int64_t>(targets[row]) - first_id;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
    const float hot = c == target ? 1.0F : 0.0F;
    const float value = c < valid ? scale * (expf(logits[row * columns + c] - top) * inverse - hot) : 0.0F;
    dlogits[row * columns + c] = value;
  }
}

}  // namespace

void softmax_max(cudaStream_t stream, const float* logits, float* max, int64_t rows, int64_t columns, int64_t valid) {
  ORRERY_LAUNCH(softmax_max_kernel, row_grid(rows, "softmax_max"), dim3(kThreads), 0, stream, logits, max, columns,
                valid);
  check_launch("softmax_max");
}

void softmax_sum(cudaStream_t stream, const float* logits, const float* max, const int32_t* targets, float* sums,
                 int64_t rows, int64_t columns, int64_t valid, int64_t first_id) {
  ORRERY_LAUNCH(softmax_sum_kernel, row_grid(rows, "softmax_sum"), dim3(kThreads), 0, stream, logits, max, targets,
                sums, rows, columns, valid, first_id);
  check_launch("softmax_sum");
}

void cross_entropy(cudaStream_t stream, const float* max, const float* sums, float* loss, int64_t rows, float scale) {
  ORRERY_LAUNCH(cross_entropy_kernel, dim3(1), dim3(kLossThreads), 0, stream, max, sums, loss, rows, scale);
  check_launch("cross_entropy");
}

void cross_entropy_grad(cudaStream_t stream, const float* logits, const float* max, const float* sums,
                        const int32_t* targets, float* dlogits, int64_t rows, int64_t columns, int64_t valid,
                        int64_t first_id, float scale) {
  ORRERY_LAUNCH(cross_entropy_grad_kernel, row_grid(rows, "cross_entropy_grad"), dim3(kThreads), 0, stream, logits, max,
                sums, targets, dlogits, columns, valid, first_id, scale);
  check_launch("cross_entropy_grad");
}

}  // namespace orrery::exec::cuda

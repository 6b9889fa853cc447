// Layer norm, RMS norm and column sums. Forward and dx: one block per row. Weight gradients: one block per 32 columns,
// its 32 row lanes summed in a fixed order.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/kernels.h"

namespace orrery::exec::cuda {
namespace {

/// Ba et al., "Layer Normalization" (2016), eq. 4, over a row; the variance in a second pass for accuracy.
__global__ void __launch_bounds__(kThreads)
    layer_norm_kernel(const float* x, const float* weight, const float* bias, float* y, float* mean, float* rstd,
                      int64_t columns, float epsilon) {
  const int64_t row = blockIdx.x;
  const float* in = x + row * columns;
  float sum = 0;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) sum += in[c];
  const float mu = block_sum(sum) / static_cast<float>(columns);
  float squares = 0;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) squares += (in[c] - mu) * (in[c] - mu);
  const float scale = 1.0F / sqrtf(block_sum(squares) / static_cast<float>(columns) + epsilon);
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
    const float normal = (in[c] - mu) * scale;
    y[row * columns + c] = bias ? normal * weight[c] + bias[c] : normal * weight[c];
  }
  if (threadIdx.x == 0) {
    mean[row] = mu;
    rstd[row] = scale;
  }
}

/// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + addend with g = dy * weight; for RMS norm (`mean` null) without
/// mean(g). A thread reads an element before it alone writes it, so dx may be dy, x or addend.
__global__ void __launch_bounds__(kThreads)
    norm_dx_kernel(const float* dy, const float* x, const float* weight, const float* mean, const float* rstd,
                   const float* addend, float* dx, int64_t columns) {
  const int64_t row = blockIdx.x;
  const int64_t base = row * columns;
  const float mu = mean ? mean[row] : 0.0F;
  const float scale = rstd[row];
  float sum = 0;
  float dot = 0;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
    const float g = dy[base + c] * weight[c];
    sum += g;
    dot += g * ((x[base + c] - mu) * scale);
  }
  const float mean_g = mean ? block_sum(sum) / static_cast<float>(columns) : 0.0F;
  const float mean_dot = block_sum(dot) / static_cast<float>(columns);
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
    const float normal = (x[base + c] - mu) * scale;
    const float grad = scale * (dy[base + c] * weight[c] - mean_g - normal * mean_dot);
    dx[base + c] = addend ? grad + addend[base + c] : grad;
  }
}

/// Column sums over rows of dy (into `plain`) and of dy * xhat (into `scaled`, when not null), added to what is there.
/// Block (32, 32): thread (tx, ty) sums column 32*blockIdx.x + tx over rows ty, ty + 32, …; then row 0 of threads adds
/// the 32 partial sums in order.
__global__ void __launch_bounds__(1024)
    column_sums_kernel(const float* dy, const float* x, const float* mean, const float* rstd, float* scaled,
                       float* plain, int64_t rows, int64_t columns) {
  __shared__ float partial_plain[kWarp][kWarp + 1];
  __shared__ float partial_scaled[kWarp][kWarp + 1];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0;
  float dot = 0;
  if (column < columns) {
    for (int64_t row = threadIdx.y; row < rows; row += kWarp) {
      const float g = dy[row * columns + column];
      sum += g;
      if (scaled) dot += g * ((x[row * columns + column] - (mean ? mean[row] : 0.0F)) * rstd[row]);
    }
  }
  partial_plain[threadIdx.y][threadIdx.x] = sum;
  partial_scaled[threadIdx.y][threadIdx.x] = dot;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = 0;
  float total_scaled = 0;
  for (int lane = 0; lane < kWarp; ++lane) {
    total += partial_plain[lane][threadIdx.x];
    total_scaled += partial_scaled[lane][threadIdx.x];
  }
  if (plain) plain[column] += total;
  if (scaled) scaled[column] += total_scaled;
}

__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(const float* x, const float* weight, float* y, float* rstd, int64_t columns, float epsilon) {
  const int64_t row = blockIdx.x;
  const float* in = x + row * columns;
  float squares = 0;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) squares += in[c] * in[c];
  const float scale = 1.0F / sqrtf(block_sum(squares) / static_cast<float>(columns) + epsilon);
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) y[row * columns + c] = in[c] * scale * weight[c];
  if (threadIdx.x == 0) rstd[row] = scale;
}

void column_sums(cudaStream_t stream, const float* dy, const float* x, const float* mean, const float* rstd,
                 float* scaled, float* plain, int64_t rows, int64_t columns, const char* name) {
  const dim3 grid = row_grid((columns + kWarp - 1) / kWarp, name);
  ORRERY_LAUNCH(column_sums_kernel, grid, dim3(kWarp, kWarp), 0, stream, dy, x, mean, rstd, scaled, plain, rows,
                columns);
  check_launch(name);
}

}  // namespace

void layer_norm(cudaStream_t stream, const float* x, const float* weight, const float* bias, float* y, float* mean,
                float* rstd, int64_t rows, int64_t columns, float epsilon) {
  ORRERY_LAUNCH(layer_norm_kernel, row_grid(rows, "layer_norm"), dim3(kThreads), 0, stream, x, weight, bias, y, mean,
                rstd, columns, epsilon);
  check_launch("layer_norm");
}

void layer_norm_grad(cudaStream_t stream, const float* dy, const float* x, const float* weight, const float* mean,
                     const float* rstd, const float* addend, float* dx, float* dweight, float* dbias, int64_t rows,
                     int64_t columns) {
  // First the weights' gradients: dx may overwrite what they read.
  column_sums(stream, dy, x, mean, rstd, dweight, dbias, rows, columns, "layer_norm_grad, weights");
  ORRERY_LAUNCH(norm_dx_kernel, row_grid(rows, "layer_norm_grad"), dim3(kThreads), 0, stream, dy, x, weight, mean, rstd,
                addend, dx, columns);
  check_launch("layer_norm_grad");
}

void rms_norm(cudaStream_t stream, const float* x, const float* weight, float* y, float* rstd, int64_t rows,
              int64_t columns, float epsilon) {
  ORRERY_LAUNCH(rms_norm_kernel, row_grid(rows, "rms_norm"), dim3(kThreads), 0, stream, x, weight, y, rstd, columns,
                epsilon);
  check_launch("rms_norm");
}

void rms_norm_grad(cudaStream_t stream, const float* dy, const float* x, const float* weight, const float* rstd,
                   const float* addend, float* dx, float* dweight, int64_t rows, int64_t columns) {
  const float* no_mean = nullptr;
  float* no_plain = nullptr;
  column_sums(stream, dy, x, no_mean, rstd, dweight, no_plain, rows, columns, "rms_norm_grad, weights");
  ORRERY_LAUNCH(norm_dx_kernel, row_grid(rows, "rms_norm_grad"), dim3(kThreads), 0, stream, dy, x, weight, no_mean,
                rstd, addend, dx, columns);
  check_launch("rms_norm_grad");
}

void bias_grad(cudaStream_t stream, const float* dy, float* dbias, int64_t rows, int64_t columns) {
  const float* none = nullptr;
  float* no_scaled = nullptr;
  column_sums(stream, dy, none, none, none, no_scaled, dbias, rows, columns, "bias_grad");
}

}  // namespace orrery::exec::cuda

// Token and position tables: look-up, and gradients summed in the order of the tokens, without atomics.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/kernels.h"

namespace orrery::exec::cuda {
namespace {

__global__ void __launch_bounds__(kThreads) embedding_kernel(const int32_t* tokens, const float* table, float* x,
                                                             int64_t columns, int64_t first_id, int64_t shard_rows) {
  const int64_t row = blockIdx.x;
  const int64_t local = static_cast<int64_t>(tokens[row]) - first_id;
  const bool mine = local >= 0 && local < shard_rows;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x)
    x[row * columns + c] = mine ? table[local * columns + c] : 0.0F;
}

/// True in all threads when some tokens[j], j < row, equals `token`.
__device__ bool seen_before(const int32_t* tokens, int64_t row, int32_t token) {
  __shared__ int found;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  bool mine = false;
  for (int64_t j = threadIdx.x; j < row; j += blockDim.x) mine = mine || tokens[j] == token;
  if (mine) found = 1;  // every writer writes the same
  __syncthreads();
  return found != 0;
}

/// Block (row, stripe): if `row` is the first place of its token, adds the gradients of all places of that token, in
/// order, to `kThreads` columns of the token's row.
__global__ void __launch_bounds__(kThreads)
    embedding_grad_kernel(const int32_t* tokens, const float* dx, float* dtable, int64_t rows, int64_t columns,
                          int64_t first_id, int64_t shard_rows) {
  __shared__ unsigned matches[kThreads / kWarp];
  const int64_t row = blockIdx.x;
  const int32_t token = tokens[row];
  const int64_t local = static_cast<int64_t>(token) - first_id;
  if (local < 0 || local >= shard_rows) return;  // the same in the whole block, as is the next
  if (seen_before(tokens, row, token)) return;
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  const bool active = column < columns;
  float sum = active ? dtable[local * columns + column] : 0.0F;
  for (int64_t base = row; base < rows; base += kThreads) {
    const int64_t j = base + threadIdx.x;
    const unsigned mask = __ballot_sync(kAllLanes, j < rows && tokens[j] == token);
    if (threadIdx.x % kWarp == 0) matches[threadIdx.x / kWarp] = mask;
    __syncthreads();
    for (int warp = 0; warp < kThreads / kWarp; ++warp) {
      for (unsigned left = matches[warp]; left != 0; left &= left - 1) {
        const int64_t place = base + warp * kWarp + (__ffs(static_cast<int>(left)) - 1);
        if (active) sum += dx[place * columns + column];
      }
    }
    __syncthreads();
  }
  if (active) dtable[local * columns + column] = sum;
}

struct PositionAdd {
  const float* x;
  const float* table;
  float* y;
  int64_t columns, sequence, first;
  __device__ void operator()(int64_t i) const {
    const int64_t row = first + i / columns;
    y[i] = x[i] + table[row % sequence * columns + i % columns];
  }
};

struct PositionGrad {
  const float* dx;
  float* dtable;
  int64_t batch, stride;  // elements of one sequence
  __device__ void operator()(int64_t i) const {
    float sum = dtable[i];
    for (int64_t b = 0; b < batch; ++b) sum += dx[b * stride + i];
    dtable[i] = sum;
  }
};

}  // namespace

void embedding(cudaStream_t stream, const int32_t* tokens, const float* table, float* x, int64_t rows, int64_t columns,
               int64_t first_id, int64_t shard_rows) {
  ORRERY_LAUNCH(embedding_kernel, row_grid(rows, "embedding"), dim3(kThreads), 0, stream, tokens, table, x, columns,
                first_id, shard_rows);
  check_launch("embedding");
}

void embedding_grad(cudaStream_t stream, const int32_t* tokens, const float* dx, float* dtable, int64_t rows,
                    int64_t columns, int64_t first_id, int64_t shard_rows) {
  dim3 grid = row_grid(rows, "embedding_grad");
  const int64_t stripes = (columns + kThreads - 1) / kThreads;
  if (stripes > 65535) throw Failure("CUDA: embedding_grad: too many columns");
  grid.y = static_cast<unsigned>(stripes);
  ORRERY_LAUNCH(embedding_grad_kernel, grid, dim3(kThreads), 0, stream, tokens, dx, dtable, rows, columns, first_id,
                shard_rows);
  check_launch("embedding_grad");
}

void position_add(cudaStream_t stream, const float* x, const float* table, float* y, int64_t rows, int64_t columns,
                  int64_t sequence, int64_t first) {
  launch_each(stream, rows * columns, PositionAdd{x, table, y, columns, sequence, first}, "position_add");
}

void position_grad(cudaStream_t stream, const float* dx, float* dtable, int64_t rows, int64_t columns,
                   int64_t sequence) {
  const int64_t stride = sequence * columns;
  launch_each(stream, stride, PositionGrad{dx, dtable, rows / sequence, stride}, "position_grad");
}

}  // namespace orrery::exec::cuda

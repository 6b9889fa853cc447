// Layer norm, RMS norm and column sums. Forward and dx: one warp per row of up to 4096 elements, one block per longer
// row. Column sums: blocks of 32 columns by as many parts of the rows as fill the device, and a second pass over the
// parts. The backward pass of norms is in norm_grad.cu, unless rows are too long or unaligned: then the weights'
// gradients are computed here first, and then dx.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/dropout_device.h"
#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/kernels/norm_grad.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {
namespace {

constexpr int kRowsPerBlock = kThreads / kWarp;  // a warp each
constexpr int64_t kMostColumnsOfAWarp = 4096;

/// The threads that share a row: a warp, or (Whole) the block.
template <bool Whole>
struct Row {
  int64_t index, lane, lanes;
  __device__ Row()
      : index(Whole ? static_cast<int64_t>(blockIdx.x)
                    : static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kWarp),
        lane(Whole ? threadIdx.x : threadIdx.x % kWarp),
        lanes(Whole ? kThreads : kWarp) {}
  __device__ static float sum(float value) {
    if constexpr (Whole) return block_sum(value);
    return warp_sum(value);
  }
};

template <bool Whole>
dim3 grid_of(int64_t rows, const char* name) {
  return row_grid(Whole ? rows : (rows + kRowsPerBlock - 1) / kRowsPerBlock, name);
}

/// Elements of the row that is normalised: x, or its sum with the residual, rounded as stored.
template <class T, int N>
__device__ inline Pack<N> input_at(const NormInput<T>& in, int64_t base, int64_t c, int64_t columns) {
  if (!in.residual) return load<N>(in.x + base + c);
  Pack<N> v = load<N>(in.residual + base + c);
  Pack<N> x = load<N>(in.x + base + c);
  if (in.masks.draw.step) {
    if (in.added_bias) {
      const Pack<N> b = load<N>(in.added_bias + c);
#pragma unroll
      for (int e = 0; e < N; ++e) x.v[e] += b.v[e];
    }
    const Pack<N> factors = factors_of<N>(in.masks, key_of(in.masks.draw), base + c, columns);
#pragma unroll
    for (int e = 0; e < N; ++e) x.v[e] *= factors.v[e];
  }
#pragma unroll
  for (int e = 0; e < N; ++e) v.v[e] += x.v[e];
  if (in.added_bias && !in.masks.draw.step) {
    const Pack<N> b = load<N>(in.added_bias + c);
#pragma unroll
    for (int e = 0; e < N; ++e) v.v[e] += b.v[e];
  }
  store(in.sum + base + c, v);
#pragma unroll
  for (int e = 0; e < N; ++e) v.v[e] = rounded<T>(v.v[e]);
  return v;
}

/// Ba et al., "Layer Normalization" (2016), eq. 4, over a row; the variance in a second pass for accuracy. RMS norm
/// (Zhang and Sennrich 2019, eq. 4) with `mean` null.
template <class T, int N, bool Whole>
__global__ void __launch_bounds__(kThreads)
    norm_kernel(NormInput<T> in, const T* weight, const T* bias, T* y, float* mean, float* rstd, int64_t rows,
                int64_t columns, float epsilon) {
  const Row<Whole> row;
  if (row.index >= rows) return;  // whole warps, and of whole blocks none
  const int64_t base = row.index * columns;
  const T* stored = in.residual ? in.sum : in.x;
  float sum = 0;
  for (int64_t c = row.lane * N; c < columns; c += row.lanes * N) {
    const Pack<N> v = input_at<T, N>(in, base, c, columns);
#pragma unroll
    for (int e = 0; e < N; ++e) sum += mean ? v.v[e] : v.v[e] * v.v[e];
  }
  const float first = row.sum(sum) / static_cast<float>(columns);
  const float mu = mean ? first : 0.0F;
  float variance = first;
  if (mean) {
    float squares = 0;
    for (int64_t c = row.lane * N; c < columns; c += row.lanes * N) {  // a thread reads what it has written itself
      const Pack<N> v = load<N>(stored + base + c);
#pragma unroll
      for (int e = 0; e < N; ++e) squares += (v.v[e] - mu) * (v.v[e] - mu);
    }
    variance = row.sum(squares) / static_cast<float>(columns);
  }
  const float scale = 1.0F / sqrtf(variance + epsilon);
  for (int64_t c = row.lane * N; c < columns; c += row.lanes * N) {
    Pack<N> v = load<N>(stored + base + c);
    const Pack<N> w = load<N>(weight + c);
#pragma unroll
    for (int e = 0; e < N; ++e) v.v[e] = (v.v[e] - mu) * scale * w.v[e];
    if (bias) {
      const Pack<N> b = load<N>(bias + c);
#pragma unroll
      for (int e = 0; e < N; ++e) v.v[e] += b.v[e];
    }
    store(y + base + c, v);
  }
  if (row.lane == 0) {
    if (mean) mean[row.index] = mu;
    rstd[row.index] = scale;
  }
}

/// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + addend with g = dy * weight; for RMS norm (`mean` null) without
/// mean(g). A thread reads elements before it alone writes them, so dx may be dy, x or addend.
template <class T, int N, bool Whole>
__global__ void __launch_bounds__(kThreads)
    norm_dx_kernel(const T* dy, const T* x, const T* weight, const float* mean, const float* rstd, const T* addend,
                   T* dx, int64_t rows, int64_t columns) {
  const Row<Whole> row;
  if (row.index >= rows) return;
  const int64_t base = row.index * columns;
  const float mu = mean ? mean[row.index] : 0.0F;
  const float scale = rstd[row.index];
  float sum = 0;
  float dot = 0;
  for (int64_t c = row.lane * N; c < columns; c += row.lanes * N) {
    Pack<N> g = load<N>(dy + base + c);
    const Pack<N> v = load<N>(x + base + c);
    const Pack<N> w = load<N>(weight + c);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      g.v[e] *= w.v[e];
      sum += g.v[e];
      dot += g.v[e] * ((v.v[e] - mu) * scale);
    }
  }
  const float mean_g = mean ? row.sum(sum) / static_cast<float>(columns) : 0.0F;
  const float mean_dot = row.sum(dot) / static_cast<float>(columns);
  for (int64_t c = row.lane * N; c < columns; c += row.lanes * N) {
    Pack<N> g = load<N>(dy + base + c);
    const Pack<N> v = load<N>(x + base + c);
    const Pack<N> w = load<N>(weight + c);
#pragma unroll
    for (int e = 0; e < N; ++e) g.v[e] = scale * (g.v[e] * w.v[e] - mean_g - (v.v[e] - mu) * scale * mean_dot);
    if (addend) {
      const Pack<N> more = load<N>(addend + base + c);
#pragma unroll
      for (int e = 0; e < N; ++e) g.v[e] += more.v[e];
    }
    store(dx + base + c, g);
  }
}

/// Operands and results of column sums. `scaled`: sums of dy * xhat; `plain`: sums of dy. Both may be null.
template <class T>
struct Columns {
  const T* dy;
  const T* x;
  const float* mean;
  const float* rstd;
  GradientOf<T>* scaled;
  GradientOf<T>* plain;
  float* parts;  ///< (2, gridDim.y, columns): plain, then scaled; null in a grid of one part
  int64_t rows, columns, rows_per_part;
  bool adds;  ///< to what is there
};

/// Block (32, 32) at (stripe, part): thread (tx, ty) sums column 32*stripe + tx over rows ty, ty + 32, … of the part;
/// then row 0 of threads adds the 32 partial sums in order, to the result, or into the part's place.
template <class T>
__global__ void __launch_bounds__(1024) column_sums_kernel(Columns<T> c) {
  __shared__ float partial_plain[kWarp][kWarp + 1];
  __shared__ float partial_scaled[kWarp][kWarp + 1];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * c.rows_per_part;
  const int64_t last = first + c.rows_per_part < c.rows ? first + c.rows_per_part : c.rows;
  float sum = 0;
  float dot = 0;
  if (column < c.columns) {
    for (int64_t row = first + threadIdx.y; row < last; row += kWarp) {
      const float g = widen(c.dy[row * c.columns + column]);
      sum += g;
      if (c.scaled) dot += g * ((widen(c.x[row * c.columns + column]) - (c.mean ? c.mean[row] : 0.0F)) * c.rstd[row]);
    }
  }
  partial_plain[threadIdx.y][threadIdx.x] = sum;
  partial_scaled[threadIdx.y][threadIdx.x] = dot;
  __syncthreads();
  if (threadIdx.y != 0 || column >= c.columns) return;
  float total = 0;
  float total_scaled = 0;
  for (int lane = 0; lane < kWarp; ++lane) {
    total += partial_plain[lane][threadIdx.x];
    total_scaled += partial_scaled[lane][threadIdx.x];
  }
  if (c.parts) {
    const int64_t part = blockIdx.y, parts = gridDim.y;
    if (c.plain) c.parts[part * c.columns + column] = total;
    if (c.scaled) c.parts[(parts + part) * c.columns + column] = total_scaled;
    return;
  }
  if (c.plain) put(c.plain + column, (c.adds ? widen(c.plain[column]) : 0.0F) + total);
  if (c.scaled) put(c.scaled + column, (c.adds ? widen(c.scaled[column]) : 0.0F) + total_scaled);
}

/// Element i of (2, columns): adds up its parts in order.
template <class T>
struct AddParts {
  Columns<T> c;
  int64_t parts;
  template <int N>
  __device__ void run(int64_t i) const {
    GradientOf<T>* target = i < c.columns ? c.plain : c.scaled;
    if (!target) return;
    const int64_t column = i % c.columns;
    const float* from = c.parts + i / c.columns * parts * c.columns + column;
    float sum = c.adds ? widen(target[column]) : 0.0F;
    for (int64_t part = 0; part < parts; ++part) sum += from[part * c.columns];
    put(target + column, sum);
  }
};

constexpr int64_t kEnoughBlocks = 528;  // four of 1,024 threads' worth of work for each of an H200's multiprocessors
constexpr int64_t kLeastRows = 64;      // of a part

template <class T>
void column_sums(cudaStream_t stream, Columns<T> c, KernelScratch scratch, const char* name) {
  dim3 grid = row_grid((c.columns + kWarp - 1) / kWarp, name);
  const int64_t room = static_cast<int64_t>(scratch.bytes) / (2 * static_cast<int64_t>(sizeof(float)) * c.columns);
  int64_t parts = (kEnoughBlocks + grid.x - 1) / grid.x;
  parts = parts < c.rows / kLeastRows ? parts : c.rows / kLeastRows;
  parts = parts < room ? parts : room;
  if (parts < 1) parts = 1;
  c.rows_per_part = (c.rows + parts - 1) / parts;
  grid.y = static_cast<unsigned>(parts);
  c.parts = parts > 1 ? static_cast<float*>(scratch.data) : nullptr;
  ORRERY_LAUNCH(column_sums_kernel<T>, grid, dim3(kWarp, kWarp), 0, stream, c);
  check_launch(name);
  if (parts > 1) launch_packs<1>(stream, 2 * c.columns, false, AddParts<T>{c, parts}, name);
}

template <class T, int N, bool Whole>
void launch_norm(cudaStream_t stream, const NormInput<T>& in, const T* weight, const T* bias, T* y, float* mean,
                 float* rstd, int64_t rows, int64_t columns, float epsilon, const char* name) {
  ORRERY_LAUNCH((norm_kernel<T, N, Whole>), grid_of<Whole>(rows, name), dim3(kThreads), 0, stream, in, weight, bias, y,
                mean, rstd, rows, columns, epsilon);
  check_launch(name);
}

template <class T>
void any_norm(cudaStream_t stream, const NormInput<T>& in, const T* weight, const T* bias, T* y, float* mean,
              float* rstd, int64_t rows, int64_t columns, float epsilon, const char* name) {
  constexpr int kPack = kWidth<T>;
  const bool whole = packs<T>(columns, in.x, in.residual, in.added_bias, in.sum, weight, bias, y);
  if (columns > kMostColumnsOfAWarp)
    return whole ? launch_norm<T, kPack, true>(stream, in, weight, bias, y, mean, rstd, rows, columns, epsilon, name)
                 : launch_norm<T, 1, true>(stream, in, weight, bias, y, mean, rstd, rows, columns, epsilon, name);
  if (whole) return launch_norm<T, kPack, false>(stream, in, weight, bias, y, mean, rstd, rows, columns, epsilon, name);
  launch_norm<T, 1, false>(stream, in, weight, bias, y, mean, rstd, rows, columns, epsilon, name);
}

template <class T, int N, bool Whole>
void launch_dx(cudaStream_t stream, const T* dy, const T* x, const T* weight, const float* mean, const float* rstd,
               const T* addend, T* dx, int64_t rows, int64_t columns, const char* name) {
  ORRERY_LAUNCH((norm_dx_kernel<T, N, Whole>), grid_of<Whole>(rows, name), dim3(kThreads), 0, stream, dy, x, weight,
                mean, rstd, addend, dx, rows, columns);
  check_launch(name);
}

template <class T>
void norm_dx(cudaStream_t stream, const T* dy, const T* x, const T* weight, const float* mean, const float* rstd,
             const T* addend, T* dx, int64_t rows, int64_t columns, const char* name) {
  constexpr int kPack = kWidth<T>;
  const bool whole = packs<T>(columns, dy, x, weight, addend, dx);
  if (columns > kMostColumnsOfAWarp)
    return whole ? launch_dx<T, kPack, true>(stream, dy, x, weight, mean, rstd, addend, dx, rows, columns, name)
                 : launch_dx<T, 1, true>(stream, dy, x, weight, mean, rstd, addend, dx, rows, columns, name);
  if (whole) return launch_dx<T, kPack, false>(stream, dy, x, weight, mean, rstd, addend, dx, rows, columns, name);
  launch_dx<T, 1, false>(stream, dy, x, weight, mean, rstd, addend, dx, rows, columns, name);
}

}  // namespace

template <class T>
void layer_norm(cudaStream_t stream, const NormInput<T>& in, const T* weight, const T* bias, T* y, float* mean,
                float* rstd, int64_t rows, int64_t columns, float epsilon) {
  any_norm(stream, in, weight, bias, y, mean, rstd, rows, columns, epsilon, "layer_norm");
}

template <class T>
void layer_norm_grad(cudaStream_t stream, const T* dy, const T* x, const T* weight, const float* mean,
                     const float* rstd, const T* addend, T* dx, GradientOf<T>* dweight, GradientOf<T>* dbias,
                     int64_t rows, int64_t columns, KernelScratch scratch, bool adds) {
  const NormGradient<T> one{dy, x, weight, mean, rstd, addend, dx, dweight, dbias, rows, columns, adds};
  if (norm_grad_in_one_pass(stream, one, scratch, "layer_norm_grad")) return;
  // First the weights' gradients: dx may overwrite what they read.
  column_sums(stream, Columns<T>{dy, x, mean, rstd, dweight, dbias, nullptr, rows, columns, 0, adds}, scratch,
              "layer_norm_grad, weights");
  norm_dx(stream, dy, x, weight, mean, rstd, addend, dx, rows, columns, "layer_norm_grad");
}

template <class T>
void rms_norm(cudaStream_t stream, const NormInput<T>& in, const T* weight, T* y, float* rstd, int64_t rows,
              int64_t columns, float epsilon) {
  const T* no_bias = nullptr;
  any_norm(stream, in, weight, no_bias, y, nullptr, rstd, rows, columns, epsilon, "rms_norm");
}

template <class T>
void rms_norm_grad(cudaStream_t stream, const T* dy, const T* x, const T* weight, const float* rstd, const T* addend,
                   T* dx, GradientOf<T>* dweight, int64_t rows, int64_t columns, KernelScratch scratch, bool adds) {
  const NormGradient<T> one{dy, x, weight, nullptr, rstd, addend, dx, dweight, nullptr, rows, columns, adds};
  if (norm_grad_in_one_pass(stream, one, scratch, "rms_norm_grad")) return;
  column_sums(stream, Columns<T>{dy, x, nullptr, rstd, dweight, nullptr, nullptr, rows, columns, 0, adds}, scratch,
              "rms_norm_grad, weights");
  const float* no_mean = nullptr;
  norm_dx(stream, dy, x, weight, no_mean, rstd, addend, dx, rows, columns, "rms_norm_grad");
}

#define ORRERY_INSTANTIATE(T)                                                                                        \
  template void layer_norm(cudaStream_t, const NormInput<T>&, const T*, const T*, T*, float*, float*, int64_t,       \
                           int64_t, float);                                                                          \
  template void layer_norm_grad<T>(cudaStream_t, const T*, const T*, const T*, const float*, const float*, const T*, \
                                   T*, GradientOf<T>*, GradientOf<T>*, int64_t, int64_t, KernelScratch, bool);       \
  template void rms_norm(cudaStream_t, const NormInput<T>&, const T*, T*, float*, int64_t, int64_t, float);          \
  template void rms_norm_grad<T>(cudaStream_t, const T*, const T*, const T*, const float*, const T*, T*,             \
                                 GradientOf<T>*, int64_t, int64_t, KernelScratch, bool);
ORRERY_INSTANTIATE(float)
ORRERY_INSTANTIATE(__half)
ORRERY_INSTANTIATE(__nv_bfloat16)
#undef ORRERY_INSTANTIATE

}  // namespace orrery::exec::cuda

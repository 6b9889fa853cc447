// Adafactor. A matrix is worked on row by row, a block each (a tile), and its columns are summed in stripes of 32;
// other parameters element by element. Arithmetic in double precision, as on the CPU: the estimates span many decades.
#include "exec/cuda/kernels/update_device.h"

namespace orrery::exec::cuda {
namespace {

constexpr double kEpsilon1 = 1e-30, kEpsilon2 = 1e-3;  // the paper's, section 9

__device__ inline double count_of(const DeviceRange& range) {
  return range.all_rows * range.all_columns;
}

struct SquaresOf {
  const Floats& gradient;
  const DeviceRange& range;
  double clip;
  float* sums;
  double& total;
  template <int N>
  __device__ void run(int64_t at) const {
    const Pack<N> v = load<N>(gradient, at);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const double g = clip * static_cast<double>(v.v[e]);
      if (range.columns == 0)
        sums[range.factor_sum + range.first + at + e - range.begin] += static_cast<float>(g * g);
      else
        total += g * g;
    }
  }
};

__global__ void __launch_bounds__(kThreads)
    row_sums_kernel(Floats gradient, float* sums, Tables tables, UpdateStep step, bool packed) {
  const RangeTile tile = tables.tiles[blockIdx.x];
  if (tile.range < 0) return;
  const DeviceRange range = tables.ranges[tile.range];
  double total = 0;
  over_tile(tile, packed, SquaresOf{gradient, range, static_cast<double>(coefficient_of(step)), sums, total});
  if (range.columns == 0) return;
  total = block_sum(total);
  if (threadIdx.x != 0) return;
  tables.partials[2 * blockIdx.x] = total;
  sums[range.factor_rows + tile.row] += static_cast<float>(total);
}

__global__ void __launch_bounds__(kThreads) matrix_sums_kernel(float* sums, Tables tables) {
  const DeviceRange range = tables.ranges[blockIdx.x];
  if (range.columns == 0 || range.begin == range.end) return;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < range.tiles; i += kThreads) sum += tables.partials[2 * (range.first_tile + i)];
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[range.factor_sum] += static_cast<float>(sum);
}

/// Block (32, 32): 32 columns; the rows of the range are divided among 32 lanes, whose sums are added in order.
__global__ void __launch_bounds__(1024)
    column_squares_kernel(Floats gradient, float* sums, Tables tables, UpdateStep step) {
  __shared__ double partial[kWarp][kWarp + 1];
  const Stripe stripe = tables.stripes[blockIdx.x];
  const DeviceRange range = tables.ranges[stripe.range];
  const int64_t column = stripe.column + threadIdx.x;
  const double clip = static_cast<double>(coefficient_of(step));
  const int64_t last = range.first + range.end - range.begin;  // of the rank's part of the parameter
  double sum = 0;
  if (column < range.columns)
    for (int64_t row = range.first / range.columns + threadIdx.y; row * range.columns + column < last; row += kWarp) {
      const int64_t element = row * range.columns + column;
      if (element < range.first) continue;
      const double g = clip * static_cast<double>(load<1>(gradient, range.begin + element - range.first).v[0]);
      sum += g * g;
    }
  partial[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= range.columns) return;
  double total = 0;
  for (int lane = 0; lane < kWarp; ++lane) total += partial[lane][threadIdx.x];
  sums[range.factor_columns + column] += static_cast<float>(total);
}

struct Moments {
  const float* sums;
  float* factors;
  UpdateStep step;
  template <int N>
  __device__ void run(int64_t i) const {
    if (skips(step)) return;
    const double rest = pow(updates_so_far(step), -step.decay_power);
    factors[i] = static_cast<float>((1 - rest) * static_cast<double>(factors[i]) + rest * static_cast<double>(sums[i]));
  }
};

/// 1/sqrt of the estimate of the second moment: R_i C_j / mean R for a matrix, otherwise the element's own moment.
struct Estimate {
  const float* factors;
  const DeviceRange& range;
  double row;
  int64_t begin, column;  // the tile's
  __device__ Estimate(const float* all, const DeviceRange& of, const RangeTile& tile)
      : factors(all), range(of), row(1), begin(tile.begin), column(tile.column) {
    if (of.columns == 0) return;
    const double mean = static_cast<double>(all[of.factor_sum]) / count_of(of) + kEpsilon1;
    row = sqrt(mean / (static_cast<double>(all[of.factor_rows + tile.row]) / of.all_columns + kEpsilon1));
  }
  __device__ double inverse(int64_t at) const {
    if (range.columns == 0)
      return 1 / sqrt(static_cast<double>(factors[range.factor_sum + range.first + at - range.begin]) + kEpsilon1);
    const double of_column = static_cast<double>(factors[range.factor_columns + column + at - begin]);
    return row * static_cast<double>(static_cast<float>(1 / sqrt(of_column / range.all_rows + kEpsilon1)));
  }
};

struct NormsOf {
  const Floats& gradient;
  const Floats& parameter;
  const Estimate& estimate;
  double clip;
  double& of_parameter;
  double& of_update;
  template <int N>
  __device__ void run(int64_t at) const {
    const Pack<N> g = load<N>(gradient, at);
    const Pack<N> p = load<N>(parameter, at);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const double u = clip * static_cast<double>(g.v[e]) * estimate.inverse(at + e);
      const double x = static_cast<double>(p.v[e]);
      of_parameter += x * x;
      of_update += u * u;
    }
  }
};

__global__ void __launch_bounds__(kThreads) factor_norms_kernel(Floats gradient, Floats parameter, const float* factors,
                                                                Tables tables, UpdateStep step, bool packed) {
  const RangeTile tile = tables.tiles[blockIdx.x];
  if (tile.range < 0) return;
  const DeviceRange range = tables.ranges[tile.range];
  const Estimate estimate(factors, range, tile);
  double sums[2] = {0, 0};
  over_tile(tile, packed,
            NormsOf{gradient, parameter, estimate, static_cast<double>(coefficient_of(step)), sums[0], sums[1]});
  for (int i = 0; i < 2; ++i) {
    const double sum = block_sum(sums[i]);
    if (threadIdx.x == 0) tables.partials[2 * blockIdx.x + i] = sum;
  }
}

struct FactoredTile {
  const Floats& gradient;
  const Target& target;
  const UpdateStep& step;
  const DeviceRange& range;
  const Estimate& estimate;
  double keep, rate;
  template <int N>
  __device__ void run(int64_t at) const {
    const Pack<N> g = load<N>(gradient, at);
    Pack<N> p = load<N>(target.parameter, at);
#pragma unroll
    for (int e = 0; e < N; ++e)
      p.v[e] = static_cast<float>(keep * static_cast<double>(p.v[e]) -
                                  rate * static_cast<double>(g.v[e]) * estimate.inverse(at + e));
    write_parameter(target, step, range, at, p);
  }
};

__global__ void __launch_bounds__(kThreads)
    adafactor_kernel(Floats gradient, const float* factors, const float* norms, Target target, Tables tables,
                     UpdateStep step, bool packed) {
  if (skips(step)) return;
  const RangeTile tile = tables.tiles[blockIdx.x];
  if (tile.range < 0) return over_tile(tile, packed, CopyOnly{target});
  const DeviceRange range = tables.ranges[tile.range];
  const float* own = norms + 2 * range.norms;
  const double of_parameter = sqrt(static_cast<double>(own[0]) / count_of(range));
  const double of_update = sqrt(static_cast<double>(own[1]) / count_of(range));
  const double size = step.adaptive ? fmax(kEpsilon2, of_parameter) : 1.0;
  const double rate = step.now->rate * size / fmax(1.0, of_update / step.clip_update);
  const double keep = tile.decay != 0 ? 1 - step.now->rate * size * step.decay : 1.0;
  over_tile(tile, packed,
            FactoredTile{gradient, target, step, range, Estimate(factors, range, tile), keep,
                         rate * static_cast<double>(coefficient_of(step))});
}

}  // namespace

void factor_sums(cudaStream_t stream, Floats gradient, float* sums, const Tables& tables, const UpdateStep& step) {
  if (tables.tile_count == 0) return;
  const bool packed = updates_by_packs(gradient.data);
  ORRERY_LAUNCH(row_sums_kernel, row_grid(tables.tile_count, "factor_sums"), dim3(kThreads), 0, stream, gradient, sums,
                tables, step, packed);
  check_launch("factor_sums, rows");
  ORRERY_LAUNCH(matrix_sums_kernel, row_grid(tables.range_count, "factor_sums"), dim3(kThreads), 0, stream, sums,
                tables);
  check_launch("factor_sums, matrices");
  if (tables.stripe_count == 0) return;
  ORRERY_LAUNCH(column_squares_kernel, row_grid(tables.stripe_count, "factor_sums"), dim3(kWarp, kWarp), 0, stream,
                gradient, sums, tables, step);
  check_launch("factor_sums, columns");
}

void factor_moments(cudaStream_t stream, const float* sums, float* factors, int64_t count, const UpdateStep& step) {
  launch_packs<1>(stream, count, false, Moments{sums, factors, step}, "factor_moments");
}

void factor_norms(cudaStream_t stream, Floats gradient, Floats parameter, const float* factors, float* norms,
                  const Tables& tables, const UpdateStep& step) {
  if (tables.tile_count == 0) return;
  const bool packed = updates_by_packs(gradient.data, parameter.data);
  ORRERY_LAUNCH(factor_norms_kernel, row_grid(tables.tile_count, "factor_norms"), dim3(kThreads), 0, stream, gradient,
                parameter, factors, tables, step, packed);
  check_launch("factor_norms");
  add_norms(stream, tables, norms);
}

void adafactor(cudaStream_t stream, Floats gradient, const float* factors, const float* norms, const Target& target,
               const Tables& tables, const UpdateStep& step) {
  if (tables.tile_count == 0) return;
  const bool packed = updates_by_packs(gradient.data, target.parameter.data, target.copy.data);
  ORRERY_LAUNCH(adafactor_kernel, row_grid(tables.tile_count, "adafactor"), dim3(kThreads), 0, stream, gradient,
                factors, norms, target, tables, step, packed);
  check_launch("adafactor");
}

}  // namespace orrery::exec::cuda

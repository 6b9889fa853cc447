// Muon: moments, the step, and what Newton-Schulz does beside its products.
#include "exec/cuda/kernels/muon.h"

#include "exec/cuda/kernels/update_device.h"

namespace orrery::exec::cuda {
namespace {

// As torch.lerp has them: the momentum moves towards the gradient, and the gradient towards the momentum.
struct MuonMomentsTile {
  const Floats& gradient;
  float* momentum;
  float* direction;
  float coefficient, rest;
  template <int N>
  __device__ void run(int64_t at) const {
    Pack<N> g = load<N>(gradient, at);
    Pack<N> m = load<N>(momentum + at);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      g.v[e] *= coefficient;
      m.v[e] += rest * (g.v[e] - m.v[e]);
      g.v[e] = m.v[e] - rest * (m.v[e] - g.v[e]);
    }
    store(momentum + at, m);
    store(direction + at, g);
  }
};

__global__ void __launch_bounds__(kThreads) muon_moments_kernel(Floats gradient, float* momentum, float* direction,
                                                                Tables tables, UpdateStep step, bool packed) {
  const RangeTile tile = tables.tiles[blockIdx.x];
  if (skips(step) || tile.range < 0 || tables.ranges[tile.range].orthogonal == 0) return;
  const float rest = static_cast<float>(1 - step.momentum);
  over_tile(tile, packed, MuonMomentsTile{gradient, momentum, direction, coefficient_of(step), rest});
}

struct MuonTile {
  const float* direction;
  const Target& target;
  const UpdateStep& step;
  const DeviceRange& range;
  float keep, rate;
  template <int N>
  __device__ void run(int64_t at) const {
    Pack<N> p = load<N>(target.parameter, at);
    const Pack<N> d = load<N>(direction + at);
#pragma unroll
    for (int e = 0; e < N; ++e) p.v[e] = p.v[e] * keep - rate * d.v[e];
    write_parameter(target, step, range, at, p);
  }
};

__global__ void __launch_bounds__(kThreads)
    muon_kernel(Floats gradient, const float* direction, Target target, float* first, float* second, Tables tables,
                UpdateStep step, bool packed) {
  const RangeTile tile = tables.tiles[blockIdx.x];
  if (skips(step)) return;
  if (tile.range < 0) return over_tile(tile, packed, CopyOnly{target});
  const DeviceRange& range = tables.ranges[tile.range];
  const StepValues& now = *step.now;
  const bool whole = range.orthogonal > 0;
  const double decay = whole ? now.matrix_rate * step.matrix_decay : now.rate * step.decay;
  const float keep = tile.decay != 0 ? static_cast<float>(1 - decay) : 1.0F;
  if (whole) {
    const float rate = static_cast<float>(now.matrix_rate * range.orthogonal);
    return over_tile(tile, packed, MuonTile{direction, target, step, range, keep, rate});
  }
  const AdamFactors f = adam_factors(step, now.rate);
  const Floats moment{first, Stored::fp32}, square{second, Stored::fp32};
  over_tile(tile, packed, AdamWTile{gradient, target, step, range, f, moment, square, keep});
}

/// Where element i of the part lies in the bucket, and in the whole matrix.
__device__ inline int64_t in_bucket(const MatrixPart& p, int64_t i) {
  return p.parts.offset + i;
}
__device__ inline int64_t in_matrix(const MatrixPart& p, int64_t i) {
  return (p.first_row + i / p.columns) * p.row_stride + (p.first_column + i % p.columns) * p.column_stride;
}

struct GatherPart {
  MatrixPart part;
  const float* pieces;
  int64_t ranks, rank;
  float* whole;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t at = in_bucket(part, i), shard = at / part.parts.shard, within = at % part.parts.shard;
    whole[in_matrix(part, i)] = pieces[(shard * ranks + rank) * part.parts.shard + within];
  }
};

struct ScatterPart {
  MatrixPart part;
  const float* whole;
  int64_t own;
  float* direction;
  template <int N>
  __device__ void run(int64_t i) const {
    const int64_t at = in_bucket(part, i);
    if (at / part.parts.shard == own) direction[at % part.parts.shard] = whole[in_matrix(part, i)];
  }
};

struct ScaleInto {
  const float* x;
  float* y;
  float scale;
  template <int N>
  __device__ void run(int64_t i) const {
    Pack<N> v = load<N>(x + i);
#pragma unroll
    for (int e = 0; e < N; ++e) v.v[e] *= scale;
    store(y + i, v);
  }
};

constexpr int64_t kMostParts = 1024;

/// A part of the squares for each block, in double precision.
__global__ void __launch_bounds__(kThreads) squares_of_kernel(const float* x, int64_t count, double* parts) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  double sum = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    normalise_kernel(float* x, int64_t count, const double* parts, int64_t all, double guard) {
  double sum = 0;
  for (int64_t part = threadIdx.x; part < all; part += kThreads) sum += parts[part];
  const float norm = static_cast<float>(sqrt(block_sum(sum)) + guard);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) x[i] /= norm;
}

}  // namespace

void muon_moments(cudaStream_t stream, Floats gradient, float* momentum, float* direction, int64_t count,
                  const Tables& tables, const UpdateStep& step) {
  check(cudaMemsetAsync(direction, 0, static_cast<std::size_t>(count) * sizeof(float), stream), "muon_moments");
  if (tables.tile_count == 0) return;
  ORRERY_LAUNCH(muon_moments_kernel, row_grid(tables.tile_count, "muon_moments"), dim3(kThreads), 0, stream, gradient,
                momentum, direction, tables, step, updates_by_packs(gradient.data, momentum, direction));
  check_launch("muon_moments");
}

void muon(cudaStream_t stream, Floats gradient, const float* direction, const Target& target, float* first,
          float* second, const Tables& tables, const UpdateStep& step) {
  if (tables.tile_count == 0) return;
  const bool packed =
      updates_by_packs(gradient.data, direction, target.parameter.data, target.copy.data, first, second);
  ORRERY_LAUNCH(muon_kernel, row_grid(tables.tile_count, "muon"), dim3(kThreads), 0, stream, gradient, direction,
                target, first, second, tables, step, packed);
  check_launch("muon");
}

void gather_part(cudaStream_t stream, const MatrixPart& part, const float* pieces, int64_t ranks, int64_t rank,
                 float* whole) {
  launch_packs<1>(stream, part.rows * part.columns, false, GatherPart{part, pieces, ranks, rank, whole},
                  "newton_schulz, gathering");
}

void scatter_part(cudaStream_t stream, const MatrixPart& part, const float* whole, int64_t own, float* direction) {
  launch_packs<1>(stream, part.rows * part.columns, false, ScatterPart{part, whole, own, direction},
                  "newton_schulz, scattering");
}

void normalise(cudaStream_t stream, float* x, int64_t count, double guard, KernelScratch scratch) {
  int64_t parts = (count + kThreads - 1) / kThreads;
  parts = parts < kMostParts ? parts : kMostParts;
  if (static_cast<std::size_t>(parts) * sizeof(double) > scratch.bytes)
    throw Failure("CUDA: newton_schulz: no room for partial sums");
  auto* const sums = static_cast<double*>(scratch.data);
  const dim3 grid(static_cast<unsigned>(parts));
  ORRERY_LAUNCH(squares_of_kernel, grid, dim3(kThreads), 0, stream, x, count, sums);
  check_launch("newton_schulz, norm");
  ORRERY_LAUNCH(normalise_kernel, grid, dim3(kThreads), 0, stream, x, count, sums, parts, guard);
  check_launch("newton_schulz, normalising");
}

void scale_into(cudaStream_t stream, const float* x, float* y, int64_t count, float scale) {
  launch_packs<kWidth<float>>(stream, count, packs<float>(count, x, y), ScaleInto{x, y, scale}, "newton_schulz");
}

}  // namespace orrery::exec::cuda

// Gradient norm, clipping, loss scaling, AdamW, SGD and LAMB.
#include "exec/cuda/kernels/updates.h"

#include "exec/cuda/kernels/update_device.h"

namespace orrery::exec::cuda {
namespace {

constexpr double kClipEpsilon = 1e-6;  // as torch.nn.utils.clip_grad_norm_ and models/operators/op.h

/// Squares of a thread's elements, in double precision.
struct Squares {
  const Floats& values;
  double& sum;
  template <int N>
  __device__ void run(int64_t at) const {
    const Pack<N> v = load<N>(values, at);
#pragma unroll
    for (int e = 0; e < N; ++e) sum += static_cast<double>(v.v[e]) * static_cast<double>(v.v[e]);
  }
};

__global__ void __launch_bounds__(kThreads) squares_kernel(Floats gradient, Tables tables, bool packed) {
  const RangeTile tile = tables.tiles[blockIdx.x];
  double sum = 0;
  if (tile.range >= 0 && tile.norm_weight != 0) over_tile(tile, packed, Squares{gradient, sum});
  sum = block_sum(sum);
  if (threadIdx.x == 0) tables.partials[blockIdx.x] = tile.norm_weight != 0 ? tile.norm_weight * sum : 0.0;
}

__global__ void __launch_bounds__(kThreads) sum_partials_kernel(const double* partials, int64_t tiles, float* total) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < tiles; i += kThreads) sum += partials[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) total[0] = static_cast<float>(static_cast<double>(total[0]) + sum);
}

__global__ void clip_kernel(const float* total, const float* scaling, float* norm, float* coefficient,
                            float clip_norm) {
  const double scale = scaling ? static_cast<double>(scaling[0]) : 1.0;
  const double length = sqrt(static_cast<double>(total[0])) / scale;
  const double clip = static_cast<double>(clip_norm);
  const double ratio = clip / (length + kClipEpsilon);
  norm[0] = static_cast<float>(length);
  // Written so that a norm that is no number stays visible in the coefficient.
  coefficient[0] = static_cast<float>((clip > 0 && !(ratio >= 1.0) ? ratio : 1.0) / scale);
}

__global__ void overflow_kernel(const float* total, float* flag) {
  flag[0] = (__float_as_uint(total[0]) & 0x7f800000U) == 0x7f800000U ? 1.0F : 0.0F;
}

/// Dynamic loss scaling, Micikevicius et al. 2018, section 3.2: as exec::run_loss_scale.
__global__ void loss_scale_kernel(float* scaling, float factor, float interval) {
  if (scaling[3] != 0) {
    scaling[0] = fmaxf(1.0F, scaling[0] / factor);
    scaling[1] = 0;
    scaling[2] += 1;
    return;
  }
  scaling[1] += 1;
  if (scaling[1] < interval) return;
  scaling[0] *= factor;
  scaling[1] = 0;
}

__global__ void step_values_kernel(StepValues* to, StepValues values) {
  *to = values;
}

// -- AdamW ------------------------------------------------------------------------------------------------------------
__global__ void __launch_bounds__(kThreads) adamw_kernel(Floats gradient, Target target, Floats first, Floats second,
                                                         Tables tables, UpdateStep step, bool packed) {
  const RangeTile tile = tables.tiles[blockIdx.x];
  if (skips(step) || tile.range < 0) return over_tile(tile, packed, CopyOnly{target});  // as exec::run_adamw
  const AdamFactors f = adam_factors(step, step.now->rate);
  const float keep = tile.decay != 0 ? static_cast<float>(1 - step.now->rate * step.decay) : 1.0F;
  over_tile(tile, packed, AdamWTile{gradient, target, step, tables.ranges[tile.range], f, first, second, keep});
}

// -- SGD --------------------------------------------------------------------------------------------------------------
struct SgdTile {
  const Floats& gradient;
  const Target& target;
  const UpdateStep& step;
  const DeviceRange& range;
  float* momentum;
  float clip, decay, along, ahead, beta, rate;
  template <int N>
  __device__ void run(int64_t at) const {
    Pack<N> g = load<N>(gradient, at);
    Pack<N> p = load<N>(target.parameter, at);
#pragma unroll
    for (int e = 0; e < N; ++e) g.v[e] = g.v[e] * clip + decay * p.v[e];
    if (momentum) {
      Pack<N> v = load<N>(momentum + at);
#pragma unroll
      for (int e = 0; e < N; ++e) {
        v.v[e] = beta * v.v[e] + g.v[e];
        g.v[e] = ahead * g.v[e] + along * v.v[e];
      }
      store(momentum + at, v);
    }
#pragma unroll
    for (int e = 0; e < N; ++e) p.v[e] -= rate * g.v[e];
    write_parameter(target, step, range, at, p);
  }
};

__global__ void __launch_bounds__(kThreads)
    sgd_kernel(Floats gradient, Target target, float* momentum, Tables tables, UpdateStep step, bool packed) {
  if (skips(step)) return;
  const RangeTile tile = tables.tiles[blockIdx.x];
  if (tile.range < 0) return over_tile(tile, packed, CopyOnly{target});
  const float beta = static_cast<float>(step.momentum);
  over_tile(tile, packed,
            SgdTile{gradient, target, step, tables.ranges[tile.range], momentum, coefficient_of(step),
                    tile.decay != 0 ? static_cast<float>(step.decay) : 0.0F, step.nesterov ? beta : 1.0F,
                    step.nesterov ? 1.0F : 0.0F, beta, static_cast<float>(step.now->rate)});
}

// -- Lion -------------------------------------------------------------------------------------------------------------
struct LionTile {
  const Floats& gradient;
  const Target& target;
  const UpdateStep& step;
  const DeviceRange& range;
  float* momentum;
  float clip, decay, rate, beta1, rest1, beta2, rest2;
  template <int N>
  __device__ void run(int64_t at) const {
    const Pack<N> g = load<N>(gradient, at);
    Pack<N> m = load<N>(momentum + at);
    Pack<N> p = load<N>(target.parameter, at);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const float clipped = g.v[e] * clip;
      const float c = beta1 * m.v[e] + rest1 * clipped;
      const float sign = static_cast<float>(c > 0) - static_cast<float>(c < 0);
      m.v[e] = beta2 * m.v[e] + rest2 * clipped;
      p.v[e] -= rate * (sign + decay * p.v[e]);
    }
    store(momentum + at, m);
    write_parameter(target, step, range, at, p);
  }
};

__global__ void __launch_bounds__(kThreads)
    lion_kernel(Floats gradient, Target target, float* momentum, Tables tables, UpdateStep step, bool packed) {
  if (skips(step)) return;
  const RangeTile tile = tables.tiles[blockIdx.x];
  if (tile.range < 0) return over_tile(tile, packed, CopyOnly{target});
  over_tile(tile, packed,
            LionTile{gradient, target, step, tables.ranges[tile.range], momentum, coefficient_of(step),
                     tile.decay != 0 ? static_cast<float>(step.decay) : 0.0F, static_cast<float>(step.now->rate),
                     static_cast<float>(step.beta1), static_cast<float>(1 - step.beta1), static_cast<float>(step.beta2),
                     static_cast<float>(1 - step.beta2)});
}

// -- Adagrad ----------------------------------------------------------------------------------------------------------
struct AdagradTile {
  const Floats& gradient;
  const Target& target;
  const UpdateStep& step;
  const DeviceRange& range;
  float* sums;
  float clip, decay, rate, epsilon;
  template <int N>
  __device__ void run(int64_t at) const {
    Pack<N> g = load<N>(gradient, at);
    Pack<N> s = load<N>(sums + at);
    Pack<N> p = load<N>(target.parameter, at);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      g.v[e] = g.v[e] * clip + decay * p.v[e];
      s.v[e] += g.v[e] * g.v[e];
      p.v[e] -= rate * g.v[e] / (sqrtf(s.v[e]) + epsilon);
    }
    store(sums + at, s);
    write_parameter(target, step, range, at, p);
  }
};

__global__ void __launch_bounds__(kThreads)
    adagrad_kernel(Floats gradient, Target target, float* sums, Tables tables, UpdateStep step, bool packed) {
  if (skips(step)) return;
  const RangeTile tile = tables.tiles[blockIdx.x];
  if (tile.range < 0) return over_tile(tile, packed, CopyOnly{target});
  over_tile(tile, packed,
            AdagradTile{gradient, target, step, tables.ranges[tile.range], sums, coefficient_of(step),
                        tile.decay != 0 ? static_cast<float>(step.decay) : 0.0F, static_cast<float>(step.now->rate),
                        static_cast<float>(step.epsilon)});
}

// -- LAMB -------------------------------------------------------------------------------------------------------------
struct LambMoments {
  const Floats& gradient;
  const Floats& parameter;
  const AdamFactors& f;
  float* first;
  float* second;
  float decay;
  double& of_parameter;
  double& of_direction;
  template <int N>
  __device__ void run(int64_t at) const {
    const Pack<N> g = load<N>(gradient, at);
    const Pack<N> p = load<N>(parameter, at);
    Pack<N> m = load<N>(first + at);
    Pack<N> v = load<N>(second + at);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const float clipped = g.v[e] * f.gradient;
      m.v[e] = f.beta1 * m.v[e] + f.rest1 * clipped;
      v.v[e] = f.beta2 * v.v[e] + f.rest2 * (clipped * clipped);
      const float direction = f.rate * (m.v[e] / (sqrtf(v.v[e]) * f.denominator + f.epsilon)) + decay * p.v[e];
      of_parameter += static_cast<double>(p.v[e]) * static_cast<double>(p.v[e]);
      of_direction += static_cast<double>(direction) * static_cast<double>(direction);
    }
    store(first + at, m);
    store(second + at, v);
  }
};

__global__ void __launch_bounds__(kThreads)
    lamb_moments_kernel(Floats gradient, Floats parameter, float* first, float* second, Tables tables, UpdateStep step,
                        bool packed) {
  const RangeTile tile = tables.tiles[blockIdx.x];
  if (tile.range < 0) return;
  if (skips(step)) {
    if (threadIdx.x < 2) tables.partials[2 * blockIdx.x + threadIdx.x] = 0;
    return;
  }
  const AdamFactors f = adam_factors(step, 1);
  double sums[2] = {0, 0};
  const float decay = tile.decay != 0 ? static_cast<float>(step.decay) : 0.0F;
  over_tile(tile, packed, LambMoments{gradient, parameter, f, first, second, decay, sums[0], sums[1]});
  for (int i = 0; i < 2; ++i) {
    const double sum = block_sum(sums[i]);
    if (threadIdx.x == 0) tables.partials[2 * blockIdx.x + i] = sum;
  }
}

struct LambTile {
  const Target& target;
  const UpdateStep& step;
  const DeviceRange& range;
  const AdamFactors& f;
  const float* first;
  const float* second;
  float decay, rate;
  template <int N>
  __device__ void run(int64_t at) const {
    const Pack<N> m = load<N>(first + at);
    const Pack<N> v = load<N>(second + at);
    Pack<N> p = load<N>(target.parameter, at);
#pragma unroll
    for (int e = 0; e < N; ++e)
      p.v[e] -= rate * (f.rate * (m.v[e] / (sqrtf(v.v[e]) * f.denominator + f.epsilon)) + decay * p.v[e]);
    write_parameter(target, step, range, at, p);
  }
};

__global__ void __launch_bounds__(kThreads) lamb_kernel(const float* first, const float* second, const float* norms,
                                                        Target target, Tables tables, UpdateStep step, bool packed) {
  if (skips(step)) return;
  const AdamFactors f = adam_factors(step, 1);
  const RangeTile tile = tables.tiles[blockIdx.x];
  if (tile.range < 0) return over_tile(tile, packed, CopyOnly{target});
  const DeviceRange& range = tables.ranges[tile.range];
  // The trust ratio adapts what weight decay applies to, as in the authors' own code.
  const float* own = norms + 2 * range.norms;
  const bool adapts = tile.decay != 0 && own[0] > 0 && own[1] > 0;
  const double ratio = adapts ? sqrt(static_cast<double>(own[0]) / static_cast<double>(own[1])) : 1.0;
  const float decay = tile.decay != 0 ? static_cast<float>(step.decay) : 0.0F;
  over_tile(tile, packed,
            LambTile{target, step, range, f, first, second, decay, static_cast<float>(step.now->rate * ratio)});
}

__global__ void __launch_bounds__(kThreads) add_norms_kernel(Tables tables, float* norms) {
  const DeviceRange range = tables.ranges[blockIdx.x];
  if (range.begin == range.end) return;
  for (int which = 0; which < 2; ++which) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < range.tiles; i += kThreads)
      sum += tables.partials[2 * (range.first_tile + i) + which];
    sum = block_sum(sum);
    float* to = norms + 2 * range.norms + which;
    if (threadIdx.x == 0) *to = static_cast<float>(static_cast<double>(*to) + range.share * sum);
  }
}

}  // namespace

void add_norms(cudaStream_t stream, const Tables& tables, float* norms) {
  if (tables.range_count == 0) return;
  ORRERY_LAUNCH(add_norms_kernel, row_grid(tables.range_count, "norms"), dim3(kThreads), 0, stream, tables, norms);
  check_launch("norms");
}

void norm_squared(cudaStream_t stream, Floats gradient, const Tables& tables, float* total) {
  if (tables.tile_count == 0) return;
  const bool packed = updates_by_packs(gradient.data);
  ORRERY_LAUNCH(squares_kernel, row_grid(tables.tile_count, "norm_squared"), dim3(kThreads), 0, stream, gradient,
                tables, packed);
  check_launch("norm_squared");
  const double* partials = tables.partials;
  const int64_t tiles = tables.tile_count;
  ORRERY_LAUNCH(sum_partials_kernel, dim3(1), dim3(kThreads), 0, stream, partials, tiles, total);
  check_launch("norm_squared, total");
}

void clip_coefficient(cudaStream_t stream, const float* total, const float* scaling, float* norm, float* coefficient,
                      float clip_norm) {
  ORRERY_LAUNCH(clip_kernel, dim3(1), dim3(1), 0, stream, total, scaling, norm, coefficient, clip_norm);
  check_launch("clip_coefficient");
}

void set_step_values(cudaStream_t stream, StepValues* to, const StepValues& values) {
  const StepValues copy = values;
  ORRERY_LAUNCH(step_values_kernel, dim3(1), dim3(1), 0, stream, to, copy);
  check_launch("step values");
}

void overflow(cudaStream_t stream, const float* total, float* flag) {
  ORRERY_LAUNCH(overflow_kernel, dim3(1), dim3(1), 0, stream, total, flag);
  check_launch("overflow");
}

void loss_scale(cudaStream_t stream, float* scaling, float factor, float interval) {
  ORRERY_LAUNCH(loss_scale_kernel, dim3(1), dim3(1), 0, stream, scaling, factor, interval);
  check_launch("loss_scale");
}

void adamw(cudaStream_t stream, Floats gradient, const Target& target, Floats first, Floats second,
           const Tables& tables, const UpdateStep& step) {
  if (tables.tile_count == 0) return;
  const bool packed = updates_by_packs(gradient.data, target.parameter.data, target.copy.data, first.data, second.data);
  ORRERY_LAUNCH(adamw_kernel, row_grid(tables.tile_count, "adamw"), dim3(kThreads), 0, stream, gradient, target, first,
                second, tables, step, packed);
  check_launch("adamw");
}

void momentum_update(cudaStream_t stream, Floats gradient, const Target& target, float* momentum, const Tables& tables,
                     const UpdateStep& step) {
  if (tables.tile_count == 0) return;
  const bool packed = updates_by_packs(gradient.data, target.parameter.data, target.copy.data, momentum);
  switch (step.rule) {
    case models::UpdateRule::sgd:
      ORRERY_LAUNCH(sgd_kernel, row_grid(tables.tile_count, "sgd"), dim3(kThreads), 0, stream, gradient, target,
                    momentum, tables, step, packed);
      return check_launch("sgd");
    case models::UpdateRule::lion:
      ORRERY_LAUNCH(lion_kernel, row_grid(tables.tile_count, "lion"), dim3(kThreads), 0, stream, gradient, target,
                    momentum, tables, step, packed);
      return check_launch("lion");
    case models::UpdateRule::adagrad:
      ORRERY_LAUNCH(adagrad_kernel, row_grid(tables.tile_count, "adagrad"), dim3(kThreads), 0, stream, gradient, target,
                    momentum, tables, step, packed);
      return check_launch("adagrad");
    case models::UpdateRule::adam: throw Failure("CUDA: this Adam is for tables; the other is adamw");
  }
}

void lamb_moments(cudaStream_t stream, Floats gradient, Floats parameter, float* first, float* second, float* norms,
                  const Tables& tables, const UpdateStep& step) {
  if (tables.tile_count == 0) return;
  const bool packed = updates_by_packs(gradient.data, parameter.data, first, second);
  ORRERY_LAUNCH(lamb_moments_kernel, row_grid(tables.tile_count, "lamb_moments"), dim3(kThreads), 0, stream, gradient,
                parameter, first, second, tables, step, packed);
  check_launch("lamb_moments");
  add_norms(stream, tables, norms);
}

void lamb(cudaStream_t stream, const float* first, const float* second, const float* norms, const Target& target,
          const Tables& tables, const UpdateStep& step) {
  if (tables.tile_count == 0) return;
  const bool packed = updates_by_packs(target.parameter.data, target.copy.data, first, second);
  ORRERY_LAUNCH(lamb_kernel, row_grid(tables.tile_count, "lamb"), dim3(kThreads), 0, stream, first, second, norms,
                target, tables, step, packed);
  check_launch("lamb");
}

}  // namespace orrery::exec::cuda

#pragma once
/// What the kernels of updates share: elements of any type, the clock, how parameters are written.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/updates.h"
#include "exec/cuda/kernels/values.h"

namespace orrery::exec::cuda {

template <int N>
__device__ inline Pack<N> load(const Floats& from, int64_t at) {
  switch (from.type) {
    case Stored::bf16: return load<N>(static_cast<const __nv_bfloat16*>(from.data) + at);
    case Stored::fp16: return load<N>(static_cast<const __half*>(from.data) + at);
    case Stored::fp32: break;
  }
  return load<N>(static_cast<const float*>(from.data) + at);
}

template <int N>
__device__ inline void store(const Floats& to, int64_t at, const Pack<N>& values) {
  switch (to.type) {
    case Stored::bf16: return store(static_cast<__nv_bfloat16*>(to.data) + at, values);
    case Stored::fp16: return store(static_cast<__half*>(to.data) + at, values);
    case Stored::fp32: return store(static_cast<float*>(to.data) + at, values);
  }
}

inline constexpr int kUpdatePack = 4;  // elements at a time: 16 bytes of fp32

/// Whether all vectors of an update may be read 4 elements at a time, from elements that are multiples of 4 on.
template <class... Pointers>
bool updates_by_packs(const Pointers*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

/// body.run<N>(element) over a tile: single elements up to a multiple of 4, packs, single elements.
template <class Body>
__device__ inline void over_tile(const RangeTile& tile, bool packed, const Body& body) {
  const int thread = static_cast<int>(threadIdx.x);
  const int uneven = static_cast<int>((kUpdatePack - tile.begin % kUpdatePack) % kUpdatePack);
  const int lead = !packed || uneven > tile.count ? tile.count : uneven;
  for (int i = thread; i < lead; i += kThreads) body.template run<1>(tile.begin + i);
  const int packs = (tile.count - lead) / kUpdatePack;
  for (int i = thread; i < packs; i += kThreads) body.template run<kUpdatePack>(tile.begin + lead + kUpdatePack * i);
  for (int i = lead + packs * kUpdatePack + thread; i < tile.count; i += kThreads) body.template run<1>(tile.begin + i);
}

/// The same as exec::clock_of.
__device__ inline bool skips(const UpdateStep& step) {
  return step.scaling && step.scaling[3] != 0;
}
__device__ inline int64_t own_step(const UpdateStep& step) {
  return step.now->step * step.turns + step.turn;
}
__device__ inline double updates_so_far(const UpdateStep& step) {
  return static_cast<double>(own_step(step) + 1) - (step.scaling ? static_cast<double>(step.scaling[2]) : 0.0);
}
__device__ inline float coefficient_of(const UpdateStep& step) {
  return step.coefficient ? step.coefficient[0] : 1.0F;
}

__device__ inline uint64_t random_key(const UpdateStep& step, uint64_t stream) {
  return step.seed ^ stream * 0x9E3779B97F4A7C15ULL;
}

/// Writes elements of a parameter from `at` on; they are in `range`.
template <int N>
__device__ inline void write_parameter(const Target& target, const UpdateStep& step, const DeviceRange& range,
                                       int64_t at, const Pack<N>& values) {
  if (step.stochastic) {
    auto* to = static_cast<__nv_bfloat16*>(target.parameter.data);
    const uint64_t key = random_key(step, range.stream);
    for (int e = 0; e < N; ++e) {
      const auto element = static_cast<uint64_t>(range.logical + at + e - range.begin);
      to[at + e] = to_bf16_randomly(values.v[e], random_bits(key, static_cast<uint64_t>(own_step(step)), element));
    }
  } else {
    store(target.parameter, at, values);
  }
  if (target.copy.data) store(target.copy, at, values);
}

/// Between ranges nothing is updated, but the copy must still have all elements.
struct CopyOnly {
  const Target& target;
  template <int N>
  __device__ void run(int64_t at) const {
    if (target.copy.data) store(target.copy, at, load<N>(target.parameter, at));
  }
};

/// Constants of Adam and its relatives, as in exec::adam_factors.
struct AdamFactors {
  float gradient, beta1, beta2, rest1, rest2, rate, denominator, epsilon;
};
/// Made once per block, by one thread: two powers in double precision. `rate` is included.
__device__ inline AdamFactors adam_factors(const UpdateStep& step, double rate) {
  __shared__ AdamFactors made;
  if (threadIdx.x == 0) {
    const double time = updates_so_far(step);
    made.gradient = coefficient_of(step);
    made.beta1 = static_cast<float>(step.beta1);
    made.beta2 = static_cast<float>(step.beta2);
    made.rest1 = static_cast<float>(1 - step.beta1);
    made.rest2 = static_cast<float>(1 - step.beta2);
    made.rate = static_cast<float>(rate / (1 - pow(step.beta1, time)));
    made.denominator = static_cast<float>(1 / sqrt(1 - pow(step.beta2, time)));
    made.epsilon = static_cast<float>(step.epsilon);
  }
  __syncthreads();
  return made;
}

struct AdamWTile {
  const Floats& gradient;
  const Target& target;
  const UpdateStep& step;
  const DeviceRange& range;
  const AdamFactors& f;
  const Floats& first;
  const Floats& second;
  float keep;
  template <int N>
  __device__ void run(int64_t at) const {
    const Pack<N> g = load<N>(gradient, at);
    Pack<N> m = load<N>(first, at);
    Pack<N> v = load<N>(second, at);
    Pack<N> p = load<N>(target.parameter, at);
#pragma unroll
    for (int e = 0; e < N; ++e) {
      const float clipped = g.v[e] * f.gradient;
      m.v[e] = f.beta1 * m.v[e] + f.rest1 * clipped;
      v.v[e] = f.beta2 * v.v[e] + f.rest2 * (clipped * clipped);
      p.v[e] = keep * p.v[e] - f.rate * (m.v[e] / (sqrtf(v.v[e]) * f.denominator + f.epsilon));
    }
    store(first, at, m);
    store(second, at, v);
    write_parameter(target, step, range, at, p);
  }
};

/// Adds up the partial sums of each range's tiles, in order: one block per range. norms[2 norms + i] += share * sum i.
void add_norms(cudaStream_t stream, const Tables& tables, float* norms);

}  // namespace orrery::exec::cuda

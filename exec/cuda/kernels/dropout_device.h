#pragma once
/// Draws of dropout in kernels, as models/operators/dropout.h defines them. One draw serves eight neighbours, with one
/// bit each that says whether the neighbour is kept.
#include "exec/cuda/kernels/device.h"
#include "exec/cuda/kernels/values.h"
#include "models/operators/dropout.h"

namespace orrery::exec::cuda {

__device__ inline uint64_t key_of(const DropoutDraw& draw) {
  return models::dropout_key(draw.seed, *draw.step + draw.ahead);
}
/// The half of the counter that selects the mask, for sequence `sequence` of the micro-batch.
__device__ inline uint64_t counter_high(const DropoutDraw& draw, int64_t sequence) {
  return draw.site | static_cast<uint64_t>(draw.first_sequence + static_cast<uint32_t>(sequence)) << 32;
}

/// The bits of elements 8 `group` to 8 `group` + 7.
__device__ inline unsigned kept_eight(uint64_t key, uint64_t high, uint64_t group, uint32_t threshold) {
  static_assert(models::kDropoutServed == 8);
  const Random4 drawn = philox(group, high, key);
  unsigned kept = 0;
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    kept |= ((drawn.v[word] & 0xffffU) >= threshold ? 1U : 0U) << (2 * word);
    kept |= ((drawn.v[word] >> 16) >= threshold ? 1U : 0U) << (2 * word + 1);
  }
  return kept;
}

template <int N>
__device__ constexpr unsigned first_bits() {
  return N == 32 ? 0xffffffffU : (1U << N % 32) - 1;
}

/// The bits of `N` elements from `element` on, at most 32. One draw's elements stay together, wherever `element` is in
/// it.
template <int N>
__device__ inline unsigned kept_run(uint64_t key, uint64_t high, uint64_t element, uint32_t threshold) {
  static_assert(N % 8 == 0 && N <= 32);
  const uint64_t group = element / models::kDropoutServed;
  const unsigned skipped = static_cast<unsigned>(element % models::kDropoutServed);
  uint64_t kept = 0;
#pragma unroll
  for (int i = 0; i < N / 8; ++i)
    kept |= static_cast<uint64_t>(kept_eight(key, high, group + static_cast<uint64_t>(i), threshold)) << (8 * i);
  if (skipped != 0) kept |= static_cast<uint64_t>(kept_eight(key, high, group + N / 8, threshold)) << N;
  return static_cast<unsigned>(kept >> skipped) & first_bits<N>();
}

/// The factors of elements i to i + N - 1 in rows of `columns`: 0, or the scale. `columns` is a multiple of N.
template <int N>
__device__ inline Pack<N> factors_of(const RowMasks& masks, uint64_t key, int64_t i, int64_t columns) {
  static_assert(N <= 8 && 8 % N == 0);
  const int64_t row = masks.first_row + i / columns;
  const int64_t position = position_of(masks.positions, masks.sequence, row % masks.sequence);
  const uint64_t element = static_cast<uint64_t>(position * columns + i % columns);
  const unsigned kept = kept_eight(key, counter_high(masks.draw, row / masks.sequence),
                                   element / models::kDropoutServed, masks.draw.threshold) >>
                        static_cast<unsigned>(element % models::kDropoutServed);
  Pack<N> out;
#pragma unroll
  for (int e = 0; e < N; ++e) out.v[e] = (kept >> e & 1U) != 0 ? masks.draw.scale : 0.0F;
  return out;
}

}  // namespace orrery::exec::cuda

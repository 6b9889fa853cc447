#pragma once
/// Elements of tensors in kernels: fp32, fp16 and bf16 in memory, fp32 in registers; loads and stores of 16 bytes at a
/// time where addresses allow it; stochastic rounding with the numbers of exec/engine/half.h.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "exec/cuda/kernels/kernels.h"

namespace orrery::exec::cuda {

__device__ inline float widen(float value) {
  return value;
}
__device__ inline float widen(__half value) {
  return __half2float(value);
}
__device__ inline float widen(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

__device__ inline void narrow(float value, float& to) {
  to = value;
}
__device__ inline void narrow(float value, __half& to) {
  to = __float2half_rn(value);
}
__device__ inline void narrow(float value, __nv_bfloat16& to) {
  to = __float2bfloat16_rn(value);
}
template <class T>
__device__ inline void put(T* to, float value) {
  narrow(value, *to);
}
template <class T>
__device__ inline float rounded(float value) {  // to T and back
  T narrowed;
  narrow(value, narrowed);
  return widen(narrowed);
}

/// Elements of T in 16 bytes.
template <class T>
inline constexpr int kWidth = 16 / static_cast<int>(sizeof(T));

template <int N>
struct Pack {
  float v[N];
};

template <int Bytes>
struct Word;
template <>
struct Word<16> {
  using Type = uint4;
};
template <>
struct Word<8> {
  using Type = uint2;
};
template <>
struct Word<4> {
  using Type = unsigned;
};

/// N elements from `from`; for N > 1 aligned to their size, or to 16 bytes if they are more.
template <int N, class T>
__device__ inline Pack<N> load(const T* from) {
  Pack<N> out;
  if constexpr (N == 1) {
    out.v[0] = widen(*from);
  } else {
    constexpr int kBytes = N * static_cast<int>(sizeof(T)) < 16 ? N * static_cast<int>(sizeof(T)) : 16;
    constexpr int kEach = kBytes / static_cast<int>(sizeof(T));
    using W = typename Word<kBytes>::Type;
#pragma unroll
    for (int w = 0; w < N / kEach; ++w) {
      const W word = reinterpret_cast<const W*>(from)[w];
      T values[kEach];
      memcpy(static_cast<void*>(values), &word, sizeof(word));
#pragma unroll
      for (int i = 0; i < kEach; ++i) out.v[w * kEach + i] = widen(values[i]);
    }
  }
  return out;
}

template <int N, class T>
__device__ inline void add_to(Pack<N>& sum, const T* from) {
  const Pack<N> more = load<N>(from);
#pragma unroll
  for (int e = 0; e < N; ++e) sum.v[e] += more.v[e];
}

template <int N, class T>
__device__ inline void store(T* to, const Pack<N>& pack) {
  if constexpr (N == 1) {
    narrow(pack.v[0], *to);
  } else {
    constexpr int kBytes = N * static_cast<int>(sizeof(T)) < 16 ? N * static_cast<int>(sizeof(T)) : 16;
    constexpr int kEach = kBytes / static_cast<int>(sizeof(T));
    using W = typename Word<kBytes>::Type;
#pragma unroll
    for (int w = 0; w < N / kEach; ++w) {
      T values[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) narrow(pack.v[w * kEach + i], values[i]);
      W word;
      memcpy(&word, static_cast<const void*>(values), sizeof(word));
      reinterpret_cast<W*>(to)[w] = word;
    }
  }
}

/// Whether all of these (null: absent) may be loaded by 16 bytes, in rows of `columns` elements of T.
template <class T, class... Pointers>
bool packs(std::int64_t columns, const Pointers*... pointers) {
  const bool aligned = ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
  return aligned && columns % kWidth<T> == 0;
}

// -- random numbers: Philox 4x32-10 as base/random.h has it ----------------------------------------------------------
struct Random4 {
  unsigned v[4];
};

__device__ inline Random4 philox(std::uint64_t low, std::uint64_t high, std::uint64_t key) {
  unsigned c0 = static_cast<unsigned>(low), c1 = static_cast<unsigned>(low >> 32);
  unsigned c2 = static_cast<unsigned>(high), c3 = static_cast<unsigned>(high >> 32);
  unsigned k0 = static_cast<unsigned>(key), k1 = static_cast<unsigned>(key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned high0 = __umulhi(0xD2511F53U, c0), low0 = 0xD2511F53U * c0;
    const unsigned high1 = __umulhi(0xCD9E8D57U, c2), low1 = 0xCD9E8D57U * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

/// The 16 bits of exec::RandomBits(seed, stream, step) for `element`, where key = seed ^ stream * 2^64/phi.
__device__ inline unsigned random_bits(std::uint64_t key, std::uint64_t step, std::uint64_t element) {
  const Random4 drawn = philox(element / 8, step, key);
  const unsigned place = static_cast<unsigned>(element % 8);
  return (drawn.v[place / 2] >> (place % 2 == 0 ? 0 : 16)) & 0xffffU;
}

/// As exec::to_bf16_randomly.
__device__ inline __nv_bfloat16 to_bf16_randomly(float value, unsigned random) {
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7f800000U) == 0x7f800000U) return __float2bfloat16_rn(value);
  return __ushort_as_bfloat16(static_cast<unsigned short>((bits + random) >> 16));
}

}  // namespace orrery::exec::cuda

// 16-bit values to fp32 and back, rounded to nearest even. bf16 is the upper half of an fp32. fp16 uses F16C's
// instructions if there are any, else bit operations.
#if defined(__F16C__) && defined(__AVX__)
#include <immintrin.h>
#define ORRERY_F16C 1
#endif

#include "exec/cpu/simd/functions.h"

namespace orrery::exec::simd::ORRERY_SIMD_LEVEL {
namespace {

using Bits = std::uint32_t;

ORRERY_INLINE Bits bits_of(float x) {
  return __builtin_bit_cast(Bits, x);
}
ORRERY_INLINE float value_of(Bits bits) {
  return __builtin_bit_cast(float, bits);
}

// Infinities stay; NaNs become quiet NaNs.
ORRERY_INLINE std::uint16_t round_to_bf16(float x) {
  const Bits bits = bits_of(x);
  const Bits rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  const Bits nan = bits | 0x400000U;
  return static_cast<std::uint16_t>(((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded) >> 16);
}

// 10 bits of fraction. 2^-14 is the smallest normal number; below it, steps are 2^-24.
ORRERY_INLINE float widen_fp16(std::uint16_t half) {
  const Bits sign = static_cast<Bits>(half & 0x8000U) << 16;
  const Bits exponent = (half >> 10) & 0x1fU, fraction = half & 0x3ffU;
  if (exponent == 0x1f) return value_of(sign | 0x7f800000U | (fraction << 13) | (fraction ? 0x400000U : 0U));
  if (exponent != 0) return value_of(sign | ((exponent + 112) << 23) | (fraction << 13));
  return value_of(sign | bits_of(static_cast<float>(fraction) * 0x1p-24F));
}

ORRERY_INLINE std::uint16_t round_to_fp16(float x) {
  const Bits bits = bits_of(x), sign = (bits >> 16) & 0x8000U, magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU));
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // 65520 and more round to infinity
  if (magnitude < 0x38800000U) {
    // Adding 2^-1 times the step's reciprocal rounds to whole steps of 2^-24, in the lowest bits.
    const Bits shifted = bits_of(value_of(magnitude) + 0.5F);
    return static_cast<std::uint16_t>(sign | (shifted - bits_of(0.5F)));
  }
  const Bits rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - (112U << 23)) >> 13));
}

}  // namespace

void from_bf16(const std::uint16_t* __restrict x, float* __restrict y, Count count) {
  for (Count i = 0; i < count; ++i) y[i] = value_of(static_cast<Bits>(x[i]) << 16);
}

void to_bf16(const float* __restrict x, std::uint16_t* __restrict y, Count count) {
  for (Count i = 0; i < count; ++i) y[i] = round_to_bf16(x[i]);
}

void from_fp16(const std::uint16_t* __restrict x, float* __restrict y, Count count) {
  Count i = 0;
#ifdef ORRERY_F16C
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
#endif
  for (; i < count; ++i) y[i] = widen_fp16(x[i]);
}

void to_fp16(const float* __restrict x, std::uint16_t* __restrict y, Count count) {
  Count i = 0;
#ifdef ORRERY_F16C
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
  for (; i < count; ++i) y[i] = round_to_fp16(x[i]);
}

}  // namespace orrery::exec::simd::ORRERY_SIMD_LEVEL

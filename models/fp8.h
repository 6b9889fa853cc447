#pragma once
/// Matrix products whose operands are rounded to 8 bits on the way in (Micikevicius et al. 2022, "FP8 formats for deep
/// learning", table 1): e4m3 for what forward multiplies, e5m2 for gradients, sums in fp32.
///
/// Each operand of each product has one scale, a power of two, made of its largest magnitude just before (current, or
/// just-in-time, scaling): no state from step to step, so that a resumed or split run rounds as the first one did, and
/// no value is ever clipped. A power of two moves the exponent alone. What a value is rounded to therefore depends on
/// the scale only where it falls among the format's denormals, 14 (e4m3) or 29 (e5m2) binary orders and more below the
/// largest: splitting a matrix over ranks, each with its own largest value, changes nothing else.
///
/// The rounded operands are memory of the schedule: bytes that the product writes beside its result (models/op.h),
/// laid out by Fp8Casts. Both have the inner dimension last, as Hopper's tensor cores read 8-bit operands.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "models/op.h"

namespace orrery::models {

enum class Fp8 : std::uint8_t { e4m3, e5m2 };

struct Fp8Format {
  int mantissa;           ///< bits
  int bias;               ///< of the exponent
  std::uint32_t largest;  ///< code of the largest finite value
  int top;                ///< its exponent; its significand is 1.75 in both
};
[[nodiscard]] constexpr Fp8Format format_of(Fp8 kind) {
  return kind == Fp8::e4m3 ? Fp8Format{3, 7, 0x7EU, 8} : Fp8Format{2, 15, 0x7BU, 15};  // 448 and 57,344
}
inline constexpr std::uint32_t kFp8Nan = 0x7FU;  ///< of both; e4m3 has no infinity, e5m2's is not used

/// A value's code, rounded to nearest, ties to even, and what is larger than the largest finite value to that
/// (PTX's cvt.rn.satfinite). NaN stays NaN.
[[nodiscard]] constexpr std::uint32_t fp8_code(float value, Fp8 kind) {
  constexpr int kSingleBits = 23, kSingleOffset = 127;
  const Fp8Format f = format_of(kind);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 24U & 0x80U, magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return sign | kFp8Nan;
  const int exponent = static_cast<int>(magnitude >> 23U) - kSingleOffset;  // of denormals too small to matter
  const int least = 1 - f.bias;                                             // exponent of the smallest normal value
  const int cut = kSingleBits - f.mantissa + std::max(0, least - exponent);
  if (cut > kSingleBits + 1) return sign;  // less than half of the smallest
  const std::uint32_t significand = (magnitude & 0x7FFFFFU) | 0x800000U;
  const std::uint32_t rounded = (significand + (1U << (cut - 1)) - 1 + (significand >> cut & 1U)) >> cut;
  // A normal value's leading bit counts as one step of the exponent.
  const std::uint32_t lift =
      exponent < least ? 0 : static_cast<std::uint32_t>(exponent - least) << static_cast<unsigned>(f.mantissa);
  return sign | std::min(rounded + lift, f.largest);
}

[[nodiscard]] constexpr float fp8_value(std::uint32_t code, Fp8 kind) {
  const Fp8Format f = format_of(kind);
  const std::uint32_t magnitude = code & 0x7FU;
  const bool infinite = kind == Fp8::e5m2 && magnitude == 0x7CU;
  if (magnitude > f.largest && !infinite) return std::bit_cast<float>((code & 0x80U) << 24U | 0x7FC00000U);
  if (infinite) return std::bit_cast<float>((code & 0x80U) << 24U | 0x7F800000U);
  const auto m = static_cast<unsigned>(f.mantissa);
  const std::uint32_t exponent = magnitude >> m, fraction = magnitude & ((1U << m) - 1);
  const int power = static_cast<int>(std::max(1U, exponent)) - f.bias - f.mantissa;
  const auto significand = static_cast<float>(exponent > 0 ? fraction | 1U << m : fraction);
  const float step = std::bit_cast<float>(static_cast<std::uint32_t>(power + 127) << 23U);
  return (code & 0x80U) != 0 ? -significand * step : significand * step;
}

/// The power of two that takes the largest magnitude as near to the format's largest value as it goes without passing
/// it. `bits`: of the magnitude as an fp32. 0 of nothing but zeros, and of what is not finite, which has no scale.
[[nodiscard]] constexpr int fp8_exponent(std::uint32_t bits, Fp8 kind) {
  constexpr int kMost = 126;  // beyond, the way back is no normal number
  if (bits == 0 || bits >= 0x7F800000U) return 0;
  const int exponent = static_cast<int>(bits >> 23U) - 127;
  const bool above = (bits & 0x7FFFFFU) > 0x600000U;  // 1.75
  return std::min(kMost, format_of(kind).top - exponent - (above ? 1 : 0));
}
/// What values are multiplied by on the way in.
[[nodiscard]] constexpr float fp8_scale(std::uint32_t bits, Fp8 kind) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(127 + fp8_exponent(bits, kind)) << 23U);
}
/// What the sums of products are multiplied by for it. NaN where an operand has a value that is not finite: so all of
/// the result is, and nothing that overflowed is clipped out of sight of the gradients' norm.
[[nodiscard]] constexpr float fp8_descale(std::uint32_t bits, Fp8 kind) {
  if (bits >= 0x7F800000U) return std::bit_cast<float>(0x7FC00000U);
  return std::bit_cast<float>(static_cast<std::uint32_t>(127 - fp8_exponent(bits, kind)) << 23U);
}

/// Whether a product's sizes are those that 8-bit tensor cores take: rows of operands and result of whole 16 bytes
/// (cuBLAS, "Tensor Core Usage"). Others keep 16 bits.
[[nodiscard]] constexpr bool fits_fp8(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kMultiple = 16;
  return m % kMultiple == 0 && n % kMultiple == 0 && k % kMultiple == 0;
}
[[nodiscard]] constexpr bool is_fp8_product(const Op& op) {
  return op.kind == OpKind::matmul && op.rounded && op.dtype != DType::fp32;
}
/// The first operand's format: backward multiplies gradients by something. Forward products alone read their weight
/// transposed (models/linear_notes.h).
[[nodiscard]] constexpr Fp8 first_format(const Op& op) {
  return op.trans_b ? Fp8::e4m3 : Fp8::e5m2;
}

/// The bytes beside an fp8 product's result: the largest magnitudes of A and B as bits of an fp32, what sums are
/// multiplied by for A and for B (fp32), and the codes of A (m,k) and of B (n,k).
struct Fp8Casts {
  static constexpr std::int64_t kMaxima = 0, kDescales = 8, kHeader = 256;
  std::int64_t a = kHeader, b = 0, bytes = 0;  ///< offsets of the codes, and all
  constexpr Fp8Casts(std::int64_t m, std::int64_t n, std::int64_t k)
      : b(kHeader + m * k), bytes(kHeader + (m + n) * k) {}
};

/// fp32 as tensor cores read it: 10 bits of mantissa, to nearest, ties away from zero (PTX's cvt.rna.tf32). What is
/// not finite stays as it is.
[[nodiscard]] constexpr float tf32_value(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7F800000U) == 0x7F800000U) return value;
  return std::bit_cast<float>((bits + 0x1000U) & 0xFFFFE000U);
}

}  // namespace orrery::models

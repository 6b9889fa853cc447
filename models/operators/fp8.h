#pragma once
/// Matrix products whose operands are rounded to 8 bits on the way in (Micikevicius et al. 2022, "FP8 formats for deep
/// learning", table 1): e4m3 for the operands of forward, e5m2 for gradients, sums in fp32.
///
/// Each operand of each product has one scale, a power of two, computed from its largest magnitude just before the
/// product (current, or just-in-time, scaling). So there is no state from step to step, a resumed or split run rounds
/// as the first one did, and no value is ever clipped. A power of two changes only the exponent, so the scale affects
/// rounding only where a value falls among the format's denormals: 14 (e4m3) or 29 (e5m2) binary orders or more below
/// the largest value. Splitting a matrix over ranks, each with its own largest value, changes nothing else.
///
/// The rounded operands have memory in the schedule: bytes that the product writes beside its result
/// (models/operators/op.h), laid out by Fp8Casts. Both have the inner dimension last, as Hopper's tensor cores read
/// 8-bit operands.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "models/operators/op.h"

namespace orrery::models {

enum class Fp8 : std::uint8_t { e4m3, e5m2 };

struct Fp8Format {
  int mantissa;           ///< bits
  int bias;               ///< of the exponent
  std::uint32_t largest;  ///< code of the largest finite value
  int top;                ///< the exponent of that value; its significand is 1.75 in both formats
};
[[nodiscard]] constexpr Fp8Format format_of(Fp8 kind) {
  return kind == Fp8::e4m3 ? Fp8Format{3, 7, 0x7EU, 8} : Fp8Format{2, 15, 0x7BU, 15};  // 448 and 57,344
}
inline constexpr std::uint32_t kFp8Nan = 0x7FU;  ///< in both formats; e4m3 has no infinity, and e5m2's is unused

/// A value's code, rounded to nearest, ties to even. Values beyond the largest finite one become that one (PTX's
/// cvt.rn.satfinite). NaN stays NaN.
[[nodiscard]] constexpr std::uint32_t fp8_code(float value, Fp8 kind) {
  constexpr int kSingleBits = 23, kSingleOffset = 127;
  const Fp8Format f = format_of(kind);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 24U & 0x80U, magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return sign | kFp8Nan;
  const int exponent = static_cast<int>(magnitude >> 23U) - kSingleOffset;  // denormals are too small to matter
  const int least = 1 - f.bias;                                             // exponent of the smallest normal value
  const int cut = kSingleBits - f.mantissa + std::max(0, least - exponent);
  if (cut > kSingleBits + 1) return sign;  // less than half of the smallest value
  const std::uint32_t significand = (magnitude & 0x7FFFFFU) | 0x800000U;
  const std::uint32_t rounded = (significand + (1U << (cut - 1)) - 1 + (significand >> cut & 1U)) >> cut;
  // The leading bit of a normal value counts as one step of the exponent.
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

/// The power of two that brings the largest magnitude as near as possible to the format's largest value without passing
/// it. `bits`: the magnitude as an fp32. 0 if all values are zero, or if the magnitude is not finite and so has no
/// scale.
[[nodiscard]] constexpr int fp8_exponent(std::uint32_t bits, Fp8 kind) {
  constexpr int kMost = 126;  // beyond this, the inverse is no normal number
  if (bits == 0 || bits >= 0x7F800000U) return 0;
  const int exponent = static_cast<int>(bits >> 23U) - 127;
  const bool above = (bits & 0x7FFFFFU) > 0x600000U;  // 1.75
  return std::min(kMost, format_of(kind).top - exponent - (above ? 1 : 0));
}
/// The factor for values on the way in.
[[nodiscard]] constexpr float fp8_scale(std::uint32_t bits, Fp8 kind) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(127 + fp8_exponent(bits, kind)) << 23U);
}
/// The factor that undoes the scale in the sums of products. NaN if an operand has a value that is not finite: the
/// whole result is then NaN, so an overflow cannot be clipped and escape the check of the gradients' norm.
[[nodiscard]] constexpr float fp8_descale(std::uint32_t bits, Fp8 kind) {
  if (bits >= 0x7F800000U) return std::bit_cast<float>(0x7FC00000U);
  return std::bit_cast<float>(static_cast<std::uint32_t>(127 - fp8_exponent(bits, kind)) << 23U);
}

/// Whether 8-bit tensor cores accept a product's sizes: rows of operands and result must be multiples of 16 bytes
/// (cuBLAS, "Tensor Core Usage"). Other products stay in 16 bits.
[[nodiscard]] constexpr bool fits_fp8(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kMultiple = 16;
  return m % kMultiple == 0 && n % kMultiple == 0 && k % kMultiple == 0;
}
[[nodiscard]] constexpr bool is_fp8_product(const Op& op) {
  return op.kind == OpKind::matmul && op.rounded && op.dtype != DType::fp32;
}
/// The first operand's format: in backward it is a gradient. Only forward products read their weight transposed
/// (models/layers/linear_notes.h).
[[nodiscard]] constexpr Fp8 first_format(const Op& op) {
  return op.trans_b ? Fp8::e4m3 : Fp8::e5m2;
}

/// The bytes beside an fp8 product's result: the largest magnitudes of A and of B as the bits of an fp32, the factors
/// for the sums from A and from B (fp32), the codes of A (m,k), and those of B (n,k).
struct Fp8Casts {
  static constexpr std::int64_t kMaxima = 0, kDescales = 8, kHeader = 256;
  std::int64_t a = kHeader, b = 0, bytes = 0;  ///< offsets of the codes, and total size
  constexpr Fp8Casts(std::int64_t m, std::int64_t n, std::int64_t k)
      : b(kHeader + m * k), bytes(kHeader + (m + n) * k) {}
};

/// fp32 as tensor cores read it: 10 bits of mantissa, to nearest, ties away from zero (PTX's cvt.rna.tf32). Values that
/// are not finite stay as they are.
[[nodiscard]] constexpr float tf32_value(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7F800000U) == 0x7F800000U) return value;
  return std::bit_cast<float>((bits + 0x1000U) & 0xFFFFE000U);
}

}  // namespace orrery::models

#pragma once
/// Floating-point formats in which saved activations wait (delayed precision reduction: Jain et al. 2018, "Gist:
/// Efficient Data Encoding for Deep Neural Network Training", section 4.2): 16 bits (1 sign, 5 exponent, 10 mantissa),
/// 10 bits (1-5-4, three to a 32-bit word) and 8 bits (1-4-3). Values are rounded to nearest, ties to even. Values that
/// are too large become the largest value, values that would be denormal become 0, and NaN stays NaN.
#include <algorithm>
#include <bit>
#include <cstdint>

namespace orrery::models {

struct Format {
  int exponent = 5, mantissa = 10;  ///< bits
};
[[nodiscard]] constexpr Format format_of(std::int64_t bits) {
  return bits == 8 ? Format{4, 3} : bits == 10 ? Format{5, 4} : Format{5, 10};
}

inline constexpr std::int64_t kTensToAWord = 3;  ///< 10-bit values in 32 bits

/// Bytes of `elements` values of `bits` bits each.
[[nodiscard]] constexpr std::int64_t encoded_bytes(std::int64_t elements, std::int64_t bits) {
  return bits == 10 ? (elements + kTensToAWord - 1) / kTensToAWord * 4 : elements * bits / 8;
}

/// Lossless storage of a ReLU's output (Gist's sparse storage, section 4.1): a header with the number of nonzero
/// values, one bit per value, then the nonzero values back to back, with room for `capacity` of them. Gist instead
/// stores an 8-bit column index with each value (its narrow value optimisation). One bit per value is smaller as soon
/// as an eighth of the values are nonzero, and is also Gist's Binarize: the sign that ReLU's backward needs.
inline constexpr std::int64_t kSparseHeader = 64;  ///< bytes; also the alignment of the parts
[[nodiscard]] constexpr std::int64_t sparse_bits_bytes(std::int64_t elements) {
  constexpr std::int64_t kBits = 8 * kSparseHeader;
  return (elements + kBits - 1) / kBits * kSparseHeader;
}
[[nodiscard]] constexpr std::int64_t sparse_bytes(std::int64_t elements, std::int64_t capacity, std::int64_t size) {
  return kSparseHeader + sparse_bits_bytes(elements) + capacity * size;
}

inline constexpr int kSingleMantissa = 23, kSingleBias = 127;

/// A value's code, in the low bits.
[[nodiscard]] constexpr std::uint32_t encoded(float value, Format format) {
  const std::uint32_t all = std::bit_cast<std::uint32_t>(value), sign = all >> 31U, magnitude = all & 0x7FFFFFFFU;
  const int width = format.exponent + format.mantissa, cut = kSingleMantissa - format.mantissa;
  const std::uint32_t special = ((1U << format.exponent) - 1) << format.mantissa;
  const auto with_sign = [&](std::uint32_t code) { return sign << width | code; };
  if (magnitude > 0x7F800000U) return with_sign(special | 1U << (format.mantissa - 1));
  const std::uint32_t rounded = (magnitude + (1U << (cut - 1)) - 1 + (magnitude >> cut & 1U)) >> cut;
  const auto lift = static_cast<std::uint32_t>(kSingleBias - ((1 << (format.exponent - 1)) - 1)) << format.mantissa;
  const std::uint32_t smallest = lift + (1U << format.mantissa);
  return with_sign(rounded < smallest ? 0 : std::min(rounded - lift, special - 1));
}

[[nodiscard]] constexpr float decoded(std::uint32_t code, Format format) {
  const int width = format.exponent + format.mantissa, cut = kSingleMantissa - format.mantissa;
  const std::uint32_t sign = code >> width & 1U, magnitude = code & ((1U << width) - 1);
  const std::uint32_t special = ((1U << format.exponent) - 1) << format.mantissa;
  const auto lift = static_cast<std::uint32_t>(kSingleBias - ((1 << (format.exponent - 1)) - 1)) << format.mantissa;
  std::uint32_t bits = 0;
  if (magnitude >= special)
    bits = 0x7FC00000U;
  else if (magnitude > 0)
    bits = (magnitude + lift) << cut;
  return std::bit_cast<float>(sign << 31U | bits);
}

}  // namespace orrery::models

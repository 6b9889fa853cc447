#pragma once
/// The floating-point formats in which saved activations wait (delayed precision reduction: Jain et al. 2018, "Gist:
/// Efficient Data Encoding for Deep Neural Network Training", section 4.2): 16 bits of 1 sign, 5 exponent and 10
/// mantissa bits, 10 bits (1-5-4, three to a word of 32) and 8 bits (1-4-3). Values are rounded to nearest, ties to
/// even; what is too large is clipped to the largest value, what would be denormal is 0. NaN stays NaN.
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

inline constexpr std::int64_t kTensToAWord = 3;  ///< values of 10 bits in 32

/// Bytes of `elements` values of `bits` bits each.
[[nodiscard]] constexpr std::int64_t encoded_bytes(std::int64_t elements, std::int64_t bits) {
  return bits == 10 ? (elements + kTensToAWord - 1) / kTensToAWord * 4 : elements * bits / 8;
}

/// Lossless storage of what a ReLU has left (Gist's sparse storage, section 4.1): a header that says how many values
/// are not zero, a bit for each value, and those that are not zero, one behind the other, for `capacity` of which there
/// is room. Gist stores a column of 8 bits with each of these instead (its narrow value optimisation); a bit for each
/// value is less as soon as an eighth of them is not zero, and is also Gist's Binarize: the sign that ReLU's backward
/// needs.
inline constexpr std::int64_t kSparseHeader = 64;  ///< bytes, as is the alignment of the parts
[[nodiscard]] constexpr std::int64_t sparse_bits_bytes(std::int64_t elements) {
  constexpr std::int64_t kBits = 8 * kSparseHeader;
  return (elements + kBits - 1) / kBits * kSparseHeader;
}
[[nodiscard]] constexpr std::int64_t sparse_bytes(std::int64_t elements, std::int64_t capacity, std::int64_t size) {
  return kSparseHeader + sparse_bits_bytes(elements) + capacity * size;
}

inline constexpr int kSingleMantissa = 23, kSingleBias = 127;

/// A value's code, in the lowest bits.
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

#pragma once
/// Moments in 8 bits: block-wise dynamic quantisation (Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit Optimizers via
/// Block-wise Quantization", ICLR 2022, sections 2.1 and 2.2). A code stands for a value in [-1, 1] (or [0, 1]), a
/// block of models::kQuantisedBlock values for multiples of its largest magnitude.
#include <array>
#include <cstdint>
#include <span>

namespace orrery::exec {

/// What each code stands for, ascending, and the bounds between neighbours: a value has the code of the nearest.
struct CodeBook {
  std::array<float, 256> values{};
  std::array<float, 255> bounds{};
  std::uint8_t zero = 0;  ///< the code of 0
  /// Of a magnitude up to 1: its cell is exponent and 8 bits of fraction, from 2^-24 on. A cell has one bound at most:
  /// the lowest code of a cell is found by its number, and one comparison gives the code.
  static constexpr int kCells = 24 * 256 + 1;
  std::array<std::uint8_t, 2 * kCells> lowest{};  ///< of positive cells, then of negative ones
  [[nodiscard]] std::uint8_t code_of(float value) const;
};

/// Seven decades, 10^-6 to 1; each has twice the fractions of the one below, evenly spread from a tenth to the whole,
/// and the code is the middle. Besides 0 and 1 (and -1, in place of the largest negative fraction: a block's largest
/// magnitude is then always exact, and a moment that was written in fp32 is quantised to what it was).
[[nodiscard]] const CodeBook& signed_codes();
[[nodiscard]] const CodeBook& unsigned_codes();

/// One block: returns its scale, the largest magnitude.
float quantise(const CodeBook& book, std::span<const float> values, std::uint8_t* codes);
void dequantise(const CodeBook& book, std::span<const std::uint8_t> codes, float scale, float* values);

}  // namespace orrery::exec

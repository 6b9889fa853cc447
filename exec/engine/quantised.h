#pragma once
/// Moments in 8 bits: block-wise dynamic quantisation (Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit Optimizers via
/// Block-wise Quantization", ICLR 2022, sections 2.1 and 2.2). A code stands for a value in [-1, 1] (or [0, 1]), which
/// is multiplied by the largest magnitude in its block of models::kQuantisedBlock values.
#include <array>
#include <cstdint>
#include <span>

namespace orrery::exec {

/// The value of each code, ascending, and the bounds between neighbours: a value gets the nearest code.
struct CodeBook {
  std::array<float, 256> values{};
  std::array<float, 255> bounds{};
  std::uint8_t zero = 0;  ///< the code of 0
  /// Finds the code of a magnitude up to 1. Its cell is the exponent and 8 bits of fraction, from 2^-24 on. A cell
  /// contains at most one bound, so the cell's lowest code and one comparison give the code.
  static constexpr int kCells = 24 * 256 + 1;
  std::array<std::uint8_t, 2 * kCells> lowest{};  ///< of positive cells, then of negative ones
  [[nodiscard]] std::uint8_t code_of(float value) const;
};

/// Seven decades, 10^-6 to 1. Each has twice as many fractions as the one below, evenly spaced from a tenth to the
/// whole; a code stands for the middle of its interval. Also 0 and 1, and -1 in place of the largest negative fraction:
/// so a block's largest magnitude is always exact, and a moment stored in fp32 quantises back to the same code.
[[nodiscard]] const CodeBook& signed_codes();
[[nodiscard]] const CodeBook& unsigned_codes();

/// Quantises one block; returns its scale, the largest magnitude.
float quantise(const CodeBook& book, std::span<const float> values, std::uint8_t* codes);
void dequantise(const CodeBook& book, std::span<const std::uint8_t> codes, float scale, float* values);

}  // namespace orrery::exec

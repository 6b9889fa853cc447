// Code books and blocks.
#include "exec/engine/quantised.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/ensure.h"

namespace orrery::exec {
namespace {

constexpr int kDecades = 7;

constexpr std::uint32_t kFirstCell = (127 - 24) * 256;  // 2^-24: smaller values are nearer to 0 than to any other code

std::size_t cell_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t cell = (bits & 0x7fffffffU) >> 15;
  const std::uint32_t last = CodeBook::kCells - 1;
  const std::uint32_t clamped = cell < kFirstCell ? 0 : std::min(cell - kFirstCell, last);
  return clamped + (bits >> 31) * static_cast<std::uint32_t>(CodeBook::kCells);
}

/// A cell's smallest value; if negative, the one with the largest magnitude.
float lowest_of(std::uint32_t cell, bool negative) {
  if (!negative) return cell == 0 ? 0.0F : std::bit_cast<float>((cell + kFirstCell) << 15);
  return -std::bit_cast<float>((cell + 1 + kFirstCell) << 15);
}

void fill_cells(CodeBook& book) {
  for (const bool negative : {false, true})
    for (std::uint32_t cell = 0; cell < static_cast<std::uint32_t>(CodeBook::kCells); ++cell) {
      const auto below = std::lower_bound(book.bounds.begin(), book.bounds.end(), lowest_of(cell, negative));
      book.lowest[cell + (negative ? static_cast<std::uint32_t>(CodeBook::kCells) : 0U)] =
          static_cast<std::uint8_t>(below - book.bounds.begin());
    }
}

CodeBook make(bool negatives) {
  std::vector<double> all = {0, 1};
  for (int decade = 0; decade < kDecades; ++decade) {
    const int fractions = (negatives ? 1 : 2) << decade;
    const double top = std::pow(10.0, decade - kDecades + 1);
    for (int i = 0; i < fractions; ++i) {
      const double middle = 0.1 + 0.9 * (i + 0.5) / fractions;
      all.push_back(top * middle);
      if (negatives) all.push_back(decade + 1 == kDecades && i + 1 == fractions ? -1.0 : -top * middle);
    }
  }
  std::sort(all.begin(), all.end());
  CodeBook book;
  ENSURE(all.size() == book.values.size(), "{} codes", all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    book.values[i] = static_cast<float>(all[i]);
    if (i > 0) book.bounds[i - 1] = static_cast<float>((all[i - 1] + all[i]) / 2);
    if (all[i] == 0) book.zero = static_cast<std::uint8_t>(i);
  }
  fill_cells(book);
  return book;
}

}  // namespace

std::uint8_t CodeBook::code_of(float value) const {
  const std::size_t code = lowest[cell_of(value)];
  return static_cast<std::uint8_t>(code + (code < bounds.size() && bounds[code] < value ? 1 : 0));
}

const CodeBook& signed_codes() {
  static const CodeBook book = make(true);
  return book;
}
const CodeBook& unsigned_codes() {
  static const CodeBook book = make(false);
  return book;
}

float quantise(const CodeBook& book, std::span<const float> values, std::uint8_t* codes) {
  float scale = 0;
  for (const float v : values) scale = std::max(scale, std::abs(v));
  if (scale == 0) {
    std::fill_n(codes, values.size(), book.zero);
    return 0;
  }
  for (std::size_t i = 0; i < values.size(); ++i) codes[i] = book.code_of(values[i] / scale);
  return scale;
}

void dequantise(const CodeBook& book, std::span<const std::uint8_t> codes, float scale, float* values) {
  for (std::size_t i = 0; i < codes.size(); ++i) values[i] = book.values[codes[i]] * scale;
}

}  // namespace orrery::exec

#pragma once
/// Slopes of ALiBi (Press, Smith, Lewis 2022, section 3). With n heads, n a power of two: 2^(-8 (head + 1)/n). For any
/// other number of heads, those beyond the largest power of two n take every second slope of 2n (as BLOOM's and MPT's
/// code does).
#include <cmath>
#include <cstdint>

namespace orrery::models {

[[nodiscard]] inline double alibi_slope(std::int64_t head, std::int64_t heads) {
  std::int64_t n = 1;
  while (2 * n <= heads) n *= 2;
  const auto power = static_cast<double>(head < n ? 8 * (head + 1) : 4 * (2 * (head - n) + 1));
  return std::exp2(-power / static_cast<double>(n));
}

}  // namespace orrery::models

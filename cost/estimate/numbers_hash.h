#pragma once
/// A hash of keys that are lists of numbers. Private to cost/estimate/.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace orrery::cost {

struct NumbersHash {
  template <class Number>
  std::size_t operator()(const std::vector<Number>& numbers) const {
    std::uint64_t h = numbers.size();
    for (const Number n : numbers) h = (h ^ static_cast<std::uint64_t>(n)) * 0x9E3779B97F4A7C15ULL + (h >> 29);
    return h;
  }
};

}  // namespace orrery::cost

#pragma once
/// Schedules, clusters and traces number things by int; containers take std::size_t. This converts.
#include <cstddef>

namespace orrery::base {

/// Converts `index` for a container. A negative index becomes one beyond the end of every container.
[[nodiscard]] constexpr std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

}  // namespace orrery::base

#pragma once
/// Schedules, clusters and traces number things by int; containers are indexed by std::size_t.
#include <cstddef>

namespace orrery::base {

/// `index` as a container takes it. Below 0 it is beyond every container.
[[nodiscard]] constexpr std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

}  // namespace orrery::base

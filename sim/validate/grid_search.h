#pragma once
/// Minimizes a function of a few numbers, each chosen from its own short list. Deterministic and free of derivatives:
/// predictions have kinks where the device catches up with the host.
#include <cstddef>
#include <functional>
#include <vector>

namespace orrery::sim {

/// Indices into the lists, one per number.
using GridPoint = std::vector<std::size_t>;

struct GridSearch {
  GridPoint best;
  double value = 0;
  bool complete = true;  ///< false: stopped by `go_on`
};

/// From `start`: optimizes one number at a time with the others held and, if that finds nothing better, moves two
/// numbers by one step at once, until neither helps. Only strict improvements count, so that a number that nothing
/// depends on keeps its initial value. `sizes`: lengths of the lists.
[[nodiscard]] GridSearch grid_search(const std::vector<std::size_t>& sizes, GridPoint start,
                                     const std::function<double(const GridPoint&)>& value,
                                     const std::function<bool()>& go_on = {});

}  // namespace orrery::sim

#pragma once
/// The least of a function of a few numbers, each chosen from its own short list. Deterministic, and needs no slopes:
/// predictions have kinks where the device catches up with the host.
#include <cstddef>
#include <functional>
#include <vector>

namespace orrery::sim {

/// Places in the lists, one per number.
using GridPoint = std::vector<std::size_t>;

struct GridSearch {
  GridPoint best;
  double value = 0;
  bool complete = true;  ///< false: stopped by `go_on`
};

/// From `start`: the best value of one number at a time, all others held, and where that finds nothing better, one step
/// of two numbers at once; until neither helps. Only what is strictly better is taken, so that a number that nothing
/// depends on stays where it began. `sizes` are the lengths of the lists.
[[nodiscard]] GridSearch grid_search(const std::vector<std::size_t>& sizes, GridPoint start,
                                     const std::function<double(const GridPoint&)>& value,
                                     const std::function<bool()>& go_on = {});

}  // namespace orrery::sim

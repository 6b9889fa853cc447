/// Coordinate search on a grid, with diagonal steps when single coordinates are stuck.
#include "sim/validate/grid_search.h"

#include "base/ensure.h"

namespace orrery::sim {

namespace {

struct Minimum {
  const std::vector<std::size_t>& sizes;
  const std::function<double(const GridPoint&)>& value;
  const std::function<bool()>& go_on;
  GridSearch at;

  /// Takes `point` if it is better by more than rounding.
  bool take(const GridPoint& point) {
    constexpr double kRounding = 1e-12;
    if (go_on && !go_on()) {
      at.complete = false;
      return false;
    }
    const double there = value(point);
    if (!(there < at.value - kRounding)) return false;
    at.best = point;
    at.value = there;
    return true;
  }

  bool line(std::size_t axis) {
    const GridPoint from = at.best;
    bool better = false;
    for (std::size_t i = 0; i < sizes[axis] && at.complete; ++i) {
      if (i == from[axis]) continue;
      GridPoint point = from;
      point[axis] = i;
      better |= take(point);
    }
    return better;
  }

  /// One step along two numbers at once, each up or down.
  bool diagonals() {
    const GridPoint from = at.best;
    bool better = false;
    for (std::size_t a = 0; a < sizes.size(); ++a)
      for (std::size_t b = a + 1; b < sizes.size(); ++b)
        for (int direction = 0; direction < 4 && at.complete; ++direction) {
          GridPoint point = from;
          const auto step = [&](std::size_t axis, bool up) {
            if (up ? from[axis] + 1 >= sizes[axis] : from[axis] == 0) return false;
            point[axis] = up ? from[axis] + 1 : from[axis] - 1;
            return true;
          };
          if (step(a, (direction & 1) != 0) && step(b, (direction & 2) != 0)) better |= take(point);
        }
    return better;
  }
};

}  // namespace

GridSearch grid_search(const std::vector<std::size_t>& sizes, GridPoint start,
                       const std::function<double(const GridPoint&)>& value, const std::function<bool()>& go_on) {
  ENSURE(start.size() == sizes.size(), "a place for each list");
  const double there = value(start);
  Minimum search{sizes, value, go_on, {std::move(start), there, true}};
  for (bool better = true; better && search.at.complete;) {
    better = false;
    for (std::size_t axis = 0; axis < sizes.size(); ++axis) better |= search.line(axis);
    if (!better) better = search.diagonals();
  }
  return search.at;
}

}  // namespace orrery::sim

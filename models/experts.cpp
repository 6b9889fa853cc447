// Which layers have experts.
#include "models/experts.h"

#include <algorithm>

namespace orrery::models {

std::int64_t Experts::layers_of(std::int64_t layers) const {
  std::int64_t count_of = 0;
  for (std::int64_t i = 0; i < layers; ++i)
    if (in_layer(i)) ++count_of;
  return count_of;
}

bool Experts::place(const std::vector<bool>& with) {
  const auto first = std::find(with.begin(), with.end(), true);
  if (first == with.end()) return false;
  const auto second = std::find(first + 1, with.end(), true);
  const std::int64_t dense = first - with.begin(), apart = second == with.end() ? dense + 1 : second - first;
  for (const std::int64_t step : {period, apart})  // as it was, if that says it
    for (const std::int64_t skipped : {std::int64_t{0}, dense}) {
      Experts tried = *this;
      tried.period = step, tried.first_dense = skipped;
      bool same = true;
      for (std::size_t i = 0; same && i < with.size(); ++i)
        same = with[i] == tried.in_layer(static_cast<std::int64_t>(i));
      if (same) {
        *this = tried;
        return true;
      }
    }
  return false;
}

}  // namespace orrery::models

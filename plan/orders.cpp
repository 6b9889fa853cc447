// The orders themselves: a few lines each.
#include "plan/orders.h"

#include <algorithm>

namespace orrery::plan {

std::vector<Turn> turns(Order order, int stage, int stages, std::int64_t micro_batches) {
  const auto m = static_cast<std::int32_t>(micro_batches);
  std::vector<Turn> result;
  result.reserve(static_cast<std::size_t>(2 * m));
  const std::int32_t warm_up = order == Order::gpipe ? m : std::min<std::int32_t>(stages - 1 - stage, m);
  for (std::int32_t i = 0; i < warm_up; ++i) result.push_back({true, i});
  for (std::int32_t i = warm_up; i < m; ++i) {
    result.push_back({true, i});
    result.push_back({false, i - warm_up});
  }
  for (std::int32_t i = m - warm_up; i < m; ++i) result.push_back({false, i});
  return result;
}

std::int64_t in_flight(Order order, int stage, int stages, std::int64_t micro_batches) {
  return order == Order::gpipe ? micro_batches : std::min<std::int64_t>(stages - stage, micro_batches);
}

}  // namespace orrery::plan

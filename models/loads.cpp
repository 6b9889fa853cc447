/// Loads of experts.
#include "models/loads.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/ensure.h"
#include "base/random.h"

namespace orrery::models {

std::vector<double> zipf_loads(std::int64_t experts, std::int64_t chosen, double exponent) {
  ENSURE(experts > 0 && chosen > 0 && chosen <= experts, "{} of {} experts", chosen, experts);
  std::vector<double> loads;
  for (std::int64_t i = 1; i <= experts; ++i) loads.push_back(std::pow(static_cast<double>(i), -exponent));
  const double most = 1 / static_cast<double>(chosen);
  double left = 1;  // shared by the experts below the limit
  auto open = loads.begin();
  for (bool cut = true; cut;) {
    const double sum = std::accumulate(open, loads.end(), 0.0);
    for (auto it = open; it != loads.end(); ++it) *it *= left / sum;
    cut = false;
    for (; open != loads.end() && *open > most; ++open) {
      *open = most;
      left -= most;
      cut = true;
    }
  }
  return loads;
}

double fullest_in_order(const std::vector<double>& loads, std::int64_t ranks) {
  ENSURE(ranks > 0 && static_cast<std::int64_t>(loads.size()) % ranks == 0, "{} experts over {} ranks", loads.size(),
         ranks);
  const auto own = static_cast<std::ptrdiff_t>(loads.size()) / ranks;
  double fullest = 0, all = 0;
  for (auto it = loads.begin(); it != loads.end(); it += own) {
    const double load = std::accumulate(it, it + own, 0.0);
    fullest = std::max(fullest, load);
    all += load;
  }
  return all > 0 ? fullest * static_cast<double>(ranks) / all : 1;
}

double fullest_over_mean(const std::vector<double>& loads, std::int64_t ranks) {
  if (static_cast<std::int64_t>(loads.size()) == ranks) return fullest_in_order(loads, ranks);
  constexpr std::uint64_t kOrders = 256, kSeed = 1;
  double sum = 0;
  for (std::uint64_t order = 0; order < kOrders; ++order) {
    std::vector<double> shuffled = loads;
    for (std::size_t i = shuffled.size(); i > 1; --i)
      std::swap(shuffled[i - 1], shuffled[base::below(i, kSeed, order, i)]);
    sum += fullest_in_order(shuffled, ranks);
  }
  return sum / static_cast<double>(kOrders);
}

}  // namespace orrery::models

// Medians over a window of steps: one slow step is nobody's fault.
#include "exec/stragglers.h"

#include <algorithm>
#include <utility>

namespace orrery::exec {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Stragglers::Stragglers(std::vector<int> group, double ratio, std::size_t window)
    : group_(std::move(group)), ratio_(ratio), window_(window), past_(group_.size()), named_(group_.size()) {}

double Stragglers::usual(std::size_t rank) const {
  return median({past_[rank].begin(), past_[rank].end()});
}

std::vector<Straggler> Stragglers::note(const std::vector<double>& busy_s) {
  for (std::size_t rank = 0; rank < past_.size(); ++rank) {
    past_[rank].push_back(busy_s[rank]);
    if (past_[rank].size() > window_) past_[rank].pop_front();
  }
  std::vector<Straggler> out;
  if (past_.empty() || past_.front().size() < window_) return out;
  for (std::size_t rank = 0; rank < past_.size(); ++rank) {
    std::vector<double> peers;
    for (std::size_t other = 0; other < past_.size(); ++other)
      if (other != rank && group_[other] == group_[rank]) peers.push_back(usual(other));
    if (peers.empty()) continue;
    const double of_peers = median(peers);
    const double ratio = of_peers > 0 ? usual(rank) / of_peers : 1;
    if (ratio >= ratio_ && !named_[rank]) out.push_back({static_cast<int>(rank), ratio});
    // What is near the bound does not come and go.
    named_[rank] = ratio >= (named_[rank] ? 1 + (ratio_ - 1) / 2 : ratio_);
  }
  return out;
}

}  // namespace orrery::exec

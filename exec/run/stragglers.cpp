// Medians over a window of steps, so that one slow step does not count.
#include "exec/run/stragglers.h"

#include <algorithm>
#include <utility>

namespace orrery::exec {
namespace {

double upper_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Stragglers::Stragglers(std::vector<int> group, double ratio, std::size_t window)
    : group_(std::move(group)), ratio_(ratio), window_(window), past_(group_.size()), named_(group_.size()) {}

double Stragglers::usual(std::size_t rank) const {
  return upper_median({past_[rank].begin(), past_[rank].end()});
}

double Stragglers::of_step(const std::vector<std::size_t>& ranks, std::size_t step) const {
  std::vector<double> values;
  for (const std::size_t rank : ranks) values.push_back(past_[rank][step]);
  return upper_median(std::move(values));
}

double Stragglers::over_peers(std::size_t rank, const std::vector<std::size_t>& peers) const {
  std::vector<double> values;
  for (const std::size_t peer : peers) values.push_back(usual(peer));
  const double of_peers = upper_median(std::move(values));
  return of_peers > 0 ? usual(rank) / of_peers : 1;
}

std::vector<Straggler> Stragglers::note(const std::vector<double>& busy_s) {
  for (std::size_t rank = 0; rank < past_.size(); ++rank) {
    past_[rank].push_back(busy_s[rank]);
    if (past_[rank].size() > window_) past_[rank].pop_front();
  }
  std::vector<Straggler> out;
  if (past_.empty() || past_.front().size() < window_) return out;
  for (std::size_t rank = 0; rank < past_.size(); ++rank) {
    std::vector<std::size_t> peers;
    for (std::size_t other = 0; other < past_.size(); ++other)
      if (other != rank && group_[other] == group_[rank]) peers.push_back(other);
    if (peers.empty()) continue;
    const double half = 1 + (ratio_ - 1) / 2;
    const double ratio = over_peers(rank, peers);
    // A rank that shares its core is slow by turns; a straggler holds up nearly every step.
    std::size_t steps = 0;
    for (std::size_t step = 0; step < window_; ++step)
      steps += past_[rank][step] >= half * of_step(peers, step) ? 1 : 0;
    const bool slow = ratio >= (named_[rank] ? half : ratio_) && 4 * steps >= 3 * window_;
    if (slow && !named_[rank]) out.push_back({static_cast<int>(rank), ratio});
    named_[rank] = slow;
  }
  return out;
}

}  // namespace orrery::exec

// Modified z-scores over a window.
#include "exec/run/spikes.h"

#include <algorithm>
#include <cmath>

namespace orrery::exec {
namespace {

constexpr double kNormal = 1.4826;  // of a normal distribution: 1 / its third quartile
// Values that hardly vary (a settled loss, a test's constant data) have a deviation near zero, so it counts as at least
// this much: for a loss relative to the median, for a norm as a logarithm.
constexpr double kLeastOfLoss = 0.005, kLeastOfNorm = 0.1;

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Score {
  double median = 0, score = 0;
};

Score score_of(const std::deque<double>& window, double value, double least_part, double least) {
  const double median = median_of({window.begin(), window.end()});
  std::vector<double> away;
  for (const double one : window) away.push_back(std::abs(one - median));
  const double deviation = kNormal * std::max({median_of(std::move(away)), least_part * std::abs(median), least});
  return {median, deviation > 0 ? (value - median) / deviation : 0};
}

void push(std::deque<double>& window, double value) {
  window.push_back(value);
  if (window.size() > SpikeDetector::kWindow) window.pop_front();
}

}  // namespace

std::vector<Spike> SpikeDetector::see(double loss, double gradient_norm) {
  std::vector<Spike> out;
  if (std::isfinite(loss)) {
    if (losses_.size() >= kLeast) {
      const Score s = score_of(losses_, loss, kLeastOfLoss, 0);
      if (s.score >= kFar) out.push_back({"loss", loss, s.median, s.score});
    }
    push(losses_, loss);
  }
  if (std::isfinite(gradient_norm) && gradient_norm > 0) {
    const double logarithm = std::log(gradient_norm);
    if (norms_.size() >= kLeast) {
      const Score s = score_of(norms_, logarithm, 0, kLeastOfNorm);
      if (s.score >= kFar) out.push_back({"gradient_norm", gradient_norm, std::exp(s.median), s.score});
    }
    push(norms_, logarithm);
  }
  return out;
}

}  // namespace orrery::exec

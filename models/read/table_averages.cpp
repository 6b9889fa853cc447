// Whole numbers of a given sum, spread as a log-normal distribution is.
#include "models/read/table_averages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"

namespace orrery::models {
namespace {

// The standard normal's quantile by bisection: erfc is monotone, and 60 halvings of [-40, 40] reach a double's digits.
double normal_quantile(double share) {
  double low = -40, high = 40;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < share ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::vector<std::size_t> positions(std::size_t count) {
  std::vector<std::size_t> out(count);
  std::iota(out.begin(), out.end(), std::size_t{0});
  return out;
}

}  // namespace

std::vector<std::int64_t> spread_out(std::int64_t total, std::int64_t count, double spread) {
  const auto n = static_cast<std::size_t>(count);
  std::vector<double> share(n, 1);
  if (spread > 0)
    for (std::size_t i = 0; i < n; ++i)
      share[i] = std::exp(spread * normal_quantile((static_cast<double>(i) + 0.5) / static_cast<double>(n)));
  const double sum = std::accumulate(share.begin(), share.end(), 0.0);
  // One each, and the rest by largest remainders, of equal ones the later first: the order stays rising.
  std::vector<std::int64_t> out(n, 1);
  std::int64_t left = total - count;
  const auto rest = static_cast<double>(left);
  for (std::size_t i = 0; i < n; ++i) {
    share[i] *= rest / sum;
    const auto whole = std::min(left, static_cast<std::int64_t>(share[i]));
    out[i] += whole;
    left -= whole;
    share[i] -= static_cast<double>(whole);
  }
  std::vector<std::size_t> order = positions(n);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return share[a] != share[b] ? share[a] > share[b] : a > b; });
  for (std::size_t i = 0; left > 0; ++i, --left) ++out[order[i % n]];
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::int64_t> mixed(const std::vector<std::int64_t>& values) {
  const std::uint64_t stream = base::stream_of("table averages");
  std::vector<std::size_t> order = positions(values.size());
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const double x = base::uniform(1, stream, a), y = base::uniform(1, stream, b);
    return x != y ? x < y : a < b;
  });
  std::vector<std::int64_t> out;
  for (const std::size_t at : order) out.push_back(values[at]);
  return out;
}

std::string spread_text(const std::vector<std::int64_t>& values, double spread) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  const std::string mean = fmt::format("{:.10g} on average", sum / static_cast<double>(values.size()));
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  if (spread == 0) return mean + ", all alike";
  return fmt::format("{}, from {} to {}, log-normal with spread {}", mean, *low, *high, spread);
}

}  // namespace orrery::models

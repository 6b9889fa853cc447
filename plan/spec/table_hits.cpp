// Sums over rows in the order of their popularity: the first rows one by one, the others in runs that grow.
#include "plan/spec/table_hits.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace orrery::plan {
namespace {

/// Rows of equal probability: how many, and the probability of each.
struct RowsAlike {
  double count = 0, probability = 0;
};

std::vector<RowsAlike> popularity(std::int64_t rows, double skew) {
  if (skew == 0) return {{static_cast<double>(rows), 1 / static_cast<double>(rows)}};
  constexpr std::int64_t kEach = 256;
  constexpr double kGrowth = 1.02;
  std::vector<RowsAlike> out;
  double sum = 0;
  for (std::int64_t first = 1; first <= rows;) {
    const std::int64_t next =
        first <= kEach ? first + 1
                       : std::min(rows + 1, static_cast<std::int64_t>(std::ceil(static_cast<double>(first) * kGrowth)));
    const auto a = static_cast<double>(first), b = static_cast<double>(next - 1);
    out.push_back({b - a + 1, std::pow((a + b) / 2, -skew)});
    sum += out.back().count * out.back().probability;
    first = next;
  }
  for (RowsAlike& one : out) one.probability /= sum;
  return out;
}

/// (1 - p)^n
double never(double probability, double draws) {
  return probability >= 1 ? (draws > 0 ? 0 : 1) : std::exp(draws * std::log1p(-probability));
}

/// Distinct rows among `lookups` lookups.
double seen(const std::vector<RowsAlike>& rows, double lookups) {
  double sum = 0;
  for (const RowsAlike& one : rows) sum += one.count * (1 - never(one.probability, lookups));
  return sum;
}

/// Lookups after which `slots` rows have been seen.
double characteristic_time(const std::vector<RowsAlike>& rows, double slots) {
  double low = 0, high = slots;
  while (seen(rows, high) < slots) low = high, high *= 2;
  constexpr int kHalvings = 40;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (seen(rows, middle) < slots ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

CacheExpectation expect_hits(std::int64_t rows, double skew, double lookups, double slots) {
  const std::vector<RowsAlike> alike = popularity(rows, skew);
  CacheExpectation out;
  out.distinct = seen(alike, lookups);
  // In the end, all rows are in the cache; one that is full except for a fraction of a row would take for ever to fill.
  if (slots >= static_cast<double>(rows) - 0.5) return out;
  const double time = characteristic_time(alike, slots);
  out.hit_rate = 0;
  for (const RowsAlike& one : alike) {
    const double missing = never(one.probability, time);
    out.fetched += one.count * (1 - never(one.probability, lookups)) * missing;
    out.hit_rate += one.count * one.probability * (1 - missing);
  }
  return out;
}

}  // namespace orrery::plan

#pragma once
/// What a cache of a table's rows holds, and what it has to fetch, for lookups that follow Zipf's law.
#include <cstdint>

namespace orrery::plan {

struct CacheExpectation {
  double distinct = 0;  ///< rows that a step looks up
  double fetched = 0;   ///< rows among them that are not in the cache when the step begins
  double hit_rate = 1;  ///< share of all lookups whose row is in the cache when the step begins
};

/// For steps of `lookups` independent lookups each over `rows` rows, of which the i-th most frequent is drawn with a
/// probability p_i proportional to 1 / i^skew; and a cache of `slots` rows that evicts the row that was looked up
/// longest ago. When a step begins, the cache holds the rows of the last t lookups, where t is Che's characteristic
/// time, the solution of sum_i 1 - (1 - p_i)^t = slots (Che, Tung and Wang 2002, Hierarchical Web Caching Systems,
/// equation 5, with counted instead of Poisson arrivals). So row i is missing with probability (1 - p_i)^t. This holds
/// for a run that has gone on for long: it does not count that every row must be looked up a first time.
[[nodiscard]] CacheExpectation expect_hits(std::int64_t rows, double skew, double lookups, double slots);

}  // namespace orrery::plan

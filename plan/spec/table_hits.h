#pragma once
/// What a cache of a table's rows finds, and what it has to fetch, of lookups that follow Zipf's law.
#include <cstdint>

namespace orrery::plan {

struct CacheExpectation {
  double distinct = 0;  ///< rows that a step looks up
  double fetched = 0;   ///< of them those that are not in the cache when it begins
  double hit_rate = 1;  ///< lookups whose row is there when it begins, of all
};

/// Of a step of `lookups` independent ones over `rows`, of which the i-th most frequent is drawn as 1 / i^skew, and a
/// cache of `slots` rows that puts out what was looked up longest ago. At a step's begin it holds the rows of the last
/// t lookups, where t is Che's characteristic time, sum_i 1 - (1 - p_i)^t = slots (Che, Tung and Wang 2002,
/// Hierarchical Web Caching Systems, equation 5, for counted instead of Poisson arrivals): row i is missing with (1 -
/// p_i)^t. Of a run that has gone on for long; rows that no step has yet looked up are not counted.
[[nodiscard]] CacheExpectation expect_hits(std::int64_t rows, double skew, double lookups, double slots);

}  // namespace orrery::plan

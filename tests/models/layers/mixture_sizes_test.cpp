// How a mixture of experts is divided among ranks.
#include "models/layers/mixture_sizes.h"

#include <gtest/gtest.h>

namespace orrery::models {
namespace mixture_sizes_test {

Experts eight_experts() {
  Experts e;
  e.count = 8;
  e.chosen = 2;
  e.hidden = 1024;
  return e;
}

ExpandOptions split(std::int64_t tensor, std::int64_t expert, std::int64_t ways = 0) {
  ExpandOptions o;
  o.batch = 2;
  o.sequence = 64;
  o.tensor = tensor;
  o.expert = expert;
  o.expert_ways = ways;
  return o;
}

TEST(MixtureSizes, ARankAloneHasAllExpertsAndRoomForWhateverTokensChoose) {
  const MixtureSizes m = mixture_sizes(eight_experts(), split(1, 1), 128, 128);
  EXPECT_EQ(m.local, 8);
  EXPECT_EQ(m.width, 1024);
  EXPECT_EQ(m.capacity, 128 * 2);
  EXPECT_EQ(m.expected, 1);
  EXPECT_FALSE(m.gathers());
}

TEST(MixtureSizes, ATensorGroupRoutesAllRowsOnEachRankAndSplitsEachExpert) {
  const MixtureSizes m = mixture_sizes(eight_experts(), split(4, 2), 128, 32);
  EXPECT_FALSE(m.own_routes);
  EXPECT_EQ(m.routed, 128);
  EXPECT_EQ(m.tokens, 128);
  EXPECT_EQ(m.local, 4);
  EXPECT_EQ(m.width, 256);
}

TEST(MixtureSizes, OtherRanksRouteTheirOwnRowsAndSendThoseOfAllThatSplitAnExpert) {
  const MixtureSizes m = mixture_sizes(eight_experts(), split(4, 2, 2), 128, 32);
  EXPECT_TRUE(m.own_routes);
  EXPECT_TRUE(m.gathers());
  EXPECT_EQ(m.routed, 32);
  EXPECT_EQ(m.tokens, 64);
  EXPECT_EQ(m.width, 512);
}

TEST(MixtureSizes, RanksThatHaveWholeExpertsRouteTheirOwnRowsAndGatherNothing) {
  const MixtureSizes m = mixture_sizes(eight_experts(), split(4, 2, 1), 128, 32);
  EXPECT_TRUE(m.own_routes);
  EXPECT_FALSE(m.gathers());
  EXPECT_EQ(m.tokens, 32);
  EXPECT_EQ(m.width, 1024);
}

TEST(MixtureSizes, TheTensorGroupNamedAsWaysIsTheTensorGroup) {
  EXPECT_FALSE(mixture_sizes(eight_experts(), split(4, 2, 4), 128, 32).own_routes);
}

TEST(MixtureSizes, ASlotOfSeveralRanksHasRoomForTheBoundAndAFewMoreRowsButForNoMoreThanCanArrive) {
  ExpandOptions o = split(1, 8);
  o.batch = 64;
  const std::int64_t rows = 64 * 64, balanced = rows * 2 / 8;
  o.expert_bound = 1.5;
  const MixtureSizes bounded = mixture_sizes(eight_experts(), o, rows, rows);
  EXPECT_EQ(bounded.capacity, balanced * 3 / 2 + 64);
  EXPECT_DOUBLE_EQ(bounded.expected, static_cast<double>(balanced) / static_cast<double>(bounded.capacity));
  o.expert_bound = 100;
  EXPECT_EQ(mixture_sizes(eight_experts(), o, rows, rows).capacity, rows);  // a token chooses an expert once
}

TEST(MixtureSizes, AnUnevenLoadFillsMoreOfASlotButNeverMoreThanAll) {
  ExpandOptions o = split(1, 8);
  o.batch = 64;
  const std::int64_t rows = 64 * 64;
  const double even = mixture_sizes(eight_experts(), o, rows, rows).expected;
  o.imbalance = 1.3;
  EXPECT_DOUBLE_EQ(mixture_sizes(eight_experts(), o, rows, rows).expected, 1.3 * even);
  o.imbalance = 50;
  EXPECT_EQ(mixture_sizes(eight_experts(), o, rows, rows).expected, 1);
}

}  // namespace mixture_sizes_test
}  // namespace orrery::models

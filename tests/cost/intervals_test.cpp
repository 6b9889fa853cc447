/// cost/intervals.yaml: what is read, what is refused, whose spread a stack gets.
#include "cost/parameters/intervals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orrery::cost {
namespace {

Intervals sample() {
  return {{{"", true, {0.5, 2}, {0.8, 1.5}, 0}, {"megatron-2021", true, {0.9, 1.125}, {0.8, 1.5}, 16}}};
}

TEST(Intervals, ReadBackAsTheyWereWritten) {
  const auto read = parse_intervals(write_intervals(sample()), "intervals.yaml");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->spreads, sample().spreads);
}

TEST(Intervals, UnknownSoftwareHasTheSpreadOfAll) {
  EXPECT_EQ(spread_of(sample(), "megatron-2021", true)->time, (Interval{0.9, 1.125}));
  EXPECT_EQ(spread_of(sample(), "something-new", true)->time, (Interval{0.5, 2}));
  EXPECT_FALSE(spread_of(sample(), "megatron-2021", false).has_value()) << "nothing is known of a single node";
  EXPECT_FALSE(spread_of({}, "megatron-2021", true).has_value());
}

TEST(Intervals, LieAroundThePrediction) {
  EXPECT_EQ(around(8, {0.5, 1.25}), (Interval{4, 10}));
}

TEST(Intervals, RefuseAnUpperEndBelowTheLower) {
  const auto read = parse_intervals(
      "spreads:\n  - {several_nodes: true, time: {low: 1.2, high: 0.9}, memory: {low: 1, high: 1}, rows: 3}\n",
      "i.yaml");
  ASSERT_FALSE(read.has_value());
  EXPECT_THAT(read.error().front().message, ::testing::HasSubstr("below"));
  EXPECT_FALSE(parse_intervals("spreads: []\nmore: 1\n", "i.yaml").has_value());
}

}  // namespace
}  // namespace orrery::cost

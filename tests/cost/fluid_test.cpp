/// Fluids of messages that share links, worked by hand; tests/sim/collectives/replay_transfers_test.cpp holds them to
/// the replay.
#include "cost/network/fluid.h"

#include <gtest/gtest.h>

namespace orrery::cost {
namespace fluid_test {

const std::vector<double> kTen = {10, 10, 10};  // bytes/s of three links
const std::vector<int> kFirst = {0}, kSecond = {1}, kBoth = {0, 1}, kNone = {};

// 30 and 10 bytes on a link of 10: 5 each until the shorter ends at 2 s, then 20 alone.
TEST(Fluid, OfTwoMessagesOnOneLinkEndsWhenAllBytesHavePassed) {
  EXPECT_NEAR(fluid_time({{{{0, 1, 30, 0, &kFirst}, {2, 3, 10, 0, &kFirst}}, 1}}, 4, kTen), 4, 1e-9);
}

// A parking lot: the long one has half of each link until the short ones (10 bytes) end at 2 s; 20 of its 30 remain.
TEST(Fluid, OfAParkingLotIsMaxMinFair) {
  const std::vector<FluidRound> rounds = {
      {{{0, 1, 30, 0, &kBoth}, {2, 3, 10, 0, &kFirst}, {4, 5, 10, 0, &kSecond}}, 1}};
  EXPECT_TRUE(crowded(rounds, kTen));
  EXPECT_NEAR(fluid_time(rounds, 6, kTen), 2 + 2, 1e-9);
}

// The second message joins after its latency: 10 bytes have passed, then halves.
TEST(Fluid, WaitsOutEachLatency) {
  EXPECT_NEAR(fluid_time({{{{0, 1, 20, 0, &kFirst}, {2, 3, 10, 1, &kFirst}}, 1}}, 4, kTen), 3, 1e-9);
}

// End 1 receives 10 bytes, then sends them on; twice over.
TEST(Fluid, FollowsMembersFromRoundToRound) {
  const std::vector<FluidRound> rounds = {{{{0, 1, 10, 0.5, &kFirst}}, 1}, {{{1, 2, 10, 0.5, &kSecond}}, 2}};
  EXPECT_FALSE(crowded(rounds, kTen));
  EXPECT_NEAR(fluid_time(rounds, 3, kTen), 3 * 1.5, 1e-9);
}

TEST(Fluid, OfNothingTakesLatencyAlone) {
  EXPECT_NEAR(fluid_time({{{{0, 1, 0, 2, &kFirst}, {1, 0, 5, 3, &kNone}}, 1}}, 2, kTen), 3, 1e-12);
  EXPECT_EQ(fluid_time({}, 2, kTen), 0);
}

TEST(InStep, AreRoundsThatAllTakeAllAndEquallyLong) {
  EXPECT_TRUE(in_step({{{{0, 1, 10, 1, &kFirst}, {1, 0, 10, 1, &kSecond}}, 3}}, 2, kTen));
  EXPECT_FALSE(in_step({{{{0, 1, 10, 1, &kFirst}, {1, 0, 11, 1, &kSecond}}, 3}}, 2, kTen)) << "one is longer";
  EXPECT_FALSE(in_step({{{{0, 1, 10, 1, &kFirst}, {1, 0, 10, 1, &kSecond}}, 3}}, 3, kTen)) << "one is idle";
}

// One sender's rounds follow each other and do not crowd a link; two senders' may meet on it.
TEST(Crowding, CountsOfEachEndItsBusiestRound) {
  EXPECT_FALSE(crowded({{{{0, 1, 9, 0, &kFirst}}, 1}, {{{0, 2, 9, 0, &kFirst}}, 1}}, kTen));
  EXPECT_TRUE(crowded({{{{0, 1, 9, 0, &kFirst}}, 1}, {{{3, 2, 9, 0, &kFirst}}, 1}}, kTen));
}

}  // namespace fluid_test
}  // namespace orrery::cost

// Messages of one rank or of several that cross the same link, worked by hand.
#include "cost/estimate/shared_streams.h"

#include <gtest/gtest.h>

#include "cost/estimate/lowered_end.h"
#include "cost/estimate/rank_clock.h"

namespace orrery::cost {
namespace shared_streams_test {

constexpr auto kData = static_cast<std::size_t>(plan::Stream::data),
               kOut = static_cast<std::size_t>(plan::Stream::to_host),
               kIn = static_cast<std::size_t>(plan::Stream::from_host);

LaneSets data_and_copies() {
  return {1U << kData | 1U << kOut};
}

/// Of gathers and of copies to the host, which cross link 7; copies from there cross link 8.
std::shared_ptr<StreamRates> shared_rates(double gather, double gathers_share, double copy, double copys_share) {
  std::array<Crossings, kLanes> all;
  all[kData] = {gather, {{7, gathers_share}, {9, 1}}};
  all[kOut] = {copy, {{7, copys_share}}};
  all[kIn] = {copy, {{8, 1}}};
  return std::make_shared<StreamRates>(all);
}

TEST(StreamRates, AreThoseOfPricesWhereNothingIsFull) {
  EXPECT_FALSE(shared_rates(1, 0.5, 1, 0.5)->any());
  EXPECT_TRUE(shared_rates(1, 0.6, 1, 0.5)->any());
  EXPECT_EQ(shared_rates(1, 1, 1, 1)->of({1U << kData})[0][kData], 1) << "alone";
  EXPECT_EQ(shared_rates(1, 1, 1, 1)->of({1U << kData | 1U << kIn})[0][kData], 1) << "on another link";
}

TEST(StreamRates, AreFairByConnection) {
  const auto equal = shared_rates(10, 1, 10, 0.5);
  EXPECT_DOUBLE_EQ(equal->of(data_and_copies())[0][kData], 1 / 1.5);
  EXPECT_DOUBLE_EQ(equal->of(data_and_copies())[0][kOut], 1 / 1.5);
  // Connections of the copy want half as much, which is less than a fair part: they get all of it.
  const auto unequal = shared_rates(10, 1, 5, 0.4);
  EXPECT_DOUBLE_EQ(unequal->of(data_and_copies())[0][kOut], 1);
  EXPECT_DOUBLE_EQ(unequal->of(data_and_copies())[0][kData], 0.6);
}

// The gather is alone until 50, then both have half of the link: it ends at 150, and the copy has 50 left.
TEST(SharedStreams, SlowEachOtherDownAsLongAsBothAreInFlight) {
  SharedStreams streams(shared_rates(1, 1, 1, 1));
  streams.begin(kData, kData, 100, 0, {});
  streams.begin(kOut, kOut, 100, 50, {});
  EXPECT_EQ(streams.end_of({kData, 0}, 0), 150);
  EXPECT_FALSE(streams.idle());
  EXPECT_EQ(streams.end_of({kOut, 0}, 0), 200);
  EXPECT_TRUE(streams.idle());
}

TEST(SharedStreams, BeginBehindWhatTheyWaitFor) {
  SharedStreams streams(shared_rates(1, 1, 1, 1));
  streams.begin(kData, kData, 100, 0, {});
  streams.begin(kData, kData, 10, 0, {});
  streams.begin(kOut, kOut, 100, 0, {{kData, 1}});
  streams.begin(kIn, kIn, 5, SharedStreams::kWhenNeeded, {});
  EXPECT_EQ(streams.end_of({kOut, 0}, 0), 210) << "one stream's messages go one after another";
  EXPECT_EQ(streams.end_of({kIn, 0}, 300), 305);
}

TEST(SharedStreams, BeginBehindTheirInputEvenIfTheyWaitToBeNeeded) {
  SharedStreams streams(shared_rates(1, 1, 1, 1));
  streams.begin(kData, kData, 100, SharedStreams::kWhenNeeded, {}, 40);
  EXPECT_EQ(streams.end_of({kData, 0}, 10), 140);
}

// A copy out that is asked for at 300 waits for a sum of 60, which waits for a sum of 40 and for a copy in.
TEST(SharedStreams, BeginAsSoonAsSomethingBehindThemIsNeeded) {
  SharedStreams streams(shared_rates(1, 1, 1, 1));
  streams.begin(kIn, kIn, 10, SharedStreams::kWhenNeeded, {});
  streams.begin(kData, kData, 40, SharedStreams::kWhenNeeded, {});
  streams.begin(kData, kData, 60, SharedStreams::kWhenNeeded, {{kIn, 0}});
  streams.begin(kData, kData, 7, SharedStreams::kWhenNeeded, {});
  streams.begin(kOut, kOut, 5, 0, {{kData, 1}});
  EXPECT_EQ(streams.end_of({kOut, 0}, 300), 405);
  EXPECT_FALSE(streams.idle());
  EXPECT_EQ(streams.end_of({kData, 2}, 500), 507) << "nobody needed it before";
}

// A node's own sums cross no link of the copy's; what goes between nodes shares one with it.
TEST(SharedStreams, MoveByTheLinksOfEachMessage) {
  const Lane near = lane_of(plan::Over::near, false), far = lane_of(plan::Over::far, false);
  std::array<Crossings, kLanes> all;
  all[near] = {1, {{9, 1}}};
  all[far] = {1, {{7, 1}}};
  all[kOut] = {1, {{7, 1}}};
  SharedStreams streams(std::make_shared<StreamRates>(all));
  streams.begin(kData, near, 100, 0, {});
  streams.begin(kData, far, 50, 0, {});
  streams.begin(kOut, kOut, 150, 0, {});
  EXPECT_EQ(streams.end_of({kData, 0}, 0), 100) << "beside the copy, on other links";
  EXPECT_EQ(streams.end_of({kData, 1}, 0), 200) << "half as fast, as the copy has 50 left";
  EXPECT_EQ(streams.end_of({kOut, 0}, 0), 200);
}

// 20 of each gather's 100 are latency, in which the copy has the link for itself: from 50 to 70.
TEST(SharedStreams, TakeNothingOfLinksWhileTheyHaveNotSetOut) {
  std::array<Crossings, kLanes> all;
  all[kData] = {.rate = 1, .shares = {{7, 1}}, .latency = 20e-12};
  all[kOut] = {1, {{7, 1}}};
  SharedStreams streams(std::make_shared<StreamRates>(all));
  streams.begin(kOut, kOut, 100, 0, {});
  streams.begin(kData, kData, 100, 50, {});
  streams.begin(kData, kData, 100, 50, {});
  EXPECT_EQ(streams.end_of({kOut, 0}, 0), 130) << "70 alone, 30 at half the rate";
  EXPECT_EQ(streams.end_of({kData, 0}, 0), 180) << "30 of 80 by 130, 50 alone";
  EXPECT_EQ(streams.end_of({kData, 1}, 0), 280);
}

TEST(StreamRates, AreThoseOfPricesWhereOneStreamAloneFillsALink) {
  std::array<Crossings, kLanes> all;
  all[lane_of(plan::Over::near, false)] = all[lane_of(plan::Over::far, true)] = {1, {{7, 1}}};
  EXPECT_FALSE(StreamRates(all).any()) << "its messages go one after another";
}

// Compute that waits for the gather alone: a copy that begins meanwhile makes it wait longer.
TEST(RankClock, WaitsLongerForMessagesThatShareALink) {
  RankClock::Overlaps all{};
  all.fill(true);
  const auto end = [&](const std::shared_ptr<StreamRates>& shared) {
    RankClock clock(all, 1, shared);
    clock.state.host = -1'000'000;
    const std::vector<PassStep> steps = {
        {PassStep::Kind::begin, plan::Stream::data, false, false, 0, 100},
        {PassStep::Kind::begin, plan::Stream::to_host, false, false, 0, 60},
        {PassStep::Kind::wait, plan::Stream::data, false, false, 1},
        {.kind = PassStep::Kind::compute, .time = 10},
    };
    clock.run(steps);
    return clock.state.device;
  };
  EXPECT_EQ(end(nullptr), 110);
  EXPECT_EQ(end(shared_rates(1, 1, 1, 1)), 170);
}

/// One rank's copies to the host, which fill link 7 alone, and another's, over that link or their own.
std::shared_ptr<StreamRates> rates_of_two(int link) {
  std::vector<StreamRates::Lanes> ranks(2);
  ranks[0][kOut] = {1, {{7, 1}}};
  ranks[1][kOut] = {1, {{link, 1}}};
  return std::make_shared<StreamRates>(std::move(ranks));
}

TEST(StreamRates, OfSeveralRanksAreShares) {
  const LaneSets both = {1U << kOut, 1U << kOut};
  EXPECT_TRUE(rates_of_two(7)->across());
  EXPECT_DOUBLE_EQ(rates_of_two(7)->of(both)[1][kOut], 0.5);
  EXPECT_EQ(rates_of_two(7)->of({1U << kOut, 0})[0][kOut], 1) << "alone";
  EXPECT_FALSE(rates_of_two(8)->across());
  EXPECT_EQ(rates_of_two(8)->of(both)[1][kOut], 1);
}

// The second rank's copy begins at 50, when the first one's has 50 left: that ends at 150, and the second has 50 left.
// Once both have come to 210, the first copies again, alone.
TEST(EndsRun, OfStagesThatShareALinkGoesOnTogetherInTime) {
  RankClock::Overlaps all{};
  all.fill(true);
  const std::vector<PassStep> copy = {{PassStep::Kind::begin, plan::Stream::to_host, false, false, 0, 100},
                                      {PassStep::Kind::wait, plan::Stream::to_host, false, false, 1},
                                      {.kind = PassStep::Kind::compute, .time = 10}};
  EndProgram first{copy, copy.size(), 1}, second = first;
  first.steps.insert(first.steps.end(), copy.begin(), copy.end());
  const auto ticks_of = [](const EndPart& part) { return ticks(part.all); };
  for (const bool shared : {true, false}) {
    EndsRun run({&first, &second}, all, rates_of_two(shared ? 7 : 8), {0, 50e-12});
    const std::vector<EndPart> squared = run.squared();
    EXPECT_EQ(ticks_of(squared[0]), shared ? 160 : 110);
    EXPECT_EQ(ticks_of(squared[1]), shared ? 160 : 110) << "from 50 on";
    EXPECT_EQ(ticks(squared[1].copies()), shared ? 150 : 100);
    const std::vector<EndPart> updated = run.updated(210e-12);
    EXPECT_EQ(ticks_of(updated[0]), 110);
    EXPECT_EQ(ticks_of(updated[1]), 0);
  }
}

}  // namespace shared_streams_test
}  // namespace orrery::cost

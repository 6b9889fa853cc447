/// A rank's clock, step by step, by the rules of plan/schedule/schedule.h.
#include "cost/estimate/rank_clock.h"

#include <gtest/gtest.h>

#include <vector>

namespace orrery::cost {
namespace rank_clock_test {

using plan::Stream;
using Kind = PassStep::Kind;

PassStep compute(Ticks time, Ticks host = 0, bool reads_input = false) {
  return {.reads_input = reads_input, .time = time, .host = host};
}
PassStep begin(Stream stream, Ticks time, bool frees = false) {
  return {.kind = Kind::begin, .stream = stream, .frees = frees, .time = time};
}
PassStep wait(Stream stream, std::uint32_t back = 1) {
  return {.kind = Kind::wait, .stream = stream, .back = back};
}
PassStep after(Stream stream, std::uint32_t back = 1) {
  return {.kind = Kind::after, .stream = stream, .back = back};
}

RankClock clock(bool overlaps = true, std::size_t reach = 0) {
  RankClock::Overlaps all{};
  all.fill(overlaps);
  return RankClock(all, reach);
}
Ticks exposed(const RankClock& c, Stream stream) {
  return c.waits.exposed[static_cast<std::size_t>(stream)];
}

TEST(RankClock, HasRoomForAsManyMessagesAsAProgramBegins) {
  constexpr std::uint32_t kMany = 5000;
  for (const bool overlaps : {true, false}) {
    RankClock c = clock(overlaps, kMany);
    std::vector<PassStep> steps(kMany, begin(Stream::data, 10));
    steps.push_back(wait(Stream::data, kMany));  // the first one
    steps.push_back(compute(1));
    c.run(steps);
    EXPECT_EQ(c.state.device, 11);
    EXPECT_EQ(c.settle(), 10 * Ticks{kMany} + (overlaps ? 0 : 1));
  }
}

TEST(RankClock, HidesAMessageBehindComputeThatDoesNotNeedIt) {
  RankClock c = clock();
  c.run(std::vector{begin(Stream::data, 10), compute(8), wait(Stream::data), compute(1)});
  EXPECT_EQ(c.state.device, 11);
  EXPECT_EQ(exposed(c, Stream::data), 2);
}

TEST(RankClock, StartsWhatCannotOverlapOnlyWhenItIsNeeded) {
  RankClock c = clock(false);
  c.run(std::vector{begin(Stream::data, 10), compute(8), wait(Stream::data), compute(1)});
  EXPECT_EQ(c.state.device, 19);
  EXPECT_EQ(exposed(c, Stream::data), 10);
}

TEST(RankClock, RunsMessagesOfAStreamOneAfterAnother) {
  RankClock c = clock();
  c.run(std::vector{begin(Stream::data, 10), begin(Stream::data, 10), wait(Stream::data, 2), compute(1),
                    wait(Stream::data), compute(1)});
  EXPECT_EQ(c.state.device, 21) << "11 behind the first, 20 and 1 behind the second";
}

TEST(RankClock, WaitsForWhatFreesMemoryWhateverComes) {
  RankClock c = clock();
  c.run(std::vector{begin(Stream::data, 10, true), compute(1)});
  EXPECT_EQ(c.state.device, 11);
  c.run(std::vector{begin(Stream::data, 10, true)});
  EXPECT_EQ(c.state.device, 11);
  c.run(std::vector{compute(1)});
  EXPECT_EQ(c.state.device, 22) << "in the next pass too";
}

TEST(RankClock, LetsAMessageWaitForOneOfAnotherStream) {
  for (const bool overlaps : {true, false}) {
    RankClock c = clock(overlaps);
    c.run(std::vector{begin(Stream::from_nvme, 7), after(Stream::from_nvme), begin(Stream::from_host, 5),
                      wait(Stream::from_host), compute(1)});
    EXPECT_EQ(c.state.device, 13);
  }
}

TEST(RankClock, WaitsForItsHostOnlyWhereItIsNotAhead) {
  RankClock c = clock();
  c.state.host = -100;
  c.run(std::vector{compute(2, 5), compute(2, 5)});
  EXPECT_EQ(c.state.device, 4) << "a host that is ahead";
  RankClock slow = clock();
  slow.run(std::vector{compute(2, 5), compute(20, 5), compute(1, 5)});
  EXPECT_EQ(slow.state.device, 26) << "it has caught up behind the long one";
  EXPECT_EQ(slow.waits.late, 3);
}

TEST(RankClock, LetsDeviceAndHostWaitForAnInput) {
  RankClock c = clock();
  c.state.host = -100;
  c.arrive(50);
  c.run(std::vector{compute(2), compute(2, 5, true), compute(1, 5)});
  EXPECT_EQ(c.state.device, 60) << "issued at 55 and at 60";
  EXPECT_EQ(c.state.host, 60);
}

TEST(RankClock, LetsAMessageTakeTheInputAndTheHostGoOn) {
  RankClock c = clock();
  c.state.host = -100;
  c.arrive(50);
  std::vector steps{begin(Stream::tensor, 4), wait(Stream::tensor), compute(2, 5), compute(2, 5, true)};
  steps.front().reads_input = true;
  c.run(steps);
  EXPECT_EQ(c.state.device, 58) << "54 and 2; the host, which waits there, is at 55";
}

TEST(RankClock, SaysWhenItFirstComesToAnUnfinishedMessage) {
  RankClock c = clock();
  c.run(std::vector{compute(5)});
  EXPECT_LT(c.waited, 0);
  c.run(std::vector{begin(Stream::data, 10), compute(3), wait(Stream::data), compute(1)});
  EXPECT_EQ(c.waited, 8);
}

TEST(RankClock, EndsWhenItsLastMessageDoes) {
  for (const bool overlaps : {true, false}) {
    RankClock c = clock(overlaps);
    c.run(std::vector{begin(Stream::data, 10), compute(3)});
    EXPECT_EQ(c.state.device, 3);
    EXPECT_EQ(c.settle(), overlaps ? 10 : 13);
  }
}

}  // namespace rank_clock_test
}  // namespace orrery::cost

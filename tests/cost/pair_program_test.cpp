// Two passes beside each other, as steps of one clock.
#include "cost/estimate/pair_program.h"

#include <gtest/gtest.h>

namespace orrery::cost {
namespace pair_program_test {

using plan::Stream;
using Kind = PassStep::Kind;

constexpr Ticks kFarAhead = -(Ticks{1} << 60);

PassStep computed(Ticks time) {
  return {.time = time};
}
PassStep begun(Stream stream, Ticks time) {
  return {.kind = Kind::begin, .stream = stream, .time = time};
}
PassStep awaited(Stream stream, std::uint32_t back = 1) {
  return {.kind = Kind::wait, .stream = stream, .back = back};
}

/// Compute, a message of 2, and compute that waits for it.
PassProgram of_two_parts(Ticks compute, Stream stream = Stream::exchange) {
  PassProgram out;
  out.steps = {computed(compute), begun(stream, 2), awaited(stream), computed(compute)};
  out.input = out.freed = out.steps.size();
  out.reach = 1;
  return out;
}

Ticks time_of(const PassProgram& program, bool overlaps) {
  RankClock::Overlaps all = {};
  all.fill(overlaps);
  RankClock clock(all, 64);
  clock.state.host = kFarAhead;
  clock.run(program.steps);
  return clock.state.device;
}

TEST(PairProgram, HidesEachMessageBehindTheOtherPass) {
  const PassProgram forward = of_two_parts(3), backward = of_two_parts(4);
  const PairProgram pair = pair_of(forward, backward);
  EXPECT_EQ(time_of(forward, true) + time_of(backward, true), 8 + 10);
  EXPECT_EQ(time_of(pair.all, true), 3 + 4 + 3 + 4);
  EXPECT_EQ(time_of(pair.all, false), 18) << "messages that need the host wait all the same";
}

TEST(PairProgram, WaitsForWhatComputeDoesNotCover) {
  PassProgram forward = of_two_parts(3), backward = of_two_parts(1);
  forward.steps[1].time = 10;  // 3 to 13; of it 1 is covered, and the other message follows on the same stream
  EXPECT_EQ(time_of(pair_of(forward, backward).all, true), 13 + 3 + 1);
  backward = of_two_parts(1, Stream::tensor);
  EXPECT_EQ(time_of(pair_of(forward, backward).all, true), 13 + 3 + 1);
}

TEST(PairProgram, CountsMessagesOfBothPassesAndThoseBefore) {
  PassProgram forward = of_two_parts(3), backward = of_two_parts(4);
  backward.steps.insert(backward.steps.begin(), awaited(Stream::exchange, 2));  // the last but one before the pass
  const PairProgram pair = pair_of(forward, backward);
  std::vector<std::uint32_t> back;
  for (const PassStep& step : pair.all.steps)
    if (step.kind == Kind::wait) back.push_back(step.back);
  EXPECT_EQ(back, (std::vector<std::uint32_t>{3, 2, 1}))
      << "its own is one further back, since the other's began after";
  EXPECT_EQ(pair.all.reach, 3U);
}

TEST(PairProgram, StopsWhereInputsComeAndMemoryIsFreed) {
  PassProgram forward = of_two_parts(3), backward = of_two_parts(4);
  forward.input = 0, backward.input = 0, backward.freed = 3;
  const PairProgram pair = pair_of(forward, backward);
  using Stop = PairProgram::Stop;
  EXPECT_EQ(pair.stops, (std::vector<Stop>{{0, false, false}, {2, true, false}, {7, true, true}}));
  EXPECT_EQ(pair.all.steps.size(), 8U);
}

TEST(PairProgram, IsTwoPassesInTurnWithoutMessages) {
  PassProgram forward, backward;
  forward.steps = {computed(3), computed(4)}, backward.steps = {computed(5)};
  const PairProgram pair = pair_of(forward, backward);
  EXPECT_EQ(pair.all.steps, (std::vector<PassStep>{computed(3), computed(4), computed(5)}));
}

}  // namespace pair_program_test
}  // namespace orrery::cost

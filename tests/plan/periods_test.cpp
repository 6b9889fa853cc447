/// Walkers that return to an earlier state are found soon, wherever that begins.
#include "plan/schedule/periods.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace orrery::plan {
namespace periods_test {

Entries loop(std::int32_t turns) {
  std::vector<Entry> out;
  for (std::int32_t m = 0; m < turns; ++m) out.push_back({.block = 0, .micro_batch = m});
  return Entries(out);
}

/// The turn at which a single walker is seen to repeat itself, if its state changes for `tail` turns, and from then on
/// comes back every `period` turns.
std::optional<std::int64_t> found_at(std::int64_t tail, std::int64_t period) {
  constexpr std::int32_t kTurns = 1000;
  const Entries program = loop(kTurns);
  Periods periods({&program});
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    if (!periods.due(turn)) continue;
    const auto t = static_cast<std::int64_t>(turn);
    const std::int64_t state = t < tail ? -1 - t : (t - tail) % period;
    if (periods.look({turn}, {state}) == Periods::Seen::again) return t;
  }
  return std::nullopt;
}

TEST(Periods, AreFoundSoonAfterALongBeginning) {
  for (const std::int64_t tail : {1, 5, 17, 33, 70, 130, 260})
    for (const std::int64_t period : {1, 2, 3}) {
      const auto found = found_at(tail, period);
      ASSERT_TRUE(found) << tail << ", " << period;
      EXPECT_LE(*found, tail + tail / 2 + 4 * period + 12) << "a beginning of " << tail << ", period " << period;
    }
}

TEST(Periods, MayBeLong) {
  for (const std::int64_t period : {10, 30, 60}) EXPECT_TRUE(found_at(20, period)) << period;
}

TEST(Periods, OfAWalkerThatNeverComesBackAreNotFound) {
  EXPECT_FALSE(found_at(1000, 1));
}

TEST(Periods, SayHowOftenTheRestOfALoopRepeatsThem) {
  const Entries program = loop(100);
  Periods periods({&program});
  std::size_t turn = 0;
  while (turn < program.size() && periods.look({turn}, {static_cast<std::int64_t>(turn % 2)}) != Periods::Seen::again)
    ++turn;
  ASSERT_LT(turn, program.size());
  const Skip& skip = periods.skip();
  EXPECT_EQ(skip.micro_batches, skip.entries.front()) << "an entry for each micro-batch";
  EXPECT_EQ(skip.micro_batches % 2, 0);
  EXPECT_LT(turn + static_cast<std::size_t>(skip.micro_batches), 100U) << "the walk goes on within the loop";
  EXPECT_GE(turn + static_cast<std::size_t>(skip.micro_batches), 98U) << "and not far before its end";
}

}  // namespace periods_test
}  // namespace orrery::plan

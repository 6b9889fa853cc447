// Who holds the others up.
#include "exec/run/stragglers.h"

#include <gtest/gtest.h>

namespace orrery::exec {
namespace stragglers_test {

TEST(StragglersNamed, ARankThatIsAFifthSlowerThanItsPeersWithinFiftySteps) {
  Stragglers four({0, 0, 0, 0});
  for (int step = 0; step < 60; ++step) EXPECT_TRUE(four.note({1, 1.02, 0.99, 1}).empty());
  int named_after = -1;
  for (int step = 1; step <= 50 && named_after < 0; ++step)
    for (const Straggler& one : four.note({1, 1, 1.25, 1})) {
      EXPECT_EQ(one.rank, 2);
      EXPECT_NEAR(one.ratio, 1.25, 0.03);
      named_after = step;
    }
  EXPECT_GT(named_after, 0);
  for (int step = 0; step < 50; ++step) EXPECT_TRUE(four.note({1, 1, 1.25, 1}).empty()) << "once is enough";
}

TEST(StragglersNamed, NotARankWithOneSlowStepNorOneWithOtherWork) {
  Stragglers two_stages({0, 0, 1, 1});
  for (int step = 0; step < 100; ++step)
    EXPECT_TRUE(two_stages.note({1, step % 10 == 0 ? 9.0 : 1, 3, 3}).empty()) << step;
  Stragglers alone({0, 1});
  for (int step = 0; step < 100; ++step) EXPECT_TRUE(alone.note({1, 5}).empty());
}

TEST(StragglersNamed, NotRanksThatAreSlowByTurns) {
  Stragglers two({0, 0});
  for (int step = 0; step < 100; ++step)
    EXPECT_TRUE(two.note({step % 3 == 0 ? 1 : 1.5, step % 3 == 0 ? 2 : 1.0}).empty());
}

TEST(StragglersNamed, AgainOnceItHasKeptUp) {
  Stragglers two({0, 0}, 1.2, 5);
  int times = 0;
  for (int round = 0; round < 3; ++round) {
    for (int step = 0; step < 10; ++step) times += static_cast<int>(two.note({1, 1}).size());
    for (int step = 0; step < 10; ++step) times += static_cast<int>(two.note({1, 2}).size());
  }
  EXPECT_EQ(times, 3);
}

}  // namespace stragglers_test
}  // namespace orrery::exec

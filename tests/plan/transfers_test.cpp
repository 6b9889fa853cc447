/// Every collective's steps compute it, for many member counts; and the checker finds what is wrong.
#include "plan/transfers/transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace orrery::plan {
namespace transfers_test {

using ::testing::HasSubstr;

/// Shares of the message that each member sends.
std::map<int, double> sent(const CollectiveSteps& steps) {
  std::map<int, double> bytes;
  for (const Round& round : steps.rounds) {
    for (const Transfer& t : round.transfers) bytes[t.from] += steps.share_of(t) * round.repeat;
  }
  return bytes;
}

TEST(Transfers, OfEveryAlgorithmComputeTheCollective) {
  for (int n = 1; n <= 19; ++n) {
    EXPECT_EQ(check_steps(ring_all_reduce(n)), "") << n;
    EXPECT_EQ(check_steps(ring_all_gather(n)), "") << n;
    EXPECT_EQ(check_steps(ring_reduce_scatter(n)), "") << n;
    EXPECT_EQ(check_steps(halving_doubling_all_reduce(n)), "") << n;
    EXPECT_EQ(check_steps(pat_all_gather(n)), "") << n;
    EXPECT_EQ(check_steps(pat_reduce_scatter(n)), "") << n;
    EXPECT_EQ(check_steps(binomial_broadcast(n)), "") << n;
    EXPECT_EQ(check_steps(binomial_reduce(n)), "") << n;
    EXPECT_EQ(check_steps(direct_all_gather(n)), "") << n;
    EXPECT_EQ(check_steps(direct_reduce_scatter(n)), "") << n;
    EXPECT_EQ(check_steps(direct_all_to_all(n)), "") << n;
    EXPECT_EQ(check_steps(pairwise_all_to_all(n)), "") << n;
    for (const int pieces : {1, 2, 5}) {
      EXPECT_EQ(check_steps(ring_broadcast(n, pieces)), "") << n << " in " << pieces;
      EXPECT_EQ(check_steps(ring_reduce(n, pieces)), "") << n << " in " << pieces;
      EXPECT_EQ(check_steps(tree_all_reduce(double_binary_tree(n), pieces)), "") << n << " in " << pieces;
      EXPECT_EQ(check_steps(nvls_all_reduce(n, pieces)), "") << n << " in " << pieces;
      EXPECT_EQ(check_steps(nvls_all_gather(n, pieces)), "") << n << " in " << pieces;
      EXPECT_EQ(check_steps(nvls_reduce_scatter(n, pieces)), "") << n << " in " << pieces;
    }
  }
  for (const int n : {1, 2, 4, 8, 16, 32}) {
    EXPECT_EQ(check_steps(halving_reduce_scatter(n)), "") << n;
    EXPECT_EQ(check_steps(doubling_all_gather(n)), "") << n;
  }
  for (int nodes = 1; nodes <= 5; ++nodes) {
    for (int per_node = 1; per_node <= 5; ++per_node) {
      EXPECT_EQ(check_steps(hierarchical_all_reduce(nodes, per_node)), "") << nodes << " x " << per_node;
      EXPECT_EQ(check_steps(hierarchical_all_gather(nodes, per_node)), "") << nodes << " x " << per_node;
      EXPECT_EQ(check_steps(hierarchical_reduce_scatter(nodes, per_node)), "") << nodes << " x " << per_node;
      EXPECT_EQ(check_steps(tree_all_reduce(double_binary_tree(nodes, per_node), 3)), "") << nodes << " x " << per_node;
    }
  }
}

TEST(Transfers, TakeTheRoundsAndBytesOfTheirAuthors) {
  const int n = 16;
  const double moved = (n - 1.0) / n;
  const auto expect = [](const CollectiveSteps& steps, int rounds, double each) {
    EXPECT_EQ(steps.rounds_in_all(), rounds);
    for (const auto& [member, share] : sent(steps)) EXPECT_NEAR(share, each, 1e-12) << "member " << member;
  };
  expect(ring_all_reduce(n), 2 * (n - 1), 2 * moved);
  expect(ring_all_gather(n), n - 1, moved);
  expect(halving_doubling_all_reduce(n), 8, 2 * moved);
  expect(halving_reduce_scatter(n), 4, moved);
  expect(pat_all_gather(n), 4, moved);
  expect(pat_reduce_scatter(13), 4, 12.0 / 13);
  expect(direct_all_to_all(n), 1, moved);
  expect(pairwise_all_to_all(n), n - 1, moved);
  expect(hierarchical_all_reduce(4, 4), 2 * 3 + 6, 2 * (3.0 / 4 + 3.0 / 4 / 4));
  EXPECT_EQ(ring_broadcast(n, 10).rounds_in_all(), n - 2 + 10);
  EXPECT_EQ(binomial_broadcast(13).rounds_in_all(), 4);
  EXPECT_NEAR(sent(nvls_all_reduce(8, 4))[0], 1 + 1.0 / 8, 1e-12);
  EXPECT_NEAR(sent(nvls_all_reduce(8, 4))[8], 1 + 8.0, 1e-12);  // the switch copies to eight
}

// The tree of 14 is the one that NCCL's comment in trees.cc draws.
TEST(Transfers, OnADoubleTreeHardlyAnyoneIsInnerInBoth) {
  EXPECT_EQ(double_binary_tree(14)[0], (Tree{-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12}));
  for (int n = 2; n < 70; ++n) {
    std::map<int, int> children[2];
    const auto trees = double_binary_tree(n);
    for (int t = 0; t < 2; ++t) {
      for (const int up : trees[static_cast<std::size_t>(t)]) ++children[t][up];
      EXPECT_EQ(children[t][-1], 1) << "roots of tree " << t << " of " << n;
    }
    for (int v = 0; v < n; ++v) {
      EXPECT_LE(children[0][v], 2);
      // With an odd number of members the first may work in both.
      const bool both = children[0][v] > 0 && children[1][v] > 0;
      EXPECT_TRUE(!both || (v == 0 && n % 2 == 1)) << v << " of " << n;
    }
  }
}

TEST(CheckSteps, FindsWhatIsWrong) {
  CollectiveSteps steps = ring_all_reduce(4);
  steps.rounds.pop_back();
  EXPECT_THAT(check_steps(steps), HasSubstr("lacks the result"));
  steps = ring_all_reduce(4);
  steps.rounds[0].repeat = 4;
  EXPECT_THAT(check_steps(steps), HasSubstr("twice"));
  steps = direct_reduce_scatter(4);
  steps.rounds[0].transfers[0].reduce = false;
  EXPECT_THAT(check_steps(steps), HasSubstr("twice"));
  steps = ring_all_gather(4);
  steps.rounds[0].transfers[1].first = 3;
  EXPECT_THAT(check_steps(steps), HasSubstr("which it lacks"));
  steps = binomial_broadcast(4);
  steps.rounds[0].transfers.push_back({2, 3, 0, 1, 1, false});
  EXPECT_THAT(check_steps(steps), HasSubstr("which it lacks"));
  steps = binomial_reduce(4);
  steps.rounds[1].transfers.push_back(steps.rounds[0].transfers[0]);
  EXPECT_THAT(check_steps(steps), HasSubstr("round 1: member"));
  steps = ring_all_reduce(4);
  steps.rounds[0].transfers[0].to = 9;
  EXPECT_THAT(check_steps(steps), HasSubstr("from 0 to 9"));
}

}  // namespace transfers_test
}  // namespace orrery::plan

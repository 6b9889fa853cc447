// The folded replay against the replay of every rank by itself, to the clock's tick; and what may not be folded.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <set>

#include "plan/lower.h"
#include "sim/fabric.h"
#include "sim/replay.h"
#include "sim/simulate.h"
#include "tests/sim/small_clusters.h"

namespace orrery::sim {
namespace {

struct Both {
  Replay folded, unfolded;
};

Both both(std::span<const JobOnCluster> jobs, const clusters::Cluster& cluster) {
  const auto fabric = fabric_of(cluster);
  return {replay(jobs, cluster, fabric.get(), {}), replay(jobs, cluster, fabric.get(), {.every_rank = true})};
}

// Every rank's clock is that of its class; returns how many classes there are.
std::size_t expect_equal(const Both& both, const std::string& what) {
  EXPECT_EQ(both.folded.makespan, both.unfolded.makespan) << what;
  EXPECT_LE(both.folded.classes.size(), both.unfolded.classes.size());
  std::map<std::pair<int, int>, const ClassReplay*> alone;
  for (const ClassReplay& rank : both.unfolded.classes) alone[{rank.job, rank.representative}] = &rank;
  int ranks = 0;
  std::multiset<std::pair<int, Picoseconds>> ends, unfolded_ends;
  for (const ClassReplay& c : both.folded.classes) {
    EXPECT_TRUE(c.totals == alone.at({c.job, c.representative})->totals) << what << ", rank " << c.representative;
    for (int i = 0; i < c.count; ++i) ends.emplace(c.stage, c.totals.end);
    ranks += c.count;
  }
  for (const ClassReplay& rank : both.unfolded.classes) unfolded_ends.emplace(rank.stage, rank.totals.end);
  EXPECT_EQ(ranks, static_cast<int>(both.unfolded.classes.size())) << what;
  EXPECT_EQ(ends, unfolded_ends) << what;
  for (std::size_t j = 0; j < both.folded.spans.size(); ++j) {
    EXPECT_EQ(both.folded.spans[j].size(), both.unfolded.spans[j].size()) << what;
    for (std::size_t s = 0; s < both.folded.spans[j].size(); ++s) {
      EXPECT_EQ(both.folded.spans[j][s].start, both.unfolded.spans[j][s].start) << what;
      EXPECT_EQ(both.folded.spans[j][s].end, both.unfolded.spans[j][s].end) << what;
    }
  }
  double bytes = 0, unfolded_bytes = 0;
  for (const LinkReplay& l : both.folded.links) bytes += l.count * (l.bytes.empty() ? 0 : l.bytes[0]);
  for (const LinkReplay& l : both.unfolded.links) unfolded_bytes += l.count * (l.bytes.empty() ? 0 : l.bytes[0]);
  EXPECT_NEAR(bytes, unfolded_bytes, 1e-9 * unfolded_bytes) << what;
  return both.folded.classes.size();
}

TEST(Fold, EqualsTheReplayOfEveryRankToTheTickOnRandomClusters) {
  int compared = 0;
  std::size_t classes = 0, ranks = 0;
  for (std::uint64_t seed = 0; compared < 60; ++seed) {
    testing::Dice dice(seed);
    const auto cluster = testing::make(testing::random_cluster(dice));
    const auto plan = testing::random_plan(dice, cluster);
    if (!plan) continue;
    const cost::Pricing pricing(cluster, testing::stack_that_overlaps(dice.below(3) > 0));
    const plan::Schedule schedule = plan::lower(*plan);
    const JobOnCluster job{&schedule, &pricing, {}};
    classes += expect_equal(both(std::span(&job, 1), *cluster),
                            fmt::format("seed {}: {} nodes, {}", seed, cluster->nodes, plan::describe(plan->spec())));
    ranks += static_cast<std::size_t>(cluster->size());
    ++compared;
    if (HasFailure()) return;
  }
  EXPECT_LT(2 * classes, ranks) << "hardly anything was folded";
  fmt::print("{} plans, {} ranks in {} classes\n", compared, ranks, classes);
}

}  // namespace
}  // namespace orrery::sim

// The folded replay against the replay of every rank by itself, to the clock's tick; and what may not be folded.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <set>

#include "plan/lower/lower.h"
#include "sim/links/fabric.h"
#include "sim/replay/replay.h"
#include "sim/simulate.h"
#include "tests/sim/small_clusters.h"

namespace orrery::sim {
namespace fold_test {

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
  std::multiset<std::pair<plan::StageId, Picoseconds>> ends, unfolded_ends;
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
  EXPECT_EQ(both.folded.links, both.unfolded.links) << what;
  for (std::size_t j = 0; j < both.folded.carried.size(); ++j)
    for (std::size_t l = 0; l < both.folded.carried[j].size(); ++l)
      EXPECT_NEAR(both.folded.carried[j][l], both.unfolded.carried[j][l], 1e-9 * both.unfolded.carried[j][l]) << what;
  return both.folded.classes.size();
}

TEST(Fold, EqualsTheReplayOfEveryRankToTheTickOnRandomClusters) {
  int compared = 0;
  std::size_t classes = 0, ranks = 0;
  for (std::uint64_t seed = 0; compared < 120; ++seed) {
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

// Two jobs with devices dealt out at random: what one does to the other folds as well.
TEST(Fold, EqualsTheReplayOfEveryRankForTwoJobsInOneAnothersWay) {
  int compared = 0;
  for (std::uint64_t seed = 1000; compared < 15; ++seed) {
    testing::Dice dice(seed);
    testing::SmallCluster small = testing::random_cluster(dice);
    if (small.nodes % 2 != 0) continue;
    const auto cluster = testing::make(small);
    const auto half = clusters::resized(*cluster, cluster->size() / 2);
    if (!half) continue;
    const auto own = std::make_shared<clusters::Cluster>(*half);
    const auto first = testing::random_plan(dice, own), second = testing::random_plan(dice, own);
    if (!first || !second) continue;
    const cost::Pricing pricing(cluster, testing::stack_that_overlaps(true));
    const plan::Schedule schedules[2] = {plan::lower(*first), plan::lower(*second)};
    std::vector<JobOnCluster> jobs = {{&schedules[0], &pricing, {}}, {&schedules[1], &pricing, {}}};
    for (int node = 0; node < cluster->nodes; ++node)
      for (int d = 0; d < cluster->devices_per_node; ++d)
        jobs[static_cast<std::size_t>(node % 2)].devices.push_back(node * cluster->devices_per_node + d);
    expect_equal(both(jobs, *cluster), fmt::format("seed {}", seed));
    ++compared;
    if (HasFailure()) return;
  }
}

TEST(Fold, AThousandGpusAreOneClassForEachStage) {
  const auto cluster = testing::cluster("hgx-h100-1024");
  const auto model = testing::model("gpt3-175b");
  plan::PlanSpec spec;
  spec.mesh.tensor = spec.mesh.pipeline = 8;
  spec.mesh.data = 16;
  spec.shape.batch = 64;
  spec.shape.sequence = 2048;
  spec.numerics.precision = models::DType::bf16;
  const auto made = plan::make_plan(model, cluster, spec);
  ASSERT_TRUE(made) << base::render(made.error(), false);
  const cost::Pricing pricing(cluster, testing::stack("megatron-lm"));
  EXPECT_EQ(simulate(*made, pricing, {.spans = false}).classes, 8);
}

// A cluster with one slow cable, link by link: the ranks that see it are told apart, and only they wait.
TEST(Fold, WhatHasNoSymmetryIsNotFolded) {
  for (const bool slow : {false, true}) {
    std::string text = "name: odd\ndevice: a100-sxm4-80gb\nvertices:\n";
    for (int d = 0; d < 8; ++d) {
      text += fmt::format("  - {{kind: device, name: gpu{}, node: {}}}\n  - {{kind: nic, name: nic{}, node: {}}}\n", d,
                          d, d, d);
    }
    text += "  - {kind: leaf, name: switch}\nlinks:\n";
    for (int d = 0; d < 8; ++d) {
      text += fmt::format("  - {{from: gpu{}, to: nic{}, kind: pcie, bandwidth: 32 GB/s, latency: 0.4 us}}\n", d, d);
      text += fmt::format("  - {{from: nic{}, to: switch, kind: network, bandwidth: {} Gb/s, latency: 0.6 us}}\n", d,
                          slow && d == 5 ? 40 : 100);
    }
    text += "stack: orrery-cuda\nsources: [\"test\"]\n";
    const auto read = clusters::parse_cluster(text, "odd.yaml", clusters::testing::from_catalog);
    ASSERT_TRUE(read) << base::render(read.error(), false);
    const auto cluster = std::make_shared<clusters::Cluster>(*read);
    plan::PlanSpec spec;
    spec.mesh.data = 2;
    spec.mesh.tensor = 2;
    spec.mesh.pipeline = 2;
    spec.shape.batch = 8;
    spec.shape.sequence = 16;
    spec.numerics.vocab_multiple = 1;
    const auto made = plan::make_plan(std::make_shared<models::Model>(samples::tiny_gpt(4, 32)), cluster, spec);
    ASSERT_TRUE(made) << base::render(made.error(), false);
    const cost::Pricing pricing(cluster, testing::stack_that_overlaps(true));
    const plan::Schedule schedule = plan::lower(*made);
    const JobOnCluster job{&schedule, &pricing, {}};
    const std::size_t classes = expect_equal(both(std::span(&job, 1), *cluster), slow ? "slow" : "equal");
    EXPECT_EQ(classes, slow ? 8u : 2u);
  }
}

}  // namespace fold_test
}  // namespace orrery::sim

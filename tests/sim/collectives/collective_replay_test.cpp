/// Collectives on a cluster's links, by hand: time, what binds, several at once, in channels; and what is refused.
#include "sim/collectives/collective_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "clusters/build.h"
#include "tests/clusters/support.h"

namespace orrery::sim {
namespace collective_replay_test {

using base::Bytes;
using clusters::Cluster;
using plan::Algorithm;
using plan::Goal;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// `nodes` of two devices on a switch of 10 GB/s and 1 us a link, with one NIC of 1 GB/s and 5 us on one leaf.
Cluster pairs(int nodes) {
  Cluster cluster;
  cluster.devices.emplace_back();
  cluster.nodes = nodes;
  cluster.devices_per_node = 2;
  cluster.inter.name = "infiniband";
  clusters::Shape shape;
  shape.node.link_bandwidth = base::BytesPerSecond{10e9};
  shape.node.latency = base::Seconds{2e-6};
  shape.node.host_memory_bandwidth = base::BytesPerSecond{100e9};
  shape.node.pcie_bandwidth = base::BytesPerSecond{50e9};
  shape.node.pcie_latency = base::Seconds{10e-6};
  shape.node.nics = nodes > 1 ? 1 : 0;
  shape.node.nic_bandwidth = base::BytesPerSecond{1e9};
  shape.node.nic_latency = base::Seconds{5e-6};
  cluster.shape = shape;
  clusters::build(cluster);
  return cluster;
}

CollectiveReplay replayed(const Cluster& cluster, const CollectiveCase& what) {
  clusters::Paths paths(cluster);
  return replay_collective(cluster, paths, Fabric(cluster), what);
}

// Two devices: an all-reduce is two rounds of half the message, 2 us each, over a link up and one down.
TEST(CollectiveReplay, SaysTimeLatencyAndHowBusyTheLinksWere) {
  const Cluster cluster = pairs(1);
  const CollectiveReplay large = replayed(cluster, {Algorithm::ring, Goal::all_reduce, {{0, 1}}, Bytes{2e6}});
  EXPECT_NEAR(large.replay.value, 2 * (2e-6 + 100e-6), 1e-12);
  EXPECT_NEAR(large.closed_form.value, large.replay.value, 1e-12);
  EXPECT_NEAR(large.latency.value, 4e-6, 1e-12);
  EXPECT_EQ(large.messages, 4);
  ASSERT_EQ(large.links.size(), 1U);
  EXPECT_EQ(large.links[0].name, "nvlink");
  EXPECT_NEAR(large.links[0].bytes, 4 * 2e6, 1e-3);
  EXPECT_NEAR(large.links[0].peak_utilisation, 200.0 / 204, 1e-9);
  EXPECT_NEAR(large.links[0].mean_utilisation, 200.0 / 204, 1e-9);
  EXPECT_EQ(large.binds(), "nvlink");
  EXPECT_NEAR(large.bound_share(), 200.0 / 204, 1e-9);
  const CollectiveReplay small = replayed(cluster, {Algorithm::ring, Goal::all_reduce, {{0, 1}}, Bytes{2e3}});
  EXPECT_EQ(small.binds(), "latency");
  EXPECT_NEAR(small.bound_share(), 4 / 4.2, 1e-9);
}

// Both tasks go through one NIC a node: 2 (latency + S / 2 b) alone, with both 2 (latency + S / b).
TEST(CollectiveReplay, OfTwoTasksSharesTheNicBetweenThem) {
  const Cluster cluster = pairs(2);
  CollectiveCase what{Algorithm::ring, Goal::all_reduce, dealt_out(cluster, {0, 1, 2, 3}, 2), Bytes{100e6}};
  ASSERT_EQ(what.tasks, (std::vector<Members>{{0, 2}, {1, 3}}));
  const CollectiveReplay both = replayed(cluster, what);
  what.tasks.resize(1);
  const CollectiveReplay alone = replayed(cluster, what);
  EXPECT_NEAR(both.closed_form.value, alone.replay.value, 1e-9);
  EXPECT_NEAR(alone.replay.value - alone.latency.value, 0.1, 1e-6);
  EXPECT_NEAR(both.replay.value - both.latency.value, 0.2, 1e-6);
  EXPECT_EQ(both.binds(), "infiniband");
  EXPECT_EQ(both.messages, 2 * alone.messages);
}

TEST(CollectiveReplay, OfARingInEightChannelsGoesThroughEveryNic) {
  const Cluster cluster = *clusters::resized(clusters::testing::catalog("hgx-h100"), 32);
  Members all;
  for (int d = 0; d < 32; ++d) all.push_back(d);
  CollectiveCase what{Algorithm::ring, Goal::all_reduce, {all}, Bytes{1e9}};
  const CollectiveReplay one = replayed(cluster, what);
  what.channels = 8;
  const CollectiveReplay eight = replayed(cluster, what);
  EXPECT_NEAR(one.replay / eight.replay, 8, 0.3);
  EXPECT_NEAR(eight.closed_form / eight.replay, 1, 1e-3);  // no channel is in another's way
  ASSERT_EQ(eight.binds(), "infiniband");
  EXPECT_NEAR(eight.links.front().mean_utilisation, eight.links.front().peak_utilisation, 1e-9);
  EXPECT_LT(one.links.front().mean_utilisation, 0.2 * one.links.front().peak_utilisation);
}

TEST(CollectiveReplay, OfABroadcastInChannelsKeepsItsRoot) {
  const Cluster cluster = pairs(1);
  CollectiveCase what{Algorithm::ring, Goal::broadcast, {{0, 1}}, Bytes{1e6}};
  what.channels = 2;
  // Both halves go from 0 to 1. From 1 as well they would not meet, and take 50 us.
  EXPECT_NEAR(replayed(cluster, what).replay.value, 2e-6 + 100e-6, 1e-12);
}

TEST(CollectiveReplay, CutsLargeMessagesIntoPieces) {
  EXPECT_EQ(pieces_of(Bytes{1}), 1);
  EXPECT_EQ(pieces_of(Bytes{512 * 1024}), 1);
  EXPECT_EQ(pieces_of(Bytes{512 * 1024 + 1}), 2);
  EXPECT_EQ(pieces_of(Bytes{1e12}), 64);
  const Cluster cluster = pairs(4);
  CollectiveCase what{Algorithm::tree, Goal::all_reduce, {{0, 1, 2, 3, 4, 5, 6, 7}}, Bytes{100e6}};
  const CollectiveReplay whole = replayed(cluster, what);
  what.pieces = pieces_of(what.message);
  EXPECT_LT(replayed(cluster, what).replay.value, 0.7 * whole.replay.value);
}

TEST(CollectiveReplay, SaysWhyItCannot) {
  const auto why = [](const Cluster& cluster, Algorithm algorithm, Goal goal, const Members& members) {
    return why_not(cluster, {algorithm, goal, {members}, Bytes{1e6}}, "this");
  };
  const Cluster cluster = pairs(4);
  EXPECT_EQ(why(cluster, Algorithm::tree, Goal::all_gather, {0, 1}), "tree cannot do this");
  EXPECT_THAT(why(cluster, Algorithm::halving_doubling, Goal::all_gather, {0, 2, 4}), HasSubstr("not among 3"));
  EXPECT_THAT(why(cluster, Algorithm::halving_doubling, Goal::all_reduce, {0, 2, 4}), IsEmpty());
  EXPECT_THAT(why(cluster, Algorithm::nvls, Goal::all_reduce, {0, 1}), HasSubstr("multicast"));
  const Cluster h100 = *clusters::resized(clusters::testing::catalog("hgx-h100"), 512);
  EXPECT_THAT(why(h100, Algorithm::nvls, Goal::all_reduce, {0, 1, 2}), IsEmpty());
  EXPECT_THAT(why(h100, Algorithm::nvls, Goal::all_reduce, {0, 1, 8, 9}), HasSubstr("within a node, not over 2"));
  Members all;
  for (int d = 0; d < 512; ++d) all.push_back(d);
  EXPECT_THAT(why(h100, Algorithm::direct, Goal::all_to_all, all), HasSubstr("261632 messages"));
  EXPECT_THAT(dealt_out(h100, all, 3), IsEmpty());
  EXPECT_EQ(dealt_out(h100, all, 16).size(), 16U);
}

}  // namespace collective_replay_test
}  // namespace orrery::sim

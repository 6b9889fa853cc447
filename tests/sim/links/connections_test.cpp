// Connections on the fabric: the rings of DGX-1V's mesh and both trees over nodes, counted by hand.
#include "sim/links/connections.h"

#include <gtest/gtest.h>

#include <map>

#include "sim/simulate.h"
#include "tests/sim/small_clusters.h"

namespace orrery::sim {
namespace connections_test {

struct Laid {
  Traffic traffic;
  Communicator c;
};

Laid laid(const clusters::Cluster& cluster, const Fabric& fabric, const std::vector<int>& devices, Wiring as) {
  Laid result;
  Connections connections(fabric, cluster, result.traffic);
  result.c.span = clusters::span_of(cluster, devices);
  connections.add_rings(devices, result.c);
  if (as == Wiring::trees) connections.add_trees(devices, result.c);
  if (as == Wiring::pairs) connections.add_exchange(devices, result.c);
  return result;
}

std::vector<int> all_of(const clusters::Cluster& cluster) {
  std::vector<int> devices;
  for (int d = 0; d < cluster.size(); ++d) devices.push_back(d);
  return devices;
}

std::map<int, int> by_direction(const Laid& l, Wiring wiring) {
  std::map<int, int> counts;
  for (std::size_t u = l.c.wired(wiring).first; u < l.c.wired(wiring).last; ++u)
    counts[l.traffic.links[static_cast<std::size_t>(l.traffic.uses[u].link)]] = l.traffic.uses[u].count;
  return counts;
}

/// The cable of a device's NIC, out of the node.
int cable_of(const Fabric& fabric, int device, int elsewhere) {
  std::vector<int> route;
  fabric.route(device, elsewhere, 0, route);
  const auto cable = std::find_if(route.begin(), route.end(),
                                  [&](int d) { return fabric.direction(d).kind == clusters::LinkKind::network; });
  return cable == route.end() ? -1 : *cable;
}

// Each of six devices has a message for each other: one within its node, four for the other two.
TEST(Connections, OfAnExchangeLeadFromEachMemberToEachOther) {
  testing::SmallCluster small;
  small.nodes = 3, small.devices = 2, small.nics = 2, small.pcie_switches = 2;
  const auto cluster = testing::make(small);
  const Fabric fabric(*cluster);
  const Laid l = laid(*cluster, fabric, all_of(*cluster), Wiring::pairs);
  EXPECT_EQ(l.c.wired(Wiring::pairs).connections, 1);
  std::map<int, int> counts = by_direction(l, Wiring::pairs);
  for (int device = 0; device < cluster->size(); ++device) {
    const int cable = cable_of(fabric, device, (device + 2) % cluster->size());
    EXPECT_EQ(counts[cable], 4) << device;
    EXPECT_EQ(counts[cable ^ 1], 4) << device;
    std::vector<int> inside;
    fabric.route(device, device ^ 1, 0, inside);
    EXPECT_EQ(counts[inside.front()], 1) << device;
  }
}

// Two members a node share its one NIC: each sends six of eight parts through it, where a ring would send seven of
// sixteen.
TEST(Connections, OfAnExchangeCrossAnNicOnceForEachPair) {
  testing::SmallCluster small;
  small.nodes = 4, small.devices = 4, small.nics = 1, small.pcie_switches = 1;
  const auto cluster = testing::make(small);
  const Fabric fabric(*cluster);
  std::vector<int> every_other;
  for (int d = 0; d < cluster->size(); d += 2) every_other.push_back(d);
  const Laid l = laid(*cluster, fabric, every_other, Wiring::pairs);
  std::map<int, int> counts = by_direction(l, Wiring::pairs);
  for (int node = 0; node < small.nodes; ++node)
    EXPECT_EQ(counts[cable_of(fabric, 4 * node, (4 * node + 4) % cluster->size())], 2 * 6);
}

// Of so many nodes one distance stands for two; none is lost.
TEST(Connections, OfAnExchangeAmongThousandsOfNodesAddUpToAllPairs) {
  testing::SmallCluster small;
  small.nodes = 1200, small.devices = 1, small.nics = 1, small.pcie_switches = 1;
  const auto cluster = testing::make(small);
  const Fabric fabric(*cluster);
  const Laid l = laid(*cluster, fabric, all_of(*cluster), Wiring::pairs);
  std::map<int, int> counts = by_direction(l, Wiring::pairs);
  for (const int device : {0, 1, 599, 1199}) {
    const int cable = cable_of(fabric, device, (device + 1) % 1200);
    EXPECT_EQ(counts[cable], 1199);
    EXPECT_EQ(counts[cable ^ 1], 1199);
  }
}

// NCCL's six rings use each of a V100's NVLinks once in each direction.
TEST(Connections, OnACubeMeshUseEachNvlinkOnceInEachDirection) {
  const auto cluster = testing::cluster("dgx-1v");
  const Fabric fabric(*cluster);
  const Laid l = laid(*cluster, fabric, all_of(*cluster), Wiring::rings);
  EXPECT_EQ(l.c.wired(Wiring::rings).connections, 6);
  EXPECT_EQ(l.traffic.uses.size(), 32U) << "16 pairs of devices with a cable, both ways";
  for (const Use& use : l.traffic.uses) {
    const Direction& d = fabric.direction(l.traffic.links[static_cast<std::size_t>(use.link)]);
    EXPECT_EQ(d.kind, clusters::LinkKind::nvlink);
    EXPECT_DOUBLE_EQ(use.count, d.bandwidth / 25e9);
  }
}

TEST(Connections, OfACubeMeshOverSeveralNodesLeaveByEachNic) {
  const auto cluster = testing::cluster("dgx-1v", 24);
  const Fabric fabric(*cluster);
  const Laid l = laid(*cluster, fabric, all_of(*cluster), Wiring::rings);
  EXPECT_EQ(l.c.wired(Wiring::rings).connections, 4);
  int cables = 0;
  for (const Use& use : l.traffic.uses) {
    const Direction& d = fabric.direction(l.traffic.links[static_cast<std::size_t>(use.link)]);
    if (d.kind != clusters::LinkKind::network || d.tier != 0) continue;
    EXPECT_EQ(use.count, 1);
    ++cables;
  }
  EXPECT_EQ(cables, 3 * 4 * 2) << "every NIC once out and once in";
}

// Over four nodes the trees are 0 - 2 - (1, 3) and 3 - 1 - (2, 0): nodes 1 and 2 have four edges, 0 and 3 two.
TEST(Connections, OfTreesFollowTheirEdges) {
  testing::SmallCluster small;
  small.nodes = 4, small.devices = 2, small.nics = 2, small.pcie_switches = 2;
  const auto cluster = testing::make(small);
  const Fabric fabric(*cluster);
  const Laid l = laid(*cluster, fabric, all_of(*cluster), Wiring::trees);
  EXPECT_EQ(l.c.wired(Wiring::trees).connections, 2);
  std::map<int, int> counts = by_direction(l, Wiring::trees);
  for (int device = 0; device < cluster->size(); ++device) {
    const int cable = cable_of(fabric, device, (device + 2) % cluster->size());
    const int node = cluster->node_of(device);
    EXPECT_EQ(counts[cable], node == 1 || node == 2 ? 4 : 2) << "node " << node;
    EXPECT_EQ(counts[cable ^ 1], node == 1 || node == 2 ? 4 : 2) << "node " << node << ", inwards";
    // Within the node both trees of the NIC at the other device, up and down: as much as rings pass there.
    std::vector<int> inside;
    fabric.route(device, device ^ 1, 0, inside);
    EXPECT_EQ(counts[inside.front()], 2 * 2);
  }
}

}  // namespace connections_test
}  // namespace orrery::sim

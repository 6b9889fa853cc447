// Connections on the fabric: the rings of DGX-1V's mesh and both trees over nodes, counted by hand.
#include "sim/connections.h"

#include <gtest/gtest.h>

#include <map>

#include "sim/simulate.h"
#include "tests/sim/small_clusters.h"

namespace orrery::sim {
namespace {

struct Laid {
  Traffic traffic;
  Communicator c;
};

enum class As { rings, trees };
Laid laid(const clusters::Cluster& cluster, const Fabric& fabric, const std::vector<int>& devices, As as) {
  Laid result;
  Connections connections(fabric, cluster, result.traffic);
  result.c.span = clusters::span_of(cluster, devices);
  connections.add_rings(devices, result.c);
  if (as == As::trees) connections.add_trees(devices, result.c);
  return result;
}

std::vector<int> all_of(const clusters::Cluster& cluster) {
  std::vector<int> devices;
  for (int d = 0; d < cluster.size(); ++d) devices.push_back(d);
  return devices;
}

// NCCL's six rings use each of a V100's NVLinks once in each direction.
TEST(Connections, OnACubeMeshUseEachNvlinkOnceInEachDirection) {
  const auto cluster = testing::cluster("dgx-1v");
  const Fabric fabric(*cluster);
  const Laid l = laid(*cluster, fabric, all_of(*cluster), As::rings);
  EXPECT_EQ(l.c.connections, 6);
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
  const Laid l = laid(*cluster, fabric, all_of(*cluster), As::rings);
  EXPECT_EQ(l.c.connections, 4);
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
  const Laid l = laid(*cluster, fabric, all_of(*cluster), As::trees);
  EXPECT_EQ(l.c.tree_connections, 2);
  std::map<int, int> by_direction;
  for (std::size_t u = l.c.first_tree_use; u < l.c.last_tree_use; ++u)
    by_direction[l.traffic.links[static_cast<std::size_t>(l.traffic.uses[u].link)]] = l.traffic.uses[u].count;
  for (int device = 0; device < cluster->size(); ++device) {
    // The cable of a device's NIC, out of the node, is on the way to any other node.
    std::vector<int> route;
    fabric.route(device, (device + 2) % cluster->size(), 0, route);
    const auto cable = std::find_if(route.begin(), route.end(),
                                    [&](int d) { return fabric.direction(d).kind == clusters::LinkKind::network; });
    ASSERT_NE(cable, route.end());
    const int node = cluster->node_of(device);
    EXPECT_EQ(by_direction[*cable], node == 1 || node == 2 ? 4 : 2) << "node " << node;
    EXPECT_EQ(by_direction[*cable ^ 1], node == 1 || node == 2 ? 4 : 2) << "node " << node << ", inwards";
    // Within the node both trees of the NIC at the other device, up and down: as much as rings pass there.
    std::vector<int> inside;
    fabric.route(device, device ^ 1, 0, inside);
    EXPECT_EQ(by_direction[inside.front()], 2 * 2);
  }
}

}  // namespace
}  // namespace orrery::sim

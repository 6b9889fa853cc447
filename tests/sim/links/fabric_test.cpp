// Routes of the fabric on the catalogue's machines: they lead from one device to the other, are as short as the search
// over the whole graph finds, and spread devices over NICs.
#include "sim/links/fabric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "clusters/paths.h"
#include "clusters/torus.h"
#include "sim/simulate.h"
#include "tests/sim/small_clusters.h"

namespace orrery::sim {
namespace fabric_test {

// Ends of a direction, as clusters::Paths numbers them.
std::vector<std::pair<int, int>> ends_of(const clusters::Cluster& cluster) {
  std::vector<std::pair<int, int>> ends;
  const auto edges = boost::edges(*cluster.graph);
  for (auto e = edges.first; e != edges.second; ++e) {
    const int a = static_cast<int>(boost::source(*e, *cluster.graph)),
              b = static_cast<int>(boost::target(*e, *cluster.graph));
    ends.emplace_back(a, b);
    ends.emplace_back(b, a);
  }
  return ends;
}

std::vector<std::shared_ptr<const clusters::Cluster>> machines() {
  std::vector<std::shared_ptr<const clusters::Cluster>> all;
  for (const char* name : {"dgx-1v", "dgx-2", "dgx-a100", "hgx-h100"}) {
    all.push_back(testing::cluster(name));
    all.push_back(testing::cluster(name, 3 * testing::cluster(name)->size()));
  }
  all.push_back(testing::cluster("selene-1024", 48 * 8));
  all.push_back(testing::cluster("meta-roce-24k", 8 * 800));
  return all;
}

TEST(Fabric, RoutesLeadFromOneDeviceToTheOther) {
  for (const auto& cluster : machines()) {
    const Fabric fabric(*cluster);
    const auto ends = ends_of(*cluster);
    ASSERT_EQ(static_cast<int>(ends.size()), fabric.directions());
    testing::Dice dice(3);
    for (int i = 0; i < 200; ++i) {
      const int a = dice.below(cluster->size()), b = dice.below(cluster->size());
      std::vector<int> route;
      fabric.route(a, b, 0, route);
      int at = static_cast<int>(cluster->device_vertices[static_cast<std::size_t>(a)]);
      for (const int d : route) {
        EXPECT_EQ(ends[static_cast<std::size_t>(d)].first, at) << cluster->name;
        at = ends[static_cast<std::size_t>(d)].second;
      }
      EXPECT_EQ(at, static_cast<int>(cluster->device_vertices[static_cast<std::size_t>(b)])) << cluster->name;
    }
  }
}

// Between devices in the same place of two nodes both take the shortest way; Paths searches all of the graph.
TEST(Fabric, RoutesAreAsLongAsTheSearchOfTheWholeGraphSays) {
  for (const auto& cluster : machines()) {
    const Fabric fabric(*cluster);
    clusters::Paths paths(*cluster);
    testing::Dice dice(5);
    for (int i = 0; i < 40; ++i) {
      const int a = dice.below(cluster->size());
      const int b = (a + cluster->devices_per_node * dice.below(cluster->nodes)) % cluster->size();
      std::vector<int> route;
      fabric.route(a, b, 0, route);
      EXPECT_EQ(route.size(), paths.between(a, b).links.size()) << cluster->name << " " << a << " to " << b;
    }
  }
}

TEST(Fabric, SpreadsTheDevicesOfANodeOverItsNics) {
  for (const char* name : {"dgx-1v", "dgx-a100", "hgx-h100"}) {
    const auto cluster = testing::cluster(name, 2 * testing::cluster(name)->size());
    const Fabric fabric(*cluster);
    std::map<int, int> on_port;
    for (int d = 0; d < cluster->devices_per_node; ++d) {
      std::vector<int> route;
      fabric.route(d, d + cluster->devices_per_node, 0, route);
      for (const int direction : route)
        if (fabric.direction(direction).kind == clusters::LinkKind::network) {
          ++on_port[direction];
          break;
        }
    }
    EXPECT_EQ(static_cast<int>(on_port.size()), std::min(cluster->nics_per_node, cluster->devices_per_node)) << name;
    for (const auto& [port, devices] : on_port)
      EXPECT_EQ(devices * static_cast<int>(on_port.size()), cluster->devices_per_node) << name;
  }
}

TEST(Fabric, UsesEveryNicOfADeviceThatHasTwo) {
  testing::SmallCluster c;
  c.devices = c.pcie_switches = 2;
  c.nics = 4;
  const auto cluster = testing::make(c);
  const Fabric fabric(*cluster);
  EXPECT_EQ(fabric.ways(0), 2);
  std::set<std::vector<int>> routes;
  for (int way = 0; way < 2; ++way) {
    std::vector<int> route;
    fabric.route(1, 3, way, route);
    routes.insert(route);
  }
  EXPECT_EQ(routes.size(), 2u);
}

TEST(Fabric, RelaysWithinTheNodeWhereRailsDoNotMeet) {
  testing::SmallCluster c;
  c.devices = c.nics = c.pcie_switches = 4;
  c.rails = true;
  const auto cluster = testing::make(c);
  const Fabric fabric(*cluster);
  const auto ends = ends_of(*cluster);
  std::vector<int> route;
  fabric.route(0, 7, 0, route);
  int at = static_cast<int>(cluster->device_vertices[0]);
  for (const int d : route) {
    ASSERT_EQ(ends[static_cast<std::size_t>(d)].first, at);
    at = ends[static_cast<std::size_t>(d)].second;
  }
  EXPECT_EQ(at, static_cast<int>(cluster->device_vertices[7]));
}

std::vector<clusters::LinkKind> kinds_between(const Fabric& fabric, int a, int b) {
  std::vector<int> route;
  fabric.route(a, b, 0, route);
  std::vector<clusters::LinkKind> kinds;
  for (const int d : route) kinds.push_back(fabric.direction(d).kind);
  return kinds;
}

// A hop of theirs takes 1 us, the way over the host 0.8: nearer, but devices do not take it.
TEST(Fabric, KeepsToTheDevicesOwnLinksOnATorusAndAMesh) {
  const auto pod = testing::cluster("tpu-v4", 64);
  const Fabric of_pod(*pod);
  const clusters::Torus torus = clusters::torus_of(*pod);
  for (int a = 0; a < 64; ++a)
    for (int b = 0; b < 64; ++b)
      EXPECT_EQ(kinds_between(of_pod, a, b),
                std::vector<clusters::LinkKind>(static_cast<std::size_t>(clusters::torus_distance(torus, a, b)),
                                                clusters::LinkKind::nvlink))
          << a << " to " << b;
  for (const char* name : {"aws-trn1", "hls-gaudi2"}) {
    const auto node = testing::cluster(name);
    const Fabric fabric(*node);
    for (int a = 0; a < node->devices_per_node; ++a)
      for (int b = 0; b < node->devices_per_node; ++b)
        for (const clusters::LinkKind kind : kinds_between(fabric, a, b))
          EXPECT_EQ(kind, clusters::LinkKind::nvlink) << name << " " << a << " to " << b;
  }
}

TEST(Fabric, TakesTheHostWhereAMeshHasNoWay) {
  const auto bridges = testing::cluster("pcie-h100");  // NVLink between pairs only
  const Fabric fabric(*bridges);
  EXPECT_EQ(kinds_between(fabric, 0, 1), std::vector{clusters::LinkKind::nvlink});
  const auto apart = kinds_between(fabric, 0, 2);
  EXPECT_GT(std::count(apart.begin(), apart.end(), clusters::LinkKind::pcie), 0);
}

TEST(Fabric, CpuRanksHaveNone) {
  EXPECT_EQ(fabric_of(*testing::cluster("localhost-4")), nullptr);
}

}  // namespace fabric_test
}  // namespace orrery::sim

/// Numbered routes: equal in length to clusters::route, connected, and spread over equal NICs and spines.
#include "clusters/paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "clusters/routes.h"
#include "tests/clusters/support.h"

namespace orrery::clusters {
namespace paths_test {

using testing::catalog;

struct Numbered {
  std::vector<std::pair<std::size_t, std::size_t>> ends;
  explicit Numbered(const Graph& graph) {
    const auto edges = boost::edges(graph);
    for (auto e = edges.first; e != edges.second; ++e) {
      ends.emplace_back(boost::source(*e, graph), boost::target(*e, graph));
      ends.emplace_back(boost::target(*e, graph), boost::source(*e, graph));
    }
  }
};

/// Names of the vertices along the links; fails where two links do not join.
std::vector<std::string> names_along(const Cluster& cluster, const Numbered& numbered, const Paths::Path& path) {
  std::vector<std::string> names;
  for (const int link : path.links) {
    const auto [from, to] = numbered.ends[static_cast<std::size_t>(link)];
    if (names.empty()) names.push_back((*cluster.graph)[from].name);
    EXPECT_EQ(names.back(), (*cluster.graph)[from].name);
    names.push_back((*cluster.graph)[to].name);
  }
  return names;
}

void expect_shortest(const Cluster& cluster, Paths& paths, const Numbered& numbered, int a, int b) {
  const Paths::Path& path = paths.between(a, b);
  const auto names = names_along(cluster, numbered, path);
  ASSERT_GE(names.size(), 2U);
  EXPECT_EQ(names.front(), (*cluster.graph)[cluster.device_vertices[static_cast<std::size_t>(a)]].name);
  EXPECT_EQ(names.back(), (*cluster.graph)[cluster.device_vertices[static_cast<std::size_t>(b)]].name);
  const bool apart = cluster.node_of(a) != cluster.node_of(b);
  const double software = cluster.shape && apart ? cluster.shape->network.message_latency.value : 0;
  EXPECT_NEAR(path.latency.value, latency(cluster, a, b).value + software, 1e-14);
  double slowness = 0, least = 0;
  for (const int link : path.links) slowness += 1 / paths.bandwidths()[static_cast<std::size_t>(link)];
  const auto expected = route(cluster, a, b);
  for (std::size_t i = 1; i < expected.size(); ++i) {
    least += 1 / (*cluster.graph)[boost::edge(expected[i - 1], expected[i], *cluster.graph).first].bandwidth.value;
  }
  // clusters::route adds latencies as doubles, so that of equally near routes it may not see the wider as equal.
  EXPECT_LE(slowness / least, 1 + 1e-6) << a << " to " << b;
}

TEST(Paths, AreAsShortAsRoutesOnTheCatalogue) {
  for (const char* name : {"dgx-1v", "dgx-2", "hgx-h100", "localhost-4", "selene-1024", "meta-roce-16384", "tpu-v4",
                           "aws-trn1", "pcie-h100"}) {
    const Cluster cluster = catalog(name);
    Paths paths(cluster);
    const Numbered numbered(*cluster.graph);
    for (std::uint64_t i = 0; i < 12; ++i) {
      const int a = static_cast<int>(base::below(static_cast<std::uint64_t>(cluster.size()), 1, 1, i));
      const int b = static_cast<int>(base::below(static_cast<std::uint64_t>(cluster.size()), 1, 2, i));
      if (a != b) expect_shortest(cluster, paths, numbered, a, b);
    }
  }
}

// Of these a hop takes 1 us, and the way over the host 0.8.
TEST(Paths, KeepToTheDevicesOwnLinksWhereTheyRelay) {
  for (const char* name : {"tpu-v4", "tpu-v5e", "aws-trn1", "hls-gaudi2"}) {
    const Cluster cluster = catalog(name);
    Paths paths(cluster);
    const Numbered numbered(*cluster.graph);
    for (int a = 0; a < cluster.devices_per_node; ++a)
      for (int b = 0; b < cluster.devices_per_node; ++b) {
        for (const int link : paths.between(a, b).links)
          EXPECT_GE((*cluster.graph)[numbered.ends[static_cast<std::size_t>(link)].second].device, 0) << name;
        for (const auto v : route(cluster, a, b)) EXPECT_GE((*cluster.graph)[v].device, 0) << name;
      }
  }
}

TEST(Paths, TakeTheHostWhereTheirOwnLinksDoNotLead) {
  const Cluster bridges = catalog("pcie-h100");  // NVLink between pairs only
  Paths paths(bridges);
  EXPECT_EQ(paths.between(0, 1).links.size(), 1u);
  EXPECT_GT(paths.between(0, 2).links.size(), 1u);
}

// A route that was found for other nodes wired alike is the one that a search for this pair finds.
TEST(Paths, BetweenNodesWiredAlikeAreThoseOfASearch) {
  for (const char* name : {"dgx-1v", "dgx-2-superpod", "selene-1024", "meta-roce-16384", "hgx-h100-1024",
                           "jean-zay-v100", "zion", "zionex", "aws-p4d", "tpu-v4"}) {
    const Cluster cluster = catalog(name);
    Paths shared(cluster);
    int others = 0;
    for (std::uint64_t i = 0; i < 60; ++i) {
      const auto draw = [&](std::uint64_t stream, int bound) {
        return static_cast<int>(base::below(static_cast<std::uint64_t>(bound), 2, stream, i));
      };
      // Few places of many nodes, so that patterns are used again.
      const int per_node = cluster.devices_per_node;
      const int a = draw(1, cluster.nodes) * per_node + draw(2, std::min(2, per_node));
      const int b = draw(3, cluster.nodes) * per_node + draw(4, std::min(2, per_node));
      if (a == b) continue;
      Paths fresh(cluster);
      EXPECT_EQ(shared.between(a, b).links, fresh.between(a, b).links) << name << ": " << a << " to " << b;
      EXPECT_EQ(shared.between(a, b).latency.value, fresh.between(a, b).latency.value);
      EXPECT_EQ(shared.between(a, b).bandwidth.value, fresh.between(a, b).bandwidth.value);
      ++others;
    }
    EXPECT_GT(others, 20) << name;
  }
}

// What TCP takes per message is part of the way between nodes, and of no other.
TEST(Paths, BetweenNodesTakeWhatTheNetworksSoftwareTakes) {
  const Cluster cluster = catalog("zion");
  Paths paths(cluster);
  double links = 0;
  const Numbered numbered(*cluster.graph);
  for (const int link : paths.between(0, 8).links) {
    const auto [from, to] = numbered.ends[static_cast<std::size_t>(link)];
    links += (*cluster.graph)[boost::edge(from, to, *cluster.graph).first].latency.value;
  }
  EXPECT_NEAR(paths.between(0, 8).latency.value, links + 30e-6, 1e-12);
  EXPECT_LT(paths.between(0, 1).latency.value, 5e-6);
  EXPECT_NEAR(paths.between(9, 2).latency.value, links + 30e-6, 1e-12) << "nodes alike";
}

/// A connected graph of devices and switches with parallel routes and small, often equal, weights.
Cluster random_cluster(std::uint64_t seed) {
  std::uint64_t drawn = 0;
  const auto draw = [&](std::uint64_t bound) { return base::below(bound, seed, 7, drawn++); };
  Cluster cluster;
  const std::size_t devices = 2 + draw(8), switches = draw(12);
  for (std::size_t v = 0; v < devices + switches; ++v) {
    const bool device = v < devices;
    boost::add_vertex(Vertex{device ? VertexKind::device : VertexKind::leaf, std::to_string(v),
                             device && devices > 4 ? static_cast<int>(v / 4) : -1, device ? static_cast<int>(v) : -1},
                      cluster.graph.edit());
    if (device) cluster.device_vertices.push_back(v);
  }
  const auto join = [&](std::size_t a, std::size_t b) {
    if (a == b || boost::edge(a, b, *cluster.graph).second) return;
    boost::add_edge(a, b,
                    Link{LinkKind::network, BytesPerSecond{static_cast<double>(1 + draw(3)) * 1e9},
                         Seconds{static_cast<double>(draw(4)) * 1e-6}},
                    cluster.graph.edit());
  };
  for (std::size_t v = 1; v < devices + switches; ++v) join(v, draw(v));
  for (std::size_t i = 0; i < devices + switches; ++i) join(draw(devices + switches), draw(devices + switches));
  cluster.devices.emplace_back();
  cluster.devices_per_node = static_cast<int>(devices);
  return cluster;
}

TEST(Paths, AreAsShortAsRoutesOnRandomGraphs) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Cluster cluster = random_cluster(seed);
    Paths paths(cluster);
    const Numbered numbered(*cluster.graph);
    for (int a = 0; a < cluster.size(); ++a) {
      for (int b = 0; b < cluster.size(); ++b) {
        if (a != b) expect_shortest(cluster, paths, numbered, a, b);
      }
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST(Paths, ToItselfIsEmptyAndForthAndBackUseTheTwoDirections) {
  const Cluster dgx = catalog("dgx-a100");
  Paths paths(dgx);
  EXPECT_TRUE(paths.between(3, 3).links.empty());
  EXPECT_EQ(paths.between(3, 3).latency.value, 0);
  const auto forth = paths.between(0, 7).links, back = paths.between(7, 0).links;
  ASSERT_EQ(forth.size(), 2U);
  EXPECT_EQ(forth[0] ^ 1, back[1]);
  EXPECT_EQ(forth[1] ^ 1, back[0]);
  EXPECT_DOUBLE_EQ(paths.between(0, 7).bandwidth.value, 300e9);
  EXPECT_EQ(paths.kept(), 3U);
}

// Two NICs stand behind each PCIe switch of a DGX A100, both equally near to its two GPUs.
TEST(Paths, EveryDeviceOfANodeHasItsOwnNicAndRail) {
  const Cluster selene = catalog("selene-1024");
  Paths paths(selene);
  const Numbered numbered(*selene.graph);
  for (int d = 0; d < 8; ++d) {
    const std::string rail = std::to_string(d);
    EXPECT_THAT(names_along(selene, numbered, paths.between(d, 8 + d)),
                ::testing::IsSupersetOf({"node0/nic" + rail, "leaf" + rail, "node1/nic" + rail}));
  }
}

TEST(Paths, EqualSpinesShareWhatCrossesThem) {
  Cluster cluster;  // 4 devices under each of two leaves, 4 equal spines
  cluster.devices.emplace_back();
  cluster.devices_per_node = 1;
  cluster.nodes = 8;
  for (int d = 0; d < 8; ++d) {
    cluster.device_vertices.push_back(boost::add_vertex(Vertex{VertexKind::device, "", d, d}, cluster.graph.edit()));
  }
  std::vector<std::size_t> leaves, spines;
  Graph& graph = cluster.graph.edit();
  for (int i = 0; i < 2; ++i) leaves.push_back(boost::add_vertex(Vertex{VertexKind::leaf, "", -1, -1}, graph));
  for (int i = 0; i < 4; ++i) spines.push_back(boost::add_vertex(Vertex{VertexKind::spine, "", -1, -1}, graph));
  const Link cable{LinkKind::network, BytesPerSecond{1e9}, Seconds{1e-6}};
  for (std::size_t d = 0; d < 8; ++d) boost::add_edge(cluster.device_vertices[d], leaves[d / 4], cable, graph);
  for (const auto leaf : leaves)
    for (const auto spine : spines) boost::add_edge(leaf, spine, cable, graph);
  Paths paths(cluster);
  std::set<int> uplinks;
  for (int d = 0; d < 4; ++d) uplinks.insert(paths.between(d, 4 + d).links[1]);
  EXPECT_EQ(uplinks.size(), 4U);
}

}  // namespace paths_test
}  // namespace orrery::clusters

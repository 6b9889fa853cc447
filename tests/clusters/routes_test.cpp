/// Routes, cuts and groups, by hand on the catalogue's machines.
#include "clusters/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/range/iterator_range.hpp>
#include <numeric>

#include "tests/clusters/support.h"

namespace orrery::clusters {
namespace routes_test {

using testing::catalog;

std::vector<std::string> names_along(const Cluster& cluster, int a, int b) {
  std::vector<std::string> names;
  for (const auto v : route(cluster, a, b)) names.push_back((*cluster.graph)[v].name);
  return names;
}

std::vector<int> strided(int first, int stride, int count) {
  std::vector<int> members;
  for (int i = 0; i < count; ++i) members.push_back(first + i * stride);
  return members;
}

TEST(Route, ToItselfIsEmpty) {
  EXPECT_TRUE(route(catalog("dgx-a100"), 3, 3).empty());
}

TEST(Route, WithinDgxA100TakesTheSwitch) {
  const Cluster dgx = catalog("dgx-a100");
  EXPECT_THAT(names_along(dgx, 0, 7), ::testing::ElementsAre("node0/gpu0", "node0/nvswitch0", "node0/gpu7"));
  EXPECT_DOUBLE_EQ(bottleneck(dgx, 0, 7).value, 300e9);
  EXPECT_DOUBLE_EQ(latency(dgx, 0, 7).value, 0.3e-6);
}

TEST(Route, WithinDgx1vTakesDirectLinksOrANeighbour) {
  const Cluster dgx = catalog("dgx-1v");
  EXPECT_DOUBLE_EQ(bottleneck(dgx, 0, 1).value, 25e9);  // one link
  EXPECT_DOUBLE_EQ(bottleneck(dgx, 0, 3).value, 50e9);  // two links
  // 0 and 7 have no link; over 3 it is two links then one, over 4 two and two: the wider route.
  EXPECT_THAT(names_along(dgx, 0, 7), ::testing::ElementsAre("node0/gpu0", "node0/gpu4", "node0/gpu7"));
  EXPECT_DOUBLE_EQ(bottleneck(dgx, 0, 7).value, 50e9);
}

TEST(Route, BetweenBoardsOfDgx2CrossesTheTrunk) {
  const Cluster dgx = catalog("dgx-2");
  EXPECT_THAT(names_along(dgx, 0, 15),
              ::testing::ElementsAre("node0/gpu0", "node0/nvswitch0", "node0/nvswitch1", "node0/gpu15"));
  EXPECT_DOUBLE_EQ(bottleneck(dgx, 0, 15).value, 150e9);
}

TEST(Route, OnOneRailPassesOneLeaf) {
  const Cluster selene = catalog("selene-1024");
  EXPECT_THAT(names_along(selene, 3, 8 + 3), ::testing::ElementsAre("node0/gpu3", "node0/pcie1", "node0/nic3", "leaf3",
                                                                    "node1/nic3", "node1/pcie1", "node1/gpu3"));
  EXPECT_DOUBLE_EQ(bottleneck(selene, 3, 11).value, 25e9);
  EXPECT_NEAR(latency(selene, 3, 11).value, selene.inter.latency.value, 1e-15);
}

TEST(Route, BetweenScalableUnitsClimbsToTheSpine) {
  const Cluster selene = catalog("selene-1024");
  const int far = 8 * 20;  // first GPU of the second unit of 20 nodes
  EXPECT_THAT(names_along(selene, 0, far), ::testing::Contains("spine0"));
  EXPECT_NEAR(latency(selene, 0, far).value - latency(selene, 0, 8).value, 2 * 0.13e-6, 1e-15);
  EXPECT_DOUBLE_EQ(bottleneck(selene, 0, far).value, 25e9);
}

TEST(Route, BetweenPodsPassesTheCore) {
  EXPECT_THAT(names_along(catalog("selene"), 0, 8 * 140), ::testing::Contains("core"));
}

TEST(Bisection, OfNodesIsTheirFabricAndTheSocketLink) {
  // Half of DGX A100: four GPUs of 300 GB/s through the switches, and 16 GB/s between the sockets.
  EXPECT_DOUBLE_EQ(bisection(catalog("dgx-a100")).value, 4 * 300e9 + 16e9);
  EXPECT_DOUBLE_EQ(bisection(catalog("hgx-h100")).value, 4 * 450e9 + 22e9);
  EXPECT_DOUBLE_EQ(bisection(catalog("dgx-2")).value, 1200e9 + 10e9);
  // DGX-1V: the mesh's edges between 0-3 and 4-7 are 0-4, 1-5 of two links and 2-6, 3-7 of one, and QPI.
  EXPECT_DOUBLE_EQ(bisection(catalog("dgx-1v")).value, 6 * 25e9 + 6e9);
  EXPECT_DOUBLE_EQ(bisection(catalog("localhost-4")).value, 2 * 4e9);
}

TEST(Bisection, OfSeleneIsFull) {
  // 64 nodes of 8 ports of 25 GB/s on each side. Units do not divide evenly into halves, spines make up for it.
  EXPECT_DOUBLE_EQ(bisection(catalog("selene-1024")).value, 64 * 8 * 25e9);
}

TEST(Bisection, OfOversubscribedPodsIsWhatTheCoreCarries) {
  // Two pods of 384 nodes; 1:7 between them.
  const auto two = resized(catalog("meta-roce-24k"), 2 * 384 * 8);
  EXPECT_NEAR(bisection(*two).value, 384 * 8 * 50e9 / 7, 1e3);
}

/// The same devices link by link, whose bisection is taken on the whole graph.
Cluster spelt_out(const Cluster& cluster) {
  Cluster odd = cluster;
  odd.shape.reset();
  return odd;
}

TEST(Bisection, OfCollapsedNodesEqualsThatOfTheWholeGraph) {
  for (const char* name :
       {"dgx-1v", "dgx-2", "aws-p3dn", "aws-p4d", "hgx-b200", "zion", "zionex-128", "mi300x", "jean-zay-v100"}) {
    for (const int nodes : {2, 3, 5, 8}) {
      const Cluster one = catalog(name);
      const auto cluster = resized(one, nodes * one.devices_per_node);
      ASSERT_TRUE(cluster) << name;
      EXPECT_NEAR(bisection(*cluster).value / bisection(spelt_out(*cluster)).value, 1, 1e-9) << name << " " << nodes;
    }
  }
}

TEST(Bisection, OfLargeClustersIsFound) {
  const Cluster meta = catalog("meta-roce-24k");
  // Eight pods, four on each side; each pod's way to the core is a seventh of its ports.
  EXPECT_NEAR(bisection(meta).value, 4 * 3072 * 50e9 / 7, 1e4);
}

TEST(Torus, IsCutAcrossItsLastDimension) {
  const Cluster pod = catalog("tpu-v4");
  EXPECT_EQ(pod.size(), 4096);
  EXPECT_DOUBLE_EQ(bisection(pod).value, 2 * 16 * 16 * 50e9);
  const auto cube = resized(pod, 64);
  ASSERT_TRUE(cube) << base::render(cube.error(), false);
  EXPECT_EQ(cube->shape->network.torus, (std::vector<int>{4, 4, 4}));
  EXPECT_DOUBLE_EQ(bisection(*cube).value, bisection(spelt_out(*cube)).value);
  const auto slab = resized(pod, 4 * 3);
  EXPECT_DOUBLE_EQ(bisection(*slab).value, bisection(spelt_out(*slab)).value);
}

TEST(Torus, DevicesHaveSixNeighbours) {
  const Cluster pod = catalog("tpu-v4");
  EXPECT_DOUBLE_EQ(pod.intra.bandwidth.value, 300e9);
  EXPECT_DOUBLE_EQ(pod.inter.bandwidth.value,
                   200e9);  // of a block of 2 x 2 x 1 one link in x, one in y, two in z leave
  EXPECT_EQ(pod.intra.name, "ici");
  int links = 0;
  const auto edges = boost::out_edges(pod.device_vertices[77], *pod.graph);
  for (auto e = edges.first; e != edges.second; ++e) links += (*pod.graph)[*e].kind == LinkKind::nvlink;
  EXPECT_EQ(links, 6);
  EXPECT_DOUBLE_EQ(span_of(pod, {0, 1}).bandwidth.value, 50e9);
  EXPECT_DOUBLE_EQ(span_of(pod, {0, 1, 2, 3}).bandwidth.value, 100e9);  // a host's square
}

TEST(Staged, ZionsMessagesPassHostMemoryAndZionExsDoNot) {
  const Cluster zion = catalog("zion"), zionex = catalog("zionex-128");
  EXPECT_THAT(names_along(zion, 0, 8),
              ::testing::ElementsAre("node0/gpu0", "node0/pcie0", "node0/cpu0", "node0/memory0", "node0/nic0", "leaf0",
                                     "node1/nic0", "node1/memory0", "node1/cpu0", "node1/pcie0", "node1/gpu0"));
  EXPECT_THAT(names_along(zionex, 0, 8), ::testing::Not(::testing::Contains("node0/cpu0")));
  // What TCP costs a message is a number of its own.
  EXPECT_NEAR(span_of(zion, {0, 8}).latency.value - latency(zion, 0, 8).value, 30e-6, 1e-12);
}

TEST(Frontend, CarriesNoMessages) {
  const Cluster zionex = catalog("zionex-128");
  int frontend = 0;
  for (const auto v : boost::make_iterator_range(boost::vertices(*zionex.graph)))
    frontend += (*zionex.graph)[v].name.find("/frontend") != std::string::npos;
  EXPECT_EQ(frontend, 16 * 4);
  for (const int to : {1, 8, 9, 127}) {
    for (const std::string& name : names_along(zionex, 0, to)) EXPECT_EQ(name.find("frontend"), std::string::npos);
  }
}

// Though it is the shortest way: half the latency, twice the bandwidth.
TEST(Frontend, IsTakenByNoRouteHoweverShort) {
  const std::string text =
      "name: odd\ndevice: a100-sxm4-80gb\nvertices:\n"
      "  - {name: a, kind: device, node: 0}\n  - {name: b, kind: device, node: 1}\n"
      "  - {name: s, kind: leaf}\n  - {name: f, kind: leaf}\n"
      "links:\n  - {from: a, to: s, kind: network, bandwidth: 10 GB/s, latency: 2 us}\n"
      "  - {from: s, to: b, kind: network, bandwidth: 10 GB/s, latency: 2 us}\n"
      "  - {from: a, to: f, kind: frontend, bandwidth: 20 GB/s, latency: 1 us}\n"
      "  - {from: f, to: b, kind: frontend, bandwidth: 20 GB/s, latency: 1 us}\n";
  const auto odd = parse_cluster(text, "odd.yaml", testing::from_catalog);
  ASSERT_TRUE(odd) << base::render(odd.error(), false);
  EXPECT_THAT(names_along(*odd, 0, 1), ::testing::ElementsAre("a", "s", "b"));
  EXPECT_DOUBLE_EQ(bottleneck(*odd, 0, 1).value, 10e9);
  EXPECT_DOUBLE_EQ(span_of(*odd, {0, 1}).bandwidth.value, 10e9);
}

TEST(GroupSpan, OfOneIsWithinItsNode) {
  const GroupSpan span = span_of(catalog("selene-1024"), {5});
  EXPECT_EQ(span.nodes, 1);
  EXPECT_EQ(span.per_node, 1);
  EXPECT_TRUE(span.within_node);
}

TEST(GroupSpan, OfATensorGroupIsTheNodesFabric) {
  const Cluster selene = catalog("selene-1024");
  const GroupSpan span = span_of(selene, strided(8, 1, 8), 128);
  EXPECT_EQ(span.nodes, 1);
  EXPECT_EQ(span.per_node, 8);
  EXPECT_DOUBLE_EQ(span.bandwidth.value, 300e9);
  EXPECT_DOUBLE_EQ(span.latency.value, 0.3e-6);
}

TEST(GroupSpan, OfADataGroupOnOneRailHasItsOwnNic) {
  const Cluster selene = catalog("selene-1024");
  const GroupSpan span = span_of(selene, strided(3, 8, 16), 8);  // 8 groups at once, each on its own rail
  EXPECT_EQ(span.nodes, 16);
  EXPECT_EQ(span.per_node, 1);
  EXPECT_DOUBLE_EQ(span.bandwidth.value, 25e9);
  EXPECT_DOUBLE_EQ(span.bandwidth.value, bottleneck(selene, 3, 11).value);
  EXPECT_NEAR(span.latency.value, latency(selene, 3, 11).value, 1e-15);
}

TEST(GroupSpan, OfGroupsThatShareNicsDividesThem) {
  // DGX-1V has four NICs for eight GPUs; two nodes.
  const auto pair = resized(catalog("dgx-1v"), 16);
  EXPECT_DOUBLE_EQ(span_of(*pair, {0, 8}, 1).bandwidth.value, 12.5e9);
  EXPECT_DOUBLE_EQ(span_of(*pair, {0, 8}, 8).bandwidth.value, 6.25e9);
  EXPECT_DOUBLE_EQ(span_of(*pair, {0, 1, 8, 9}, 1).bandwidth.value, 6.25e9);   // GPUs 0 and 1 share a NIC
  EXPECT_DOUBLE_EQ(span_of(*pair, {0, 2, 8, 10}, 1).bandwidth.value, 12.5e9);  // GPUs 0 and 2 do not
  EXPECT_DOUBLE_EQ(span_of(*pair, strided(0, 1, 16), 1).bandwidth.value, 6.25e9);
}

TEST(GroupSpan, InAMeshCountsTheLinksAmongItsMembers) {
  const Cluster dgx = catalog("dgx-1v");
  EXPECT_DOUBLE_EQ(span_of(dgx, {0, 1}).bandwidth.value, 25e9);
  EXPECT_DOUBLE_EQ(span_of(dgx, {0, 3}).bandwidth.value, 50e9);
  EXPECT_DOUBLE_EQ(span_of(dgx, {0, 1, 2, 3}).bandwidth.value, 100e9);  // four links each inside the quad
  EXPECT_DOUBLE_EQ(span_of(dgx, strided(0, 1, 8)).bandwidth.value, 150e9);
  EXPECT_DOUBLE_EQ(span_of(dgx, {0, 7}).bandwidth.value, 6e9);            // no link: over the sockets, as NCCL does
  EXPECT_DOUBLE_EQ(span_of(dgx, {0, 1, 2, 3, 4}).bandwidth.value, 50e9);  // GPU 4 has two links to the others
}

TEST(GroupSpan, AcrossOversubscribedPodsGetsItsShareOfTheCore) {
  const Cluster meta = catalog("meta-roce-24k");
  const int pod = 384 * 8;
  // Every hop leaves the pod, and every GPU does so at once: one seventh of a NIC.
  EXPECT_NEAR(span_of(meta, {0, pod}, 8).bandwidth.value, 50e9 / 7, 1);
  EXPECT_DOUBLE_EQ(span_of(meta, {0, pod / 2}, 8).bandwidth.value, 50e9);
  // A ring over both pods crosses twice in 768 hops: the core is not in its way.
  EXPECT_DOUBLE_EQ(span_of(meta, strided(0, 8, 768), 8).bandwidth.value, 50e9);
}

// Leaves of two nodes with half as much upwards as downwards.
TEST(GroupSpan, AcrossOversubscribedLeavesGetsItsShareOfTheUplinks) {
  const std::string text =
      "name: half\nlike: hgx-h100\nnodes: 4\nfabric: {kind: infiniband, rails: true, leaf_nodes: 2, oversubscription: "
      "2, "
      "hop_latency: 0.1 us}\n";
  const auto half = parse_cluster(text, "half.yaml", testing::from_catalog);
  ASSERT_TRUE(half) << base::render(half.error(), false);
  EXPECT_DOUBLE_EQ(span_of(*half, {0, 8}, 8).bandwidth.value, 50e9) << "one leaf";
  EXPECT_DOUBLE_EQ(span_of(*half, {0, 16}, 8).bandwidth.value, 25e9) << "two leaves";
  // Of a ring over the four nodes two hops leave a leaf: what the uplinks have is enough for half of the hops.
  EXPECT_DOUBLE_EQ(span_of(*half, strided(0, 8, 4), 8).bandwidth.value, 50e9);
}

TEST(GroupSpan, OfOddMachinesIsReadOffTheGraph) {
  const std::string text =
      "name: odd\ndevice: a100-sxm4-80gb\nvertices:\n"
      "  - {name: a, kind: device, node: 0}\n  - {name: b, kind: device, node: 1}\n  - {name: s, kind: leaf}\n"
      "links:\n  - {from: a, to: s, kind: network, bandwidth: 10 GB/s, latency: 1 us}\n"
      "  - {from: s, to: b, kind: network, bandwidth: 5 GB/s, latency: 2 us}\n";
  const auto odd = parse_cluster(text, "odd.yaml", testing::from_catalog);
  ASSERT_TRUE(odd) << base::render(odd.error(), false);
  const GroupSpan span = span_of(*odd, {0, 1});
  EXPECT_EQ(span.nodes, 2);
  EXPECT_DOUBLE_EQ(span.bandwidth.value, 5e9);
  EXPECT_DOUBLE_EQ(span.latency.value, 3e-6);
}

/// For every regular machine, a pair alone sees what the route says.
class PairsAlone : public ::testing::TestWithParam<const char*> {};
TEST_P(PairsAlone, SpanAgreesWithTheRoute) {
  const Cluster whole = catalog(GetParam());
  const auto cluster =
      whole.shape->node.nics > 0 ? resized(whole, 3 * whole.devices_per_node) : base::Result<Cluster>(whole);
  const int last = cluster->size() - 1;
  for (const auto& [a, b] : {std::pair{0, 1}, {0, last}, {1, last}, {0, cluster->devices_per_node % cluster->size()}}) {
    if (a == b) continue;
    EXPECT_DOUBLE_EQ(span_of(*cluster, {a, b}).bandwidth.value, bottleneck(*cluster, a, b).value) << a << " " << b;
  }
}
INSTANTIATE_TEST_SUITE_P(Machines, PairsAlone,
                         ::testing::Values("dgx-1v", "dgx-2", "dgx-a100", "hgx-h100", "hgx-h200", "localhost-4",
                                           "selene", "hgx-b200", "aws-p4d", "zionex-128", "mi300x",
                                           "azure-nd96asr-v4"));

// How long it takes stands in scripts/bench-scale.
TEST(Graph, OfAHundredThousandGpusGrowsWithTheirNumber) {
  const Cluster h100 = catalog("hgx-h100");
  const auto some = resized(h100, 1'000), many = resized(h100, 100'000);
  ASSERT_TRUE(some && many);
  EXPECT_EQ(many->size(), 100'000);
  const auto vertices = [](const Cluster& c) { return static_cast<double>(boost::num_vertices(*c.graph)) / c.size(); };
  const auto edges = [](const Cluster& c) { return static_cast<double>(boost::num_edges(*c.graph)) / c.size(); };
  EXPECT_NEAR(vertices(*many), vertices(*some), 0.1);
  EXPECT_NEAR(edges(*many), edges(*some), 1);
}

}  // namespace routes_test
}  // namespace orrery::clusters

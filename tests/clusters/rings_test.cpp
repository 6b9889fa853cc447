/// What NCCL's search finds on the catalogue's machines, by hand and as its logs show it.
#include "clusters/rings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "tests/clusters/support.h"

namespace orrery::clusters {
namespace rings_test {

using testing::catalog;

std::vector<int> first(int count) {
  std::vector<int> members(static_cast<std::size_t>(count));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

void expect(const Channels& channels, int count, double intra, double inter, PathType path) {
  EXPECT_EQ(channels.count, count);
  EXPECT_NEAR(channels.intra.value / 1e9, intra, 1e-6);
  EXPECT_NEAR(channels.inter.value / 1e9, inter, 1e-6);
  EXPECT_EQ(channels.path_intra, path) << name_of(channels.path_intra);
}

/// How often each pair of neighbours occurs, in the direction of the rings.
std::map<std::pair<int, int>, int> uses(const Channels& rings) {
  std::map<std::pair<int, int>, int> count;
  for (const Channel& c : rings.channels) {
    for (std::size_t i = 0; i < c.order.size(); ++i) ++count[{c.order[i], c.order[(i + 1) % c.order.size()]}];
  }
  return count;
}

TEST(CubeMesh, AllEightGpusUseEveryLinkInBothDirectionsOnce) {
  const Cluster dgx = catalog("dgx-1v");
  const Wiring wiring = wiring_of(dgx, first(8));
  expect(wiring.ring, 6, 20, 20, PathType::nvlink);  // NCCL launches them as 12 of half the bandwidth
  const auto used = uses(wiring.ring);
  int total = 0;
  for (const auto& [pair, times] : used) {
    const auto edge =
        std::find_if(dgx.shape->node.edges.begin(), dgx.shape->node.edges.end(), [p = pair](const MeshEdge& e) {
          return (e.a == p.first && e.b == p.second) || (e.b == p.first && e.a == p.second);
        });
    ASSERT_NE(edge, dgx.shape->node.edges.end()) << pair.first << "-" << pair.second;
    EXPECT_EQ(times, edge->links) << pair.first << "-" << pair.second;
    total += times;
  }
  EXPECT_EQ(total, 2 * 24);  // 24 links, two directions
  for (const Channel& c : wiring.ring.channels) {
    EXPECT_EQ(std::set<int>(c.order.begin(), c.order.end()).size(), 8u);
  }
  EXPECT_FALSE(wiring.switched);
  EXPECT_TRUE(wiring.direct);
  EXPECT_EQ(wiring.cpu, CpuVendor::intel);
}

TEST(CubeMesh, AQuadHasFourRings) {
  expect(wiring_of(catalog("dgx-1v"), {0, 1, 2, 3}).ring, 4, 20, 20, PathType::nvlink);
}

TEST(CubeMesh, PairsHaveAsManyRingsAsLinksAndWithoutALinkGoOverTheSockets) {
  const Cluster dgx = catalog("dgx-1v");
  expect(wiring_of(dgx, {0, 1}).ring, 1, 20, 20, PathType::nvlink);
  expect(wiring_of(dgx, {0, 3}).ring, 2, 20, 20, PathType::nvlink);
  const Wiring far = wiring_of(dgx, {0, 7});
  expect(far.ring, 1, 6, 6, PathType::sockets);  // QPI
  EXPECT_FALSE(far.direct);
}

TEST(CubeMesh, FiveGpusRelayOverAnother) {
  expect(wiring_of(catalog("dgx-1v"), {0, 1, 2, 3, 4}).ring, 2, 20, 20, PathType::relay);
}

TEST(CubeMesh, TwoNodesHaveARingForEachNic) {
  const auto two = resized(catalog("dgx-1v"), 16);
  const Wiring wiring = wiring_of(*two, first(16));
  expect(wiring.ring, 4, 12, 12, PathType::nvlink);
  EXPECT_EQ(wiring.ring.path_inter, PathType::pcie_switch);
  for (const Channel& c : wiring.ring.channels) {
    EXPECT_EQ(c.order.front() / 2, c.nic_in);  // NIC i is next to GPUs 2i and 2i+1
    EXPECT_EQ(c.order.back() / 2, c.nic_out);
  }
}

TEST(Switches, ChannelsAreThoseOfNcclsLogs) {
  expect(wiring_of(catalog("dgx-2"), first(16)).ring, 6, 20, 20, PathType::nvlink);
  expect(wiring_of(catalog("dgx-a100"), first(8)).ring, 12, 20, 20, PathType::nvlink);
  expect(wiring_of(catalog("hgx-h100"), first(8)).ring, 12, 30, 30, PathType::nvlink);
  EXPECT_TRUE(wiring_of(catalog("hgx-h100"), first(8)).switched);
}

TEST(Switches, MulticastHasAHeadForEachGpu) {
  const Cluster h100 = catalog("hgx-h100");
  expect(wiring_of(h100, first(8)).nvls, 8, 40, 40, PathType::nvlink);
  expect(wiring_of(h100, first(6)).nvls, 6, 50, 50, PathType::nvlink);
  expect(wiring_of(h100, first(4)).nvls, 4, 60, 60, PathType::nvlink);
  EXPECT_EQ(wiring_of(catalog("dgx-a100"), first(8)).nvls.count, 0);
}

TEST(Nodes, OfDgxA100GiveTheirEightNics) {
  const Wiring wiring = wiring_of(catalog("selene-1024"), first(16));
  expect(wiring.ring, 8, 24, 24, PathType::nvlink);  // 192 GB/s, as NVIDIA's staff report (nccl issue 812)
  EXPECT_EQ(wiring.nodes, 2);
  EXPECT_EQ(wiring.per_node, 8);
  std::set<int> nics;
  for (const Channel& c : wiring.ring.channels) nics.insert(c.nic_in);
  EXPECT_EQ(nics.size(), 8u);
}

TEST(Nodes, OfH100CrossNics) {
  const Wiring wiring = wiring_of(catalog("hgx-h100-1024"), first(16));
  expect(wiring.ring, 8, 48, 48, PathType::nvlink);
  EXPECT_TRUE(wiring.ring.cross_nic);
  expect(wiring.nvls, 8, 40, 48, PathType::nvlink);
}

TEST(Nodes, WithOneMemberEachHaveThatMembersNic) {
  const Wiring wiring = wiring_of(catalog("selene-1024"), {3, 11, 19, 27});
  expect(wiring.ring, 1, 24, 24, PathType::local);
  EXPECT_EQ(wiring.ring.channels.front().nic_in, 3);
}

TEST(Nodes, ThatLookDifferentGiveTheWorst) {
  // Three members in one node and one in the other.
  const Wiring wiring = wiring_of(catalog("selene-1024"), {0, 1, 2, 8});
  EXPECT_EQ(wiring.per_node, 3);
  EXPECT_EQ(wiring.ring.count, 1);
}

TEST(RingOver, VisitsEveryMemberOnceNodeByNode) {
  const Cluster selene = catalog("selene-1024");
  const std::vector<int> members = first(24);
  for (int channel = 0; channel < 8; ++channel) {
    std::vector<int> ring = ring_over(selene, members, channel);
    for (int i = 0; i < 24; ++i) EXPECT_EQ(ring[static_cast<std::size_t>(i)] / 8, i / 8);
    std::sort(ring.begin(), ring.end());
    EXPECT_EQ(ring, members);
  }
}

TEST(BinaryTree, IsNcclsForFourteen) {
  // The drawing in trees.cc: 0-8, 8-4, 8-12, 4-2, 4-6, 12-10, 12-13, and the odd ones below.
  const std::vector<TreeNode> tree = binary_tree(14);
  EXPECT_EQ(tree[0], (TreeNode{-1, {-1, 8}}));
  EXPECT_EQ(tree[8], (TreeNode{0, {4, 12}}));
  EXPECT_EQ(tree[12], (TreeNode{8, {10, 13}}));
  EXPECT_EQ(tree[6], (TreeNode{4, {5, 7}}));
  EXPECT_EQ(tree[13], (TreeNode{12, {-1, -1}}));
}

class Trees : public ::testing::TestWithParam<int> {};
TEST_P(Trees, SpanAllNodesAndNoNodeIsInsideBoth) {
  const int count = GetParam();
  const std::vector<TreeNode> trees[2] = {binary_tree(count), second_binary_tree(count)};
  for (const auto& tree : trees) {
    int roots = 0;
    for (int n = 0; n < count; ++n) {
      int steps = 0, at = n;
      while (tree[static_cast<std::size_t>(at)].up >= 0 && steps <= count) {
        const int up = tree[static_cast<std::size_t>(at)].up;
        EXPECT_THAT(tree[static_cast<std::size_t>(up)].down, ::testing::Contains(at));
        at = up;
        ++steps;
      }
      EXPECT_LE(steps, 2 + std::log2(count));
      roots += tree[static_cast<std::size_t>(n)].up < 0;
    }
    EXPECT_EQ(roots, 1);
  }
  const auto inner = [](const TreeNode& node) { return node.down[0] >= 0 || node.down[1] >= 0; };
  int both = 0;
  for (std::size_t n = 0; n < trees[0].size(); ++n) both += inner(trees[0][n]) && inner(trees[1][n]);
  EXPECT_LE(both, 2);
}
INSTANTIATE_TEST_SUITE_P(Counts, Trees, ::testing::Values(2, 3, 4, 5, 8, 12, 13, 14, 16, 31, 64, 100));

TEST(FullMesh, OfMi300xHasARingForEachLink) {
  const Cluster node = catalog("mi300x");
  const Wiring all = wiring_of(node, first(8)), pair = wiring_of(node, {2, 5});
  expect(all.ring, 7, 48, 48, PathType::nvlink);  // RCCL's 48 GB/s a link; 313 GB/s are measured
  EXPECT_EQ(pair.ring.count, 1);                  // 47.7 GB/s are measured
  EXPECT_NEAR(pair.ring.total().value, 48e9, 1);
}

TEST(Torus, HasARingForEachLinkInsideTheGroup) {
  const Cluster pod = catalog("tpu-v4");
  expect(wiring_of(pod, first(4096)).ring, 6, 50, 50, PathType::nvlink);
  expect(wiring_of(pod, first(4)).ring, 2, 50, 50, PathType::nvlink);
}

TEST(Staged, ZionsRingsPassTheSocketsAndZionExsDoNot) {
  const Wiring zion = wiring_of(catalog("zion"), first(16)), zionex = wiring_of(catalog("zionex-128"), first(16));
  EXPECT_TRUE(zion.staged);
  EXPECT_DOUBLE_EQ(zion.message_latency.value, 30e-6);
  EXPECT_GE(zion.ring.path_inter, PathType::host_bridge);
  EXPECT_FALSE(zionex.staged);
  EXPECT_DOUBLE_EQ(zionex.message_latency.value, 0);
  EXPECT_LT(zionex.ring.path_inter, PathType::host_bridge);
  EXPECT_GT(zionex.ring.total().value, 80e9);  // eight ports of 12.5 GB/s
}

TEST(Clouds, ShareNicsAsTheirNodesDo) {
  const auto p4d = resized(catalog("aws-p4d"), 16);
  const Wiring wiring = wiring_of(*p4d, first(16));
  EXPECT_NEAR(wiring.ring.total().value / 1e9, 48, 1e-6);  // four ports of 12.5 GB/s, at 12
  for (const char* name : {"aws-p3dn", "aws-p5", "aws-p5en", "aws-p6-b200", "gcp-a3-mega", "jean-zay-v100"}) {
    const Cluster one = catalog(name);
    const auto two = resized(one, 2 * one.devices_per_node);
    const Wiring found = wiring_of(*two, first(two->size()));
    EXPECT_GT(found.ring.count, 0) << name;
    EXPECT_LE(found.ring.total().value, one.shape->node.nic_bandwidth.value * one.shape->node.nics * 1.001) << name;
    EXPECT_GT(found.ring.total().value, one.shape->node.nic_bandwidth.value * one.shape->node.nics * 0.5) << name;
  }
}

TEST(Clouds, WithFewNvlinksAreBoundByThem) {
  // Eight links of 20.6 GB/s into each H800, and a ring of eight leaves one of its hops to the NICs.
  const auto two = resized(catalog("hgx-h800"), 16);
  const Wiring wiring = wiring_of(*two, first(16));
  EXPECT_LE(wiring.ring.total().value, 8 * 20.6e9 * 8 / 7);
  EXPECT_GT(wiring.ring.total().value, 8 * 20.6e9 * 0.9);
}

TEST(Localhost, RanksHaveOneWay) {
  const Wiring wiring = wiring_of(catalog("localhost-4"), first(4));
  EXPECT_EQ(wiring.ring.count, 1);
  EXPECT_EQ(wiring.ring.intra, catalog("localhost-4").intra.bandwidth);
}

}  // namespace rings_test
}  // namespace orrery::clusters

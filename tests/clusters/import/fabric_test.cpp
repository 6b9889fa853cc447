/// Shapes of fabrics found in their cables.
#include "clusters/import/fabric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "clusters/import/readers.h"
#include "tests/clusters/import/support.h"

namespace orrery::clusters::testing {
namespace fabric_test {

using ::testing::HasSubstr;

struct Read {
  FoundFabric fabric;
  std::vector<Host> hosts;
};

Read read(const std::string& name) {
  Lines text(fixture(name), name);
  auto fabric = read_ibnetdiscover(text);
  EXPECT_TRUE(fabric) << base::render(text.findings().all(), false);
  auto hosts = hosts_of(*fabric);
  EXPECT_TRUE(hosts);
  return {*fabric, *hosts};
}

TEST(Fabric, HostsAreFoundWithoutSharpsEngines) {
  const Read rails = read("rails.ib.txt");
  ASSERT_EQ(rails.hosts.size(), 4U);
  EXPECT_EQ(rails.hosts[0].name, "dgx001");
  ASSERT_EQ(rails.hosts[0].ports.size(), 2U);
  EXPECT_EQ(rails.hosts[0].ports[1].adapter, "mlx5_1");
  EXPECT_EQ(rails.hosts[0].ports[1].bandwidth, 25e9);
}

TEST(Fabric, LinesOfBlanksAndReturnsSayNothing) {
  std::string spaced;
  for (const char c : fixture("rails.ib.txt"))
    spaced += c == '\n' ? std::string("\r\n  \r\r \t\r\n") : std::string(1, c);
  Lines text(spaced, "spaced.ib.txt");
  const auto fabric = read_ibnetdiscover(text);
  ASSERT_TRUE(fabric) << base::render(text.findings().all(), false);
  EXPECT_EQ(fabric->nodes.size(), read("rails.ib.txt").fabric.nodes.size());
}

TEST(Fabric, RailsInTwoGroupsUnderTwoSpines) {
  const Read rails = read("rails.ib.txt");
  std::string why;
  const auto found = regular_fabric(rails.fabric, rails.hosts, why);
  ASSERT_TRUE(found) << why;
  EXPECT_TRUE(found->network.rails);
  EXPECT_EQ(found->network.leaf_nodes, 2);
  EXPECT_EQ(found->network.pod_nodes, 0);
  EXPECT_EQ(found->network.oversubscription, 1);
  EXPECT_EQ(found->nic_bandwidth, 25e9);
  EXPECT_EQ(found->order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(Fabric, OversubscriptionIsDownlinksOverUplinks) {
  const Read fabric = read("oversubscribed.ib.txt");
  std::string why;
  const auto found = regular_fabric(fabric.fabric, fabric.hosts, why);
  ASSERT_TRUE(found) << why;
  EXPECT_FALSE(found->network.rails);
  EXPECT_EQ(found->network.leaf_nodes, 4);
  EXPECT_EQ(found->network.oversubscription, 2);
}

TEST(Fabric, AMissingCableMakesItOdd) {
  const Read fabric = read("odd.ib.txt");
  std::string why;
  EXPECT_FALSE(regular_fabric(fabric.fabric, fabric.hosts, why));
  EXPECT_THAT(why, HasSubstr("leaf04"));
}

TEST(Fabric, TiersFollowTheHosts) {
  const Read fabric = read("rails.ib.txt");
  int leaves = 0, spines = 0;
  for (const auto& tier : tiers_of(fabric.fabric, fabric.hosts)) {
    leaves += tier == VertexKind::leaf;
    spines += tier == VertexKind::spine;
  }
  EXPECT_EQ(leaves, 4);
  EXPECT_EQ(spines, 2);
}

TEST(Fabric, NamesAreSortedAsPeopleDo) {
  EXPECT_TRUE(natural_less("node2", "node10"));
  EXPECT_FALSE(natural_less("node10", "node2"));
  EXPECT_TRUE(natural_less("node01", "node1"));
  EXPECT_FALSE(natural_less("node1", "node1"));
  EXPECT_TRUE(natural_less("a1b2", "a1b10"));
}

/// Two pods of two leaves with a spine each, joined by a core at half the bandwidth.
TEST(Fabric, PodsUnderACore) {
  FoundFabric fabric;
  const auto node = [&](bool is_switch, const std::string& name) {
    FabricNode made;
    made.is_switch = is_switch;
    made.guid = made.name = name;
    made.host = name;
    made.adapter = "mlx5_0";
    fabric.nodes.push_back(made);
    return static_cast<int>(fabric.nodes.size()) - 1;
  };
  std::vector<int> port(64, 0);
  const auto cable = [&](int a, int b, double bandwidth) {
    fabric.cables.push_back(
        {{a, ++port[static_cast<std::size_t>(a)]}, {b, ++port[static_cast<std::size_t>(b)]}, bandwidth, {}});
  };
  const int core = node(true, "core");
  for (int p = 0; p < 2; ++p) {
    const int spine = node(true, "spine" + std::to_string(p));
    cable(spine, core, 50e9);
    for (int l = 0; l < 2; ++l) {
      const int leaf = node(true, "leaf" + std::to_string(2 * p + l));
      cable(leaf, spine, 50e9);
      for (int h = 0; h < 2; ++h) cable(node(false, "host" + std::to_string(4 * p + 2 * l + h)), leaf, 25e9);
    }
  }
  const auto hosts = hosts_of(fabric);
  ASSERT_TRUE(hosts);
  std::string why;
  const auto found = regular_fabric(fabric, *hosts, why);
  ASSERT_TRUE(found) << why;
  EXPECT_EQ(found->network.leaf_nodes, 2);
  EXPECT_EQ(found->network.pod_nodes, 4);
  EXPECT_EQ(found->network.oversubscription, 1);
  EXPECT_EQ(found->network.core_oversubscription, 2);
}

}  // namespace fabric_test
}  // namespace orrery::clusters::testing

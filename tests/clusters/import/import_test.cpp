/// Dumps of machines become the clusters that they are.
#include "clusters/import/import.h"

#include <gmock/gmock.h>

#include "clusters/routes.h"
#include "tests/clusters/import/support.h"

namespace orrery::clusters::testing {
namespace import_test {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ImportOptions with_device(const std::string& device) {
  ImportOptions options;
  options.device = device;
  return options;
}

TEST(ImportTopoMatrix, Dgx1vIsTheCataloguesCubeMesh) {
  ImportOptions options = with_device("v100-sxm2-32gb");
  options.nic_bandwidth = BytesPerSecond{100e9 / 8};
  const auto imported = import_files({"dgx-1v.topo.txt"}, options);
  ASSERT_TRUE(imported) << errors_of(imported);
  const Cluster dgx = catalogue("dgx-1v");
  ASSERT_TRUE(imported->cluster.shape);
  const NodeShape &here = imported->cluster.shape->node, &there = dgx.shape->node;
  EXPECT_EQ(here.fabric, NodeFabric::mesh);
  EXPECT_EQ(here.edges, there.edges);
  EXPECT_EQ(here.link_bandwidth, there.link_bandwidth);
  EXPECT_EQ(here.latency, there.latency);
  EXPECT_EQ(here.pcie_switches, there.pcie_switches);
  EXPECT_EQ(here.pcie_bandwidth, there.pcie_bandwidth);
  EXPECT_EQ(here.sockets, there.sockets);
  EXPECT_EQ(here.nics, there.nics);
  EXPECT_EQ(here.nic_bandwidth, there.nic_bandwidth);
  EXPECT_EQ(imported->cluster.device(), dgx.device());
  EXPECT_EQ(imported->cluster.intra, dgx.intra);
  EXPECT_EQ(bisection(imported->cluster), bisection(dgx));
}

TEST(ImportNccl, Dgx1vIsTheCataloguesCubeMeshWithItsHost) {
  const auto imported = import_files({"dgx-1v.nccl.xml"});
  ASSERT_TRUE(imported) << errors_of(imported);
  EXPECT_THAT(imported->notes, IsEmpty());
  const Cluster dgx = catalogue("dgx-1v");
  ASSERT_TRUE(imported->cluster.shape);
  const NodeShape &here = imported->cluster.shape->node, &there = dgx.shape->node;
  EXPECT_EQ(here.edges, there.edges);
  EXPECT_EQ(here.pcie_switches, there.pcie_switches);
  EXPECT_EQ(here.cpu, there.cpu);
  EXPECT_EQ(here.socket_bandwidth, there.socket_bandwidth);
  EXPECT_EQ(here.host_memory_bandwidth, there.host_memory_bandwidth);
  EXPECT_EQ(here.nics, there.nics);
  EXPECT_EQ(here.nic_bandwidth, there.nic_bandwidth);
  EXPECT_EQ(imported->cluster.device(), dgx.device());
}

TEST(ImportNccl, DgxA100HasEightNicsOfTenAndTheCataloguesFigures) {
  const auto imported = import_files({"dgx-a100.nccl.xml"});
  ASSERT_TRUE(imported) << errors_of(imported);
  ASSERT_EQ(imported->notes.size(), 1U);
  EXPECT_THAT(imported->notes[0].message, HasSubstr("mlx5_4, mlx5_5"));
  EXPECT_EQ(imported->notes[0].code, "E0312");
  const Cluster dgx = catalogue("dgx-a100-80gb");
  ASSERT_TRUE(imported->cluster.shape);
  const NodeShape &here = imported->cluster.shape->node, &there = dgx.shape->node;
  EXPECT_EQ(here.fabric, NodeFabric::nvswitch);
  EXPECT_EQ(here.links, 12);
  EXPECT_FALSE(here.multicast);
  EXPECT_EQ(here.pcie_switches, there.pcie_switches);
  EXPECT_EQ(here.nics, there.nics);
  EXPECT_EQ(here.nic_bandwidth, there.nic_bandwidth);
  EXPECT_EQ(here.cpu, CpuVendor::amd);
  EXPECT_EQ(here.socket_bandwidth, there.socket_bandwidth);
  EXPECT_EQ(here.sockets, 4);  // NUMA nodes with GPUs
  EXPECT_EQ(here.host_memory_bandwidth.value, 51.2e9);
  EXPECT_EQ(imported->cluster.intra.bandwidth.value, 300e9);
}

TEST(ImportTopoMatrix, DgxA100AsATerminalShowsItIsTheSameNode) {
  ImportOptions options = with_device("a100-sxm4-80gb");
  options.nic_bandwidth = BytesPerSecond{25e9};
  options.nodes = 4;
  const auto imported = import_files({"dgx-a100.topo.txt"}, options);
  ASSERT_TRUE(imported) << errors_of(imported);
  ASSERT_TRUE(imported->cluster.shape);
  const NodeShape& node = imported->cluster.shape->node;
  EXPECT_EQ(node.fabric, NodeFabric::nvswitch);
  EXPECT_EQ(node.links, 12);
  EXPECT_EQ(node.nics, 8);
  EXPECT_EQ(node.pcie_switches, 4);
  EXPECT_EQ(imported->cluster.nodes, 4);
  EXPECT_EQ(imported->cluster.inter.bandwidth.value, 25e9);
  ASSERT_EQ(imported->notes.size(), 2U);  // storage NICs, and a network that no dump describes
}

TEST(ImportHgxH100, NcclAndMatrixSayTheSame) {
  ImportOptions options = with_device("h100-sxm5-80gb");
  options.nic_bandwidth = BytesPerSecond{50e9};
  const auto matrix = import_files({"hgx-h100.topo.txt"}, options);
  ASSERT_TRUE(matrix) << errors_of(matrix);
  const auto xml = import_files({"hgx-h100.nccl.xml"});
  ASSERT_TRUE(xml) << errors_of(xml);
  const NodeShape hgx = catalogue("hgx-h100").shape->node;
  for (const Cluster* cluster : {&matrix->cluster, &xml->cluster}) {
    ASSERT_TRUE(cluster->shape);
    const NodeShape& node = cluster->shape->node;
    EXPECT_EQ(node.links, 18);
    EXPECT_TRUE(node.multicast);
    EXPECT_EQ(node.nics, hgx.nics);
    EXPECT_EQ(node.pcie_switches, hgx.pcie_switches);
    EXPECT_EQ(node.sockets, hgx.sockets);
    EXPECT_EQ(node.nic_bandwidth, hgx.nic_bandwidth);
    EXPECT_EQ(cluster->intra, catalogue("hgx-h100").intra);
  }
  EXPECT_EQ(xml->cluster.shape->node.host_memory_bandwidth, hgx.host_memory_bandwidth);
  EXPECT_EQ(xml->cluster.shape->node.socket_bandwidth, hgx.socket_bandwidth);
}

TEST(ImportMatrixAndNccl, TheSecondDumpFillsWhatTheFirstLeavesOpen) {
  const auto both = import_files({"hgx-h100.topo.txt", "hgx-h100.nccl.xml"});
  ASSERT_TRUE(both) << errors_of(both);
  EXPECT_EQ(both->cluster.device().name, "H100-SXM5-80GB");
  const auto other = import_files({"dgx-1v.topo.txt", "pcie-box.topo.txt"});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error()[0].code, "E0310");
  EXPECT_EQ(other.error()[0].where.file, "pcie-box.topo.txt");
}

TEST(ImportPcieOnly, GpusMeetOverPcieAndSockets) {
  const auto imported = import_files({"pcie-box.topo.txt"}, with_device("a100-sxm4-80gb"));
  ASSERT_TRUE(imported) << errors_of(imported);
  const Cluster& cluster = imported->cluster;
  EXPECT_EQ(cluster.size(), 4);
  ASSERT_TRUE(cluster.shape);
  EXPECT_EQ(cluster.shape->node.fabric, NodeFabric::none);
  EXPECT_EQ(cluster.intra.name, "pcie");
  EXPECT_NEAR(bottleneck(cluster, 0, 1).value, 31.5e9, 0.1e9);
  EXPECT_LT(bottleneck(cluster, 0, 2).value, 31e9);  // across sockets
}

TEST(ImportPcieOnly, IsNoNvlinkWhereTheNodeIsWrittenLinkByLink) {
  const std::string text =
      "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\n"
      "GPU0\t X \tPIX\tSYS\tSYS\tSYS\t0-15\t0\n"
      "GPU1\tPIX\t X \tSYS\tSYS\tSYS\t0-15\t0\n"
      "GPU2\tSYS\tSYS\t X \tPIX\tNODE\t16-31\t1\n"
      "GPU3\tSYS\tSYS\tPIX\t X \tNODE\t16-31\t1\n"
      "NIC0\tSYS\tSYS\tNODE\tNODE\t X \n";
  ImportOptions options = with_device("l40s-48gb");
  options.nodes = 4, options.nic_bandwidth = base::BytesPerSecond{25e9 / 8};
  const auto imported = import_texts({{"uneven.topo.txt", text}}, options);
  ASSERT_TRUE(imported) << errors_of(imported);
  EXPECT_FALSE(imported->cluster.shape) << "its NIC is at one socket";
  EXPECT_EQ(imported->cluster.intra.name, "pcie") << "which collectives are priced by";
}

TEST(ImportPcieOnly, GpusAndNicsMaySitOnTheSocketsThemselves) {
  std::string text = "<system version=\"1\">\n";
  for (int s = 0; s < 2; ++s) {
    const std::string bus = "0000:0" + std::to_string(s),
                      pci = "\" vendor=\"0x10de\" device=\"0x20b2\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">";
    text += "<cpu host_hash=\"0x1\" numaid=\"" + std::to_string(s) +
            "\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"106\">";
    text += "<pci busid=\"" + bus + ":01.0\" class=\"0x030200" + pci + "<gpu dev=\"" + std::to_string(s) +
            "\" sm=\"80\" rank=\"" + std::to_string(s) + "\" gdr=\"1\"/></pci>";
    text += "<pci busid=\"" + bus + ":02.0\" class=\"0x020700" + pci + "<nic><net name=\"mlx5_" + std::to_string(s) +
            "\" dev=\"" + std::to_string(s) + "\" speed=\"200000\"/></nic></pci></cpu>\n";
  }
  ImportOptions options;
  options.nodes = 2;
  const auto imported = import_texts({{"vm.xml", text + "</system>\n"}}, options);
  ASSERT_TRUE(imported) << errors_of(imported);
  ASSERT_TRUE(imported->cluster.shape);
  EXPECT_EQ(imported->cluster.shape->node.pcie_switches, 0);
  EXPECT_EQ(imported->cluster.shape->node.sockets, 2);
  EXPECT_EQ(imported->cluster.nics_per_node, 2);
  EXPECT_NEAR(bottleneck(imported->cluster, 0, 2).value, 25e9, 1);
}

TEST(ImportHwloc, FillsInWhatTheMatrixDoesNotSay) {
  const auto alone = import_files({"pcie-box.hwloc.xml"}, with_device("h100-sxm5-80gb"));
  ASSERT_FALSE(alone);  // its NVLinks are in no dump
  EXPECT_EQ(alone.error().back().code, "E0311");
  const auto both = import_files({"pcie-box.topo.txt", "pcie-box.hwloc.xml"}, with_device("a100-sxm4-80gb"));
  ASSERT_TRUE(both) << errors_of(both);
  // The CPU is known now: Ice Lake, whose sockets are wider than the slowest known ones.
  EXPECT_NEAR(bottleneck(both->cluster, 0, 2).value, 10e9, 1);
}

TEST(ImportIbnetdiscover, RailsAndSpinesAreTheBriefForm) {
  ImportOptions options;
  options.node = "dgx-a100";
  options.hosts = "dgx*";
  const auto wrong = import_files({"rails.ib.txt"}, options);
  ASSERT_FALSE(wrong);  // two ports a host, eight NICs a node
  EXPECT_EQ(wrong.error()[0].code, "E0310");

  const auto eight = import_files({"eight-rails.ib.txt"}, options);
  ASSERT_TRUE(eight) << errors_of(eight);
  EXPECT_EQ(eight->cluster.nodes, 2);
  EXPECT_TRUE(eight->cluster.shape->network.rails);

  const auto xml = import_files({"dgx-a100.nccl.xml", "eight-rails.ib.txt"});
  ASSERT_TRUE(xml) << errors_of(xml);
  EXPECT_EQ(xml->cluster.nodes, 2);
  ASSERT_TRUE(xml->cluster.shape);
  EXPECT_TRUE(xml->cluster.shape->network.rails);
  EXPECT_EQ(xml->cluster.shape->network.leaf_nodes, 2);
  EXPECT_EQ(xml->cluster.shape->node.nic_bandwidth.value, 25e9);
}

TEST(ImportIbnetdiscover, GroupsOfRailsShareSpines) {
  const auto imported = import_files({"pcie-box.topo.txt", "rails.ib.txt"}, with_device("a100-sxm4-80gb"));
  ASSERT_TRUE(imported) << errors_of(imported);
  EXPECT_EQ(imported->cluster.nodes, 4);
  EXPECT_EQ(imported->cluster.nics_per_node, 2);
  // From a host of the first pair of leaves to one of the second: through a spine.
  const std::vector<Graph::vertex_descriptor> path = route(imported->cluster, 0, 8);
  EXPECT_TRUE(std::any_of(path.begin(), path.end(),
                          [&](auto v) { return (*imported->cluster.graph)[v].kind == VertexKind::spine; }));
}

TEST(ImportFused, TwoHostsAreTwoNodes) {
  const auto imported = import_files({"two-hosts.nccl.xml"});
  ASSERT_TRUE(imported) << errors_of(imported);
  EXPECT_EQ(imported->cluster.nodes, 2);
  EXPECT_EQ(imported->cluster.size(), 16);
  ASSERT_TRUE(imported->cluster.shape);
  ImportOptions three;
  three.nodes = 3;
  EXPECT_FALSE(import_files({"two-hosts.nccl.xml"}, three));
}

TEST(ImportFused, SwitchesOutsideTheHostsJoinThem) {
  std::string text = fixture("two-hosts.nccl.xml");
  for (const char* bus : {"0000:05:00.0", "0000:06:00.0", "0000:07:00.0", "0000:08:00.0"})
    for (std::size_t at; (at = text.find(std::string("target=\"") + bus)) != std::string::npos;)
      text.replace(at, 8 + 12, "target=\"fffffff:ff:ff.0");
  const auto imported = import_texts({{"two.xml", text}});
  ASSERT_TRUE(imported) << errors_of(imported);
  EXPECT_FALSE(imported->cluster.shape);
  EXPECT_EQ(imported->cluster.nodes, 2);
  EXPECT_EQ(bottleneck(imported->cluster, 0, 8).value, 450e9);  // NVLink across hosts
}

TEST(ImportedText, IsReadBackAsTheSameCluster) {
  ImportOptions options = with_device("a100-sxm4-80gb");
  for (const std::vector<std::string>& files : std::vector<std::vector<std::string>>{
           {"dgx-a100.nccl.xml"}, {"dgx-a100.nccl.xml", "eight-rails.ib.txt"}, {"pcie-box.topo.txt", "odd.ib.txt"}}) {
    const auto imported = import_files(files, options);
    ASSERT_TRUE(imported) << errors_of(imported);
    const auto again = parse_cluster(imported->yaml, "again.yaml", nullptr);
    ASSERT_TRUE(again) << base::render(again.error(), false);
    EXPECT_EQ(write_cluster(*again), imported->yaml);
    EXPECT_EQ(again->shape, imported->cluster.shape);
  }
}

}  // namespace import_test
}  // namespace orrery::clusters::testing

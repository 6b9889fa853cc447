/// Every entry of the catalogue is read, and what datasheets say of the machines is what comes out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "clusters/routes.h"
#include "tests/clusters/support.h"

namespace orrery::clusters {
namespace catalog_test {

using testing::catalog;

bool same_graph(const Graph& a, const Graph& b) {
  if (boost::num_vertices(a) != boost::num_vertices(b) || boost::num_edges(a) != boost::num_edges(b)) return false;
  for (std::size_t v = 0; v < boost::num_vertices(a); ++v) {
    if (!(a[v] == b[v])) return false;
  }
  auto left = boost::edges(a).first, right = boost::edges(b).first;
  for (; left != boost::edges(a).second; ++left, ++right) {
    if (boost::source(*left, a) != boost::source(*right, b) || boost::target(*left, a) != boost::target(*right, b) ||
        !(a[*left] == b[*right])) {
      return false;
    }
  }
  return true;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/clusters/catalog")) {
    if (entry.is_regular_file()) all.push_back(entry.path().stem().string());
  }
  std::sort(all.begin(), all.end());
  return all;
}

TEST(Catalog, HasTheMachinesThatAreAskedFor) {
  EXPECT_THAT(names(), ::testing::IsSupersetOf({"dgx-1v",           "aws-p3dn",      "dgx-2",         "dgx-2-superpod",
                                                "dgx-a100",         "selene",        "selene-1024",   "selene-2020",
                                                "azure-nd96asr-v4", "hgx-h100",      "hgx-h100-roce", "hgx-h200",
                                                "hgx-h800",         "hgx-b200",      "gb200-nvl64",   "gb300-nvl64",
                                                "meta-roce-24k",    "jean-zay-v100", "jean-zay-a100", "zion",
                                                "zionex",           "mi300x",        "tpu-v4",        "localhost-1",
                                                "localhost-2",      "localhost-4",   "localhost-8"}));
}

TEST(Catalog, IsListedInTheDocumentationWhoseExamplesAreRead) {
  std::ifstream file(std::string(ORRERY_SOURCE_DIR) + "/docs/clusters.md");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  for (const std::string& name : names()) EXPECT_NE(text.find("`" + name + "`"), std::string::npos) << name;
  int blocks = 0;
  const std::string open = "```yaml\n";
  for (std::size_t at = text.find(open); at != std::string::npos; at = text.find(open, at + 1), ++blocks) {
    const std::size_t from = at + open.size();
    const auto read =
        parse_cluster(text.substr(from, text.find("```", from) - from), "clusters.md", testing::from_catalog);
    EXPECT_TRUE(read) << base::render(read.error(), false);
  }
  EXPECT_EQ(blocks, 3);
}

TEST(Catalog, EntriesAreReadNamedAfterTheirFileAndSourced) {
  for (const std::string& name : names()) {
    const Cluster cluster = catalog(name);
    EXPECT_EQ(cluster.name, name);
    EXPECT_FALSE(cluster.sources.empty()) << name;
    EXPECT_FALSE(cluster.device().sources.empty()) << name;
    EXPECT_GT(cluster.device().price.value, 0) << name;
    EXPECT_GT(cluster.device().power.value, 0) << name;
  }
}

TEST(Catalog, EntriesSurviveWritingAndReading) {
  for (const std::string& name : names()) {
    const Cluster cluster = catalog(name);
    const auto again = parse_cluster(write_cluster(cluster), "written.yaml", nullptr);
    ASSERT_TRUE(again) << base::render(again.error(), false);
    EXPECT_EQ(again->name, cluster.name);
    EXPECT_EQ(again->devices, cluster.devices) << name;
    EXPECT_EQ(again->shape, cluster.shape) << name;
    EXPECT_EQ(again->intra, cluster.intra) << name;
    EXPECT_EQ(again->inter, cluster.inter) << name;
    EXPECT_EQ(again->stack, cluster.stack);
    EXPECT_EQ(again->sources, cluster.sources);
    EXPECT_EQ(again->device_vertices, cluster.device_vertices);
    EXPECT_TRUE(same_graph(*again->graph, *cluster.graph)) << name;
    EXPECT_EQ(write_cluster(*again), write_cluster(cluster)) << name;
  }
}

TEST(Catalog, ADescriptionIsTheClusterWithoutItsGraph) {
  for (const std::string& name : names()) {
    const Cluster cluster = catalog(name);
    const auto told =
        parse_description(testing::from_catalog(name).value_or(""), name + ".yaml", testing::from_catalog);
    ASSERT_TRUE(told) << base::render(told.error(), false);
    EXPECT_EQ(told->size(), cluster.size()) << name;
    EXPECT_EQ(told->devices, cluster.devices) << name;
    EXPECT_EQ(told->intra, cluster.intra) << name;
    EXPECT_EQ(told->inter, cluster.inter) << name;
    EXPECT_EQ(told->shape ? boost::num_vertices(*told->graph) : 0, 0U) << name << " has a shape, so its graph can wait";
  }
}

TEST(Catalog, WritingIndentsEveryLine) {
  const std::string text = write_cluster(catalog("localhost-2"), 4);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(line.rfind("    ", 0), 0u) << line;
}

TEST(Catalog, SeleneIs4480GpusOnEightRails) {
  const Cluster selene = catalog("selene");
  EXPECT_EQ(selene.size(), 4480);
  EXPECT_EQ(selene.device().name, "A100-SXM4-80GB");
  EXPECT_DOUBLE_EQ(selene.device().peak.at("bf16").value, 312e12);
  EXPECT_DOUBLE_EQ(selene.device().memory.value, 81920.0 * 1024 * 1024);
  EXPECT_DOUBLE_EQ(selene.intra.bandwidth.value, 300e9);  // 12 links of 25 GB/s
  EXPECT_DOUBLE_EQ(selene.inter.bandwidth.value, 25e9);   // one HDR port a GPU
  EXPECT_EQ(selene.nics_per_node, 8);
}

TEST(Catalog, SizesAreThosePublished) {
  EXPECT_EQ(catalog("selene-2020").size(), 2240);
  EXPECT_EQ(catalog("dgx-2-superpod").size(), 1536);
  EXPECT_EQ(catalog("meta-roce-24k").size(), 24576);
  EXPECT_EQ(catalog("jean-zay-v100").size(), 1044);
  EXPECT_EQ(catalog("jean-zay-a100").size(), 416);
  EXPECT_EQ(catalog("zionex-128").size(), 128);
  EXPECT_EQ(catalog("tpu-v4").size(), 4096);
}

TEST(Catalog, NodesSayWhereDataCanGo) {
  const Cluster dgx = catalog("dgx-a100-80gb");
  EXPECT_DOUBLE_EQ(dgx.host_memory.capacity.value, 2e12);
  EXPECT_DOUBLE_EQ(dgx.host_memory.read.value, 2 * 204.8e9);
  EXPECT_DOUBLE_EQ(dgx.nvme.capacity.value, 8 * 3.84e12);
  EXPECT_DOUBLE_EQ(dgx.nvme.write.value, 8 * 3.8e9);
  EXPECT_DOUBLE_EQ(dgx.nvme.latency.value, 100e-6);
  double memory = 0, nvme = 0;
  for (std::size_t v = 0; v < boost::num_vertices(*dgx.graph); ++v) {
    if ((*dgx.graph)[v].kind == VertexKind::host_memory) memory += (*dgx.graph)[v].capacity.value;
    if ((*dgx.graph)[v].kind == VertexKind::nvme) nvme += (*dgx.graph)[v].capacity.value;
  }
  EXPECT_DOUBLE_EQ(memory, 2e12);
  EXPECT_DOUBLE_EQ(nvme, 8 * 3.84e12);
}

TEST(Catalog, DevicesThatAreNotNvidiasAreYamlAlone) {
  const Cluster mi300x = catalog("mi300x"), pod = catalog("tpu-v4");
  EXPECT_EQ(mi300x.device().architecture, Architecture::generic);
  EXPECT_EQ(mi300x.intra.name, "xgmi");
  EXPECT_DOUBLE_EQ(mi300x.intra.bandwidth.value, 7 * 64e9);
  EXPECT_EQ(mi300x.shape->node.edges.size(), 28u);
  EXPECT_EQ(pod.device().architecture, Architecture::generic);
  EXPECT_EQ(pod.intra.name, "ici");
}

TEST(Catalog, Selene1024IsSeleneWith128Nodes) {
  const Cluster part = catalog("selene-1024");
  const auto cut = resized(catalog("selene"), 1024);
  ASSERT_TRUE(cut);
  EXPECT_EQ(part.size(), 1024);
  EXPECT_EQ(part.shape, cut->shape);
  EXPECT_TRUE(same_graph(*part.graph, *cut->graph));
}

TEST(Catalog, MeshOfDgx1vGivesEachGpuSixLinks) {
  const Cluster dgx = catalog("dgx-1v");
  std::vector<int> links(8, 0);
  for (const MeshEdge& e : dgx.shape->node.edges) {
    links[static_cast<std::size_t>(e.a)] += e.links;
    links[static_cast<std::size_t>(e.b)] += e.links;
  }
  EXPECT_THAT(links, ::testing::Each(6));
  EXPECT_DOUBLE_EQ(dgx.intra.bandwidth.value, 150e9);
}

TEST(Catalog, LocalhostRanksAreCoresWithTwoGibibytes) {
  for (const int ranks : {1, 2, 4, 8}) {
    const Cluster local = catalog("localhost-" + std::to_string(ranks));
    EXPECT_EQ(local.size(), ranks);
    EXPECT_EQ(local.device().kind, DeviceKind::cpu);
    EXPECT_EQ(local.stack, "orrery-cpu");
    EXPECT_EQ(local.intra.name, "shared-memory");
    EXPECT_DOUBLE_EQ(local.device().memory.value, 2.0 * 1024 * 1024 * 1024);
  }
}

TEST(Catalog, SaysWhichDevicesAreGpusAndWhichAreChips) {
  for (const auto& [name, word] : {std::pair{"hgx-h100", "GPU"},
                                   {"mi300x", "GPU"},
                                   {"tpu-v4", "chip"},
                                   {"aws-trn2", "chip"},
                                   {"hls-gaudi3", "chip"},
                                   {"localhost-2", "rank"}})
    EXPECT_STREQ(word_for(catalog(name).device().kind), word) << name;
}

TEST(Peak, FallsBackToTheTypeThatTheDeviceComputesIn) {
  const Cluster volta = catalog("dgx-1v"), ampere = catalog("dgx-a100"), local = catalog("localhost-1");
  EXPECT_DOUBLE_EQ(volta.peak("bf16").value, 125e12);
  EXPECT_DOUBLE_EQ(volta.peak("tf32").value, 15.7e12);
  EXPECT_DOUBLE_EQ(ampere.peak("fp8").value, 312e12);
  EXPECT_DOUBLE_EQ(local.peak("bf16").value, 80e9);
}

TEST(Resized, KeepsWholeNodesOrPartOfOne) {
  const Cluster selene = catalog("selene");
  EXPECT_EQ(resized(selene, 8192)->nodes, 1024);
  EXPECT_EQ(resized(selene, 8)->nodes, 1);
  const auto pair = resized(selene, 2);
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->size(), 2);
  EXPECT_EQ(pair->shape->node.nics, 2);
  EXPECT_EQ(pair->shape->node.pcie_switches, 1);
  EXPECT_DOUBLE_EQ(pair->intra.bandwidth.value, 300e9);
  const auto half = resized(catalog("dgx-2"), 8);
  EXPECT_EQ(half->shape->node.boards, 1);
}

TEST(Resized, RefusesWhatIsNeitherWholeNodesNorPartOfOne) {
  const auto odd = resized(catalog("selene"), 12);
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().front().code, "C10");
  EXPECT_FALSE(resized(catalog("selene"), 0));
  EXPECT_FALSE(resized(catalog("selene"), -8));
  EXPECT_EQ(resized(catalog("hgx-h100"), 2'000'000'000).error().front().code, "C11");
  EXPECT_EQ(resized(catalog("localhost-2"), 4).error().front().code, "C08");
}

}  // namespace catalog_test
}  // namespace orrery::clusters

/// What is wrong with a cluster file is said at its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "clusters/routes.h"
#include "tests/clusters/support.h"

namespace orrery::clusters {
namespace read_test {

using ::testing::HasSubstr;

const std::string kDevice =
    "{name: X, kind: gpu, architecture: ampere, peak: {bf16: 100 TFLOPS}, vector_peak: 10 TFLOPS, memory: 10 GiB, "
    "memory_bandwidth: 1 TB/s, cache: 1 MiB, multiprocessors: 10}";

/// A mesh of three GPUs; `edges` as written.
std::string mesh(const std::string& edges, const std::string& bandwidth = "25 GB/s") {
  return "name: m\n"  // 1
         "device: " +
         kDevice +
         "\n"                   // 2
         "node:\n"              // 3
         "  devices: 3\n"       // 4
         "  fabric:\n"          // 5
         "    kind: mesh\n"     // 6
         "    latency: 1 us\n"  // 7
         "    link_bandwidth: " +
         bandwidth +
         "\n"  // 8
         "    edges: " +
         edges +
         "\n"                                       // 9
         "  host: {memory_bandwidth: 100 GB/s}\n";  // 10
}

std::string odd(const std::string& vertices, const std::string& links) {
  return "name: odd\ndevice: " + kDevice + "\nvertices:\n" + vertices + "links:\n" + links;
}

const std::string kTwoGpus =
    "  - {name: a, kind: device, node: 0}\n"
    "  - {name: b, kind: device, node: 0}\n"
    "  - {name: sw, kind: nvswitch, node: 0}\n";

base::Diagnostic first(const std::string& text) {
  const auto read = parse_cluster(text, "c.yaml", testing::from_catalog);
  if (read) {
    ADD_FAILURE() << "was read";
    return {};
  }
  return read.error().front();
}

TEST(Mesh, IsReadAndRouted) {
  const auto cluster = parse_cluster(mesh("[[0, 1], [1, 2, 2]]"), "c.yaml", nullptr);
  ASSERT_TRUE(cluster) << base::render(cluster.error(), false);
  EXPECT_DOUBLE_EQ(bottleneck(*cluster, 1, 2).value, 50e9);
  EXPECT_DOUBLE_EQ(bottleneck(*cluster, 0, 2).value, 25e9);  // through GPU 1
  EXPECT_EQ(route(*cluster, 0, 2).size(), 3u);
}

TEST(Mesh, LinkToNowherePointsAtTheNumber) {
  const auto d = first(mesh("[[0, 1], [1, 2], [0, 7]]"));
  EXPECT_EQ(d.code, "C02");
  EXPECT_EQ(d.where.line, 9);
  EXPECT_EQ(d.where.column, 33);
  EXPECT_THAT(d.message, HasSubstr("device 7"));
}

TEST(Mesh, RefusesLinkTwiceLinkToItselfAndDeviceWithout) {
  EXPECT_EQ(first(mesh("[[0, 1], [1, 2], [2, 1]]")).code, "C03");
  EXPECT_EQ(first(mesh("[[0, 1], [1, 2], [2, 2]]")).code, "C04");
  const auto alone = first(mesh("[[0, 1]]"));
  EXPECT_EQ(alone.code, "C05");
  EXPECT_EQ(alone.where.line, 9);
  EXPECT_THAT(alone.message, HasSubstr("device 2"));
}

TEST(Units, BandwidthMustBePositiveAndHaveTheRightUnit) {
  for (const char* bandwidth : {"0 GB/s", "-25 GB/s", "25", "25 GB", "25 us"}) {
    const auto d = first(mesh("[[0, 1], [1, 2]]", bandwidth));
    EXPECT_EQ(d.code, "E0105") << bandwidth;
    EXPECT_EQ(d.where.line, 8) << bandwidth;
  }
}

TEST(Errors, OfOneFileAreAllReportedAtOnce) {
  const auto read = parse_cluster(mesh("[[0, 9], [1, 1]]", "25 GB") + "colour: red\n", "c.yaml", nullptr);
  ASSERT_FALSE(read);
  std::vector<std::string> codes;
  for (const auto& d : read.error()) codes.push_back(d.code);
  EXPECT_THAT(codes, ::testing::IsSupersetOf({"C02", "C04", "E0105", "E0103"}));
}

TEST(Device, UnknownNamePointsAtTheName) {
  const auto d = first(
      "name: x\ndevice: a100-sxm9\nnode: {devices: 1, fabric: {kind: shared-memory, bandwidth: 1 GB/s, "
      "latency: 1 us}, host: {memory_bandwidth: 1 GB/s}}\n");
  EXPECT_EQ(d.code, "C01");
  EXPECT_EQ(d.where.line, 2);
  EXPECT_EQ(d.where.column, 9);
}

TEST(Device, FaultsOfACatalogueDeviceAreToldWithTheirPlace) {
  const Find broken = [](const std::string&) { return std::optional<std::string>("name: x\nkind: gpu\n"); };
  const auto read = parse_cluster(
      "name: x\ndevice: y\nnode: {devices: 1, fabric: {kind: nvswitch, links: 1, link_bandwidth: 1 GB/s, "
      "latency: 1 us}, host: {memory_bandwidth: 1 GB/s}}\n",
      "c.yaml", broken);
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().front().message, HasSubstr("devices/y.yaml"));
}

constexpr const char* kPowered =
    "name: x\nlike: dgx-a100\npower: {host: 2 kW, network: 250 W, pue: 1.2}\ndevice:\n  {name: d, kind: gpu, "
    "architecture: ampere, peak: {bf16: 1 TFLOPS}, vector_peak: 1 TFLOPS, memory: 1 GB, memory_bandwidth: 1 TB/s, "
    "cache: 1 MB, multiprocessors: 1, power: 400 W, idle_power: ";

TEST(Power, IsReadWrittenAndSurvivesAnotherSize) {
  const auto read = parse_cluster(std::string(kPowered) + "50 W}\n", "c.yaml", testing::from_catalog);
  ASSERT_TRUE(read) << base::render(read.error(), false);
  const NodePower given{base::Watts{2000}, base::Watts{250}, 1.2};
  EXPECT_EQ(read->power, given);
  EXPECT_EQ(read->device().idle_power, base::Watts{50});
  const auto again = parse_cluster(read->text, "again.yaml", testing::from_catalog);
  ASSERT_TRUE(again) << base::render(again.error(), false);
  EXPECT_EQ(again->power, given);
  EXPECT_EQ(again->device().idle_power, base::Watts{50});
  EXPECT_EQ(resized(*read, 32)->power, given);
  EXPECT_EQ(resized(*read, 2)->power.host, base::Watts{500}) << "two of a node's eight devices have a quarter of it";
}

TEST(DeviceLike, ChangesTheKeysThatAreGivenAndKeepsTheOthers) {
  const auto read =
      parse_cluster("name: x\nlike: hgx-h100\ndevice: {like: h100-sxm5-80gb, power: 500 W, sources: our racks}\n",
                    "c.yaml", testing::from_catalog);
  ASSERT_TRUE(read) << base::render(read.error(), false);
  const auto whole = parse_cluster("name: x\nlike: hgx-h100\n", "c.yaml", testing::from_catalog);
  ASSERT_TRUE(whole);
  Device expected = whole->device();
  expected.name = "H100-SXM5-80GB at 500 W";
  expected.power = base::Watts{500};
  expected.sources.emplace_back("our racks");
  EXPECT_EQ(read->device(), expected);
  const auto again = parse_cluster(read->text, "again.yaml", testing::from_catalog);
  ASSERT_TRUE(again) << base::render(again.error(), false);
  EXPECT_EQ(again->device(), expected);
}

TEST(DeviceLike, KeepsItsNameWithItsPowerAndItsIdlePowerWithLess) {
  const auto of = [](const std::string& device) {
    const auto read =
        parse_cluster("name: x\nlike: hgx-h200\ndevice: " + device + "\n", "c.yaml", testing::from_catalog);
    EXPECT_TRUE(read);
    return read->device();
  };
  const Device whole = of("h200-sxm5-141gb");
  EXPECT_EQ(whole.idle_power, base::Watts{0.12 * 700}) << "not given";
  EXPECT_EQ(of("{like: h200-sxm5-141gb, price: 3 $/h}").name, whole.name);
  EXPECT_EQ(of("{like: h200-sxm5-141gb, power: 400 W}").idle_power, whole.idle_power);
}

TEST(DeviceLike, IsRefusedWhereItNamesNothingOrChangesWhatNoDeviceHas) {
  const auto of = [](const std::string& device) { return first("name: x\nlike: hgx-h100\ndevice: " + device + "\n"); };
  EXPECT_EQ(of("{like: h100-sxm9}").code, "C01");
  EXPECT_EQ(of("{like: h100-sxm5-80gb, watts: 500 W}").code, "E0103");
  EXPECT_EQ(of("{like: h100-sxm5-80gb, power: 70 W}").code, "C04") << "what it draws without work";
  EXPECT_EQ(of("{like: a100-pcie-80gb, power: 36 W}").code, "C04") << "by default 0.12 of the rated power";
  EXPECT_EQ(of("{like: h100-sxm5-80gb, name: ours}").code, "C09") << "its rates are found by its name";
  EXPECT_EQ(of("{power: 500 W}").code, "E0102") << "without `like` a device is given in full";
}

TEST(Power, WithoutWorkIsNoMoreThanRatedAndAPueNoLessThanOne) {
  EXPECT_EQ(first(std::string(kPowered) + "500 W}\n").code, "C04");
  EXPECT_NE(first("name: x\nlike: dgx-a100\npower: {pue: 0.9}\n").code, "");
}

TEST(Nodes, NeedNicsAndAFabric) {
  const std::string one = mesh("[[0, 1], [1, 2]]") + "nodes: 2\n";
  EXPECT_EQ(first(one).code, "C05");
  EXPECT_EQ(first(one).where.line, 11);
  EXPECT_EQ(first(one + "fabric: {kind: infiniband}\n").code, "C05");
}

TEST(Nodes, AreAsManyAsAGraphCanHold) {
  std::string text = *testing::from_catalog("dgx-2");
  EXPECT_TRUE(parse_cluster(text.replace(text.find("nodes: 1\n"), 8, "nodes: 64"), "c.yaml", testing::from_catalog));
  const auto d = first(text.replace(text.find("nodes: 64"), 9, "nodes: 99999"));
  EXPECT_EQ(d.code, "E0105");  // more devices than any machine has
  EXPECT_EQ(first("name: x\nlike: hgx-h100\nnodes: 99999\n").code, "C11");
}

TEST(Pods, DivideIntoLeaves) {
  const auto text = *testing::from_catalog("selene");
  std::string wrong = text;
  wrong.replace(wrong.find("pod_nodes: 140"), 14, "pod_nodes: 130");
  EXPECT_EQ(first(wrong).code, "C04");
}

TEST(Like, RefusesUnknownNames) {
  const auto d = first("name: x\nlike: nowhere\nnodes: 2\n");
  EXPECT_EQ(d.code, "C01");
  EXPECT_EQ(d.where.line, 2);
  EXPECT_EQ(d.where.column, 7);
}

TEST(Like, TakesEverythingButWhatStandsBesideIt) {
  const auto cluster = parse_cluster(
      "name: x\nlike: selene-1024\ndevice: a100-sxm4-40gb\nnode:\n  nics: {count: 4, bandwidth: 100 Gb/s, latency: 1 "
      "us}\n"
      "nodes: 3\nsources: mine\n",
      "c.yaml", testing::from_catalog);
  ASSERT_TRUE(cluster) << base::render(cluster.error(), false);
  const Cluster selene = testing::catalog("selene");
  EXPECT_EQ(cluster->device().name, "A100-SXM4-40GB");
  EXPECT_EQ(cluster->nodes, 3);
  EXPECT_EQ(cluster->nics_per_node, 4);
  EXPECT_EQ(cluster->shape->network, selene.shape->network);
  EXPECT_EQ(cluster->shape->node.pcie_switches, 4);
  EXPECT_DOUBLE_EQ(cluster->intra.bandwidth.value, 300e9);
  EXPECT_EQ(cluster->sources.front(), "mine");
  EXPECT_EQ(cluster->sources.size(), selene.sources.size() + 1);
}

TEST(Like, InACircleSaysHowItGoes) {
  const Find circle = [](const std::string& name) -> std::optional<std::string> {
    return "name: " + name + "\nlike: " + (name == "a" ? "b" : "a") + "\n";
  };
  const auto read = parse_cluster("name: x\nlike: a\n", "c.yaml", circle);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().front().code, "C07");
  EXPECT_EQ(read.error().front().where.line, 2);
  EXPECT_THAT(read.error().front().message, HasSubstr("a -> b -> a"));
}

TEST(Like, EndsHoweverLongTheChain) {
  const Find endless = [](const std::string& name) -> std::optional<std::string> {
    return "name: x\nlike: " + name + "x\n";
  };
  EXPECT_EQ(parse_cluster("name: x\nlike: a\n", "c.yaml", endless).error().front().code, "C07");
}

TEST(Like, FaultsAreToldWithTheirPlaceInTheOtherFile) {
  const Find broken = [](const std::string& name) -> std::optional<std::string> {
    return name == "b" ? std::optional<std::string>("name: b\nlike: selene\nnodes: many\n")
                       : testing::from_catalog(name);
  };
  const auto read = parse_cluster("name: x\nlike: b\n", "c.yaml", broken);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().front().where.file, "c.yaml");
  EXPECT_THAT(read.error().front().message, HasSubstr("b.yaml:3:8"));
}

TEST(Like, CannotShrinkWhatIsGivenLinkByLink) {
  const Find odd_one = [](const std::string& name) -> std::optional<std::string> {
    return name == "odd" ? std::optional<std::string>(odd(kTwoGpus,
                                                          "  - {from: a, to: sw, kind: nvlink, bandwidth: 1 GB/s, "
                                                          "latency: 1 us}\n  - {from: sw, to: b, kind: nvlink, "
                                                          "bandwidth: 1 GB/s, latency: 1 us}\n"))
                         : std::nullopt;
  };
  EXPECT_EQ(parse_cluster("name: x\nlike: odd\nnodes: 2\n", "c.yaml", odd_one).error().front().code, "C09");
  const auto renamed = parse_cluster("name: x\nlike: odd\n", "c.yaml", odd_one);
  ASSERT_TRUE(renamed) << base::render(renamed.error(), false);
  EXPECT_EQ(renamed->name, "x");
}

TEST(Links, OddMachineIsReadRoutedAndWritten) {
  const auto cluster = parse_cluster(odd(kTwoGpus,
                                         "  - {from: a, to: sw, kind: nvlink, bandwidth: 100 GB/s, latency: 0.5 us}\n"
                                         "  - {from: sw, to: b, kind: nvlink, bandwidth: 50 GB/s, latency: 0.25 us}\n"),
                                     "c.yaml", nullptr);
  ASSERT_TRUE(cluster) << base::render(cluster.error(), false);
  EXPECT_EQ(cluster->size(), 2);
  EXPECT_DOUBLE_EQ(cluster->intra.bandwidth.value, 50e9);
  EXPECT_DOUBLE_EQ(cluster->intra.latency.value, 0.75e-6);
  EXPECT_DOUBLE_EQ(span_of(*cluster, {0, 1}).bandwidth.value, 50e9);
  EXPECT_DOUBLE_EQ(bisection(*cluster).value, 50e9);
  const auto again = parse_cluster(write_cluster(*cluster), "written.yaml", nullptr);
  ASSERT_TRUE(again) << base::render(again.error(), false);
  EXPECT_EQ(write_cluster(*again), write_cluster(*cluster));
  EXPECT_EQ(resized(*cluster, 1).error().front().code, "C09");
}

TEST(Links, LinkToNowhereNamesTheNearestVertex) {
  const auto d = first(odd(kTwoGpus, "  - {from: a, to: sv, kind: nvlink, bandwidth: 1 GB/s, latency: 1 us}\n"));
  EXPECT_EQ(d.code, "C02");
  EXPECT_EQ(d.where.line, 8);
  EXPECT_EQ(d.where.column, 19);
}

TEST(Links, TwoDevicesOfOneNameAreRefusedAtTheSecond) {
  const auto d = first(odd("  - {name: a, kind: device, node: 0}\n  - {name: a, kind: device, node: 0}\n",
                           "  - {from: a, to: a, kind: nvlink, bandwidth: 1 GB/s, latency: 1 us}\n"));
  EXPECT_EQ(d.code, "C03");
  EXPECT_EQ(d.where.line, 5);
}

TEST(Links, DisconnectedDeviceIsRefusedAtItsVertex) {
  const auto d = first(odd(kTwoGpus, "  - {from: a, to: sw, kind: nvlink, bandwidth: 1 GB/s, latency: 1 us}\n"));
  EXPECT_EQ(d.code, "C05");
  EXPECT_EQ(d.where.line, 5);
  EXPECT_THAT(d.message, HasSubstr("'b'"));
}

TEST(Documentation, ExamplesOfClustersAreRead) {
  std::ifstream file(std::string(ORRERY_SOURCE_DIR) + "/docs/formats.md");
  std::string text(std::istreambuf_iterator<char>(file), {});
  const std::size_t begin = text.find("## cluster.yaml"), end = text.find("\n## ", begin + 1);
  ASSERT_NE(begin, std::string::npos);
  text = text.substr(begin, end - begin);
  int blocks = 0;
  const std::string open = "```yaml\n";
  for (std::size_t at = text.find(open); at != std::string::npos; at = text.find(open, at + 1), ++blocks) {
    const std::size_t from = at + open.size();
    const auto read =
        parse_cluster(text.substr(from, text.find("```", from) - from), "formats.md", testing::from_catalog);
    EXPECT_TRUE(read) << base::render(read.error(), false);
  }
  EXPECT_EQ(blocks, 3);
}

TEST(Links, NodesHaveEquallyManyDevices) {
  const auto d = first(odd(kTwoGpus + "  - {name: c, kind: device, node: 1}\n",
                           "  - {from: a, to: b, kind: nvlink, bandwidth: 1 GB/s, latency: 1 us}\n"));
  EXPECT_EQ(d.code, "C06");
}

}  // namespace read_test
}  // namespace orrery::clusters

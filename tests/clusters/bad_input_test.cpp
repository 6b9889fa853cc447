/// Whatever is done to a cluster file, it is read or refused with findings that point into it; it never crashes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "clusters/rings.h"
#include "clusters/routes.h"
#include "tests/clusters/support.h"

namespace orrery::clusters {
namespace bad_input_test {

using testing::from_catalog;
using ::testing::HasSubstr;

base::Diagnostics refused(const std::string& text) {
  const auto read = parse_cluster(text, "c.yaml", from_catalog);
  if (read) {
    ADD_FAILURE() << "was read:\n" << text;
    return {{}};
  }
  return read.error();
}

/// A catalogue entry with one piece replaced.
std::string with(const std::string& name, const std::string& from, const std::string& to) {
  std::string text = from_catalog(name).value();
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

int line_of(const std::string& text, const std::string& piece) {
  const auto at = static_cast<std::ptrdiff_t>(text.find(piece));
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + at, '\n'));
}

TEST(BadInput, WrongUnitsAndSizesPointAtTheirPlace) {
  struct Case {
    const char *name, *from, *to, *code;
  };
  const Case cases[] = {
      {"dgx-1v", "link_bandwidth: 25 GB/s", "link_bandwidth: 25 GiB", "E0105"},
      {"dgx-1v", "link_bandwidth: 25 GB/s", "link_bandwidth: 0 GB/s", "E0105"},
      {"dgx-1v", "link_bandwidth: 25 GB/s", "link_bandwidth: -25 GB/s", "E0105"},
      {"dgx-1v", "link_bandwidth: 25 GB/s", "link_bandwidth: 25", "E0105"},
      {"dgx-1v", "link_bandwidth: 25 GB/s", "link_bandwidth: 1e9 TB/s", "E0105"},
      {"dgx-1v", "latency: 0.3 us", "latency: 3 GB", "E0105"},
      {"dgx-1v", "latency: 0.3 us", "latency: 3000 s", "E0105"},
      {"dgx-1v", "devices: 8", "devices: 0", "E0105"},
      {"dgx-1v", "devices: 8", "devices: 1000000", "E0105"},
      {"dgx-1v", "count: 4", "count: 100000", "E0105"},
      {"dgx-1v", "memory: 512 GB", "memory: 512 GB/s", "E0105"},
      {"dgx-1v", "nodes: 1", "nodes: 99999999", "E0105"},
      {"dgx-1v", "kind: mesh", "kind: mush", "E0106"},
      {"dgx-1v", "[6, 7, 2]", "[6, 9, 2]", "C02"},
      {"dgx-1v", "[6, 7, 2]", "[6, 5, 2]", "C03"},
      {"dgx-1v", "[6, 7, 2]", "[6, 6, 2]", "C04"},
      {"dgx-1v", "[6, 7, 2]", "[6]", "C04"},
      {"dgx-2", "boards: 2", "boards: 3", "C04"},
      {"hgx-h100", "link_bandwidth: 25 GB/s", "link_bandwidth: 900 GB/s", "C04"},  // of all links together
      {"hgx-h100", "bandwidth: 400 Gb/s", "bandwidth: 0.4 Gb/s", "C04"},           // 400 meant
      {"hgx-h100", "bandwidth: 400 Gb/s", "bandwidth: 400 TB/s", "C04"},
      {"tpu-v4", "link_bandwidth: 50 GB/s", "link_bandwidth: 50 TB/s", "C04"},
      {"hgx-h100", "device: h100-sxm5-80gb", "device: [h100-sxm5-80gb, a100-sxm4-80gb]", "C12"},
      {"dgx-2", "capacity: 3.84 TB", "capacity: 3.84", "E0105"},
      {"selene", "pod_nodes: 140", "pod_nodes: 130", "C04"},
      {"selene", "oversubscription: 1", "oversubscription: 0.5", "E0105"},
      {"zion", "message_latency: 30 us", "message_latency: 30", "E0105"},
      {"zion", "staged: true", "staged: perhaps", "E0105"},
      {"zion", "many_flows_rate: 14 Gb/s", "many_flows_rate: 43 Gb/s", "C04"},
      {"zionex", "nics: {count: 8,", "nics: {count: 8, many_flows_rate: 14 Gb/s,", "C04"},
      {"mi300x", "efficiency: 0.75", "efficiency: 75", "E0105"},
      {"tpu-v4", "block: [2, 2, 1]", "block: [2, 2]", "C04"},
      {"tpu-v4", "block: [2, 2, 1]", "block: [2, 2, 2]", "C04"},
      {"tpu-v4", "dims: [16, 16, 16]", "dims: [15, 16, 16]", "C04"},
      {"tpu-v4", "dims: [16, 16, 16]", "dims: []", "C04"},
  };
  for (const Case& one : cases) {
    const std::string text = with(one.name, one.from, one.to);
    const base::Diagnostics found = refused(text);
    EXPECT_EQ(found.front().code, one.code) << one.to << "\n" << base::render(found, false);
    EXPECT_EQ(found.front().where.file, "c.yaml");
    if (std::string(one.to) != "block: [2, 2]") {  // told at the dims, which have three numbers
      EXPECT_EQ(found.front().where.line, line_of(text, one.to)) << base::render(found, false);
    }
    EXPECT_GT(found.front().where.column, 0);
  }
}

TEST(BadInput, EveryClusterFindingHasAHint) {
  for (const auto& [name, from, to] : {std::tuple{"dgx-1v", "[6, 7, 2]", "[6, 9, 2]"},
                                       {"dgx-1v", "[6, 7, 2]", "[6, 6, 2]"},
                                       {"dgx-2", "boards: 2", "boards: 3"},
                                       {"selene", "pod_nodes: 140", "pod_nodes: 130"},
                                       {"tpu-v4", "block: [2, 2, 1]", "block: [2, 2, 2]"},
                                       {"dgx-1v", "device: v100-sxm2-32gb", "device: v101"}}) {
    for (const base::Diagnostic& d : refused(with(name, from, to))) EXPECT_FALSE(d.help.empty()) << d.message;
  }
}

TEST(BadInput, IslandsOfAMeshNeedPcie) {
  std::string text =
      "name: x\ndevice: v100-sxm2-32gb\nnode:\n  devices: 4\n  fabric: {kind: mesh, latency: 1 us, link_bandwidth: 25 "
      "GB/s, "
      "edges: [[0, 1], [2, 3]]}\n  host: {memory_bandwidth: 100 GB/s}\n";
  const base::Diagnostics found = refused(text);
  EXPECT_EQ(found.front().code, "C05");
  EXPECT_THAT(found.front().message, HasSubstr("devices 0 and 2"));
  EXPECT_EQ(found.front().where.line, 5);
  text += "  pcie: {bandwidth: 15.75 GB/s, latency: 0.4 us}\n";
  const auto cluster = parse_cluster(text, "c.yaml", from_catalog);
  ASSERT_TRUE(cluster) << base::render(cluster.error(), false);
  EXPECT_EQ(cluster->intra.name, "pcie");
  EXPECT_DOUBLE_EQ(span_of(*cluster, {0, 1}).bandwidth.value, 25e9);
  EXPECT_DOUBLE_EQ(span_of(*cluster, {0, 2}).bandwidth.value, 15.75e9);
}

TEST(BadInput, NodesOfPcieAloneAreRead) {
  const std::string text =
      "name: x\ndevice: v100-sxm2-32gb\nnode:\n  devices: 4\n  fabric: {kind: pcie}\n"
      "  host: {cpu: intel, sockets: 2, link_bandwidth: 10 GB/s, memory_bandwidth: 100 GB/s}\n";
  EXPECT_EQ(refused(text).front().code, "C05");
  const auto cluster =
      parse_cluster(text + "  pcie: {switches: 2, bandwidth: 15.75 GB/s, latency: 0.4 us}\n", "c.yaml", from_catalog);
  ASSERT_TRUE(cluster) << base::render(cluster.error(), false);
  const Wiring near = wiring_of(*cluster, {0, 1}), all = wiring_of(*cluster, {0, 1, 2, 3});
  EXPECT_EQ(near.ring.path_intra, PathType::pcie_switch);
  EXPECT_EQ(all.ring.path_intra, PathType::sockets);
  EXPECT_FALSE(all.direct);
  EXPECT_NEAR(near.ring.total().value, 12e9, 1);  // PCI_BW
}

TEST(BadInput, AllFaultsOfAFileComeAtOnce) {
  const base::Diagnostics found = refused(
      "name: x\ndevice: nothing\nnode:\n  devices: 3\n  fabric: {kind: mesh, latency: 1 GB, link_bandwidth: 0 GB/s, "
      "edges: "
      "[[0, 7], [1, 1]]}\n  host: {memory_bandwidth: 1}\n  nics: {count: 2, bandwidth: 1 Gb, latency: 1 us}\n"
      "fabric: {kind: carrier-pigeon}\nnodes: 0\nhue: red\n");
  std::vector<std::string> codes;
  for (const auto& d : found) codes.push_back(d.code);
  EXPECT_GE(found.size(), 10U) << base::render(found, false);
  EXPECT_THAT(codes, ::testing::IsSupersetOf({"C01", "C02", "C04", "E0105", "E0106", "E0103"}));
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/clusters/catalog")) {
    if (entry.is_regular_file()) all.push_back(entry.path().stem().string());
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// What careless hands and broken disks do to a text.
std::string mutated(std::string text, std::mt19937& random) {
  static const char* const kPieces[] = {
      "0",    "-1",  "99999999999999999999", "1e308",      "nan",    "GB/s", "us", "[", "]",  "{", "}",  ": ",
      "\n",   "  ",  "like: selene\n",       "nodes: 7\n", "[0, 1]", "&a ",  "*a", "'", "\"", "#", "\t", "\xff",
      "null", "true"};
  const auto pick = [&](std::size_t most) { return std::uniform_int_distribution<std::size_t>(0, most)(random); };
  const std::size_t times = 1 + pick(3);
  for (std::size_t i = 0; i < times && !text.empty(); ++i) {
    const std::size_t at = pick(text.size() - 1);
    switch (pick(5)) {
      case 0: text.resize(at); break;  // cut in the middle
      case 1: text.erase(at, 1 + pick(20)); break;
      case 2: text.insert(at, kPieces[pick(std::size(kPieces) - 1)]); break;
      case 3: text[at] = static_cast<char>(32 + pick(94)); break;
      case 4: text.insert(at, text.substr(pick(text.size() - 1), 1 + pick(40))); break;
      default: {  // another number
        const std::size_t digit = text.find_first_of("0123456789", at);
        if (digit != std::string::npos) text.replace(digit, 1, kPieces[pick(3)]);
      }
    }
  }
  return text;
}

TEST(BadInput, MutationsOfTheCatalogueNeverCrash) {
  std::mt19937 random(20261120);
  int read = 0, refusals = 0;
  for (const std::string& name : names()) {
    const std::string text = from_catalog(name).value();
    if (testing::catalog(name).size() > 2000) continue;  // their graphs take their time
    for (int i = 0; i < 60; ++i) {
      const std::string changed = mutated(text, random);
      const auto cluster = parse_cluster(changed, "c.yaml", from_catalog);
      if (!cluster) {
        ++refusals;
        ASSERT_FALSE(cluster.error().empty()) << changed;
        for (const base::Diagnostic& d : cluster.error()) {
          EXPECT_EQ(d.code.empty(), d.severity == base::Severity::note) << d.message;
          EXPECT_EQ(d.where.file, "c.yaml") << changed;
        }
        (void)base::render(cluster.error(), true);
        continue;
      }
      ++read;
      const auto again = parse_cluster(write_cluster(*cluster), "written.yaml", nullptr);
      ASSERT_TRUE(again) << changed << base::render(again.error(), false);
      EXPECT_EQ(write_cluster(*again), write_cluster(*cluster));
      if (cluster->size() < 2 || cluster->size() > 64) continue;
      EXPECT_GT(span_of(*cluster, {0, cluster->size() - 1}).bandwidth.value, 0) << changed;
      (void)bisection(*cluster);
      (void)wiring_of(*cluster, {0, 1});
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refusals, 100);
}

}  // namespace bad_input_test
}  // namespace orrery::clusters

// What a machine is described as: hwloc's XML of a machine that is not here, and made-up files of its kernel.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "clusters/read.h"
#include "exec/failure.h"
#include "exec/probe/cluster_file.h"
#include "exec/probe/description.h"
#include "exec/probe/gpus.h"

namespace orrery::exec {
namespace probe_description_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// Two sockets of two cores with two threads each, an L2 per core, an L3 per socket, a GPU and an InfiniBand card.
std::string two_sockets() {
  std::string out =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology "
      "version=\"2.0\">"
      "<object type=\"Machine\" os_index=\"0\" cpuset=\"0xff\" complete_cpuset=\"0xff\" allowed_cpuset=\"0xff\" "
      "nodeset=\"0x3\" complete_nodeset=\"0x3\" allowed_nodeset=\"0x3\" gp_index=\"1\">"
      "<info name=\"HostName\" value=\"far\"/><info name=\"hwlocVersion\" value=\"9.9.9\"/>";
  int index = 2;
  const auto open = [&](const std::string& type, int mask, int node, const std::string& more) {
    out += fmt::format(
        "<object type=\"{0}\" os_index=\"{1}\" cpuset=\"{2:#x}\" complete_cpuset=\"{2:#x}\" nodeset=\"{3:#x}\" "
        "complete_nodeset=\"{3:#x}\" gp_index=\"{1}\"{4}>",
        type, index, mask, node, more);
    ++index;
  };
  const auto cache = [](int bytes, int depth, int type) {
    return fmt::format(
        " cache_size=\"{}\" depth=\"{}\" cache_linesize=\"64\" cache_associativity=\"0\" cache_type=\"{}\"", bytes,
        depth, type);
  };
  for (int package = 0; package < 2; ++package) {
    const int mask = 0xf << (4 * package), node = 1 << package;
    open("Package", mask, node, "");
    if (package == 0) out += "<info name=\"CPUModel\" value=\"Imaginary  CPU @ 3.10GHz\"/>";
    out += fmt::format(
        "<object type=\"NUMANode\" os_index=\"{0}\" cpuset=\"{1:#x}\" complete_cpuset=\"{1:#x}\" nodeset=\"{2:#x}\" "
        "complete_nodeset=\"{2:#x}\" gp_index=\"{3}\" local_memory=\"17179869184\"><page_type size=\"4096\" "
        "count=\"4194304\"/></object>",
        package, mask, node, 100 + package);
    open("L3Cache", mask, node, cache(33554432, 3, 0));
    for (int core = 0; core < 2; ++core) {
      const int cores = 0x3 << (4 * package + 2 * core);
      open("L2Cache", cores, node, cache(1048576, 2, 0));
      open("L1Cache", cores, node, cache(32768, 1, 1));
      open("Core", cores, node, "");
      for (int thread = 0; thread < 2; ++thread) {
        const int pu = 4 * package + 2 * core + thread;
        out += fmt::format(
            "<object type=\"PU\" os_index=\"{0}\" cpuset=\"{1:#x}\" complete_cpuset=\"{1:#x}\" nodeset=\"{2:#x}\" "
            "complete_nodeset=\"{2:#x}\" gp_index=\"{3}\"/>",
            pu, 1 << pu, node, 200 + pu);
      }
      out += "</object></object></object>";
    }
    out += "</object></object>";
  }
  out +=
      "<object type=\"Bridge\" gp_index=\"300\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[00-ff]\">"
      "<object type=\"PCIDev\" gp_index=\"301\" pci_busid=\"0000:3b:00.0\" pci_type=\"0302 [10de:20b0] [10de:134f] "
      "a1\" "
      "pci_link_speed=\"31.5\"><info name=\"PCIVendor\" value=\"NVIDIA Corporation\"/></object>"
      "<object type=\"PCIDev\" gp_index=\"302\" pci_busid=\"0000:5e:00.0\" pci_type=\"0207 [15b3:101b] [15b3:0007] "
      "00\" "
      "pci_link_speed=\"31.5\"><object type=\"OSDev\" gp_index=\"303\" name=\"mlx5_0\" osdev_type=\"3\"/></object>"
      "</object></object></topology>";
  return out;
}

class Described : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "orrery-probe-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    file("proc/cpuinfo", "vendor_id\t: AuthenticAMD\nflags\t\t: fpu sse2 avx fma avx2 bmi\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void file(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  [[nodiscard]] MachineDescription described() const { return describe_machine({two_sockets(), root_.string()}); }
  fs::path root_;
};

TEST_F(Described, CountsSocketsCoresThreadsAndCaches) {
  const MachineDescription m = described();
  EXPECT_EQ(m.tool, "hwloc 9.9.9");
  EXPECT_EQ(m.host, "far");
  EXPECT_EQ(m.processor.packages, 2);
  EXPECT_EQ(m.processor.cores, 4);
  EXPECT_EQ(m.processor.threads, 8);
  EXPECT_EQ(m.numa.size(), 2U);
  EXPECT_EQ(m.memory_bytes.value, 32.0 * (1 << 30));
  EXPECT_EQ(m.caches, (std::vector<CacheLevel>{{1, 32768, 4, 1}, {2, 1048576, 4, 1}, {3, 33554432, 2, 2}}));
  EXPECT_EQ(own_cache(m).value, 1048576) << "the L3 is shared, the L2 is a core's own";
}

TEST_F(Described, SeesGpusAndFabricsOnThePciBus) {
  file("sys/class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n");
  const MachineDescription m = described();
  ASSERT_EQ(m.accelerators.size(), 1U);
  EXPECT_EQ(m.accelerators[0].address, "0000:3b:00.0");
  EXPECT_EQ(m.accelerators[0].vendor, "NVIDIA Corporation");
  EXPECT_EQ(m.accelerators[0].device_id, 0x20b0);
  ASSERT_EQ(m.networks.size(), 1U);
  EXPECT_EQ(m.networks[0].name, "mlx5_0");
  EXPECT_EQ(m.networks[0].kind, "openfabrics");
  EXPECT_DOUBLE_EQ(m.networks[0].bandwidth_bytes_per_s, 25e9);
}

TEST_F(Described, TakesTheClockFromWhoeverKnowsItBest) {
  EXPECT_DOUBLE_EQ(described().processor.clock_hz.value, 3.1e9);
  EXPECT_EQ(described().processor.clock_hz.source, "the processor's name");
  file("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3700000\n");
  EXPECT_DOUBLE_EQ(described().processor.clock_hz.value, 3.7e9);
  EXPECT_DOUBLE_EQ(core_peak(described().processor), 3.7e9 * 32);
}

TEST_F(Described, ObeysTheMemoryLimitOfItsControlGroup) {
  file("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(described().memory_bytes.value, 32.0 * (1 << 30));
  file("sys/fs/cgroup/memory.max", "4294967296\n");
  EXPECT_EQ(described().memory_bytes.value, 4.0 * (1 << 30));
  EXPECT_EQ(described().memory_bytes.source, "/sys/fs/cgroup/memory.max");
}

TEST_F(Described, RefusesWhatIsNoTopology) {
  EXPECT_THROW(static_cast<void>(describe_machine({"<no>xml", root_.string()})), Failure);
}

TEST_F(Described, BecomesAClusterThatReadsBackWithASourceForEachNumber) {
  for (const bool measured : {false, true}) {
    ClusterFileOptions options{"a \"quoted\" name", 4, {}};
    if (measured) options.measured = MeasuredMemory{13.4e9, 40e9, 5e9, 1.5e-6, "2026-11-20"};
    const std::string text = cluster_file(described(), options);
    const auto cluster = clusters::parse_cluster(text, "probe.yaml", {});
    ASSERT_TRUE(cluster) << base::render(cluster.error(), false) << text;
    EXPECT_EQ(cluster->name, "a \"quoted\" name");
    EXPECT_EQ(cluster->size(), 4);
    EXPECT_EQ(cluster->device().name, "Imaginary CPU @ 3.10GHz core");
    EXPECT_DOUBLE_EQ(cluster->device().peak.at("fp32").value, 3.1e9 * 32);
    EXPECT_DOUBLE_EQ(cluster->device().memory.value, 8.0 * (1 << 30));
    EXPECT_DOUBLE_EQ(cluster->device().cache.value, 1048576);
    EXPECT_DOUBLE_EQ(cluster->device().memory_bandwidth.value, measured ? 13.4e9 : 10e9);
    EXPECT_EQ(cluster->stack, "orrery-cpu");
    EXPECT_THAT(text, HasSubstr(measured ? "13.4 GB/s   # measured 2026-11-20" : "not measured"));
    // A quantity without a word on where it comes from is a guess.
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (line.find("B/s") != line.npos || line.find("FLOPS") != line.npos || line.find("iB") != line.npos) {
        EXPECT_THAT(line, HasSubstr("# "));
      }
  }
}

TEST(Processor, NamesMayTellTheClock) {
  EXPECT_EQ(clock_in_name("Intel(R) Xeon(R) CPU E5-2680 v4 @ 2.40GHz"), 2.4e9);
  EXPECT_EQ(clock_in_name("Old 800MHz"), 800e6);
  EXPECT_FALSE(clock_in_name("AMD EPYC 7763 64-Core Processor"));
  EXPECT_FALSE(clock_in_name("GHz"));
  EXPECT_FALSE(clock_in_name(""));
}

TEST(Processor, FlagsTellTheVectorUnits) {
  EXPECT_EQ(vector_units("sse2 avx2 fma avx512f", "x86_64").flop_per_cycle, 64);
  EXPECT_EQ(vector_units("sse2 avx avx2 fma", "x86_64").flop_per_cycle, 32);
  EXPECT_EQ(vector_units("sse2 avx", "x86_64").flop_per_cycle, 16);
  EXPECT_EQ(vector_units("sse2 notavx512f", "x86_64").flop_per_cycle, 8);
  EXPECT_EQ(vector_units("asimd", "aarch64").name, "NEON");
  EXPECT_EQ(vector_units("", "riscv64").flop_per_cycle, 2);
}

TEST(ThisMachine, HasACoreAndMemory) {
  const MachineDescription m = describe_machine();
  EXPECT_GE(m.processor.cores, 1);
  EXPECT_GT(m.memory_bytes.value, 1e6);
  EXPECT_GT(core_peak(m.processor), 1e9);
  EXPECT_TRUE(clusters::parse_cluster(cluster_file(m, {"here", 1, {}}), "here.yaml", {}));
}

TEST(Gpus, AreThereOrItSaysWhyNot) {
  const GpuReport report = find_gpus();
  EXPECT_EQ(report.gpus.empty(), !report.reason.empty());
}

}  // namespace probe_description_test
}  // namespace orrery::exec

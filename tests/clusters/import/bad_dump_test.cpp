/// What is wrong with a dump is said with its place, and nothing is guessed.
#include <gmock/gmock.h>

#include "tests/clusters/import/support.h"

namespace orrery::clusters::testing {
namespace bad_dump_test {

using ::testing::HasSubstr;

const std::vector<std::string> kFixtures = {
    "dgx-1v.topo.txt",   "dgx-a100.topo.txt",  "hgx-h100.topo.txt",    "pcie-box.topo.txt",  "dgx-1v.nccl.xml",
    "dgx-a100.nccl.xml", "hgx-h100.nccl.xml",  "two-hosts.nccl.xml",   "pcie-box.hwloc.xml", "rails.ib.txt",
    "odd.ib.txt",        "eight-rails.ib.txt", "oversubscribed.ib.txt"};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

/// The first error of importing `text`, which must be one.
base::Diagnostic error_of(const std::string& text, ImportOptions options = {}) {
  const auto imported = import_texts({{"dump", text}}, std::move(options));
  EXPECT_FALSE(imported);
  if (imported || imported.error().empty()) return {};
  for (const base::Diagnostic& one : imported.error())
    if (one.severity == base::Severity::error) return one;
  return {};
}

void expect_place(const base::Diagnostic& error, const std::string& code, int line, int column) {
  EXPECT_EQ(error.code, code) << error.message;
  EXPECT_EQ(error.where.file, "dump");
  EXPECT_EQ(error.where.line, line) << error.message;
  EXPECT_EQ(error.where.column, column) << error.message;
}

int line_of(const std::string& text, const std::string& what) {
  return static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(text.find(what)), '\n')) +
         1;
}

int column_of(const std::string& text, const std::string& what) {
  const std::size_t at = text.find(what);
  return static_cast<int>(at - (text.rfind('\n', at) + 1)) + 1;
}

TEST(CutDump, AtAnyByteItIsRefusedOrWhole) {
  for (const std::string& name : kFixtures) {
    const std::string text = fixture(name);
    ASSERT_FALSE(text.empty()) << name;
    const bool whole = name == "pcie-box.topo.txt" || name == "dgx-1v.nccl.xml" || name == "pcie-box.hwloc.xml" ||
                       name == "rails.ib.txt";
    const std::size_t step = whole ? 1 : 7;  // every byte of one dump of each format
    for (std::size_t length = 0; length < text.size(); length += step) {
      ImportOptions options;
      options.device = "a100-sxm4-80gb";
      const auto imported = import_texts({{name, text.substr(0, length)}}, options);
      if (imported) continue;  // only what follows the dump's own text is missing
      for (const base::Diagnostic& one : imported.error()) {
        if (one.severity != base::Severity::error) continue;
        EXPECT_EQ(one.where.file, name) << length;
        EXPECT_GE(one.where.line, 1) << name << " at " << length << ": " << one.message;
        EXPECT_GE(one.where.column, 1) << name << " at " << length;
      }
    }
  }
}

TEST(CutDump, XmlNamesTheElementThatIsOpen) {
  const std::string text = fixture("dgx-1v.nccl.xml");
  const base::Diagnostic error = error_of(text.substr(0, text.find("</gpu>")));
  EXPECT_EQ(error.code, "E0302");
  EXPECT_THAT(error.message, HasSubstr("inside `<gpu>` of line 5"));
  EXPECT_THAT(error.help, HasSubstr("cut"));
}

TEST(CutDump, AMatrixWithoutItsLastRowIsCut) {
  const std::string text = fixture("dgx-1v.topo.txt");
  const base::Diagnostic error = error_of(text.substr(0, text.find("\nGPU7")), {});
  EXPECT_EQ(error.code, "E0308");
  EXPECT_THAT(error.message, HasSubstr("12 columns and only 7 rows"));
}

TEST(CutDump, AFabricWithoutItsLastHostsIsCut) {
  const std::string text = fixture("rails.ib.txt");
  ImportOptions options;
  options.node = "dgx-a100";
  const base::Diagnostic error = error_of(text.substr(0, text.find("Ca\t1")), options);
  EXPECT_EQ(error.code, "E0305");
  EXPECT_EQ(error.where.line, 11);
}

TEST(NcclTopology, UnknownVersionsAreRefused) {
  const std::string text = replaced(fixture("dgx-1v.nccl.xml"), "<system version=\"1\">", "<system version=\"2\">");
  expect_place(error_of(text), "E0304", 1, 18);
  expect_place(error_of(replaced(text, " version=\"2\"", "")), "E0304", 1, 1);
}

TEST(NcclTopology, AGpuDirectlyUnderTheSystemIsRefused) {
  const std::string text = "<system version=\"1\">\n  <gpu dev=\"0\" sm=\"80\" rank=\"0\"/>\n</system>\n";
  const base::Diagnostic error = error_of(text);
  expect_place(error, "E0303", 2, 3);
  EXPECT_THAT(error.message, HasSubstr("`<gpu>` may not be inside `<system>`"));
}

TEST(NcclTopology, ATargetThatDoesNotExistIsNamed) {
  const std::string text = replaced(fixture("dgx-1v.nccl.xml"), "target=\"0000:07:00.0\"", "target=\"0000:99:00.0\"");
  expect_place(error_of(text), "E0305", line_of(text, "0000:99"), column_of(text, "0000:99"));
}

TEST(NcclTopology, NumbersAsTargetsAreRefused) {
  const std::string text = replaced(fixture("dgx-1v.nccl.xml"), "target=\"0000:07:00.0\"", "target=\"1\"");
  const base::Diagnostic error = error_of(text);
  EXPECT_EQ(error.code, "E0304");
  EXPECT_THAT(error.help, HasSubstr("hand-made"));
}

TEST(NcclTopology, LinksThatDisagreeAreRefused) {
  const std::string text = replaced(fixture("dgx-1v.nccl.xml"), "count=\"1\"", "count=\"2\"");
  EXPECT_EQ(error_of(text).code, "E0306");
}

TEST(NcclTopology, HugeCountsAreOutOfRange) {
  const std::string text = replaced(fixture("dgx-1v.nccl.xml"), "count=\"1\"", "count=\"99999999999999999999\"");
  const base::Diagnostic error = error_of(text);
  expect_place(error, "E0304", line_of(text, "9999"), column_of(text, "9999"));
}

TEST(NcclTopology, HostsThatCannotBeToldApartAreRefused) {
  std::string text = fixture("two-hosts.nccl.xml");
  for (std::size_t at; (at = text.find("host_hash=\"0x2\"")) != std::string::npos;)
    text.replace(at, 15, "host_hash=\"0x1\"");
  EXPECT_EQ(error_of(text).code, "E0306");
}

TEST(NcclTopology, EntitiesAreNotExpanded) {
  const std::string bomb =
      "<!DOCTYPE system [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]><system version=\"1\">&b;</system>";
  EXPECT_EQ(error_of(bomb).code, "E0302");
}

TEST(NcclTopology, DeepNestingEnds) {
  std::string text = "<system version=\"1\"><cpu numaid=\"0\">";
  for (int i = 0; i < 100000; ++i) text += "<pci busid=\"0000:00:00.0\" class=\"0x060400\">";
  EXPECT_EQ(error_of(text).code, "E0302");
}

TEST(TopoMatrix, AsymmetryPointsAtTheCell) {
  const std::string text = replaced(fixture("dgx-1v.topo.txt"), "GPU1\tNV1\t", "GPU1\tNV2\t");
  const base::Diagnostic error = error_of(text);
  expect_place(error, "E0306", 3, 6);
  EXPECT_THAT(error.message, HasSubstr("NV2"));
  EXPECT_THAT(error.message, HasSubstr("NV1"));
}

TEST(TopoMatrix, UnknownRelationsAndHugeCountsAreRefused) {
  expect_place(error_of(replaced(fixture("dgx-1v.topo.txt"), "NV1", "XYZ")), "E0307", 2, 10);
  expect_place(error_of(replaced(fixture("dgx-1v.topo.txt"), "NV1", "NV999999999999")), "E0307", 2, 10);
}

TEST(TopoMatrix, RowsOutOfOrderAreRefused) {
  EXPECT_EQ(error_of(replaced(fixture("dgx-1v.topo.txt"), "\nGPU3", "\nGPU4")).code, "E0307");
}

TEST(TopoMatrix, WithoutADeviceItAsksForOne) {
  const base::Diagnostic error = error_of(fixture("dgx-1v.topo.txt"));
  EXPECT_EQ(error.code, "E0309");
  EXPECT_THAT(error.help, HasSubstr("--device"));
}

TEST(TopoMatrix, ManyNodesNeedTheSpeedOfTheirNics) {
  ImportOptions options;
  options.device = "v100-sxm2-32gb";
  options.nodes = 2;
  const base::Diagnostic error = error_of(fixture("dgx-1v.topo.txt"), options);
  EXPECT_EQ(error.code, "E0311");
  EXPECT_THAT(error.help, HasSubstr("--nic-bandwidth"));
}

TEST(Ibnetdiscover, ACableToNowhereAndOneThatDisagreesAreRefused) {
  ImportOptions options;
  options.node = "dgx-a100";
  const std::string text = fixture("eight-rails.ib.txt");
  EXPECT_EQ(error_of(replaced(text, "\"H-0c42a10300000000\"[1]", "\"H-0c42a1030000ffff\"[1]"), options).code, "E0305");
  EXPECT_EQ(error_of(replaced(text, "\"H-0c42a10300000000\"[1]", "\"H-0c42a10300000000\"[2]"), options).code, "E0306");
  EXPECT_EQ(error_of(replaced(text, "lid 10 4xHDR", "lid 10 4xXXX"), options).code, "E0304");
}

TEST(Ibnetdiscover, AloneItHasNoNodes) {
  const base::Diagnostic error = error_of(fixture("rails.ib.txt"));
  EXPECT_EQ(error.code, "E0311");
  EXPECT_THAT(error.help, HasSubstr("--node"));
}

TEST(Hwloc, AnotherVersionIsRefused) {
  const std::string text = fixture("pcie-box.hwloc.xml");
  EXPECT_EQ(error_of(replaced(text, "version=\"2.0\"", "version=\"9.0\"")).code, "E0304");
}

TEST(Dump, GarbageAndEmptyFilesAreRefused) {
  EXPECT_FALSE(dump_format(""));
  EXPECT_FALSE(dump_format("hello"));
  EXPECT_FALSE(dump_format(std::string("\x7f\x45\x4c\x46\0\0\1\2", 8)));
  for (const DumpFormat format :
       {DumpFormat::nccl, DumpFormat::topo_matrix, DumpFormat::hwloc, DumpFormat::ibnetdiscover}) {
    for (const std::string& text :
         {std::string(), std::string("\n\n"), std::string("\0\1\2\3", 4), std::string("\xff\xfe<system/>"),
          std::string("hello world\n"), std::string("<a>"), std::string("\x1b]0;title\x07")}) {
      const auto imported =
          import_cluster({{text, "dump", format}}, {"x", 0, "a100-sxm4-80gb", "", "", {}}, known(), find_in_catalog);
      ASSERT_FALSE(imported);
      ASSERT_FALSE(imported.error().empty());
      EXPECT_EQ(imported.error()[0].where.file, "dump");
    }
  }
}

TEST(Dump, ChangedBytesNeverCrash) {
  // A cheap fuzzer beside scripts/fuzz: every byte of every fixture takes a few other values.
  for (const std::string& name : kFixtures) {
    std::string text = fixture(name);
    const std::size_t step = 1 + text.size() / 150;
    for (std::size_t i = 0; i < text.size(); i += step) {
      const char before = text[i];
      for (const char other : {'\0', '9', '"', '\n', 'X'}) {
        text[i] = other;
        (void)import_texts({{name, text}});
      }
      text[i] = before;
    }
  }
}

TEST(Known, EveryGpuOfTheTableThatTheCatalogueHasIsRead) {
  int there = 0;
  for (const KnownGpu& gpu : known().gpus) there += find_in_catalog("devices/" + gpu.device) ? 1 : 0;
  EXPECT_GE(there, 6);
  EXPECT_EQ(gpu_called(known(), "NVIDIA A100-SXM4-40GB")->device, "a100-sxm4-40gb");
  EXPECT_EQ(gpu_called(known(), "NVIDIA GeForce RTX 3090"), nullptr);
  EXPECT_EQ(gpu_of_pci(known(), "10de:2330")->device, "h100-sxm5-80gb");
}

}  // namespace bad_dump_test
}  // namespace orrery::clusters::testing

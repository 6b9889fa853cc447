// import through the binary.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace import_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string dump(const std::string& name) {
  return std::string(ORRERY_SOURCE_DIR) + "/tests/clusters/import/fixtures/" + name;
}

TEST(Import, ADumpIsAClusterThatPlanUsesAtOnce) {
  const Scratch scratch;
  const std::string cluster = (scratch.path() / "cluster.yaml").string();
  const Ran ran = orrery({"import", dump("dgx-a100.nccl.xml"), dump("eight-rails.ib.txt"), "-o", cluster});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("16 on 2 nodes"));
  EXPECT_THAT(ran.err, HasSubstr("warning[E0312]"));
  const std::string job =
      scratch.file("job.yaml", "model: gpt2-124m\ncluster: cluster.yaml\nbatch: 64\nprecision: bf16\n");
  const Ran plan = orrery({"plan", job, "--top", "1", "--json"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_EQ(plan.result().at("plans").size(), 1U);
}

TEST(Import, WithoutAnOutputTheFileIsOnStdout) {
  const Ran ran =
      orrery({"import", dump("dgx-1v.topo.txt"), "--device", "v100-sxm2-32gb", "--nic-bandwidth", "100 Gb/s"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("kind: mesh"));
  EXPECT_THAT(ran.out, HasSubstr("sources:"));
}

TEST(Import, TheEnvelopeSaysWhatCameOut) {
  const Ran ran = orrery({"import", dump("hgx-h100.nccl.xml"), "--nodes", "4", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, IsEmpty());
  const nlohmann::json envelope = ran.envelope(), result = envelope.at("result");
  EXPECT_EQ(envelope.at("command"), "import");
  expect_keys(result, {"inputs", "path", "cluster", "name", "device", "nodes", "devices_per_node", "nics_per_node",
                       "form", "sources"});
  EXPECT_EQ(result.at("nodes"), 4);
  EXPECT_EQ(result.at("device"), "H100-SXM5-80GB");
  EXPECT_EQ(result.at("form"), "regular");
  ASSERT_EQ(envelope.at("diagnostics").size(), 1U);  // the network is assumed
  EXPECT_EQ(envelope.at("diagnostics")[0].at("level"), "warning");
}

TEST(Import, BadDumpsAreBadInputWithTheirPlace) {
  const Scratch scratch;
  const std::string text = text_of(dump("dgx-1v.nccl.xml"));
  const std::string cut = scratch.file("cut.xml", text.substr(0, 3000));
  for (const std::string& file :
       {cut, scratch.file("empty", ""), scratch.file("garbage", std::string("\x01\x02\0\xff", 4)),
        scratch.file("other.txt", "hello\n"), scratch.file("v2.xml", "<system version=\"2\"></system>")}) {
    const Ran ran = orrery({"import", file, "--json"});
    EXPECT_EQ(ran.exit_code, 3) << file;
    const nlohmann::json envelope = ran.envelope();
    EXPECT_TRUE(envelope.at("result").is_null());
    ASSERT_FALSE(envelope.at("diagnostics").empty()) << file;
    const nlohmann::json& one = envelope.at("diagnostics")[0];
    EXPECT_EQ(one.at("file"), file);
    EXPECT_GE(one.at("line").get<int>(), 1) << file;
    EXPECT_GE(one.at("column").get<int>(), 1) << file;
    EXPECT_NE(one.at("help"), "") << file;
  }
  EXPECT_THAT(orrery({"import", cut}).err, HasSubstr(cut + ":"));
  EXPECT_EQ(orrery({"import", "no/such.xml"}).exit_code, 3);
}

std::string log(const std::string& name) {
  return std::string(ORRERY_SOURCE_DIR) + "/tests/cost/fixtures/" + name;
}

TEST(Import, LogsOfNcclTestsAreACalibrationThatPlanTakes) {
  const Scratch scratch;
  const std::string file = (scratch.path() / "cal.yaml").string();
  const Ran ran = orrery({"import", log("all_reduce_8xa100.log"), log("all_gather_16xa100.log"), "--cluster",
                          "dgx-a100-80gb", "-o", file, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json result = ran.result();
  expect_keys(result,
              {"inputs", "path", "calibration", "parameters", "error_before", "error_after", "held_out_error_after"});
  EXPECT_LT(result.at("error_after").get<double>(), result.at("error_before").get<double>());
  const std::string job =
      scratch.file("job.yaml", "model: gpt2-124m\ncluster: dgx-a100-80gb\nbatch: 64\nprecision: bf16\n");
  const Ran plan = orrery({"plan", job, "--top", "1", "--calibration", file, "--json"});
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
}

TEST(Import, ALogNeedsItsClusterAndStandsAlone) {
  const Ran ran = orrery({"import", log("all_reduce_8xa100.log")});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("--cluster"));
  EXPECT_EQ(orrery({"import", log("all_reduce_8xa100.log"), "--cluster", "hgx-h100"}).exit_code, 3);
  const Ran mixed = orrery({"import", log("all_reduce_8xa100.log"), dump("hgx-h100.nccl.xml")});
  EXPECT_EQ(mixed.exit_code, 3);
  EXPECT_THAT(mixed.err, HasSubstr("error[E0310]"));
}

TEST(Import, NonsenseOnTheCommandLineIsAUsageError) {
  EXPECT_EQ(orrery({"import"}).exit_code, 2);
  EXPECT_EQ(orrery({"import", dump("dgx-1v.topo.txt"), "--format", "xml"}).exit_code, 2);
  EXPECT_EQ(orrery({"import", dump("dgx-1v.topo.txt"), "--nic-bandwidth", "200"}).exit_code, 2);
  EXPECT_EQ(orrery({"import", dump("dgx-1v.topo.txt"), "--nodes", "0"}).exit_code, 2);
}

TEST(Import, AForcedFormatIsTakenAtItsWord) {
  const Ran ran = orrery({"import", dump("dgx-1v.topo.txt"), "--format", "nccl"});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("error[E0302]"));
}

}  // namespace import_test
}  // namespace orrery::tests

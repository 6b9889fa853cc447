// simulate --beside through the binary: two jobs on one cluster's switches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace beside_test {

using ::testing::HasSubstr;

/// GPT-2 on four nodes of DGX A100 under leaves of two, with `oversubscription` above them: 32-fold data parallelism,
/// whose gradients cross the spine. `more`: further keys of the cluster.
std::string plan_file(const Scratch& scratch, const std::string& name, const std::string& oversubscription,
                      const std::string& more = "") {
  const std::string cluster =
      scratch.file(name + "-cluster.yaml",
                   "name: " + name + "\nlike: dgx-a100\nnodes: 4\nfabric: {kind: infiniband, rails: true, " +
                       "leaf_nodes: 2, oversubscription: " + oversubscription + ", hop_latency: 1 us}\n" + more);
  const std::string job = scratch.file(
      name + "-job.yaml", "model: gpt2-124m\ncluster: " + cluster + "\nbatch: 128\nsequence: 1024\nprecision: bf16\n" +
                              "stack: megatron-lm\nplan: {data: 32, zero_stage: 0, " + "micro_batch: 4}\n");
  const std::string plan = (scratch.path() / (name + ".yaml")).string();
  const Ran ran = orrery({"plan", job, "-o", plan});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  return plan;
}

TEST(Beside, TwoJobsOnANarrowSpineSlowEachOtherDown) {
  const Scratch scratch;
  const std::string plan = plan_file(scratch, "narrow", "8");
  const Ran ran = orrery({"simulate", plan, "--beside", plan, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json result = ran.result();
  expect_keys(result, {"step_time_s", "step_time_alone_s", "beside", "links"});
  EXPECT_DOUBLE_EQ(result.at("step_time_s"), result.at("beside").at("step_time_s")) << "equal jobs, equal steps";
  EXPECT_GT(result.at("step_time_s").get<double>(), 1.1 * result.at("step_time_alone_s").get<double>());
  EXPECT_EQ(orrery({"simulate", plan, "--json"}).result().at("step_time_s"), result.at("step_time_alone_s"));
  EXPECT_THAT(orrery({"simulate", plan, "--beside", plan}).out, HasSubstr("Alone this one takes"));
}

TEST(Beside, JobsThatShareNoFullLinkTakeTheirTimeAlone) {
  const Scratch scratch;
  const std::string plan = plan_file(scratch, "wide", "1");
  const nlohmann::json result = orrery({"simulate", plan, "--beside", plan, "--json"}).result();
  EXPECT_NEAR(result.at("step_time_s").get<double>() / result.at("step_time_alone_s").get<double>(), 1, 0.01)
      << "nodes in turn cross leaves more often, which is latency alone";
}

TEST(Beside, PlansForDifferentMachinesAreRefused) {
  const Scratch scratch;
  const std::string one = plan_file(scratch, "one", "1");
  const std::string two =
      plan_file(scratch, "two", "1", "node: {pcie: {switches: 4, bandwidth: 63 GB/s, latency: 1 us}}\n");
  const Ran ran = orrery({"simulate", one, "--beside", two, "--json"});
  EXPECT_EQ(ran.exit_code, 3);
  ASSERT_EQ(ran.envelope().at("diagnostics").size(), 1U);
  EXPECT_EQ(ran.envelope().at("diagnostics")[0].at("code"), "P93");
  EXPECT_EQ(ran.envelope().at("diagnostics")[0].at("file"), two);
}

TEST(Beside, APlanThatIsNoneIsNamedWithItsPlace) {
  const Scratch scratch;
  const std::string plan = plan_file(scratch, "good", "1");
  const Ran missing = orrery({"simulate", plan, "--beside", (scratch.path() / "none.yaml").string(), "--json"});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_THAT(missing.envelope().at("diagnostics")[0].at("file").get<std::string>(), HasSubstr("none.yaml"));
  const std::string cut = scratch.file("cut.yaml", text_of(plan).substr(0, text_of(plan).size() / 2));
  const Ran bad = orrery({"simulate", plan, "--beside", cut, "--json"});
  EXPECT_EQ(bad.exit_code, 3);
  ASSERT_FALSE(bad.envelope().at("diagnostics").empty());
  EXPECT_EQ(bad.envelope().at("diagnostics")[0].at("file"), cut);
  EXPECT_GT(bad.envelope().at("diagnostics")[0].at("line"), 0);
}

}  // namespace beside_test
}  // namespace orrery::tests

// model and doctor through the binary.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace looking_test {

TEST(Model, CountsGpt2SmallAsPublished) {
  const Ran ran = orrery({"model", "gpt2-124m", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json result = ran.result();
  expect_keys(result, {"name", "family", "layers", "parameters", "parameters_active", "flops_per_token_forward"});
  EXPECT_EQ(result.at("family"), "gpt");
  EXPECT_EQ(result.at("layers"), 12);
  EXPECT_EQ(result.at("parameters"), 124439808);
  EXPECT_EQ(result.at("parameters_active"), 124439808);
}

TEST(Model, ReadsAHuggingFaceConfig) {
  const Scratch scratch;
  const std::string config = scratch.file("config.json", R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
    "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257,
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05})");
  const Ran ran = orrery({"model", config, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.result().at("parameters"), 124439808);
}

TEST(Model, AnUnknownNameIsNamed) {
  const Ran ran = orrery({"model", "nomodel", "--json"});
  EXPECT_EQ(ran.exit_code, 3);
  ASSERT_EQ(ran.envelope().at("diagnostics").size(), 1U);
  EXPECT_EQ(ran.envelope().at("diagnostics")[0].at("file"), "nomodel");
}

TEST(Model, ShowsItsExpertsAndWhatATokenMeetsOfThem) {
  const Ran ran = orrery({"model", "deepseek-v3"}, {{}, {"COLUMNS=120"}, {}});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, ::testing::HasSubstr("8 of 256, 2048 wide, and 2048 shared, in 58 layers"));
  EXPECT_THAT(ran.out, ::testing::HasSubstr("671026404352"));
  EXPECT_THAT(ran.out, ::testing::HasSubstr("37.6 B"));
}

TEST(Model, ShowsLongValuesInANarrowTerminalToo) {
  const Ran ran = orrery({"model", "gemma4-31b"}, {{}, {"COLUMNS=80"}, {}});
  EXPECT_THAT(ran.out, ::testing::HasSubstr("30697345280")) << "a column of values too wide for it was left out";
}

TEST(Model, EveryCatalogueEntryIsRead) {
  for (const auto& entry : std::filesystem::directory_iterator(std::string(ORRERY_SOURCE_DIR) + "/models/catalog")) {
    const Ran ran = orrery({"model", entry.path().stem().string(), "--json"});
    EXPECT_EQ(ran.exit_code, 0) << entry.path() << ran.err;
  }
}

TEST(Cluster, IsExplainedWithItsChannels) {
  const Ran ran = orrery({"explain", "--cluster", "dgx-1v", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json cluster = ran.result().at("cluster");
  EXPECT_EQ(cluster.at("devices_per_node"), 8);
  EXPECT_EQ(cluster.at("wiring_in_a_node").at("ring").at("channels"), 6);
  EXPECT_DOUBLE_EQ(cluster.at("wiring_in_a_node").at("ring").at("intra_bytes_per_s"), 20e9);
  EXPECT_EQ(cluster.at("graph").at("vertices").at("device"), 8);
  EXPECT_EQ(cluster.at("power").at("device_w"), 300);
  EXPECT_EQ(cluster.at("power").at("host_w"), 670);
  EXPECT_THAT(orrery({"explain", "--cluster", "selene"}).out, ::testing::HasSubstr("8 x 24.0 GB/s"));
}

TEST(Simulate, SaysFirstWhichModelItPredictsOnWhichMachine) {
  const Scratch scratch;
  const std::string plan = (scratch.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", "examples/tiny-gpt-localhost-2.yaml", "-o", plan}).exit_code, 0);
  EXPECT_EQ(orrery({"simulate", plan}).out.rfind("tiny-gpt: ", 0), 0U);
}

TEST(Cluster, CatalogueIsListed) {
  const Ran ran = orrery({"explain", "--clusters", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json clusters = ran.result().at("clusters");
  EXPECT_GE(clusters.size(), 30U);
  EXPECT_TRUE(std::is_sorted(clusters.begin(), clusters.end(),
                             [](const auto& a, const auto& b) { return a.at("name") < b.at("name"); }));
  const std::string begins = std::to_string(clusters.size()) + " clusters in the catalogue\n";
  EXPECT_EQ(orrery({"explain", "--clusters"}).out.rfind(begins, 0), 0U);
}

TEST(Cluster, MayBeLikeAFileBesideIt) {
  const Scratch scratch;
  (void)scratch.file("base.yaml", "name: base\nlike: dgx-a100\nnodes: 2\n");
  const std::string small = scratch.file("mine.yaml", "name: mine\nlike: base.yaml\nnodes: 3\n");
  const Ran ran = orrery({"explain", "--cluster", small, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.result().at("cluster").at("nodes"), 3);
}

TEST(Cluster, WrongUsesAreUsageErrors) {
  EXPECT_EQ(orrery({"explain"}).exit_code, 2);
  EXPECT_EQ(orrery({"explain", "plan.yaml", "--clusters"}).exit_code, 2);
  EXPECT_EQ(orrery({"explain", "--cluster", "nowhere"}).exit_code, 3);
}

TEST(Doctor, SaysWhatIsThereAndWhatToDoAboutTheRest) {
  const Ran ran = orrery({"doctor", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  bool cores = false;
  const nlohmann::json capabilities = ran.result().at("capabilities");
  for (const nlohmann::json& one : capabilities) {
    expect_keys(one, {"name", "presence", "detail", "remedy"});
    cores = cores || one.at("name") == "cores";
    if (one.at("presence") == "missing") {
      EXPECT_NE(one.at("remedy"), "") << one.at("name");
    }
  }
  EXPECT_TRUE(cores);
}

TEST(Doctor, FailsForWhatIsRequiredAndMissingOnly) {
  EXPECT_EQ(orrery({"doctor", "--require", "cores"}).exit_code, 0);
  EXPECT_EQ(orrery({"doctor", "--require", "unicorns"}).exit_code, 2);
  // Without a PATH no mpiexec is found.
  EXPECT_EQ(orrery({"doctor", "--require", "mpi"}, {{}, {"PATH=/nonexistent"}, {}}).exit_code, 6);
}

TEST(Catalogue, AFolderNamedByTheUserComesFirst) {
  const Scratch scratch;
  const std::string model = text_of(std::string(ORRERY_SOURCE_DIR) + "/models/catalog/tiny-gpt.yaml");
  scratch.file("models/catalog/my-own.yaml", model);
  EXPECT_EQ(orrery({"model", "my-own"}).exit_code, 3);
  EXPECT_EQ(orrery({"model", "my-own", "--catalog", scratch.path()}).exit_code, 0);
  EXPECT_EQ(orrery({"model", "my-own"}, {{}, {"ORRERY_DATA=" + scratch.path().string()}, {}}).exit_code, 0);
}

}  // namespace looking_test
}  // namespace orrery::tests

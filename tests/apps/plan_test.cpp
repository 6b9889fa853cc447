// plan, simulate and explain through the binary: what scripts are promised, and that plan files travel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace plan_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kJob = "examples/tiny-gpt-localhost-2.yaml";

/// A plan file of the demo's job with what `bounds` fixes.
std::string plan_file(const Scratch& scratch, const std::string& name, const std::string& bounds,
                      const std::vector<std::string>& more = {}) {
  const std::string job =
      scratch.file(name + "-job.yaml", text_of(fs::path(ORRERY_SOURCE_DIR) / kJob) + "plan: " + bounds + "\n");
  const std::string plan = (scratch.path() / (name + ".yaml")).string();
  std::vector<std::string> arguments{"plan", job, "-o", plan};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Ran ran = orrery(arguments);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  return plan;
}

TEST(Plan, RefusesAPrecisionThatTheDevicesDoNotHave) {
  const Scratch scratch;
  const auto refused = [&](const std::string& cluster, const std::string& precision) {
    const std::string job = scratch.file(
        "job.yaml", "model: bert-large\ncluster: " + cluster + "\nbatch: 64\nprecision: " + precision + "\n");
    const Ran ran = orrery({"plan", job, "--top", "1"});
    EXPECT_EQ(ran.exit_code, ran.err.find("error[P103]") != std::string::npos ? 3 : 0) << ran.err;
    if (ran.exit_code == 3) {
      EXPECT_NE(ran.err.find("job.yaml:4:"), std::string::npos) << ran.err;
    }
    return ran.exit_code == 3;
  };
  EXPECT_TRUE(refused("dgx-1v", "bf16"));
  EXPECT_TRUE(refused("dgx-1v", "fp8"));
  EXPECT_FALSE(refused("dgx-1v", "fp16"));
  EXPECT_TRUE(refused("dgx-a100", "fp8"));
  EXPECT_FALSE(refused("dgx-a100", "bf16"));
  EXPECT_FALSE(refused("hgx-h100", "fp8"));
  EXPECT_TRUE(refused("hgx-h100", "fp4"));
  EXPECT_FALSE(refused("hgx-b200", "fp4"));
}

TEST(Plan, PredictsFp4AndHandsItOverButDoesNotTrainInIt) {
  const Scratch scratch;
  const auto step = [&](const std::string& precision, const std::string& plan) {
    const std::string job = scratch.file(
        "job.yaml", "model: llama2-7b\ncluster: hgx-b200\nbatch: 64\nsequence: 4096\nprecision: " + precision +
                        "\nplan: {data: 8, zero_stage: 1, micro_batch: 1}\n");
    const Ran ran = orrery({"plan", job, "-o", plan, "--json", "--force"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.result().at("plans").at(0).at("step_time_s").get<double>();
  };
  const std::string plan = (scratch.path() / "plan.yaml").string();
  const double eight = step("fp8", plan), four = step("fp4", plan);
  EXPECT_LT(four, eight);
  const Ran refused = orrery({"train", plan, "--run", (scratch.path() / "run").string()});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, ::testing::HasSubstr("error[E0669]: products in fp4 are predicted, and not executed"));
  const Ran handed = orrery({"export", plan, "--as", "megatron"});
  EXPECT_THAT(handed.out, ::testing::HasSubstr("--fp4-recipe nvfp4")) << handed.err;
}

TEST(Export, PointsToTheFamilyForWhatTheModelsFileDoesNotSay) {
  const Scratch scratch;
  scratch.file(
      "small.yaml",
      "name: small\nfamily: gemma2\nlayers: 2\nhidden: 64\nheads: 4\nkv_heads: 2\nffn_hidden: 128\nvocab: 256\n"
      "max_sequence: 64\n");
  const std::string job =
      scratch.file("job.yaml", "model: ./small.yaml\ncluster: localhost-1\nbatch: 4\nsequence: 32\n");
  const std::string plan = (scratch.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", job, "-o", plan}).exit_code, 0);
  const Ran refused = orrery({"export", plan, "--as", "megatron", "--json"});
  EXPECT_EQ(refused.exit_code, 3);
  std::ifstream file(plan);
  int family = 0;
  for (std::string line; std::getline(file, line) && line.find("  family: gemma2") == line.npos;) ++family;
  const nlohmann::json found = refused.envelope().at("diagnostics");
  ASSERT_EQ(found.size(), 4U) << refused.out;
  EXPECT_THAT(found[1].at("message").get<std::string>(), HasSubstr("norms of outputs"));
  EXPECT_THAT(found[2].at("message").get<std::string>(), HasSubstr("caps of scores"));
  EXPECT_THAT(found[3].at("message").get<std::string>(), HasSubstr("does not write windows"));
  for (const int i : {1, 2, 3}) EXPECT_EQ(found[static_cast<std::size_t>(i)].at("line"), family + 1);
}

TEST(Plan, TakesThePrecisionThatTheDevicesTrainIn) {
  const Scratch scratch;
  const auto taken = [&](const std::string& cluster) {
    const std::string job = scratch.file("job.yaml", "model: bert-base\ncluster: " + cluster + "\nbatch: 16\n");
    const Ran ran = orrery({"plan", job, "--top", "1", "--json"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.result().at("plans").at(0).at("plan").at("plan").at("precision").get<std::string>();
  };
  EXPECT_EQ(taken("dgx-1v"), "fp16");
  EXPECT_EQ(taken("dgx-a100"), "bf16");
  EXPECT_EQ(taken("localhost-2"), "fp32");
}

TEST(Plan, RefusesFusedAttentionWhereThereAreNoKernels) {
  const Scratch scratch;
  const std::string job = scratch.file(
      "job.yaml", "model: bert-large\ncluster: dgx-1v\nbatch: 64\nstack: megatron-core\nplan: {flash: true}\n");
  const Ran ran = orrery({"plan", job});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_NE(ran.err.find("error[P145]"), std::string::npos) << ran.err;
  const std::string by_name = scratch.file("named.yaml",
                                           "model: bert-large\ncluster: dgx-1v\nbatch: 64\nstack: megatron-core\n"
                                           "software: {attention_kernel: flash-2}\n");
  const Ran named = orrery({"plan", by_name});
  EXPECT_EQ(named.exit_code, 3);
  EXPECT_NE(named.err.find("named.yaml:5:30"), std::string::npos) << named.err;
  EXPECT_NE(named.err.find("attention_kernel: math"), std::string::npos) << named.err;
}

TEST(Plan, RefusesAKernelOfLaterDevicesInAJobAndInItsPlan) {
  const Scratch scratch;
  const std::string job = "model: gpt2-124m\ncluster: dgx-a100\nbatch: 64\nstack: megatron-core\n";
  const Ran third = orrery({"plan", scratch.file("third.yaml", job + "software: {attention_kernel: flash-3}\n")});
  EXPECT_EQ(third.exit_code, 3);
  EXPECT_NE(third.err.find("error[P145]"), std::string::npos) << third.err;
  const Ran chips = orrery({"plan", scratch.file("chips.yaml",
                                                 "model: gpt2-124m\ncluster: tpu-v4\nbatch: 64\n"
                                                 "software: {attention_kernel: flash-2}\n")});
  EXPECT_NE(chips.err.find("error[P145]"), std::string::npos) << chips.err;
  const std::string path = (scratch.path() / "plan.yaml").string();
  const std::string second = scratch.file("second.yaml", job + "software: {attention_kernel: flash-2}\n");
  ASSERT_EQ(orrery({"plan", second, "-o", path}).exit_code, 0);
  std::string text = text_of(path);
  const std::size_t at = text.find("attention_kernel: flash-2");
  ASSERT_NE(at, std::string::npos) << text;
  const Ran made = orrery({"simulate", scratch.file("other.yaml", text.replace(at, 25, "attention_kernel: flash-3"))});
  EXPECT_EQ(made.exit_code, 3);
  EXPECT_NE(made.err.find("error[P145]"), std::string::npos) << made.err;
}

TEST(Plan, FusesAttentionWhereTheJobNamesAKernelThatItsStackHasNot) {
  const Scratch scratch;
  const std::string job = "model: gpt2-124m\ncluster: dgx-a100\nbatch: 64\nstack: megatron-2021\n";
  const auto fused = [&](const std::string& name, const std::string& more) {
    const Ran ran = orrery({"plan", scratch.file(name, job + more), "--top", "1", "--json"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.result().at("plans").at(0).at("plan").at("plan").at("flash").get<bool>();
  };
  EXPECT_FALSE(fused("as-it-is.yaml", ""));
  EXPECT_TRUE(fused("named.yaml", "software: {attention_kernel: flash-2}\n"));
}

TEST(Plan, WarnsWhereAJobNamesWhatItsSoftwareHasNot) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml",
                                       "model: gpt2-124m\ncluster: dgx-a100\nbatch: 64\nstack: megatron-2021\n"
                                       "plan: {zero_stage: 2}\n");
  const Ran ran = orrery({"plan", job});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_NE(ran.err.find("warning[P146]"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("ZeRO 2"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("job.yaml:5:20"), std::string::npos) << "the key that asks for it: " << ran.err;
}

TEST(Plan, OfSeveralSizesKeepsTheSizeThatItSays) {
  const Scratch scratch;
  const std::string job = scratch.file(
      "job.yaml", "model: gpt2-124m\ncluster: dgx-a100\ndevices: 8\nbatch: 64\nplan: {tensor: 1, pipeline: 1}\n");
  const std::string plan = (scratch.path() / "plan.yaml").string();
  const Ran ran = orrery({"plan", job, "--gpus", "8,16", "-o", plan});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(ran.out.find("(row 1, 16 devices)"), std::string::npos) << ran.out;
  EXPECT_NE(text_of(plan).find("\n  devices: 16\n"), std::string::npos) << "of the job that the plan carries";
  const Ran impossible = orrery({"plan", job, "--gpus", "12"});
  EXPECT_EQ(impossible.exit_code, 3);
  EXPECT_NE(impossible.err.find("job.yaml:2:10"), std::string::npos) << impossible.err;
}

TEST(Plan, SaysThatItTakesTheLongestSequenceOfAModelThatReadsLongOnes) {
  const Scratch scratch;
  const std::string job =
      scratch.file("job.yaml", "model: smollm3-3b\ncluster: hgx-h100\nbatch: 8\nplan: {tensor: 1, context: 8}\n");
  const Ran ran = orrery({"plan", job, "--top", "1"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(ran.out.find("8 sequences x 65,536 (the model's longest)"), std::string::npos) << ran.out;
  EXPECT_NE(ran.err.find("warning[P172]"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("`sequence: 4096`"), std::string::npos) << ran.err;
  const Ran said = orrery({"plan", job, "--top", "1", "--set", "sequence=65536"});
  EXPECT_EQ(said.err.find("P172"), std::string::npos) << said.err;
  EXPECT_EQ(said.out.find("longest"), std::string::npos) << said.out;
}

TEST(Plan, OfALengthInThousandsSaysWhatAThousandIs) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", "model: gpt2-124m\ncluster: dgx-a100\nbatch: 64\nsequence: 1k\n");
  const Ran ran = orrery({"plan", job});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_NE(ran.err.find("`sequence: 1024`"), std::string::npos) << ran.err;
  const Ran flag = orrery({"model", "llama3-8b", "--sequence", "4k", "--json"});
  EXPECT_EQ(flag.exit_code, 0) << flag.err;
  EXPECT_EQ(flag.result(), orrery({"model", "llama3-8b", "--sequence", "4096", "--json"}).result());
  EXPECT_EQ(orrery({"model", "llama3-8b", "--sequence", "0.3k"}).exit_code, 2) << "307.2 tokens";
}

TEST(Plan, OfPartitionedParametersSaysWhoseNumbersItTakes) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml",
                                       "model: gpt2-124m\ncluster: dgx-a100\nbatch: 64\nstack: megatron-core\n"
                                       "plan: {pipeline: 1, zero_stage: [1, 3], tensor: 1, micro_batch: 2}\n");
  const Ran ran = orrery({"plan", job, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.result().at("job").at("stack"), "megatron-core");
  for (const nlohmann::json& plan : ran.result().at("plans")) {
    const bool whole = plan.at("zero_stage") == 1;
    EXPECT_EQ(plan.at("stack"), whole ? "megatron-core" : "megatron-fsdp");
    EXPECT_EQ(plan.at("evidence"), whole ? "published" : "uncalibrated");
  }
  const Ran read = orrery({"plan", job});
  EXPECT_NE(read.out.find("Evidence for megatron-fsdp"), std::string::npos) << read.out;
}

TEST(Plan, OfTheFirstExampleFitsForSure) {
  const Ran ran = orrery({"plan", "examples/gpt3-175b-a100-1024.yaml", "--json", "--top", "1"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_GE(ran.result().at("plans").at(0).at("fits_probability").get<double>(), 0.95);
}

class Example : public ::testing::TestWithParam<std::string> {};

TEST_P(Example, PlansAndKeepsItsPromisesToScripts) {
  const Ran ran = orrery({"plan", "examples/" + GetParam(), "--json", "--top", "4"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json result = ran.result();
  expect_keys(result, {"plans", "search"});
  expect_keys(result.at("search"), {"candidates", "feasible", "evaluated", "seconds", "optimality_gap", "rejected"});
  ASSERT_FALSE(result.at("plans").empty());
  EXPECT_LE(result.at("plans").size(), 4U);
  double last = 0;
  for (const nlohmann::json& plan : result.at("plans")) {
    expect_keys(
        plan, {"plan", "data", "tensor", "pipeline", "context", "expert", "virtual_stages", "zero_stage", "micro_batch",
               "schedule", "recompute", "step_time_s", "memory_peak_bytes", "memory_capacity_bytes", "mfu",
               "bubble_fraction", "exposed_communication_s", "cost_per_step_usd"});
    EXPECT_LE(plan.at("memory_peak_bytes").get<double>(), plan.at("memory_capacity_bytes").get<double>());
    const nlohmann::json& fits = plan.at("fits_probability");
    EXPECT_GE(fits.is_null() ? 1 : fits.get<double>(), result.at("search").at("fits_probability").get<double>());
    EXPECT_GE(plan.at("step_time_s").get<double>(), last) << "best first";
    last = plan.at("step_time_s").get<double>();
    EXPECT_GT(plan.at("mfu").get<double>(), 0);
    EXPECT_LT(plan.at("mfu").get<double>(), 1);
  }
}

TEST_P(Example, SimulatesItsBestPlan) {
  const Scratch scratch;
  const std::string plan = (scratch.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", "examples/" + GetParam(), "-o", plan}).exit_code, 0);
  const Ran ran = orrery({"simulate", plan, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json result = ran.result();
  expect_keys(result, {"step_time_s", "memory_peak_bytes", "memory_by_stage_bytes", "bubble_fraction",
                       "exposed_communication_s", "tokens_per_s", "mfu", "simulation_seconds", "breakdown_s",
                       "communication", "links"});
  EXPECT_GT(result.at("simulation_seconds").get<double>(), 0);
  double sum = 0;
  for (const auto& [part, seconds] : result.at("breakdown_s").items()) sum += seconds.get<double>();
  EXPECT_NEAR(sum, result.at("step_time_s").get<double>(), 1e-6 * sum);
  for (const nlohmann::json& row : result.at("communication"))
    expect_keys(row, {"dimension", "operation", "count", "bytes", "time_s", "exposed_s", "bus_bandwidth_bytes_per_s"});
  for (const nlohmann::json& row : result.at("links"))
    expect_keys(row, {"class", "bytes", "mean_utilisation", "peak_utilisation"});
}

std::vector<std::string> yaml_files(const char* folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(ORRERY_SOURCE_DIR) / folder))
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = fs::path(info.param).stem().string();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Jobs, Example, ::testing::ValuesIn(yaml_files("examples")), test_name);

class CatalogueCluster : public ::testing::TestWithParam<std::string> {};

TEST_P(CatalogueCluster, PlansAJobOfThreeKeys) {
  const Scratch scratch;
  const std::string job =
      scratch.file("job.yaml", "model: gpt2-124m\ncluster: " + fs::path(GetParam()).stem().string() + "\nbatch: 64\n");
  const Ran ran = orrery({"plan", job, "--top", "1"});
  // Some of the largest have more devices than GPT-2 can be split over.
  EXPECT_THAT(ran.exit_code, ::testing::AnyOf(0, 4)) << ran.err;
}

INSTANTIATE_TEST_SUITE_P(Clusters, CatalogueCluster, ::testing::ValuesIn(yaml_files("clusters/catalog")), test_name);

TEST(Plan, AClusterOfTheUsersOwnNeedsNoStack) {
  const Scratch scratch;
  for (const char* cluster : {"hgx-h100", "localhost-2"}) {
    std::istringstream lines(
        text_of(fs::path(ORRERY_SOURCE_DIR) / "clusters/catalog" / (std::string(cluster) + ".yaml")));
    std::string text;
    for (std::string line; std::getline(lines, line);)
      if (line.rfind("stack:", 0) != 0) text += line + "\n";
    const std::string mine = scratch.file("mine.yaml", text);
    const std::string job = scratch.file("job.yaml", "model: tiny-gpt\ncluster: mine.yaml\nbatch: 64\n");
    const std::string plan = (scratch.path() / "plan.yaml").string();
    ASSERT_EQ(orrery({"plan", job, "-o", plan}).exit_code, 0) << cluster;
    EXPECT_EQ(orrery({"simulate", plan}).exit_code, 0) << cluster;
  }
}

TEST(Plan, AnEmptyNameIsRefusedWhereItStands) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", "model: gpt2-124m\ncluster: \"\"\nbatch: 64\n");
  const Ran ran = orrery({"plan", job});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr(job + ":2:"));
  EXPECT_THAT(ran.err, ::testing::Not(HasSubstr("folder")));
}

TEST(Plan, SaysWhyNothingFitsWithExitCode4) {
  const Scratch scratch;
  const std::string job =
      scratch.file("job.yaml", "model: gpt3-175b\ncluster: dgx-a100\nbatch: 8\nprecision: fp16\nstack: megatron-lm\n");
  const Ran text = orrery({"plan", job});
  EXPECT_EQ(text.exit_code, 4);
  EXPECT_THAT(text.err, HasSubstr("memory"));
  const Ran json = orrery({"plan", job, "--json"});
  EXPECT_EQ(json.exit_code, 4);
  EXPECT_TRUE(json.result().at("plans").empty());
  EXPECT_FALSE(json.result().at("search").at("rejected").empty());
  EXPECT_FALSE(json.envelope().at("diagnostics").empty());
}

TEST(Plan, WarnsWhereTheBestPlanFillsTheDeviceAndLeavesRoomWhenTold) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", R"(model: llama3-405b
cluster: hgx-h100-1024
batch: 2048
sequence: 8192
precision: bf16
plan: {data: 4, tensor: 8, pipeline: 32, virtual_stages: 1, schedule: 1f1b, micro_batch: 1, zero_stage: 1, recompute: none}
)");
  const Ran full = orrery({"plan", job, "--json"});
  ASSERT_EQ(full.exit_code, 0) << full.err;
  const nlohmann::json best = full.result().at("plans").at(0);
  EXPECT_GT(best.at("memory_peak_bytes").get<double>(), 0.95 * best.at("memory_capacity_bytes").get<double>());
  EXPECT_EQ(full.envelope().at("diagnostics").at(0).at("code"), "P110");
  EXPECT_EQ(full.result().at("search").at("fits_probability"), 0);
  EXPECT_TRUE(orrery({"plan", job, "--json", "--set", "fits_probability=0"}).envelope().at("diagnostics").empty());
  EXPECT_EQ(orrery({"plan", job, "--memory-fraction", "0.9"}).exit_code, 4);
  EXPECT_EQ(orrery({"plan", job, "--memory-fraction", "1.5"}).exit_code, 2);
}

TEST(Plan, TheSameJobGivesTheSameBytes) {
  const Scratch scratch;
  EXPECT_EQ(text_of(plan_file(scratch, "a", "{data: 2}")), text_of(plan_file(scratch, "b", "{data: 2}")));
}

TEST(Plan, ABoundFixesWhatItNames) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml", text_of(fs::path(ORRERY_SOURCE_DIR) / kJob) +
                                                       "plan: {pipeline: 2, schedule: gpipe, micro_batch: [2, 4]}\n");
  const nlohmann::json plans = orrery({"plan", job, "--json"}).result().at("plans");
  ASSERT_FALSE(plans.empty());
  for (const nlohmann::json& plan : plans) {
    EXPECT_EQ(plan.at("pipeline"), 2);
    EXPECT_EQ(plan.at("schedule"), "gpipe");
    EXPECT_THAT(plan.at("micro_batch").get<int>(), ::testing::AnyOf(2, 4));
  }
}

TEST(Plan, SeveralSizesGiveTheBestPlanOfEach) {
  const nlohmann::json plans =
      orrery({"plan", "examples/tiny-gpt-localhost-8.yaml", "--gpus", "1,2,4", "--json"}).result().at("plans");
  ASSERT_EQ(plans.size(), 3U);
  std::vector<int> ranks;
  for (const nlohmann::json& plan : plans)
    ranks.push_back(plan.at("data").get<int>() * plan.at("tensor").get<int>() * plan.at("pipeline").get<int>());
  EXPECT_THAT(ranks, ::testing::ElementsAre(4, 2, 1));
}

TEST(Plan, AJobSaysHowManyDevicesItsClusterHas) {
  const Scratch scratch;
  const auto job = [&](const std::string& devices) {
    return scratch.file("job.yaml", "model: gpt2-124m\ncluster: hgx-h100\n" + devices + "batch: 128\n");
  };
  const Ran said = orrery({"plan", job("devices: 32\n"), "--top", "1", "--json"});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  const nlohmann::json best = said.result().at("plans").at(0);
  const Ran asked = orrery({"plan", job(""), "--gpus", "32", "--top", "1", "--json"});
  EXPECT_EQ(best.at("step_time_s"), asked.result().at("plans").at(0).at("step_time_s"));

  const Ran odd = orrery({"plan", job("devices: 12\n")});
  EXPECT_EQ(odd.exit_code, 3);
  EXPECT_THAT(odd.err, HasSubstr("error[C10]"));
  EXPECT_THAT(odd.err, HasSubstr("job.yaml:3:10"));
  EXPECT_THAT(orrery({"plan", job("gpus: 32\n")}).err, HasSubstr("here it is called `devices`"));
}

TEST(Plan, TheWholePlanInTheJsonIsAPlanFile) {
  const Scratch scratch;
  const nlohmann::json best = orrery({"plan", kJob, "--json"}).result().at("plans").front();
  const std::string file = scratch.file("plan.json", best.at("plan").dump());
  const Ran ran = orrery({"simulate", file, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NEAR(ran.result().at("step_time_s").get<double>(), best.at("step_time_s").get<double>(), 1e-9);
}

TEST(Plan, TheVersionIsTextInTheJsonAsInTheFile) {
  EXPECT_EQ(orrery({"plan", kJob, "--json"}).result().at("plans").front().at("plan").at("format_version"), "1.0");
}

TEST(Plan, ASizeThatTheClusterCannotHaveIsToldOfTheJob) {
  const Ran ran = orrery({"plan", kJob, "--gpus", "3", "--json"});
  EXPECT_EQ(ran.exit_code, 3);
  ASSERT_FALSE(ran.envelope().at("diagnostics").empty());
  EXPECT_EQ(ran.envelope().at("diagnostics")[0].at("file"), kJob);
  EXPECT_THAT(ran.envelope().at("diagnostics")[0].at("message"), HasSubstr("--gpus 3"));
}

TEST(Plan, AMillionMicroBatchesAreRefusedRatherThanCounted) {
  const Scratch scratch;
  const std::string job = scratch.file("job.yaml",
                                       "model: tiny-gpt\ncluster: localhost-2\nbatch: 1048576\nsequence: 32\n"
                                       "plan: {data: 1, tensor: 1, pipeline: 2, micro_batch: 1}\n");
  const Ran ran = orrery({"plan", job});
  EXPECT_EQ(ran.exit_code, 4);
  EXPECT_THAT(ran.err, HasSubstr("65,536 micro-batches"));
}

TEST(PlanFile, WorksFromAnyFolder) {
  const Scratch scratch;
  plan_file(scratch, "plan", "{data: 2}");
  fs::create_directory(scratch.path() / "elsewhere");
  const Ran ran = orrery({"simulate", "../plan.yaml", "--json"}, {scratch.path() / "elsewhere", {}, {}});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
}

TEST(PlanFile, OneThatWasTamperedWithIsRefusedAtItsLine) {
  const Scratch scratch;
  std::string text = text_of(plan_file(scratch, "plan", "{data: 2}"));
  const auto at = text.find("  tensor: 1");
  ASSERT_NE(at, text.npos);
  text.replace(at, 11, "  tensor: 3");
  const std::string broken = scratch.file("broken.yaml", text);
  const Ran ran = orrery({"simulate", broken});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr(broken + ":"));
}

TEST(Simulate, WritesAChromeTrace) {
  const Scratch scratch;
  const std::string trace = (scratch.path() / "trace.json").string();
  ASSERT_EQ(orrery({"simulate", plan_file(scratch, "plan", "{pipeline: 2}"), "--trace", trace}).exit_code, 0);
  const nlohmann::json events = nlohmann::json::parse(text_of(trace)).at("traceEvents");
  EXPECT_GT(events.size(), 20U);
}

TEST(Simulate, TheBubbleOfEqualStagesIsTheTextbooks) {
  const Scratch scratch;
  const auto bubble = [&](const std::string& name, const std::string& bounds) {
    return orrery({"simulate", plan_file(scratch, name, bounds), "--json"})
        .result()
        .at("bubble_fraction")
        .get<double>();
  };
  // (p-1)/(m+p-1) with p = 2 and m = 8 sequences / micro-batch; embedding and head make the stages a little uneven.
  EXPECT_NEAR(bubble("m2", "{pipeline: 2, micro_batch: 4}"), 1.0 / 3, 0.03);
  EXPECT_NEAR(bubble("m4", "{pipeline: 2, micro_batch: 2}"), 1.0 / 5, 0.03);
  EXPECT_NEAR(bubble("m8", "{pipeline: 2, micro_batch: 1}"), 1.0 / 9, 0.03);
}

TEST(Simulate, ACalibrationFileChangesThePrediction) {
  const Scratch scratch;
  const std::string plan = plan_file(scratch, "plan", "{data: 2}");
  const std::string slower = scratch.file(
      "slower.yaml",
      "calibration: slower\nstack: orrery-cpu\nparameters:\n  stack.step_overhead: {value: 2 s, source: a test}\n");
  const double before = orrery({"simulate", plan, "--json"}).result().at("step_time_s").get<double>();
  const Ran after = orrery({"simulate", plan, "--calibration", slower, "--json"});
  ASSERT_EQ(after.exit_code, 0) << after.err;
  EXPECT_GT(after.result().at("step_time_s").get<double>(), before + 1.9);
}

TEST(Explain, ComparesTwoPlans) {
  const Scratch scratch;
  const std::string a = plan_file(scratch, "a", "{data: 2, recompute: none}"),
                    b = plan_file(scratch, "b", "{data: 2, recompute: full}");
  const Ran ran = orrery({"explain", a, "--vs", b, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_LT(ran.result().at("plan").at("step_time_s").get<double>(),
            ran.result().at("versus").at("step_time_s").get<double>());
  EXPECT_THAT(orrery({"explain", a, "--vs", b}).out, HasSubstr("recompute"));
}

TEST(Explain, SaysWhereTwoPlansAreNotTheSameWork) {
  const Scratch scratch;
  const auto plan = [&](const char* name, const char* job) {
    const std::string file = (scratch.path() / (std::string(name) + ".yaml")).string();
    EXPECT_EQ(orrery({"plan", scratch.file(std::string(name) + "-job.yaml", job), "-o", file}).exit_code, 0);
    return file;
  };
  const std::string a = plan("a", "model: gpt2-124m\ncluster: hgx-h100\nbatch: 64\nsequence: 1024\n"),
                    b = plan("b", "model: gpt2-355m\ncluster: dgx-a100\nbatch: 128\nsequence: 1024\n");
  const std::string said = orrery({"explain", a, "--vs", b}).out;
  EXPECT_THAT(said, HasSubstr("Different models: gpt2-124m beside gpt2-355m"));
  EXPECT_THAT(said, HasSubstr("Different clusters: hgx-h100 beside dgx-a100"));
  EXPECT_THAT(said, HasSubstr("tokens beside"));
  EXPECT_THAT(orrery({"explain", a, "--vs", a}).out, testing::Not(HasSubstr(" beside ")));
}

TEST(Explain, SaysWhatFillsADeviceThatIsTooSmall) {
  const Scratch scratch;
  std::string text = text_of(plan_file(scratch, "plan", "{data: 2}"));
  const auto at = text.find("memory: 2 GiB");
  ASSERT_NE(at, text.npos) << text;
  text.replace(at, 13, "memory: 9 MiB");
  const Ran ran = orrery({"explain", scratch.file("small.yaml", text)});
  EXPECT_EQ(ran.exit_code, 4);
  EXPECT_THAT(ran.err, HasSubstr("parameters"));
}

}  // namespace plan_test
}  // namespace orrery::tests

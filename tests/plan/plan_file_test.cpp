// Plan files: everything in one file, there and back.
#include "plan/spec/plan_file.h"

#include <gtest/gtest.h>

#include "models/read/read.h"
#include "tests/clusters/support.h"

namespace orrery::plan {
namespace plan_file_test {

clusters::Cluster cluster() {
  return clusters::testing::catalog("localhost-2");
}

PlanFile sample() {
  PlanFile file;
  file.job.model = "tiny";
  file.job.cluster = "localhost-2";
  file.job.batch = 8;
  file.job.sequence = 64;
  file.job.training.data = "/usr/share/common-licenses";
  file.model = *models::parse_model("family: gpt\nlayers: 4\nhidden: 128\nheads: 4\nvocab: 256\nmax_sequence: 128\n",
                                    "tiny.yaml");
  file.cluster = cluster();
  file.spec.mesh.data = 2;
  file.spec.stages.layers_per_stage = {4};
  file.spec.shape.micro_batch = 2;
  file.spec.stages.order = Order::gpipe;
  file.spec.states.zero_stage = 3;
  file.spec.states.zero_group = 2;
  file.spec.recomputation.what = Recompute::full;
  file.spec.numerics.flash = false;
  file.spec.numerics.vocab_multiple = 64;
  file.spec.shape.batch = 8;
  file.spec.shape.sequence = 64;
  return file;
}

PlanFile read(const std::string& text) {
  const auto file = parse_plan_file(text, "plan.yaml");
  EXPECT_TRUE(file.has_value()) << base::render(file.error(), false) << text;
  return file.value_or(PlanFile{});
}

std::string refused(const std::string& text) {
  const auto file = parse_plan_file(text, "plan.yaml");
  return file ? "(accepted)" : base::render(file.error(), false);
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what << " in\n" << text;
  return text.replace(at, what.size(), with);
}

TEST(PlanFile, WritesWhatItReads) {
  const PlanFile file = sample();
  const std::string text = write_plan_file(file);
  const PlanFile again = read(text);
  EXPECT_EQ(again.spec, file.spec);
  EXPECT_EQ(again.job, file.job);
  EXPECT_EQ(again.model, file.model);
  EXPECT_EQ(again.cluster.name, "localhost-2");
  EXPECT_EQ(again.cluster.size(), 2);
  EXPECT_EQ(again.cluster.devices, file.cluster.devices);
  EXPECT_EQ(write_plan_file(again), text);
}

TEST(PlanFile, TakesBatchSequenceAndPrecisionFromTheJob) {
  std::string text = write_plan_file(sample());
  for (const char* line : {"  batch: 8\n  sequence: 64\n  precision: fp32\njob:"}) text = replaced(text, line, "job:");
  EXPECT_EQ(read(text).spec, sample().spec);
}

TEST(PlanFile, KeepsEveryPrecision) {
  for (const models::DType precision :
       {models::DType::fp32, models::DType::bf16, models::DType::fp16, models::DType::fp8, models::DType::tf32}) {
    PlanFile file = sample();
    file.job.precision = file.spec.numerics.precision = precision;
    const PlanFile again = read(write_plan_file(file));
    EXPECT_EQ(again.spec.numerics.precision, precision) << models::name_of(precision);
    EXPECT_EQ(again.job.precision, precision) << models::name_of(precision);
  }
}

TEST(PlanFile, RefusesTwoHalvesThatDisagree) {
  const std::string text = replaced(write_plan_file(sample()), "  batch: 8\n", "  batch: 16\n");
  EXPECT_NE(refused(text).find("error[E0123]: `plan.batch` and `job.batch` differ"), std::string::npos)
      << refused(text);
}

TEST(PlanFile, RefusesSoftwareThatContradictsThePlan) {
  PlanFile file = sample();  // its attention is not fused
  file.job.software.attention_kernel = AttentionKernel::math;
  const std::string text = write_plan_file(file);
  EXPECT_EQ(read(text).job.software, file.job.software);
  const std::string other = refused(replaced(text, "attention_kernel: math", "attention_kernel: flash-2"));
  EXPECT_NE(other.find("error[E0121]: it keeps no scores, but the plan has `flash: false`"), std::string::npos)
      << other;
}

TEST(PlanFile, RefusesDegreesThatMultiplyBeyondAnyCluster) {
  std::string text = write_plan_file(sample());
  text = replaced(text, "  data: 2\n", "  data: 16777216\n");
  text = replaced(text, "  tensor: 1\n", "  tensor: 16777216\n");
  text = replaced(text, "  pipeline: 1\n", "  pipeline: 16777216\n");
  EXPECT_NE(refused(text).find("multiply to more than 16777216 ranks"), std::string::npos);
}

TEST(PlanFile, RefusesOtherVersionsAndMissingParts) {
  EXPECT_NE(refused(replaced(write_plan_file(sample()), "\"1.0\"", "\"2.0\"")).find("E0123"), std::string::npos);
  EXPECT_NE(refused("job: {}\n").find("key `format_version` is missing"), std::string::npos);
  const std::string nothing = refused("format_version: \"1.0\"\n");
  for (const char* part : {"plan", "job", "model", "cluster"}) {
    EXPECT_NE(nothing.find("key `" + std::string(part) + "` is missing"), std::string::npos) << nothing;
  }
}

TEST(PlanFile, ReportsErrorsOfAllItsPartsAtOnce) {
  std::string text = write_plan_file(sample());
  text = replaced(text, "  zero_stage: 3", "  zero_stage: 7");
  text = replaced(text, "  steps: 20", "  steps: none");
  text = replaced(text, "  heads: 4", "  heads: -4");
  const auto file = parse_plan_file(text, "plan.yaml");
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().size(), 3U) << base::render(file.error(), false);
}

TEST(PlanFile, NeverCrashesWhenCutAnywhere) {
  const std::string text = write_plan_file(sample());
  for (std::size_t n = 0; n < text.size(); n += 7) (void)parse_plan_file(text.substr(0, n), "plan.yaml");
}

}  // namespace plan_file_test
}  // namespace orrery::plan

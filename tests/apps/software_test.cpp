// How a run's software was set up, from a job through its plan to what every verb tells of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace software_said_test {

using ::testing::HasSubstr;

std::string job_of(const std::string& stack, const std::string& software) {
  return "model: llama3-8b\ncluster: hgx-h100\ndevices: 8\nbatch: 16\nsequence: 4096\nprecision: bf16\nstack: " +
         stack + "\n" + software +
         "plan: {data: 8, tensor: 1, pipeline: 1, context: 1, zero_stage: 3, micro_batch: 1, recompute: full}\n";
}

TEST(SoftwareSaid, OfAJobIsInItsPlanAndInEveryVerbsFigures) {
  const Scratch scratch;
  const auto planned = [&](const std::string& name, const std::string& software) {
    const std::string job = scratch.file(name + "-job.yaml", job_of("torchtitan-2024", software));
    const Ran ran = orrery({"plan", job, "-o", scratch.path() / (name + ".yaml"), "--json"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.result();
  };
  const nlohmann::json compiled = planned("compiled", ""), eager = planned("eager", "software: {compiled: false}\n");
  EXPECT_EQ(compiled.at("job").at("software"), "");
  EXPECT_EQ(eager.at("job").at("software"), "compiled: false");
  const nlohmann::json plan = eager.at("plans").at(0);
  EXPECT_EQ(plan.at("plan").at("job").at("software").at("compiled"), false);
  EXPECT_GT(plan.at("step_time_s").get<double>(), compiled.at("plans").at(0).at("step_time_s").get<double>());
  const Ran simulated = orrery({"simulate", scratch.path() / "eager.yaml", "--json"});
  ASSERT_EQ(simulated.exit_code, 0) << simulated.err;
  EXPECT_EQ(simulated.result().at("step_time_s"), plan.at("step_time_s"));
  const Ran told = orrery({"simulate", scratch.path() / "eager.yaml"});
  EXPECT_THAT(told.out, HasSubstr("torchtitan-2024 (compiled: false), bf16"));
}

TEST(SoftwareSaid, ThatAStackDoesNotKnowIsRefusedAtItsPlace) {
  const Scratch scratch;
  const Ran core = orrery({"plan", scratch.file("job.yaml", job_of("megatron-core", "software: {compiled: false}\n"))});
  EXPECT_EQ(core.exit_code, 3);
  EXPECT_THAT(core.err, HasSubstr("error[P147]"));
  EXPECT_THAT(core.err, HasSubstr("job.yaml:8:22"));
  const std::string nowhere = scratch.file("nowhere.yaml", job_of("megatron-core", "software: {gemm_rate_of: mine}\n"));
  EXPECT_THAT(orrery({"plan", nowhere}).err, HasSubstr("nowhere.yaml:8:26"));
}

TEST(SoftwareSaid, ByAnImportedFileIsInTheJob) {
  const Scratch scratch;
  const std::string eager = scratch.file("eager.toml",
                                         "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = "
                                         "2\nseq_len = 4096\nsteps = 10\n");
  const Ran ran = orrery({"import", eager, "--cluster", "hgx-h100", "--ranks", "8", "--as", "job"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("software:\n  compiled: false\n"));
  const std::string script = scratch.file(
      "train.sh",
      "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 1024 --num-attention-heads "
      "16 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 64 "
      "--bf16 --vocab-size 50304 --fp8-format hybrid --fp8-recipe mxfp8 --use-precision-aware-optimizer "
      "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --attention-backend fused\n");
  const Ran flags = orrery({"import", script, "--cluster", "hgx-h100", "--as", "job"});
  ASSERT_EQ(flags.exit_code, 0) << flags.err;
  EXPECT_THAT(flags.out, HasSubstr("software:\n  attention_kernel: cudnn\n  fp8_recipe: mxfp8\n  moment_bits: 16\n"));
}

}  // namespace software_said_test
}  // namespace orrery::tests

/// Which software a row's words name.
#include "sim/validate/software.h"

#include <gtest/gtest.h>

#include <string>

namespace orrery::sim {
namespace software_test {

Setup called(const std::string& stack, const std::string& framework = {}) {
  Setup s;
  s.stack = stack;
  s.framework = framework;
  return s;
}

TEST(Software, IsFoundByTheEngineThatItsDocumentationNames) {
  EXPECT_EQ(software_of(called("gpt-neox")), "megatron-deepspeed");
  EXPECT_EQ(software_of(called("ours", "MosaicML LLM Foundry")), "fsdp-composer");
  EXPECT_EQ(software_of(called("ours", "Megatron Core 0.9")), "megatron-core");
  EXPECT_EQ(software_of(called("ours", "PyTorch")), "") << "no engine";
}

TEST(Software, ShardsByFsdpOnlyWhereItsRowShards) {
  sim::Setup olmo = called("olmo", "OLMo (PyTorch)");
  EXPECT_EQ(software_of(olmo), "");
  olmo.zero_stage = 3;
  EXPECT_EQ(software_of(olmo), "pytorch-fsdp");
  olmo.compiled = true;
  EXPECT_EQ(software_of(olmo), "pytorch-fsdp-compiled");
}

TEST(Software, OfAGraphHasNoHost) {
  for (const char* framework : {"Levanter", "EasyLM", "OneFlow", "MindSpore", "TensorFlow 2"})
    EXPECT_TRUE(is_compiled(called("ours", framework))) << framework;
  EXPECT_FALSE(is_compiled(called("ours", "PaddleNLP")));
  sim::Setup said = called("ours", "PyTorch with torch.compile");
  EXPECT_TRUE(is_compiled(said));
  said.compiled = false;
  EXPECT_FALSE(is_compiled(said)) << "the row's switch decides";
}

TEST(Software, BeforePyTorch2AttendsUnfused) {
  EXPECT_STREQ(generic_of(called("ours-2021")), "generic-eager-2022");
  EXPECT_STREQ(generic_of(called("ours-2024")), "generic-eager");
  EXPECT_STREQ(generic_of(called("ours")), "generic-eager") << "nothing says when";
  sim::Setup dated = called("ours");
  dated.date = "2022-03-01";
  EXPECT_EQ(year_of(dated), 2022);
  EXPECT_STREQ(generic_of(dated), "generic-eager-2022");
  EXPECT_TRUE(precedes_fused_attention(dated));
  EXPECT_FALSE(precedes_fused_attention(called("ours"))) << "today's";
  dated.date = "soon";
  EXPECT_EQ(year_of(dated), 0);
}

TEST(Software, OfDeepSpeedUnderAccelerateHasItsDefaultStage) {
  sim::Setup s = called("deepspeed-hf", "Hugging Face Trainer with DeepSpeed");
  s.data = 8;
  ASSERT_TRUE(usual_zero_stage(s));
  EXPECT_EQ(usual_zero_stage(s)->stage, 2);
  s.zero_stage = 0;
  EXPECT_FALSE(usual_zero_stage(s)) << "the row says it";
  sim::Setup alone = called("deepspeed", "DeepSpeed");
  alone.data = 8;
  EXPECT_FALSE(usual_zero_stage(alone));
}

TEST(Software, OfNvidiasRecipesPartitionsTheOptimizer) {
  for (const char* framework : {"NeMo 24.07", "NeMo 25.09", "Megatron Bridge 25.11"}) {
    sim::Setup s = called("nemo", framework);
    s.data = 4;
    ASSERT_TRUE(usual_zero_stage(s)) << framework;
    EXPECT_EQ(usual_zero_stage(s)->stage, 1) << framework;
    s.data = 1;
    EXPECT_FALSE(usual_zero_stage(s)) << "nothing to partition over";
  }
  sim::Setup other = called("nemo-automodel", "NeMo AutoModel");
  other.data = 4;
  EXPECT_FALSE(usual_zero_stage(other)) << "PyTorch's FSDP";
  sim::Setup script = called("megatron-lm", "Megatron-LM");
  script.data = 4;
  EXPECT_FALSE(usual_zero_stage(script)) << "off by default in its arguments";
}

TEST(Software, OfMegatronIsCoreFrom2025On) {
  EXPECT_TRUE(is_core("megatron-2023", 2025));
  EXPECT_FALSE(is_core("megatron-2023", 2023));
  EXPECT_FALSE(is_core("megatron-deepspeed-2021", 2025)) << "another engine";
}

TEST(Software, KeepsTheModelsCodeUnderAnotherEngine) {
  cost::Stack engine;
  engine.name = "deepspeed";
  EXPECT_TRUE(runs_transformers(called("deepspeed-hf"), engine));
  EXPECT_TRUE(runs_transformers(called("xtuner", "XTuner (DeepSpeed ZeRO-3, Transformers)"), engine));
  EXPECT_FALSE(runs_transformers(called("deepspeed", "DeepSpeed, Hugging Face Transformers (Liger)"), engine))
      << "Liger's kernels are fused";
  EXPECT_FALSE(runs_transformers(called("deepspeed", "Megatron-DeepSpeed"), engine));
  engine.name = "megatron-core";
  EXPECT_FALSE(runs_transformers(called("ours", "Hugging Face"), engine)) << "a model of its own";
  sim::Setup padded = called("huggingface");
  EXPECT_FALSE(attends_masked(padded)) << "one sequence";
  padded.micro_batch = 2;
  EXPECT_TRUE(attends_masked(padded));
  padded.packed = 100;
  EXPECT_FALSE(attends_masked(padded));
}

}  // namespace software_test
}  // namespace orrery::sim

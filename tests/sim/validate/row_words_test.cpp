/// What rows' words say of their software's memory.
#include "sim/validate/row_words.h"

#include <gtest/gtest.h>

namespace orrery::sim {
namespace {

cost::MemoryRecipe recipe_of(const sim::Setup& s, const std::string& stack) {
  cost::MemoryRecipe out;
  std::vector<std::string> notes;
  take_framework_memory(s, stack, out, notes);
  return out;
}

TEST(RowWords, RecipesOfNvidiaReduceIn16BitsAndKeepWeightsInEight) {
  sim::Setup s;
  s.framework = "Megatron Bridge";
  s.precision = "mxfp8";
  const cost::MemoryRecipe bridge = recipe_of(s, "megatron-core");
  EXPECT_EQ(bridge.gradient_bytes, 2);
  EXPECT_EQ(bridge.rounded_weights, cost::RoundedWeights::instead);
  EXPECT_TRUE(bridge.scales_blocks);
  s.framework = "NeMo";
  s.section = "24.07";
  EXPECT_EQ(recipe_of(s, "megatron-core").rounded_weights, cost::RoundedWeights::beside) << "before fp8_param_gather";
  s.framework = "Megatron-LM";
  EXPECT_EQ(recipe_of(s, "megatron-core").gradient_bytes, 4);
  s.framework = "NeMo Megatron 22.08";
  EXPECT_EQ(recipe_of(s, "megatron-2023").gradient_bytes, 4) << "another engine";
}

TEST(RowWords, BlocksOfNvidiasFsdpWaitOnTheHost) {
  sim::Setup s;
  s.framework = "Megatron Bridge";
  s.precision = "fp8";
  s.model = "Llama 3 70B";
  s.gpu_type = "GB200";
  s.zero_stage = 3;
  EXPECT_EQ(recipe_of(s, "megatron-fsdp").blocks_on_host, 40);
  s.zero_stage = 1;
  EXPECT_EQ(recipe_of(s, "megatron-core").blocks_on_host, 0);
  s.layers = 80;
  s.recompute_modules = "custom: projections and inputs of layers on the host";
  EXPECT_EQ(recipe_of(s, "maxtext").blocks_on_host, 80);
}

TEST(RowWords, SoftwareWithoutFp32IsAllIn16Bits) {
  sim::Setup s;
  s.precision = "bf16";
  s.framework = "torchtune (PyTorch)";
  cost::MemoryRecipe recipe;
  std::vector<cost::Parameter> numbers;
  take_optimizer(s, recipe, numbers);
  EXPECT_EQ(numbers.size(), 1U);
  s.framework = "PyTorch";
  numbers.clear();
  take_optimizer(s, recipe, numbers);
  EXPECT_TRUE(numbers.empty());
}

}  // namespace
}  // namespace orrery::sim

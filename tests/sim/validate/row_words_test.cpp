/// What rows' words say of their software's memory.
#include "sim/validate/row_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/parameters/as_run.h"
#include "cost/parameters/habits.h"
#include "sim/validate/software_said.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace row_words_test {

/// A stack as a row of it says that it was run.
cost::Stack said_of(const sim::Setup& s, cost::Stack stack) {
  plan::PlanSpec spec;
  spec.numerics.precision = models::DType::fp8;
  spec.numerics.loss_chunks = loss_chunks_of(s, 65536);
  std::vector<std::string> notes;
  const plan::Software software = software_said(s, stack, spec, false, notes);
  return cost::as_run(stack, software, [](const std::string&) { return nullptr; });
}

cost::MemoryRecipe recipe_of(const sim::Setup& s, const std::string& name, const cost::MemoryRecipe& before = {}) {
  cost::Stack stack;
  stack.name = name;
  stack.memory = before;
  return said_of(s, stack).memory;
}

TEST(RowWords, RecipesOfNvidiaReduceIn16BitsAndKeepWeightsInEight) {
  sim::Setup s;
  s.framework = "Megatron Bridge";
  s.source = "Megatron Bridge performance summary";
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

TEST(RowWords, OfBridgeOutsideNvidiasTablesSumInFp32) {
  sim::Setup s;
  s.framework = "Megatron Bridge 0.1.0rc4 (NeMo 25.09)";
  s.source = "somebody's notes";
  s.precision = "bf16";
  EXPECT_EQ(recipe_of(s, "megatron-core").gradient_bytes, 4);
  EXPECT_EQ(recipe_of(s, "megatron-core").loss_copies, 2);
  s.source = "NVIDIA's blog";
  EXPECT_EQ(recipe_of(s, "megatron-core").gradient_bytes, 2);
}

TEST(RowWords, NemoOf2025FusesItsLoss) {
  sim::Setup s;
  cost::MemoryRecipe copies;
  copies.loss_copies = 2;
  for (const char* before : {"NeMo", "NeMo 24.12", "NeMo 25.02"}) {
    s.framework = before;
    EXPECT_EQ(recipe_of(s, "megatron-core", copies).loss_copies, 2) << before;
  }
  s.framework = "NeMo 25.09";
  EXPECT_EQ(recipe_of(s, "megatron-core", copies).loss_copies, 0);
}

TEST(RowWords, ALossIsAsItsSoftwareHasIt) {
  sim::Setup s;
  s.stack = "prime-rl";
  s.section = "SFT, one H100";
  cost::MemoryRecipe pieces;
  pieces.fragmentation = 0.1;
  EXPECT_EQ(recipe_of(s, "pytorch-fsdp-compiled", pieces).fragmentation, 0) << "its segments grow";
  EXPECT_EQ(recipe_of(s, "pytorch-fsdp-compiled").loss_copies, 3) << "the fp32 logits are held, too";
  EXPECT_EQ(loss_chunks_of(s, 65536), 1);
  s.section = "RL trainer";
  EXPECT_EQ(recipe_of(s, "pytorch-fsdp-compiled").loss_copies, 0);
  EXPECT_EQ(loss_chunks_of(s, 65536), 32);
  EXPECT_EQ(loss_chunks_of(s, 2048), 1);
  EXPECT_EQ(loss_chunks_of(s, 3000), 1) << "no whole chunks";
  s = {};
  s.framework = "Hugging Face Trainer, Liger";
  cost::MemoryRecipe copies;
  copies.loss_copies = 2;
  EXPECT_EQ(recipe_of(s, "huggingface", copies).loss_copies, 0) << "its kernel writes over the logits";
  s = {};
  s.framework = "OLMo-core, PyTorch FSDP, torch.compile";
  EXPECT_TRUE(recipe_of(s, "pytorch-fsdp-compiled").loss_apart);
  s = {};
  s.stack = "torchtitan";
  s.compiled = true;
  EXPECT_TRUE(recipe_of(s, "torchtitan-2024").loss_apart) << "the code of today";
  s.date = "2025-03";
  EXPECT_FALSE(recipe_of(s, "torchtitan-2024").loss_apart);
  s.date = "2025-04";
  EXPECT_TRUE(recipe_of(s, "torchtitan-2024").loss_apart);
  s.compiled = false;
  EXPECT_FALSE(recipe_of(s, "torchtitan-2024").loss_apart) << "eager";
  s.date = "";
  s.compiled = true;
  s.framework = "torchtitan 0.0.2";
  EXPECT_FALSE(recipe_of(s, "torchtitan-2024").loss_apart) << "before it was compiled";
  s.framework = "torchtitan";
  s.source = "torchtitan, a commit (2025-01)";
  EXPECT_FALSE(recipe_of(s, "torchtitan-2024").loss_apart) << "its source's date";
}

TEST(RowWords, TorchtitanOfItsFirstYearFusesNorms) {
  sim::Setup s;
  s.stack = "torchtitan-2024";
  cost::MemoryRecipe composed;
  composed.composes_norms = composed.composes_gates = true;
  const cost::MemoryRecipe first = recipe_of(s, "torchtitan-2024", composed);
  EXPECT_TRUE(!first.composes_norms && first.composes_gates);
  s.date = "2025-03";
  EXPECT_TRUE(recipe_of(s, "torchtitan-2024", composed).composes_norms);
}

TEST(RowWords, ACompilerComposesNothing) {
  sim::Setup s;
  cost::MemoryRecipe composed;
  composed.composes_gates = composed.composes_norms = composed.repeats_keys = true;
  const cost::MemoryRecipe eager = recipe_of(s, "torchtitan-2024", composed);
  EXPECT_TRUE(eager.composes_gates && eager.composes_norms && eager.repeats_keys);
  s.compiled = true;
  const cost::MemoryRecipe fused = recipe_of(s, "torchtitan-2024", composed);
  EXPECT_FALSE(fused.composes_gates || fused.composes_norms || fused.repeats_keys);
}

TEST(RowWords, EagerTorchtitanComposesWhatItsCompilerFuses) {
  const auto passes = [](const sim::Setup& s, const char* number, const char* stack = "torchtitan-2024") {
    cost::Stack named;
    named.name = stack;
    named.memory.composes_norms = true;
    if (named.name == "torchtitan-2024")
      named.eager = {{"stack.rotary_passes", 5, cost::Unit::number, "its file"},
                     {"stack.loss_passes", 4.5, cost::Unit::number, "its file"}};
    named.memory.loss_copies = 2;
    return cost::number_of(said_of(s, named), number, 1);
  };
  sim::Setup s;
  s.date = "2025-06";
  EXPECT_EQ(passes(s, "stack.rotary_passes"), 1) << "nobody says that it was not compiled";
  s.compiled = true;
  EXPECT_EQ(passes(s, "stack.rotary_passes"), 1);
  s.compiled = false;
  EXPECT_EQ(passes(s, "stack.rotary_passes"), 5);
  EXPECT_EQ(passes(s, "stack.norm_passes"), 9);
  EXPECT_EQ(passes(s, "stack.rotary_passes", "megatron-core"), 1) << "Transformer Engine fuses its own";
  s.date = "2026-01";
  EXPECT_EQ(passes(s, "stack.norm_passes"), 1) << "PyTorch 2.9 has one kernel";
  EXPECT_EQ(passes(s, "stack.loss_passes"), 4.5);
}

TEST(RowWords, ThePrecisionIsTheOneOfEitherKey) {
  const auto device = testing::cluster("hgx-h100")->device();
  std::vector<std::string> notes;
  sim::Setup s;
  s.precision_words = "fp8 (current scaling)";
  EXPECT_EQ(precision_of(s, device, notes), models::DType::fp8);
  s.precision = "bf16";
  EXPECT_EQ(precision_of(s, device, notes), models::DType::bf16) << "precision_kind says it in one word";
  EXPECT_THAT(notes, ::testing::IsEmpty());
}

TEST(RowWords, ThePrecisionThatNobodyStatesIsOneThatTheDeviceHas) {
  std::vector<std::string> notes;
  sim::Setup s;
  s.date = "2022-05";
  EXPECT_EQ(precision_of(s, testing::cluster("dgx-a100")->device(), notes), models::DType::fp16) << "scripts of then";
  EXPECT_EQ(precision_of(s, testing::cluster("tpu-v4")->device(), notes), models::DType::bf16) << "TPUs have no fp16";
  s.date = "2025-05";
  EXPECT_EQ(precision_of(s, testing::cluster("dgx-a100")->device(), notes), models::DType::bf16);
  EXPECT_EQ(precision_of(s, testing::cluster("dgx-1p")->device(), notes), models::DType::fp16) << "P100s have no bf16";
  EXPECT_EQ(notes.back(), "precision fp16");
  EXPECT_EQ(precision_of(s, testing::cluster("localhost-2")->device(), notes), models::DType::fp32) << "CPU ranks";
  EXPECT_EQ(notes.back(), "precision fp32, in which this device's users train");
}

TEST(RowWords, AutocastLeavesSumsInFp32) {
  sim::Setup s;
  s.precision = "bf16";
  EXPECT_FALSE(recipe_of(s, "generic-compiled").wide_sums);
  s.precision_words = "bf16, autocast";
  EXPECT_TRUE(recipe_of(s, "generic-compiled").wide_sums);
}

TEST(RowWords, CountTheLayersThatAreRecomputed) {
  sim::Setup s;
  s.layers = 80;
  EXPECT_FALSE(recomputed_layers(s).has_value());
  s.recompute_modules = "50 of 80 layers";
  EXPECT_EQ(recomputed_layers(s), 50);
  s.recompute_modules = "50 of 40 layers";
  EXPECT_FALSE(recomputed_layers(s).has_value()) << "of another model";
  s.recompute_modules = "selective, per operator";
  EXPECT_FALSE(recomputed_layers(s).has_value());
}

double number_of_row(const sim::Setup& s, bool generic, const std::string& name, double otherwise) {
  cost::Stack stack;
  stack.generic = generic;
  return cost::number_of(said_of(s, stack), name, otherwise);
}

TEST(RowWords, SayInWhichTypeGradientsTravel) {
  sim::Setup s;
  EXPECT_EQ(number_of_row(s, true, "stack.reduces_half", -1), -1) << "as in the stack";
  s.mixed_precision = "PURE";
  EXPECT_EQ(number_of_row(s, false, "stack.reduces_half", -1), 1);
  s.mixed_precision = "gradients reduced in fp32";
  EXPECT_EQ(number_of_row(s, true, "stack.reduces_half", -1), 0);
  s = {};
  s.framework = "InternEvo";
  EXPECT_EQ(number_of_row(s, true, "stack.reduces_half", -1), 1);
  s = {};
  s.optimizer = "AdamW, all states in bf16";
  EXPECT_EQ(number_of_row(s, true, "stack.reduces_half", -1), 1) << "the parameters' own type";
  EXPECT_EQ(number_of_row(s, false, "stack.reduces_half", -1), -1) << "a stack with numbers of its own";
}

TEST(RowWords, OlmoReducesInFp32UnlessTheRowSaysOtherwise) {
  sim::Setup s;
  s.stack = "olmo";
  EXPECT_EQ(number_of_row(s, true, "stack.reduces_half", -1), 0);
  s.mixed_precision = "PURE";
  EXPECT_EQ(number_of_row(s, true, "stack.reduces_half", -1), 1);
}

TEST(RowWords, NameAnOptimizerByItsOwnWordAlone) {
  using plan::OptimizerKind;
  EXPECT_EQ(optimizer_of("Muon, updates divided among ranks"), OptimizerKind::muon);
  EXPECT_EQ(optimizer_of("LAMB"), OptimizerKind::lamb);
  EXPECT_EQ(optimizer_of("Adafactor"), OptimizerKind::adafactor);
  EXPECT_EQ(optimizer_of("AdamW, moments in bf16"), OptimizerKind::adamw_bf16);
  EXPECT_EQ(optimizer_of(""), OptimizerKind::adamw);
  EXPECT_EQ(optimizer_of("AdamW (parameters and all states in bf16)"), OptimizerKind::adamw);
  EXPECT_EQ(optimizer_of("adam"), OptimizerKind::adamw) << "its update costs the same";
  EXPECT_EQ(optimizer_of("lambda schedule"), OptimizerKind::adamw) << "no word of its own";
}

TEST(RowWords, SayWhatIsOnTheHost) {
  EXPECT_EQ(space_of("host"), plan::Space::host);
  EXPECT_EQ(space_of("true"), plan::Space::host);
  EXPECT_EQ(space_of("CPU"), plan::Space::host);
  EXPECT_EQ(space_of("nvme"), plan::Space::nvme);
  EXPECT_EQ(space_of(""), plan::Space::device);
  EXPECT_EQ(space_of("none"), plan::Space::device);
}

TEST(RowWords, LayersWaitForTensorRanksOnlyOnANetworkThatIsCalledSlow) {
  sim::Setup s;
  s.network_state = "fast";
  EXPECT_EQ(number_of_row(s, true, "stack.pipeline_message_time", 0), 0);
  s.network_state = "slow";
  EXPECT_EQ(number_of_row(s, true, "stack.pipeline_message_time", 0), 200e-6);
  EXPECT_EQ(number_of_row(s, false, "stack.pipeline_message_time", 0), 0) << "not of software with rows of its own";
}

TEST(RowWords, NameNetworksInAnyLetters) {
  EXPECT_EQ(network_of("infiniband"), "infiniband");
  EXPECT_EQ(network_of("HDR200"), "infiniband");
  EXPECT_EQ(network_of("RoCEv2 over Ethernet"), "roce");
  EXPECT_EQ(network_of("100GbE"), "tcp");
  EXPECT_EQ(network_of("Slingshot-11"), "slingshot");
  EXPECT_EQ(network_of("n/a single node"), "");
}

TEST(RowWords, BlocksOfNvidiasFsdpWaitOnTheHost) {
  sim::Setup s;
  s.framework = "Megatron Bridge";
  s.source = "Megatron Bridge performance summary";
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
  const auto copies = [&s] { return cost::number_of(said_of(s, {}), "stack.one_copy", 0); };
  EXPECT_EQ(copies(), 1);
  s.precision = "fp8";
  EXPECT_EQ(copies(), 1) << "products alone are in fp8";
  s.framework = "PyTorch";
  EXPECT_EQ(copies(), 0);
}

TEST(RowWords, NameAKernelOfAttention) {
  using plan::AttentionKernel;
  EXPECT_EQ(attention_kernel_of("FlashAttention-2"), AttentionKernel::flash_2);
  EXPECT_EQ(attention_kernel_of("flash-attn 4"), AttentionKernel::flash_3) << "the best known";
  EXPECT_EQ(attention_kernel_of("cuDNN 9"), AttentionKernel::cudnn);
  EXPECT_FALSE(attention_kernel_of("FlashAttention").has_value()) << "it does not say which";
}

}  // namespace row_words_test
}  // namespace orrery::sim

/// What words of a run's software change in its stack.
#include "cost/parameters/as_run.h"

#include <gtest/gtest.h>

#include <fstream>

#include "cost/parameters/habits.h"
#include "cost/prices/stacks.h"

namespace orrery::cost {
namespace as_run_test {

Stack stack_of(const std::string& name) {
  std::ifstream file(std::string(ORRERY_SOURCE_DIR) + "/cost/stacks/" + name + ".yaml");
  const auto read = parse_stack(std::string(std::istreambuf_iterator<char>(file), {}), name);
  EXPECT_TRUE(read.has_value()) << name;
  return read.value_or(Stack());
}

const Stack* find(const std::string& name) {
  static const Stack eager = stack_of("generic-eager"), transformers = stack_of("huggingface");
  return name == eager.name ? &eager : name == transformers.name ? &transformers : nullptr;
}

double number(const Stack& stack, const char* name) {
  return number_of(stack, name, -1);
}

TEST(AsRun, WithoutWordsAStackIsItself) {
  const Stack named = stack_of("torchtitan-2024");
  const Stack same = as_run(named, {}, find);
  EXPECT_EQ(same.parameters, named.parameters);
}

TEST(AsRun, EagerCodeHasTheNumbersOfItsStacksFile) {
  const Stack titan = stack_of("torchtitan-2024");
  const Stack eager = as_run(titan, {.compiled = false}, find);
  EXPECT_EQ(number(eager, "stack.rotary_passes"), 5);
  EXPECT_EQ(number(eager, "stack.loss_passes"), 4.5);
  EXPECT_EQ(number(eager, "stack.norm_passes"), -1) << "PyTorch has one kernel from 2.9 on";
  EXPECT_EQ(
      number(as_run(titan, {.compiled = false, .rms_norm = plan::NormKernel::composed}, find), "stack.norm_passes"), 9);
  EXPECT_TRUE(eager.memory.composes_gates);
  EXPECT_FALSE(as_run(titan, {.compiled = true}, find).memory.composes_gates);
}

TEST(AsRun, KernelsThatReplaceTransformersMakeItAnyEagerCode) {
  const Stack replaced = as_run(stack_of("huggingface"), {.operators = plan::OperatorCode::fused}, find);
  const Stack& eager = *find("generic-eager");
  EXPECT_EQ(number(replaced, "stack.norm_passes"), number(eager, "stack.norm_passes"));
  EXPECT_EQ(number(replaced, "stack.adapter_bytes"), number(eager, "stack.adapter_bytes"));
  EXPECT_FALSE(replaced.memory.composes_gates || replaced.memory.composes_norms || replaced.memory.repeats_keys);
  const Stack composed = as_run(eager, {.operators = plan::OperatorCode::transformers}, find);
  EXPECT_EQ(number(composed, "stack.norm_passes"), 9);
  EXPECT_TRUE(composed.memory.composes_gates);
}

TEST(AsRun, AttentionIsOfTheKernelThatIsNamed) {
  const Stack eager = *find("generic-eager");
  EXPECT_EQ(
      number(as_run(eager, {.attention_kernel = plan::AttentionKernel::cudnn}, find), "stack.attention_generation"), 3);
  const Stack math = as_run(eager, {.attention_kernel = plan::AttentionKernel::math}, find);
  EXPECT_EQ(number(math, "stack.softmax_longest"), 1);
  EXPECT_FALSE(math.flash) << "the search fuses none either";
  const Stack second = as_run(math, {.attention_kernel = plan::AttentionKernel::flash_2}, find);
  EXPECT_TRUE(second.flash);
  EXPECT_EQ(second.can.flash_from, clusters::Architecture::ampere);
  const Stack third = as_run(math, {.attention_kernel = plan::AttentionKernel::flash_3}, find);
  EXPECT_EQ(third.can.flash_from, clusters::Architecture::hopper);
  const Stack masked = as_run(eager, {.padding_mask = true}, find);
  EXPECT_EQ(number(masked, "stack.attention_generation"), 1);
  EXPECT_EQ(number(masked, "stack.attention_share"), number(eager, "stack.attention_share") / 2);
}

TEST(AsRun, ALossWithoutCopiesInFp32IsOneKernel) {
  const Stack eager = *find("generic-eager");
  const Stack fused = as_run(eager, {.cross_entropy = plan::LossKernel::fused}, find);
  EXPECT_EQ(fused.memory.loss_copies, 0);
  EXPECT_FALSE(fused.memory.loss_apart);
  EXPECT_EQ(number(fused, "stack.loss_passes"), 1);
  EXPECT_TRUE(as_run(eager, {.cross_entropy = plan::LossKernel::compiled}, find).memory.loss_apart);
  EXPECT_EQ(as_run(eager, {.cross_entropy = plan::LossKernel::upcast}, find).memory.loss_copies, 3);
}

TEST(AsRun, StatesTakeTheBytesThatAreSaid) {
  const Stack eager = *find("generic-eager");
  EXPECT_EQ(as_run(eager, {.moment_bits = 8}, find).memory.moment_bytes, 2);
  EXPECT_EQ(as_run(eager, {.moment_bits = 32}, find).memory.moment_bytes, 8);
  const Stack pure = as_run(eager, {.master_weights = false}, find);
  EXPECT_EQ(number(pure, "stack.one_copy"), 1);
  EXPECT_EQ(pure.memory.update_bf16, 2) << "the roots of the second moments";
  const Stack half = as_run(eager, {.gradient_dtype = plan::ReduceType::bf16}, find);
  EXPECT_EQ(half.memory.gradient_bytes, 2);
  EXPECT_FALSE(half.memory.gradients_beside);
  EXPECT_EQ(number(half, "stack.reduces_half"), 1) << "what adds up in 16 bits travels so";
  const plan::Software summed{.gradient_dtype = plan::ReduceType::bf16, .reduce_dtype = plan::ReduceType::fp32};
  EXPECT_EQ(number(as_run(eager, summed, find), "stack.reduces_half"), 0);
  EXPECT_EQ(number(as_run(eager, {.fused_optimizer = true}, find), "stack.host_share"), 1);
  EXPECT_LT(number(as_run(eager, {.fused_optimizer = false}, find), "stack.host_share"), 1);
  EXPECT_EQ(number(as_run(eager, {.reduce_dtype = plan::ReduceType::fp32}, find), "stack.reduces_half"), 0);
  EXPECT_TRUE(as_run(eager, {.fp8_recipe = plan::Fp8Recipe::blockwise}, find).memory.scales_blocks);
  EXPECT_FALSE(as_run(eager, {.fp8_recipe = plan::Fp8Recipe::delayed}, find).memory.scales_blocks);
}

TEST(AsRun, SoftwareThatOnlyResemblesAStackMultipliesNoFaster) {
  const Stack core = stack_of("megatron-core");
  EXPECT_EQ(number(as_run(core, {.gemm_rate_of = "generic-eager"}, find), "stack.matmul_share"),
            number(*find("generic-eager"), "stack.matmul_share"));
}

TEST(AsRun, AWordThatAStackDoesNotKnowIsRefusedAndChangesNothing) {
  const Stack core = stack_of("megatron-core");
  const plan::Software said{.compiled = false,
                            .operators = plan::OperatorCode::transformers,
                            .moment_bits = 8,
                            .scatter_gather = false,
                            .slow_network = true,
                            .gemm_rate_of = "nowhere"};
  const std::vector<RefusedWord> refused = refused_words(core, said, find);
  ASSERT_EQ(refused.size(), 5U);
  EXPECT_EQ(refused[0].key, "compiled");
  EXPECT_FALSE(refused[0].why.empty() || refused[0].help.empty());
  EXPECT_EQ(known_words(core, said, find), (plan::Software{.moment_bits = 8}));
  EXPECT_EQ(as_run(core, said, find).parameters, core.parameters);
}

TEST(AsRun, OrrerysOwnSoftwareIsAsItsFileSays) {
  const Stack own = stack_of("orrery-cuda");
  EXPECT_EQ(refused_words(own, {.autocast = true, .cuda_graphs = true}, find).size(), 2U);
  EXPECT_TRUE(known_words(own, {.autocast = true}, find) == plan::Software());
}

TEST(AsRun, ReachesTheStacksThatReplaceTheNamedOne) {
  const Stack fsdp = stack_of("megatron-fsdp");
  const Stacks stacks(stack_of("megatron-core"),
                      [&](const std::string& name) { return name == fsdp.name ? &fsdp : find(name); },
                      {.tuned_gemms = true});
  ASSERT_EQ(stacks.all().size(), 2U);
  for (const Stack& one : stacks.all()) EXPECT_EQ(number(one, "stack.untuned"), 0) << one.name;
}

}  // namespace as_run_test
}  // namespace orrery::cost

// Plans in other frameworks' words: what is said, what is refused and what is warned of.
#include "reports/exports/frameworks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/plan/samples.h"
#include "tests/reports/sample.h"

namespace orrery::reports {
namespace frameworks_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// A node of eight for each eight ranks.
plan::PlanFile file_of(const plan::PlanSpec& spec, models::Model model = samples::tiny_gpt(8)) {
  plan::PlanFile file;
  file.model = std::move(model);
  file.cluster = samples::cpu_cluster(std::min(spec.mesh.ranks(), 8));
  file.cluster.nodes = std::max(1, spec.mesh.ranks() / 8);
  file.cluster.name = "eights";
  file.cluster.devices.resize(static_cast<std::size_t>(spec.mesh.ranks()), file.cluster.devices.front());
  file.spec = spec;
  if (file.spec.shape.batch == 1) file.spec.shape.batch = 64;
  file.spec.shape.sequence = 16;
  return file;
}

base::Result<Settings> settings(Framework framework, const plan::PlanFile& file) {
  plan::PlanSpec spec = file.spec;
  const auto plan = samples::try_make(spec, file.model);
  if (!plan) return tl::unexpected(plan.error());
  return settings_for(framework, file, *plan, "plan.yaml");
}

std::string megatron(const plan::PlanFile& file) {
  const auto made = settings(Framework::megatron, file);
  return made ? made->text : base::render(made.error(), false);
}

nlohmann::json deepspeed(const plan::PlanFile& file) {
  const auto made = settings(Framework::deepspeed, file);
  return made ? nlohmann::json::parse(made->text) : nlohmann::json(base::render(made.error(), false));
}

plan::PlanSpec three_ways() {
  plan::PlanSpec spec;
  spec.mesh.data = 2, spec.mesh.tensor = 2, spec.mesh.pipeline = 2, spec.stages.virtual_stages = 2,
  spec.shape.micro_batch = 4, spec.shape.batch = 64;
  spec.mesh.sequence_parallel = true, spec.states.zero_stage = 1, spec.states.overlap_gradients = true;
  spec.recomputation.what = plan::Recompute::full;
  spec.numerics.precision = models::DType::bf16;
  return spec;
}

TEST(Megatron, IsToldEverythingThatMovesMemoryOrTime) {
  plan::PlanFile file = file_of(three_ways());
  file.job.training.schedule = {10, plan::Decay::cosine, 1e-4};
  file.job.training.clip_norm = 1.0;
  sample::expect_golden("megatron.sh", megatron(file));
}

TEST(Megatron, HasUnevenStagesAsALayout) {
  plan::PlanSpec spec = three_ways();
  spec.stages.virtual_stages = 1;
  spec.stages.layers_per_stage = {3, 5};
  EXPECT_THAT(megatron(file_of(spec)), HasSubstr("--pipeline-model-parallel-layout 'Et*3|t*5L'"));
  spec.stages.virtual_stages = 2;
  spec.stages.layers_per_stage = {1, 2, 2, 3};
  EXPECT_THAT(megatron(file_of(spec)), HasSubstr("'Et*1|t*2|t*2|t*3L'"));
}

TEST(Megatron, HasALlamaByItsOwnFlags) {
  models::Model llama = samples::tiny_gpt(8);
  llama.family = models::Family::llama;
  llama.kv_heads = 2;
  llama.normalisation = models::Normalisation::rms_norm;
  llama.activation = models::Activation::swiglu;
  llama.positions = models::Positions::rope;
  llama.rope_theta = 500000;
  llama.bias = llama.tied_embeddings = false;
  plan::PlanSpec spec;
  spec.mesh.data = 2, spec.mesh.context = 2, spec.states.zero_stage = 3, spec.numerics.precision = models::DType::fp8;
  const std::string said = megatron(file_of(spec, llama));
  for (const char* flag : {"--group-query-attention\n  --num-query-groups 2\n", "--normalization RMSNorm", "--swiglu",
                           "--position-embedding-type rope\n  --rotary-base 500000\n", "--disable-bias-linear",
                           "--untie-embeddings-and-output-weights", "--context-parallel-size 2", "--use-megatron-fsdp",
                           "--data-parallel-sharding-strategy optim_grads_params", "--bf16\n  --fp8-format hybrid"})
    EXPECT_THAT(said, HasSubstr(flag));
  EXPECT_THAT(said, Not(HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS"))) << "FSDP wants several queues";
}

models::Model deepseek_like() {
  models::Model m = samples::tiny_gpt(8);
  m.normalisation = models::Normalisation::rms_norm;
  m.activation = models::Activation::swiglu;
  m.positions = models::Positions::rope;
  m.bias = m.tied_embeddings = false;
  m.experts = {.count = 16,
               .chosen = 4,
               .hidden = 24,
               .shared = 48,
               .first_dense = 3,
               .scores = models::Scores::sigmoid,
               .normalised = true,
               .weight_scale = 2.5,
               .groups = 4,
               .groups_chosen = 2,
               .balance_bias = true,
               .bias_rate = 0.001};
  return m;
}

TEST(Megatron, HasExpertsAndTheirRouterByItsOwnFlags) {
  plan::PlanSpec spec;
  spec.mesh.data = 4, spec.mesh.expert = 2;
  models::Model m = deepseek_like();
  const std::string said = megatron(file_of(spec, m));
  for (const char* flag :
       {"--num-experts 16\n  --moe-router-topk 4\n  --moe-ffn-hidden-size 24\n", "--moe-layer-freq '([0]*3+[1]*5)'",
        "--moe-shared-expert-intermediate-size 48", "--moe-router-score-function sigmoid",
        "--moe-router-topk-scaling-factor 2.5", "--moe-router-num-groups 4\n  --moe-router-group-topk 2\n",
        "--moe-router-load-balancing-type none",
        "--moe-router-enable-expert-bias\n  --moe-router-bias-update-rate 0.001", "--moe-grouped-gemm",
        "--expert-model-parallel-size 2\n  --expert-tensor-parallel-size 1\n"})
    EXPECT_THAT(said, HasSubstr(flag));
  for (const char* none : {"--moe-router-pre-softmax", "--moe-shared-expert-gate", "--moe-aux-loss-coeff",
                           "--moe-expert-capacity-factor", "--multi-latent-attention"})
    EXPECT_THAT(said, Not(HasSubstr(none)));
  m.experts = {.count = 16, .chosen = 2, .hidden = 24, .period = 2, .aux_coefficient = 0.02, .z_coefficient = 0.004};
  spec.shape.micro_batch = 16;  // one a step: the balance is known behind the last
  const auto other = settings(Framework::megatron, file_of(spec, m));
  ASSERT_TRUE(other) << base::render(other.error(), false);
  for (const char* flag :
       {"--moe-layer-freq '([0]*1+[1]*1)*4'", "--moe-router-pre-softmax", "--moe-aux-loss-coeff 0.01\n",
        "--moe-z-loss-coeff 0.001\n", "--moe-router-load-balancing-type global_aux_loss"})
    EXPECT_THAT(other->text, HasSubstr(flag));
  ASSERT_EQ(other->warnings.size(), 1U);
  EXPECT_THAT(other->warnings[0].message, HasSubstr("each layer separately"));
  EXPECT_THAT(deepspeed(file_of(spec, m)).get<std::string>(), HasSubstr("expert parallelism"));
}

TEST(Megatron, HasTheModuleThatPredictsFurther) {
  models::Model m = deepseek_like();
  EXPECT_THAT(megatron(file_of({}, m)), Not(HasSubstr("--mtp-")));
  m.further = {.modules = 1, .weight = 0.3};
  EXPECT_THAT(megatron(file_of({}, m)), HasSubstr("--mtp-num-layers 1\n  --mtp-loss-scaling-factor 0.3\n"));
}

TEST(Megatron, HasNoWordForGptOssesBiasesAndNamesTheFlagsOfTheRest) {
  models::Model m = deepseek_like();
  m.attention_sinks = m.experts.router_bias = true;
  m.activation = models::Activation::clamped_swiglu;
  const auto made = settings(Framework::megatron, file_of({}, m));
  ASSERT_FALSE(made);
  ASSERT_EQ(made.error().size(), 3U);
  EXPECT_EQ(made.error()[0].message, "this export does not write a clamped SwiGLU for Megatron-LM");
  EXPECT_THAT(made.error()[0].help, HasSubstr("--activation-func-clamp-value 7.0"));
  EXPECT_THAT(made.error()[1].message, HasSubstr("does not write learned attention logits beside the scores"));
  EXPECT_THAT(made.error()[1].help, HasSubstr("--softmax-type learnable"));
  EXPECT_THAT(made.error()[2].message, HasSubstr("cannot express biases of routers"));
}

TEST(Megatron, IsToldByHandOfWindowsAndOfAGateOfAttention) {
  models::Model m = samples::tiny_gpt(8);
  m.window = 8, m.window_period = 2, m.attention_gate = true;
  const auto made = settings(Framework::megatron, file_of({}, m));
  ASSERT_FALSE(made);
  ASSERT_EQ(made.error().size(), 2U);
  EXPECT_EQ(made.error()[0].message, "this export does not write windows for Megatron-LM");
  EXPECT_THAT(made.error()[0].help, HasSubstr("`--window-size 7,0` and `--window-attn-skip-freq 2` by hand"));
  EXPECT_THAT(made.error()[1].message, HasSubstr("does not write a gate of attention's output"));
  EXPECT_THAT(made.error()[1].help, HasSubstr("--attention-output-gate"));
}

TEST(Megatron, SaysWhatItHasNoWordForAllAtOnce) {
  plan::PlanSpec spec = three_ways();
  spec.stages.virtual_stages = 1, spec.stages.order = plan::Order::zb_h1, spec.states.overlap_gradients = false;
  spec.recomputation.what = plan::Recompute::none;
  plan::PlanFile file = file_of(spec);
  file.job.training.optimizer.kind = plan::OptimizerKind::lamb;
  const auto made = settings(Framework::megatron, file);
  ASSERT_FALSE(made);
  ASSERT_EQ(made.error().size(), 2U);
  EXPECT_EQ(made.error()[0].code, "E0631");
  EXPECT_THAT(made.error()[0].message, HasSubstr("zb-h1"));
  EXPECT_THAT(made.error()[1].message, HasSubstr("lamb"));
}

TEST(Frameworks, PointToTheKeyThatTheyCannotExpress) {
  plan::PlanSpec spec = three_ways();
  spec.stages.virtual_stages = 1, spec.stages.order = plan::Order::zb_h1, spec.states.overlap_gradients = false;
  spec.recomputation.what = plan::Recompute::none;
  const plan::PlanFile file = file_of(spec);
  const auto plan = samples::try_make(file.spec, file.model);
  ASSERT_TRUE(plan);
  std::vector<std::string> keys;
  const auto made =
      settings_for(Framework::megatron, file, *plan, "plan.yaml", [&](const std::string& key, base::Diagnostic found) {
        keys.push_back(key);
        found.where.line = 7;
        return found;
      });
  ASSERT_FALSE(made);
  EXPECT_EQ(keys, std::vector<std::string>{"plan.schedule"});
  EXPECT_EQ(made.error().front().where.line, 7);
}

/// Notes the keys that findings point at.
Placing noting(std::vector<std::string>& keys) {
  return [&keys](const std::string& key, base::Diagnostic found) {
    keys.push_back(key);
    return found;
  };
}

TEST(Frameworks, PointToTheKeyOfTheJobThatAsksForStochasticRounding) {
  plan::PlanSpec spec;
  spec.numerics.precision = models::DType::bf16, spec.numerics.rounding = plan::Rounding::stochastic;
  const plan::PlanFile file = file_of(spec);
  const auto plan = samples::try_make(file.spec, file.model);
  ASSERT_TRUE(plan);
  std::vector<std::string> keys;
  const Placing placed = noting(keys);
  ASSERT_FALSE(settings_for(Framework::megatron, file, *plan, "plan.yaml", placed));
  EXPECT_EQ(keys, std::vector<std::string>{"job.rounding"});
}

TEST(Frameworks, PointToThePropertyThatTheyCannotExpressAndNameItAlone) {
  models::Model model = samples::tiny_gpt(8);
  model.attention_cap = 50, model.logit_cap = 30;
  const plan::PlanFile file = file_of({}, model);
  const auto plan = samples::try_make(file.spec, file.model);
  ASSERT_TRUE(plan);
  std::vector<std::string> keys;
  const Placing placed = noting(keys);
  const auto made = settings_for(Framework::megatron, file, *plan, "plan.yaml", placed);
  ASSERT_FALSE(made);
  EXPECT_EQ(keys, std::vector<std::string>{"model.attention_cap"});
  EXPECT_EQ(made.error().front().message, "Megatron-LM cannot express caps of scores, caps of logits");
}

TEST(Frameworks, PointToTheKeyOfWhatTheyDoOtherwise) {
  plan::PlanSpec spec;
  spec.mesh.data = 2, spec.compression.gradients = plan::GradientCompression::bf16;
  plan::PlanFile file = file_of(spec);
  file.job.training.initial_weights = "model.safetensors";
  const auto plan = samples::try_make(file.spec, file.model);
  ASSERT_TRUE(plan);
  std::vector<std::string> keys;
  const Placing placed = noting(keys);
  ASSERT_TRUE(settings_for(Framework::megatron, file, *plan, "plan.yaml", placed));
  EXPECT_EQ(keys, (std::vector<std::string>{"job.training.initial_weights", "plan.compression.gradients"}));
}

TEST(Megatron, WarnsOfWhatItDoesOtherwise) {
  plan::PlanSpec spec;
  spec.mesh.data = 2, spec.compression.gradients = plan::GradientCompression::bf16;
  const auto made = settings(Framework::megatron, file_of(spec));
  ASSERT_TRUE(made) << base::render(made.error(), false);
  EXPECT_THAT(made->text, HasSubstr("--grad-reduce-in-bf16"));
  ASSERT_EQ(made->warnings.size(), 1U);
  EXPECT_EQ(made->warnings[0].code, "E0632");
}

TEST(Megatron, SaysWhatTheJobSaysOfItsSoftware) {
  plan::PlanSpec spec;
  spec.mesh.data = spec.mesh.expert = 2, spec.states.zero_stage = 1, spec.numerics.precision = models::DType::fp8;
  spec.recomputation.what = plan::Recompute::none;
  plan::PlanFile file = file_of(spec, deepseek_like());
  file.job.software = {.attention_kernel = plan::AttentionKernel::cudnn,
                       .fp8_recipe = plan::Fp8Recipe::blockwise,
                       .fp8_param_gather = true,
                       .moment_bits = 16,
                       .gradient_dtype = plan::ReduceType::bf16,
                       .token_dispatcher = plan::TokenDispatcher::hybridep,
                       .overlap_exchange = true,
                       .cuda_graphs = true,
                       .router_fusion = true};
  const auto made = settings(Framework::megatron, file);
  ASSERT_TRUE(made) << base::render(made.error(), false);
  for (const char* flag :
       {"--attention-backend fused", "--fp8-recipe blockwise", "--fp8-param-gather", "--use-precision-aware-optimizer",
        "--exp-avg-dtype bf16", "--exp-avg-sq-dtype bf16", "--grad-reduce-in-bf16",
        "--moe-token-dispatcher-type flex\n  --moe-flex-dispatcher-backend hybridep",
        "--overlap-moe-expert-parallel-comm", "--moe-router-fusion", "--cuda-graph-impl transformer_engine"})
    EXPECT_THAT(made->text, HasSubstr(flag));
  EXPECT_THAT(base::render(made->warnings, false), Not(HasSubstr("is not among these settings")));
}

TEST(Megatron, LeavesOutAndNamesWhatItWouldRefuseInThisPlan) {
  plan::PlanSpec spec;
  spec.mesh.data = 2, spec.numerics.precision = models::DType::fp8;
  spec.recomputation.what = plan::Recompute::full;
  plan::PlanFile file = file_of(spec, deepseek_like());
  file.job.software = {.cross_entropy = plan::LossKernel::fused,
                       .fp8_param_gather = true,
                       .moment_bits = 16,
                       .cpu_offloading_layers = 3,
                       .scatter_gather = false,
                       .token_dispatcher = plan::TokenDispatcher::deepep,
                       .overlap_exchange = true,
                       .cuda_graphs = true};
  const auto made = settings(Framework::megatron, file);
  ASSERT_TRUE(made) << base::render(made.error(), false);
  const std::string warned = base::render(made->warnings, false);
  for (const char* word : {"cross_entropy", "fp8_param_gather", "moment_bits", "cpu_offloading_layers",
                           "scatter_gather", "token_dispatcher", "overlap_exchange", "cuda_graphs"})
    EXPECT_THAT(warned, HasSubstr(std::string("software: {") + word)) << warned;
  for (const char* flag : {"--cross-entropy", "--fp8-param-gather", "--exp-avg", "--cpu-offloading", "scatter-gather",
                           "flex", "--overlap-moe", "--cuda-graph"})
    EXPECT_THAT(made->text, Not(HasSubstr(flag)));
}

TEST(Megatron, NamesTheWordsOfSoftwareThatItsSettingsLeaveOut) {
  plan::PlanSpec spec;
  spec.mesh.data = 2, spec.numerics.precision = models::DType::fp8;
  plan::PlanFile file = file_of(spec);
  file.job.software = {.attention_kernel = plan::AttentionKernel::flash_2,  // written: --attention-backend flash
                       .fp8_recipe = plan::Fp8Recipe::rowwise,
                       .expandable_segments = true};
  const auto made = settings(Framework::megatron, file);
  ASSERT_TRUE(made) << base::render(made.error(), false);
  ASSERT_EQ(made->warnings.size(), 2U) << base::render(made->warnings, false);
  EXPECT_THAT(made->warnings[0].message, HasSubstr("fp8_recipe: rowwise"));
  EXPECT_THAT(made->warnings[1].message, HasSubstr("expandable_segments: true"));
}

TEST(Megatron, SaysThatAttentionIsNotFusedWhereThePlanAndItsSoftwareBothSaySo) {
  plan::PlanSpec spec;
  spec.mesh.data = 2, spec.numerics.flash = false;
  plan::PlanFile file = file_of(spec);
  file.job.software = {.attention_kernel = plan::AttentionKernel::math};
  const auto made = settings(Framework::megatron, file);
  ASSERT_TRUE(made) << base::render(made.error(), false);
  EXPECT_THAT(made->text, HasSubstr("--attention-backend unfused"));
  EXPECT_THAT(made->warnings, IsEmpty()) << base::render(made->warnings, false);
  const auto other = settings(Framework::deepspeed, file);
  ASSERT_TRUE(other) << base::render(other.error(), false);
  EXPECT_THAT(base::render(other->warnings, false), HasSubstr("attention_kernel: math")) << "it has no such setting";
}

TEST(DeepSpeed, HasTheTypesThatTheJobSays) {
  plan::PlanSpec spec;
  spec.mesh.data = 2, spec.states.zero_stage = 1, spec.numerics.precision = models::DType::bf16;
  plan::PlanFile file = file_of(spec);
  file.job.software = {
      .autocast = true, .gradient_dtype = plan::ReduceType::fp32, .reduce_dtype = plan::ReduceType::fp32};
  const nlohmann::json c = deepspeed(file);
  ASSERT_TRUE(c.is_object()) << c;
  EXPECT_EQ(c.at("communication_data_type"), "fp32");
  EXPECT_EQ(c.at("data_types").at("grad_accum_dtype"), "fp32");
  EXPECT_EQ(c.at("torch_autocast").at("enabled"), true);
  EXPECT_EQ(c.at("torch_autocast").at("dtype"), "bfloat16");
  EXPECT_FALSE(c.contains("bf16")) << "which would cast the parameters";
}

TEST(DeepSpeed, HasBatchesThatMultiplyUp) {
  plan::PlanSpec spec;
  spec.mesh.data = 4, spec.shape.micro_batch = 2, spec.states.zero_stage = 3,
  spec.numerics.precision = models::DType::fp16;
  plan::PlanFile file = file_of(spec);
  file.job.training.schedule = {10, plan::Decay::cosine, 1e-4};
  const nlohmann::json c = deepspeed(file);
  ASSERT_TRUE(c.is_object()) << c;
  EXPECT_EQ(c.at("train_batch_size").get<int>(),
            c.at("train_micro_batch_size_per_gpu").get<int>() * c.at("gradient_accumulation_steps").get<int>() * 4);
  EXPECT_EQ(c.at("zero_optimization").at("stage"), 3);
  EXPECT_EQ(c.at("zero_optimization").at("overlap_comm"), true);
  EXPECT_EQ(c.at("fp16").at("initial_scale_power"), 16);
  EXPECT_EQ(c.at("scheduler").at("type"), "WarmupCosineLR");
  EXPECT_DOUBLE_EQ(c.at("scheduler").at("params").at("cos_min_ratio").get<double>(), 0.1);
}

TEST(DeepSpeed, OffloadsWhatThePlanOffloads) {
  plan::PlanSpec spec;
  spec.mesh.data = 2, spec.states.zero_stage = 3;
  spec.offload.optimizer = plan::Space::nvme, spec.offload.parameters = plan::Space::host;
  const nlohmann::json c = deepspeed(file_of(spec));
  ASSERT_TRUE(c.is_object()) << c;
  EXPECT_EQ(c.at("zero_optimization").at("offload_optimizer").at("device"), "nvme");
  EXPECT_EQ(c.at("zero_optimization").at("offload_param").at("device"), "cpu");
}

TEST(DeepSpeed, LeavesOtherParallelismToCode) {
  const auto made = settings(Framework::deepspeed, file_of(three_ways()));
  ASSERT_FALSE(made);
  ASSERT_EQ(made.error().size(), 2U);
  EXPECT_THAT(made.error()[0].message, HasSubstr("tensor and context parallelism"));
  EXPECT_THAT(made.error()[1].message, HasSubstr("pipelines"));
}

TEST(Frameworks, TakeNoBertIntoMegatron) {
  plan::PlanFile file = file_of({}, samples::tiny_bert());
  EXPECT_THAT(megatron(file), HasSubstr("BERT"));
  EXPECT_THAT(megatron(file), Not(HasSubstr("norms behind what is added"))) << "which BERT has, and is named once";
  EXPECT_TRUE(deepspeed(file).is_object()) << deepspeed(file);
}

}  // namespace frameworks_test
}  // namespace orrery::reports

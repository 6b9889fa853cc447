/// Rows of mixtures: the model that a name stands for, what words say, and what a row's own numbers change.
#include "sim/validate/mixture_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/estimate/estimate.h"
#include "sim/simulate.h"
#include "sim/validate/cases.h"
#include "sim/validate/unstated.h"
#include "sim/validate/validate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim::mixture_rows_test {
namespace mixture_rows_test {

using ::testing::Contains;
using ::testing::HasSubstr;

Library library() {
  Library out;
  out.clusters = {*testing::cluster("hgx-h100"), *testing::cluster("gb200-nvl64")};
  out.stacks = {testing::stack("megatron-core")};
  out.models = {*testing::model("llama3-8b"), *testing::model("deepseek-v3"), *testing::model("qwen3-235b-a22b")};
  return out;
}

constexpr const char* kRow = R"(results:
- id: a
  source: somebody 2025
  kind: training
  verified: true
  family: moe
  model: DeepSeek-V3 671B
  layers: 61
  hidden: 7168
  heads: 128
  vocab: 129280
  seq_len: 4096
  experts: 256
  moe_topk: 8
  expert_ffn: 2048
  gpus: 512
  gpus_per_node: 8
  tp: 2
  pp: 8
  dp: 32
  ep: 64
  etp: 1
  sequence_parallel: true
  micro_batch: 1
  global_batch: 512
  gpu_type: H100-SXM5-80GB
  stack: megatron-core
  precision_kind: bf16
)";

Row row(const std::string& more = "", const std::string& text = kRow) {
  auto parsed = parse_rows(text + more, "rows.yaml");
  if (!parsed) throw std::runtime_error(base::render(parsed.error(), false));
  return parsed->at(0);
}

Subject subject(const Row& one) {
  Translator translator(library());
  auto made = translator.translate(one.setup);
  if (!made) throw std::runtime_error(made.error().front().message);
  return std::move(*made);
}

double seconds(const std::string& more) {
  const cost::Validation v = validate({row(more)}, library());
  return v.rows.empty() ? 0 : v.rows.at(0).predicted_s;
}

TEST(MixtureRows, OfACatalogueModelTakeWhatTheyLeaveOpenFromIt) {
  const Subject s = subject(row());
  EXPECT_EQ(s.model->latent.kv_rank, 512);
  EXPECT_EQ(s.model->experts.first_dense, 3);
  EXPECT_EQ(s.model->experts.groups, 8);
  EXPECT_THAT(s.notes, Contains(HasSubstr("deepseek-v3")));
}

TEST(MixtureRows, OfAnotherDepthAreNotThatModel) {
  std::string text = kRow;
  text.replace(text.find("layers: 61"), 10, "layers: 64");
  EXPECT_FALSE(subject(row("", text)).model->latent.any());
}

TEST(MixtureRows, HaveTheLatentAttentionThatTheyState) {
  std::string text = kRow;
  text.replace(text.find("DeepSeek-V3 671B"), 16, "something own");
  const Row one = row("  mla: {q_lora: 1024, kv_lora: 256, nope: 128, rope: 64, v: 128}\n", text);
  EXPECT_EQ(one.setup.latent_kv, 256);
  EXPECT_EQ(subject(one).model->latent.q_rank, 1024);
  EXPECT_EQ(subject(one).model->head_dim, 192);
}

TEST(MixtureRows, SayInTheirWordsHowTokensTravel) {
  const auto said = [](const std::string& more) {
    plan::Software out;
    take_travel(row(more).setup, out);
    return plan::software_text(out);
  };
  EXPECT_EQ(said(""), "");
  EXPECT_EQ(said("  section: cross-node EP, DeepEP\n"), "token_dispatcher: deepep");
  EXPECT_EQ(said("  overlap: EP all-to-all under 1F1B\n"), "overlap_exchange: true");
  EXPECT_EQ(said("  overlap: CUDA graphs (attention, router)\n"), "cuda_graphs: true");
}

TEST(MixtureRows, OfOneStackWithOtherNumbersArePredictedApart) {
  const std::string second = std::string(kRow).substr(std::string("results:\n").size());
  const std::string text = std::string(kRow) + second + "  section: DeepEP\n";
  auto parsed = parse_rows(text, "rows.yaml");
  ASSERT_TRUE(parsed);
  const cost::Validation both = validate(*parsed, library());
  ASSERT_EQ(both.rows.size(), 2U);
  EXPECT_LT(both.rows[1].predicted_s, both.rows[0].predicted_s);
  EXPECT_EQ(both.rows[1].predicted_s, seconds("  section: DeepEP\n"));
}

TEST(MixtureRows, AreReplayedWithTwoHopsAsTheyArePredicted) {
  std::string text = kRow;
  for (const auto& [from, to] : {std::pair{"DeepSeek-V3 671B", "something own"},
                                 {"layers: 61", "layers: 4"},
                                 {"gpus: 512", "gpus: 32"},
                                 {"tp: 2", "tp: 1"},
                                 {"pp: 8", "pp: 1"},
                                 {"ep: 64", "ep: 32"},
                                 {"global_batch: 512", "global_batch: 128"}})
    text.replace(text.find(from), std::string(from).size(), to);
  const auto seconds_of = [&](const std::string& more) {
    const Subject s = subject(row(more, text));
    cost::Estimator estimator(s.model, *s.pricing);
    return std::pair(simulate(s.plan, *s.pricing).prediction.step_time_s, estimator.time(s.plan).step_time);
  };
  const auto [plain, plain_closed] = seconds_of("");
  const auto [hops, hops_closed] = seconds_of("  section: DeepEP\n");
  EXPECT_LT(hops, 0.95 * plain);
  EXPECT_NEAR(hops / hops_closed, 1, 0.1);
  EXPECT_NEAR((plain - hops) / (plain_closed - hops_closed), 1, 0.2);
}

TEST(MixtureRows, RecomputeTheModulesThatTheirWordsName) {
  using plan::Module;
  const auto modules = [](const std::string& words, const char* model = "deepseek-v3") {
    return modules_of(row("  recompute: selective" + words + "\n").setup, *testing::model(model)).rows();
  };
  using Words = std::vector<std::string>;
  EXPECT_EQ(modules(""), Words{}) << "as the software does";
  EXPECT_EQ(modules(" (core attention, --recompute-activations)"), Words{"core"});
  EXPECT_EQ(modules(" (layernorm, moe)"), (Words{"norms", "experts"}));
  EXPECT_EQ(modules(" (layernorm, mla up_proj, moe_act)"), (Words{"norms", "up_projections", "activations"}));
  EXPECT_EQ(modules(" (mla_up_proj, mlp)", "qwen3-30b-a3b"), Words{"mlp"}) << "no latent attention";
}

TEST(MixtureRows, TakeTheirRecipesRecomputationWhereTheyStateNone) {
  auto open = row("  framework: NeMo 2/Megatron-Core\n").setup;
  std::vector<std::string> notes;
  take_recipe(open, notes);
  EXPECT_EQ(open.recompute, "selective");
  EXPECT_THAT(notes, Contains(HasSubstr("recipe")));
  auto stated = row("  framework: NeMo 2/Megatron-Core\n  recompute_kind: none\n").setup;
  take_recipe(stated, notes);
  EXPECT_EQ(stated.recompute, "none");
}

TEST(MixtureRows, OfRoutersThatTrainAreSlowerThanOfForcedBalance) {
  const double forced = seconds("  moe_routing: forced balance\n"), free = seconds("  moe_routing: dropless\n");
  EXPECT_EQ(forced, seconds(""));
  EXPECT_GT(free, 1.05 * forced);
}

TEST(MixtureRows, OfADaysCopyRunTheReleaseThatHasItsCode) {
  const auto stack = [](const std::string& more) {
    Library known = library();
    known.stacks.push_back(testing::stack("megatron-core-0.6"));
    Translator translator(std::move(known));
    return translator.translate(row(more).setup)->pricing->stack().name;
  };
  EXPECT_EQ(stack("  framework: Megatron-Core 0.6.0\n"), "megatron-core-0.6");
  EXPECT_EQ(stack("  framework: Pai-Megatron-Patch, Megatron-LM 240405\n"), "megatron-core-0.6");
  EXPECT_EQ(stack("  framework: Megatron-LM\n"), "megatron-core");
}

TEST(Rows, TrainWhatTheirSourcesScriptLeavesToTheSoftware) {
  sim::Setup s;
  s.source = "FlagPerf training benchmarks (FlagOpen)", s.framework = "Megatron-Core 0.6.0", s.model = "Llama 3 8B";
  std::vector<std::string> notes;
  const models::Model plain = *testing::model("llama3-8b"), run = as_script_runs(plain, s, notes);
  EXPECT_TRUE(run.bias && run.tied_embeddings && run.dropout.any());
  EXPECT_EQ(run.positions, models::Positions::learned);
  EXPECT_THAT(notes, Contains(HasSubstr("pretrain_llama3.sh")));
  s.model = "Mixtral 8x7B";
  const models::Model mixture = as_script_runs(plain, s, notes);
  EXPECT_TRUE(mixture.dropout.any() && !mixture.bias) << "its script says --disable-bias-linear";
  s.source = "somebody else";
  EXPECT_EQ(as_script_runs(plain, s, notes), plain);
}

TEST(Rows, OfAutoModelRecomputeAsItsRecipesDoUnlessTheySay) {
  sim::Setup s;
  s.source = "NeMo AutoModel performance summary 2025-10", s.lora_rank = 16;
  std::vector<std::string> notes;
  sim::Setup stated = s, other = s, alone = s;
  stated.recompute = "none", other.source = "somebody", alone.gpus = 1;
  for (sim::Setup* one : {&s, &stated, &other, &alone}) take_recomputation(*one, notes);
  EXPECT_EQ(s.recompute, "full");
  EXPECT_EQ(stated.recompute, "none");
  EXPECT_TRUE(other.recompute.empty());
  EXPECT_TRUE(alone.recompute.empty()) << "recipes of one device do not";
  EXPECT_EQ(notes.size(), 1U);
}

TEST(Rows, SayTheirPrecisionInManyWords) {
  const auto type = [](const std::string& word) {
    std::string text = kRow;
    text.replace(text.find("bf16"), 4, word);
    return subject(row("", text)).plan.spec().numerics.precision;
  };
  EXPECT_EQ(type("float32"), models::DType::fp32);
  EXPECT_EQ(type("FP16-mixed"), models::DType::fp16);
  EXPECT_EQ(type("amp_bf16"), models::DType::bf16);
  EXPECT_EQ(type("mxfp8"), models::DType::fp8);
  EXPECT_EQ(type("mixed"), models::DType::bf16) << "which its device trains in";
}

TEST(Rows, RecomputedInPartRecomputeHalfTheLayers) {
  const plan::Recomputation half = subject(row("  recompute_kind: partial\n")).plan.spec().recomputation;
  EXPECT_EQ(half.what, plan::Recompute::full);
  EXPECT_EQ(half.layers, 4) << "of the seven or eight of a stage";
  EXPECT_EQ(row("  recompute_kind: true\n").setup.recompute, "full");
  EXPECT_EQ(row("  recompute_kind: no\n").setup.recompute, "none");
  EXPECT_EQ(row("  recompute_kind: Activation checkpointing\n").setup.recompute, "full");
  EXPECT_EQ(row("  recompute_kind: unknown\n").setup.recompute, "");
}

TEST(Rows, InFullPrecisionHaveNoFusedAttention) {
  const auto flash = [](const std::string& more) { return subject(row(more)).plan.spec().numerics.flash; };
  EXPECT_TRUE(flash("  flash_attention: true\n"));
  std::string text = kRow;
  text.replace(text.find("bf16"), 4, "tf32");
  EXPECT_FALSE(subject(row("  flash_attention: true\n", text)).plan.spec().numerics.flash);
}

}  // namespace mixture_rows_test
}  // namespace orrery::sim::mixture_rows_test

// GPT-NeoX's configurations as plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/frameworks/import.h"

namespace orrery::plan {
namespace import_neox_test {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr const char* kNeox = R"(# a comment before the map
{
  "pipe-parallel-size": 2,
  "model-parallel-size": 4,
  "num_layers": 24, "hidden_size": 2048, "num_attention_heads": 16,
  "seq_length": 2048, "max_position_embeddings": 2048,
  "norm": "layernorm", "pos_emb": "rotary", "rotary_pct": 0.25,
  "no_weight_tying": true, "gpt_j_residual": true,
  "attention_config": [[["flash"], 24]],
  "bias_gelu_fusion": True,
  "optimizer": {"type": "Adam", "params": {"lr": 2.0e-4, "betas": [0.9, 0.95], "eps": 1.0e-8}},
  "min_lr": 2.0e-5,
  "zero_optimization": {"stage": 1, "overlap_comm": true, "allgather_partitions": True},
  "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8,
  "checkpoint_activations": true, "checkpoint_num_layers": 1, "partition_activations": true,
  "gradient_clipping": 1.0, "weight-decay": 0.01, "hidden_dropout": 0, "attention_dropout": 0,
  "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 12},
  "train_iters": 1000, "lr_decay_iters": 1000, "lr_decay_style": "cosine", "warmup": 0.01,
  "checkpoint_factor": 100, "wandb_project": "x", "made_up": 3,
}
)";

RunQuestion on(int ranks) {
  RunQuestion out;
  out.ranks = ranks;
  return out;
}
base::Result<ImportedRun> read(const std::string& text, const RunQuestion& question = on(32)) {
  const std::string name = "20B.yml";
  return import_run({{text, name, *run_format(text, name)}}, question);
}
std::string with(std::string text, const std::string& old, const std::string& now) {
  const std::size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), now);
}
std::string refused(const std::string& text) {
  const auto run = read(text);
  return run ? "" : base::render(run.error(), false);
}

TEST(ImportNeox, AConfigurationIsAPlanOfMegatronsModelOnDeepSpeedsEngine) {
  const auto run = read(kNeox);
  ASSERT_TRUE(run) << base::render(run.error(), false);
  EXPECT_EQ(run->framework, "GPT-NeoX");
  EXPECT_EQ(run->stack, "megatron-deepspeed-2022");
  EXPECT_EQ(run->spec.mesh.data, 4) << "32 ranks over 4 x 2";
  EXPECT_EQ(run->spec.mesh.tensor, 4);
  EXPECT_EQ(run->spec.mesh.pipeline, 2);
  EXPECT_EQ(run->spec.shape.micro_batch, 4);
  EXPECT_EQ(run->spec.shape.batch, 4 * 8 * 4);
  EXPECT_EQ(run->spec.states.zero_stage, 1);
  EXPECT_EQ(run->spec.numerics.precision, models::DType::fp16);
  EXPECT_TRUE(run->spec.numerics.flash);
  EXPECT_EQ(run->spec.recomputation.what, Recompute::full);
  EXPECT_TRUE(run->spec.recomputation.partition_checkpoints);
  EXPECT_EQ(run->model.family, models::Family::gpt_neox);
  EXPECT_TRUE(run->model.parallel);
  EXPECT_FALSE(run->model.shared_norm);
  EXPECT_FALSE(run->model.tied_embeddings);
  EXPECT_TRUE(run->model.bias && run->model.norm_bias);
  EXPECT_EQ(run->model.ffn_hidden, 4 * 2048);
  EXPECT_DOUBLE_EQ(run->model.rotary_share, 0.25);
  EXPECT_EQ(run->model.vocab, 50257) << "of the class's own tokenizer";
  EXPECT_EQ(run->training.steps, 1000);
  EXPECT_EQ(run->training.schedule.warmup_steps, 10);
  EXPECT_DOUBLE_EQ(run->training.optimizer.learning_rate, 2e-4);
  EXPECT_DOUBLE_EQ(run->training.optimizer.beta2, 0.95);
  EXPECT_DOUBLE_EQ(run->training.optimizer.weight_decay, 0.01);
  ASSERT_EQ(run->warnings.size(), 1U) << run->warnings.back().message;
  EXPECT_THAT(run->warnings[0].message, HasSubstr("`made_up`"));
  EXPECT_EQ(run->warnings[0].where.line, 19);
  EXPECT_THAT(run->notes, Contains(HasSubstr("wandb_project")));
}

// megatron/model/transformer.py: of a Llama's 32,768 a third, in steps of 256, is 11,008.
TEST(ImportNeox, AGatedMlpHasAThirdOfTheWidthThatAFileSays) {
  const std::string gated =
      with(with(kNeox, "\"norm\": \"layernorm\"", "\"norm\": \"rmsnorm\", \"activation\": \"swiglu\""),
           "\"bias_gelu_fusion\": True",
           "\"intermediate_size\": 32768, \"mlp_multiple_of\": 256, \"use_bias_in_mlp\": False, "
           "\"use_bias_in_attn_linear\": false, \"use_bias_in_norms\": false, \"num_kv_heads\": 4");
  const auto run = read(gated);
  ASSERT_TRUE(run) << base::render(run.error(), false);
  EXPECT_EQ(run->model.ffn_hidden, 11008);
  EXPECT_EQ(run->model.activation, models::Activation::swiglu);
  EXPECT_EQ(run->model.kv_heads, 4);
  EXPECT_FALSE(run->model.bias || run->model.qkv_bias || run->model.norm_bias);
  EXPECT_DOUBLE_EQ(run->model.norm_epsilon, 1e-8);
  const auto without = read(with(gated, "\"intermediate_size\": 32768, ", ""));
  ASSERT_TRUE(without) << base::render(without.error(), false);
  EXPECT_EQ(without->model.ffn_hidden, 2816) << "of four times 2,048";
}

TEST(ImportNeox, BatchesFollowFromEachOtherAndTheRanks) {
  const auto batch = read(with(kNeox, "\"train_micro_batch_size_per_gpu\": 4", "\"train_batch_size\": 256"));
  ASSERT_TRUE(batch) << base::render(batch.error(), false);
  EXPECT_EQ(batch->spec.shape.batch, 256);
  EXPECT_EQ(batch->spec.shape.micro_batch, 256 / (8 * 4));
  RunQuestion smaller = on(64);
  smaller.set = {{"micro-batch-size", "2"}};
  const auto set = read(kNeox, smaller);
  ASSERT_TRUE(set) << base::render(set.error(), false);
  EXPECT_EQ(set->spec.shape.micro_batch, 2);
  EXPECT_EQ(set->spec.shape.batch, 2 * 8 * 8);
  EXPECT_THAT(refused(with(kNeox, "\"train_micro_batch_size_per_gpu\": 4, ", "")), HasSubstr("no batch is given"));
}

TEST(ImportNeox, SeveralFilesAreOneRunAndTheLastSays) {
  const std::string place = "{\n  \"data_path\": \"x\",\n  \"vocab_file\": \"y\", \"pipe_parallel_size\": 1\n}\n";
  const auto run = import_run(
      {{kNeox, "20B.yml", *run_format(kNeox, "20B.yml")}, {place, "local.yml", *run_format(place, "local.yml")}},
      on(32));
  ASSERT_TRUE(run) << base::render(run.error(), false);
  EXPECT_EQ(run->spec.mesh.pipeline, 1);
  EXPECT_EQ(run->spec.mesh.data, 8);
}

TEST(ImportNeox, WhatHasNoCounterpartIsRefusedOrTold) {
  EXPECT_THAT(refused(with(kNeox, "[\"flash\"]", "[\"mamba\"]")), HasSubstr("layers of kind `mamba`"));
  EXPECT_THAT(refused(with(kNeox, "\"num_layers\": 24", "\"num_layers\": many")), HasSubstr("E0653"));
  EXPECT_THAT(refused(with(kNeox, "\"made_up\": 3", "\"tokenizer_type\": \"HFTokenizer\"")),
              HasSubstr("--set vocab-size="));
  const auto local = read(with(kNeox, "[\"flash\"]", "[\"global\", \"local\"]"));
  ASSERT_TRUE(local) << base::render(local.error(), false);
  EXPECT_FALSE(local->spec.numerics.flash);
  const auto sent = read(with(kNeox, "\"allgather_partitions\": True", "\"allgather_partitions\": False"));
  ASSERT_TRUE(sent) << base::render(sent.error(), false);
  EXPECT_THAT(sent->warnings.back().message + sent->warnings.front().message, HasSubstr("not broadcast"));
  EXPECT_THAT(local->warnings.front().message + local->warnings.back().message, HasSubstr("a part of the tokens"));
  // DeepSpeed's own file is no such configuration.
  EXPECT_EQ(run_format(R"({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}})", "ds.json"),
            RunFormat::deepspeed);
}

}  // namespace import_neox_test
}  // namespace orrery::plan

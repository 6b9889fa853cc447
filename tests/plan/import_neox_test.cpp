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
  const std::string whole = with(kNeox, "\"train_micro_batch_size_per_gpu\": 4", "\"train_batch_size\": 256");
  const auto batch = read(whole);
  ASSERT_TRUE(batch) << base::render(batch.error(), false);
  EXPECT_EQ(batch->spec.shape.batch, 256);
  EXPECT_EQ(batch->spec.shape.micro_batch, 256 / (8 * 4));
  EXPECT_THAT(refused(with(kNeox, "\"train_micro_batch_size_per_gpu\": 4, ", "")), HasSubstr("no batch is given"));
  // Accumulation is 1 where no file says it, so that these contradict each other.
  const std::string both = with(whole, "\"train_batch_size\": 256",
                                "\"train_batch_size\": 256, "
                                "\"train_micro_batch_size_per_gpu\": 4");
  EXPECT_THAT(refused(both), HasSubstr("256 is not 4 x 8 x 4 replicas"));
}

TEST(ImportNeox, WhatTheCommandLineSetsWins) {
  const auto set = [](const std::string& key, const std::string& value, int ranks = 32) {
    RunQuestion question = on(ranks);
    question.set = {{key, value}};
    auto run = read(kNeox, question);
    EXPECT_TRUE(run) << key << ": " << base::render(run.error(), false);
    return run ? std::move(*run) : ImportedRun();
  };
  for (const char* const key : {"micro-batch-size", "train_micro_batch_size_per_gpu"}) {
    const ImportedRun run = set(key, "2", 64);
    EXPECT_EQ(run.spec.shape.micro_batch, 2) << key;
    EXPECT_EQ(run.spec.shape.batch, 2 * 8 * 8) << key;
  }
  EXPECT_EQ(set("gradient_accumulation_steps", "2").spec.shape.batch, 4 * 2 * 4);
  EXPECT_EQ(set("pipeline-model-parallel-size", "4").spec.mesh.pipeline, 4);
  EXPECT_EQ(set("pipe_parallel_size", "1").spec.mesh.data, 8);
  EXPECT_EQ(set("ffn-hidden-size", "4096").model.ffn_hidden, 4096);
  EXPECT_DOUBLE_EQ(set("adam-beta2", "0.99").training.optimizer.beta2, 0.99);
  EXPECT_DOUBLE_EQ(set("norm-epsilon", "1e-3").model.norm_epsilon, 1e-3);
  EXPECT_EQ(set("zero_optimization.stage", "0").spec.states.zero_stage, 0);
}

TEST(ImportNeox, WordsOfYamlAreTrueOrFalseOrRefused) {
  const auto yes = read(with(kNeox, "\"gpt_j_residual\": true", "\"gpt_j_residual\": yes, \"use_bias_in_mlp\": on"));
  ASSERT_TRUE(yes) << base::render(yes.error(), false);
  EXPECT_TRUE(yes->model.parallel && yes->model.bias);
  EXPECT_THAT(refused(with(kNeox, "\"gpt_j_residual\": true", "\"gpt_j_residual\": maybe")),
              HasSubstr("`gpt_j_residual` is true or false"));
}

// moe.py: no gate, all of the width, and whole experts over the ranks of model parallelism.
TEST(ImportNeox, ExpertsHaveNoGateAndLieOverTheRanksOfModelParallelism) {
  const std::string experts = R"("moe_num_experts": 8, "moe_top_k": 2, "activation": "swiglu", "norm": "layernorm")";
  const auto run = read(with(kNeox, "\"norm\": \"layernorm\"", experts));
  ASSERT_TRUE(run) << base::render(run.error(), false);
  EXPECT_EQ(run->model.experts.count, 8);
  EXPECT_EQ(run->model.experts.chosen, 2);
  EXPECT_EQ(run->model.experts.hidden, 4 * 2048);
  EXPECT_EQ(run->model.activation, models::Activation::gelu);
  EXPECT_EQ(run->spec.mesh.expert, 4);
  EXPECT_EQ(run->spec.mesh.expert_tensor, 1);
  EXPECT_THAT(run->notes, Contains(HasSubstr("experts have no gate")));
  EXPECT_THAT(refused(with(kNeox, "\"norm\": \"layernorm\"", experts + ", \"moe_expert_interval\": 2")),
              HasSubstr("the first of every so many layers"));
}

TEST(ImportNeox, SeveralFilesAreOneRunIfNoneRepeatsAKey) {
  const std::string place =
      "{\n  \"data-path\": \"x\",\n  \"vocab_file\": \"y\", \"load\": \"z\", \"num_gpus\": 8, \"num_nodes\": 4}\n";
  const auto all = [&](const std::string& beside) {
    return import_run(
        {{kNeox, "20B.yml", *run_format(kNeox, "20B.yml")}, {beside, "local.yml", *run_format(beside, "local.yml")}},
        {});
  };
  const auto run = all(place);
  ASSERT_TRUE(run) << base::render(run.error(), false);
  EXPECT_EQ(run->spec.mesh.data, 4) << "the files say how many GPUs there are";
  EXPECT_EQ(run->per_node, 8);
  const auto twice = all(with(place, "\"load\"", "\"pipe_parallel_size\": 1, \"load\""));
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().front().code, "E0650");
  EXPECT_THAT(twice.error().front().message, HasSubstr("`pipe_parallel_size` is in 20B.yml too"));
}

TEST(ImportNeox, WhatHasNoCounterpartIsRefusedOrTold) {
  EXPECT_THAT(refused(with(kNeox, "[\"flash\"]", "[\"mamba\"]")), HasSubstr("layers of kind `mamba`"));
  EXPECT_THAT(refused(with(kNeox, "\"num_layers\": 24", "\"num_layers\": many")), HasSubstr("E0653"));
  EXPECT_THAT(refused(with(kNeox, "\"made_up\": 3", "\"tokenizer_type\": \"HFTokenizer\"")),
              HasSubstr("--set vocab-size="));
  const auto local = read(with(kNeox, "[\"flash\"], 24", "[\"global\", \"local\"], 12"));
  ASSERT_TRUE(local) << base::render(local.error(), false);
  EXPECT_FALSE(local->spec.numerics.flash);
  const auto sent = read(with(kNeox, "\"allgather_partitions\": True", "\"allgather_partitions\": False"));
  ASSERT_TRUE(sent) << base::render(sent.error(), false);
  EXPECT_THAT(sent->warnings.back().message + sent->warnings.front().message, HasSubstr("not broadcast"));
  EXPECT_THAT(local->warnings.front().message + local->warnings.back().message, HasSubstr("a part of the tokens"));
  EXPECT_THAT(refused(with(kNeox, "\"pos_emb\": \"rotary\"", "\"pos_emb\": \"rpe\"")), HasSubstr("`pos_emb` `rpe`"));
  EXPECT_THAT(refused(with(kNeox, "[\"flash\"], 24", "[\"flash\"], 3")), HasSubstr("3 of 24 layers"));
  // A key of Megatron-LM's alone means nothing here.
  const auto strange = read(with(kNeox, "\"made_up\": 3", "\"zero_stage\": 3, \"global_batch_size\": 7"));
  ASSERT_TRUE(strange) << base::render(strange.error(), false);
  EXPECT_EQ(strange->spec.states.zero_stage, 1);
  EXPECT_THAT(strange->warnings.back().message, HasSubstr("`global_batch_size`"));
}

TEST(ImportNeox, OtherFilesAreNotTakenForIt) {
  EXPECT_EQ(run_format(R"({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}})", "ds.json"),
            RunFormat::deepspeed);
  EXPECT_EQ(run_format(R"({"_comment": "num_layers: 3", "train_micro_batch_size_per_gpu": 4})", "ds.json"),
            RunFormat::deepspeed);
  EXPECT_EQ(run_format("args:\n- torchrun pretrain_gpt.py --num-layers 12 --hidden-size 64 --data-path /d "
                       "--vocab-file /v --save /s\n",
                       "k8s.yaml"),
            RunFormat::megatron);
  EXPECT_FALSE(run_format("training:\n  pipe_parallel_size: 3\n", "other.yaml"));
  EXPECT_EQ(run_format("pipe-parallel-size: 1\nnum-layers: 12\n", "plain.yml"), RunFormat::neox);
}

}  // namespace import_neox_test
}  // namespace orrery::plan

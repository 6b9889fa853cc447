// What runs of other frameworks are launched with, as plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "models/read/read.h"
#include "plan/frameworks/import.h"

namespace orrery::plan {
namespace import_run_test {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kScript =
    "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\nTP=2\nGPT=(\n  --num-layers 12 --hidden-size 768\n"
    "  --num-attention-heads 12 --seq-length 1024 --max-position-embeddings 1024 --swiglu --normalization RMSNorm\n"
    "  --ffn-hidden-size 2048 --position-embedding-type rope --disable-bias-linear --vocab-size 32000)\n"
    "srun python pretrain_gpt.py ${GPT[@]} --tensor-model-parallel-size $TP --pipeline-model-parallel-size 2 \\\n"
    "  --micro-batch-size 2 --global-batch-size 64 --bf16 --use-distributed-optimizer --overlap-grad-reduce \\\n"
    "  --sequence-parallel --save out --made-up-flag 3 --window-attn-skip-freq 2 --lr 3e-4 --weight-decay 0.1\n";

base::Result<ImportedRun> read(const std::string& text, const std::string& name = "train.sh",
                               RunQuestion question = {}) {
  return import_run({{text, name, *run_format(text, name)}}, question);
}
std::string refused(const std::string& text, const std::string& name = "train.sh") {
  const auto run = read(text, name);
  return run ? "" : base::render(run.error(), false);
}

TEST(ImportRun, AScriptIsAPlanAndSaysWhatItLeavesOut) {
  const auto run = read(kScript);
  ASSERT_TRUE(run) << base::render(run.error(), false);
  EXPECT_EQ(run->spec.mesh.data, 4);
  EXPECT_EQ(run->spec.mesh.tensor, 2);
  EXPECT_EQ(run->spec.mesh.pipeline, 2);
  EXPECT_TRUE(run->spec.mesh.sequence_parallel);
  EXPECT_EQ(run->spec.states.zero_stage, 1);
  EXPECT_TRUE(run->spec.states.overlap_gradients);
  EXPECT_EQ(run->spec.numerics.precision, models::DType::bf16);
  EXPECT_EQ(run->model.layers, 12);
  EXPECT_EQ(run->model.ffn_hidden, 2048);
  EXPECT_EQ(run->model.kv_heads, 12);
  EXPECT_FALSE(run->model.bias);
  EXPECT_EQ(run->training.optimizer.kind, OptimizerKind::adamw);
  EXPECT_DOUBLE_EQ(run->training.optimizer.learning_rate, 3e-4);
  EXPECT_EQ(run->stack, "megatron-core");
  ASSERT_EQ(run->warnings.size(), 2U);
  EXPECT_EQ(run->warnings[0].code, "E0656");
  EXPECT_EQ(run->warnings[0].where.line, 11);
  EXPECT_EQ(run->warnings[1].code, "E0655");
  EXPECT_THAT(run->notes, Contains(HasSubstr("--save")));
}

TEST(ImportRun, WhatOnlyARunCanTellIsAnErrorWithItsPlaceUntilItIsSet) {
  std::string text = kScript;
  text.replace(text.find("TP=2\n"), 5, "");
  EXPECT_THAT(refused(text), HasSubstr("--set TP=VALUE"));
  RunQuestion question;
  question.set["TP"] = "4";
  const auto run = read(text, "train.sh", question);
  ASSERT_TRUE(run) << base::render(run.error(), false);
  EXPECT_EQ(run->spec.mesh.tensor, 4);
}

TEST(ImportRun, GradientsThatMegatronReducesInBf16AreNotEncodedAsWell) {
  std::string text = kScript;
  text.replace(text.find("--overlap-grad-reduce"), 21, "--grad-reduce-in-bf16 --no-scatter-gather-tensors-in-pipeline");
  const auto run = read(text, "train.sh");
  ASSERT_TRUE(run) << base::render(run.error(), false);
  EXPECT_EQ(run->software.gradient_dtype, ReduceType::bf16);
  EXPECT_EQ(run->software.scatter_gather, false);
  EXPECT_EQ(run->spec.compression.gradients, GradientCompression::none) << "they add up in 16 bits, and travel so";
}

TEST(ImportRun, FilesThatAreNoRunAreRefusedWithAReason) {
  EXPECT_THAT(refused("source common.sh\n"), HasSubstr("common.sh"));
  EXPECT_THAT(refused("echo hello\n"), HasSubstr("no command here trains"));
  EXPECT_THAT(refused(std::string(kScript).substr(0, 120)), HasSubstr("E0651"));
  EXPECT_THAT(refused("[model\nname = 3", "a.toml"), HasSubstr("not TOML"));
  EXPECT_THAT(refused("{\"train_batch_size\": 8,", "ds.json"), HasSubstr("ds.json"));
  EXPECT_THAT(refused("{\"train_batch_size\": 8}", "ds.json"), HasSubstr("config.json"));
}

TEST(ImportRun, TorchtitansTomlAndDeepSpeedsJsonAreRead) {
  RunQuestion question;
  question.ranks = 16;
  question.find_model = [](const std::string& name) {
    return models::parse_model("name: " + name +
                                   "\nfamily: llama\nlayers: 32\nhidden: 4096\nheads: 32\nkv_heads: 8\n"
                                   "ffn_hidden: 14336\nvocab: 128256\nmax_sequence: 8192\n",
                               "m.yaml");
  };
  const auto titan = read(
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 2\nseq_len = 4096\n"
      "[parallelism]\ntensor_parallel_degree = 2\n[activation_checkpoint]\nmode = \"full\"\n",
      "a.toml", question);
  ASSERT_TRUE(titan) << base::render(titan.error(), false);
  EXPECT_EQ(titan->model_name, "llama3-8b");
  EXPECT_EQ(titan->spec.mesh.data, 8);
  EXPECT_EQ(titan->spec.states.zero_stage, 3);
  EXPECT_EQ(titan->spec.shape.batch, 16);
  EXPECT_EQ(titan->spec.recomputation.what, Recompute::full);
  EXPECT_THAT(titan->notes, Contains(HasSubstr("compile.enable = false, torchtitan's default")));
  EXPECT_EQ(titan->software, (Software{.compiled = false}));
  const auto eager = read(
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 2\nseq_len = 4096\n"
      "[compile]\nenable = false\n",
      "a.toml", question);
  ASSERT_TRUE(eager) << base::render(eager.error(), false);
  EXPECT_TRUE(eager->warnings.empty()) << "a job says it";
  EXPECT_EQ(eager->software, (Software{.compiled = false}));
  const auto compiled = read(
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 2\nseq_len = 4096\n"
      "[compile]\nenable = true\n",
      "a.toml", question);
  ASSERT_TRUE(compiled) << base::render(compiled.error(), false);
  EXPECT_EQ(compiled->software, (Software{.compiled = true, .cross_entropy = LossKernel::compiled}));
  for (const char* reshard : {"", "fsdp_reshard_after_forward = \"always\"\n"}) {
    const auto staged = read(
        std::string("[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 2\nseq_len = 4096\n"
                    "[parallelism]\npipeline_parallel_degree = 2\n") +
            reshard,
        "a.toml", question);
    ASSERT_TRUE(staged) << base::render(staged.error(), false);
    EXPECT_EQ(staged->spec.states.zero_stage, 1) << "its FSDP2 gathers and reduces once a step in a pipeline";
    EXPECT_EQ(std::any_of(staged->notes.begin(), staged->notes.end(),
                          [](const std::string& note) { return note.find("reshard") != note.npos; }),
              reshard[0] != '\0');
  }
  question.model = "some";
  question.ranks = 0;
  const auto speed = read(
      "{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 2,\n"
      "\t\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": "
      "\"cpu\"}}}",
      "ds.json", question);
  ASSERT_TRUE(speed) << base::render(speed.error(), false);
  EXPECT_EQ(speed->spec.mesh.data, 8);
  EXPECT_EQ(speed->spec.states.zero_stage, 3);
  EXPECT_EQ(speed->spec.offload.optimizer, Space::host);
  const auto automatic = read("{\"train_batch_size\": \"auto\"}", "ds.json", question);
  ASSERT_FALSE(automatic);
  EXPECT_EQ(automatic.error()[0].code, "E0652");
}

models::Model some_model() {
  return *models::parse_model(
      "name: some\nfamily: llama\nlayers: 32\nhidden: 4096\nheads: 32\nkv_heads: 8\nffn_hidden: 14336\n"
      "vocab: 128256\nmax_sequence: 8192\n",
      "m.yaml");
}
RunQuestion with_model(const std::string& name = "") {
  RunQuestion out;
  out.model = name;
  out.find_model = [](const std::string&) -> base::Result<models::Model> { return some_model(); };
  return out;
}
std::string outcome(const base::Result<ImportedRun>& run) {
  if (!run) return base::render(run.error(), false);
  std::string out;
  for (const std::string& note : run->notes) out += note + "\n";
  return out;
}
constexpr const char* kTitan =
    "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 1\n[parallelism]\n";
constexpr const char* kTrain =
    "python pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 --vocab-size "
    "32000 --micro-batch-size 1 --bf16 ";

constexpr const char* kNemo =
    "trainer:\n  num_nodes: 16\n  devices: 8\n  precision: bf16\n  max_steps: 1000\n  gradient_clip_val: 0.5\n"
    "  log_every_n_steps: 10\nmodel:\n  micro_batch_size: 1\n  global_batch_size: 256\n"
    "  tensor_model_parallel_size: 4\n  pipeline_model_parallel_size: 2\n"
    "  virtual_pipeline_model_parallel_size: 2\n  context_parallel_size: 2\n  sequence_parallel: True\n"
    "  encoder_seq_length: ${model.data.seq_length}\n  max_position_embeddings: ${.encoder_seq_length}\n"
    "  num_layers: 8\n  hidden_size: 1024\n  ffn_hidden_size: ${multiply:3, ${.hidden_size}}\n"
    "  num_attention_heads: 16\n  num_query_groups: 8\n  kv_channels: null\n  bias: false\n"
    "  activation: fast-swiglu\n  normalization: rmsnorm\n  position_embedding_type: rope\n"
    "  rotary_percentage: 0.5\n  share_embeddings_and_output_weights: false\n  hidden_dropout: 0.0\n"
    "  attention_dropout: 0.0\n  tokenizer:\n    library: megatron\n    type: GPT2BPETokenizer\n"
    "    vocab_file: ${data_dir}/bpe/vocab.json\n  activations_checkpoint_granularity: selective\n"
    "  activations_checkpoint_method: block\n  activations_checkpoint_num_layers: 0\n  megatron_amp_O2: true\n"
    "  ub_tp_comm_overlap: true\n  fp8: False\n  fp8_hybrid: True\n  persist_layer_norm: true\n"
    "  optim:\n    name: distributed_fused_adam\n    overlap_grad_sync: true\n    lr: 3e-4\n    weight_decay: 0.1\n"
    "    betas: [0.9, 0.95]\n    sched:\n      name: CosineAnnealing\n      warmup_steps: 20\n      min_lr: 3e-5\n"
    "  data:\n    seq_length: 4096\n";

std::string with(std::string text, const std::string& old, const std::string& now) {
  text.replace(text.find(old), old.size(), now);
  return text;
}

TEST(ImportRun, NemosYamlIsReadAsTheFlagsThatItsKeysBecome) {
  const auto run = read(kNemo, "llama.yaml");
  ASSERT_TRUE(run) << base::render(run.error(), false);
  EXPECT_EQ(run->framework, "NeMo");
  EXPECT_EQ(run->per_node, 8);
  EXPECT_EQ(run->spec.mesh.data, 8) << "128 ranks over 4 x 2 x 2";
  EXPECT_EQ(run->spec.mesh.tensor, 4);
  EXPECT_EQ(run->spec.mesh.context, 2);
  EXPECT_EQ(run->spec.stages.virtual_stages, 2);
  EXPECT_TRUE(run->spec.mesh.sequence_parallel);
  EXPECT_EQ(run->spec.shape.batch, 256);
  EXPECT_EQ(run->spec.shape.sequence, 4096) << "by way of the data's length";
  EXPECT_EQ(run->spec.states.zero_stage, 1);
  EXPECT_TRUE(run->spec.states.overlap_gradients);
  EXPECT_EQ(run->spec.numerics.precision, models::DType::bf16) << "fp8_hybrid alone means nothing";
  EXPECT_EQ(run->spec.recomputation.what, Recompute::selective);
  EXPECT_EQ(run->model.ffn_hidden, 3072);
  EXPECT_EQ(run->model.kv_heads, 8);
  EXPECT_EQ(run->model.vocab, 50257);
  EXPECT_EQ(run->model.max_sequence, 4096);
  EXPECT_FALSE(run->model.bias);
  EXPECT_FALSE(run->model.tied_embeddings);
  EXPECT_DOUBLE_EQ(run->model.rotary_share, 0.5);
  EXPECT_EQ(run->model.activation, models::Activation::swiglu);
  EXPECT_EQ(run->model.normalisation, models::Normalisation::rms_norm);
  EXPECT_EQ(run->training.steps, 1000);
  EXPECT_DOUBLE_EQ(run->training.clip_norm.value_or(0), 0.5);
  EXPECT_DOUBLE_EQ(run->training.optimizer.beta2, 0.95);
  EXPECT_DOUBLE_EQ(run->training.optimizer.learning_rate, 3e-4);
  EXPECT_EQ(run->training.schedule.decay, Decay::cosine);
  EXPECT_EQ(run->training.schedule.warmup_steps, 20);
  ASSERT_EQ(run->warnings.size(), 1U) << run->warnings.back().message;
  EXPECT_THAT(run->warnings[0].message, HasSubstr("`model.ub_tp_comm_overlap`"));
  EXPECT_EQ(run->warnings[0].where.line, 40);
}

TEST(ImportRun, WhatNemosYamlLeavesToOtherFilesOrSaysInUnknownWordsIsToldByItsOwnName) {
  const auto told = [](const std::string& old, const std::string& now) {
    return refused(with(kNemo, old, now), "llama.yaml");
  };
  EXPECT_THAT(told("num_layers: 8", "num_layers: ${elsewhere.layers}"), HasSubstr("`model.num_layers`"));
  EXPECT_THAT(told("num_layers: 8", "num_layers: ${.num_layers}"), HasSubstr("E0652")) << "which refers to itself";
  EXPECT_THAT(told("${multiply:3, ${.hidden_size}}", "${multiply:3, ${.nothing}}"),
              HasSubstr("`model.ffn_hidden_size`"));
  EXPECT_THAT(told("bias: false", "bias: perhaps"), HasSubstr("`model.bias` is true or false"));
  EXPECT_THAT(told("type: GPT2BPETokenizer", "type: my/tokenizer"), HasSubstr("--set vocab-size="));
  RunQuestion on_64;
  on_64.ranks_otherwise = 64;
  const auto open = read(with(kNemo, "num_nodes: 16", "num_nodes: ${NODES}"), "llama.yaml", on_64);
  ASSERT_TRUE(open) << base::render(open.error(), false);
  EXPECT_EQ(open->spec.mesh.data, 4) << "as many as the cluster has";
  EXPECT_THAT(told("virtual_pipeline_model_parallel_size: 2", "virtual_pipeline_model_parallel_size: two"),
              HasSubstr("`model.virtual_pipeline_model_parallel_size`"));
  const auto strange = read(with(kNemo, "activation: fast-swiglu", "activation: mystery\n  made_up: 3"), "llama.yaml");
  ASSERT_TRUE(strange);
  std::string all;
  for (const base::Diagnostic& one : strange->warnings) all += one.code + " " + one.message + "\n";
  EXPECT_THAT(all, HasSubstr("E0656 `model.made_up`"));
  EXPECT_THAT(all, HasSubstr("E0655 not carried over: `model.activation`"));
}

TEST(ImportRun, NemosFullRecomputationAndShardedStatesAreThePlans) {
  std::string text = with(kNemo, "granularity: selective", "granularity: full");
  text = with(text, "num_layers: 0", "num_layers: 1");
  text = with(text, "  fp8: False", "  fsdp: true\n  fsdp_sharding_strategy: hybrid\n  fp8: True");
  const auto run = read(text, "llama.yaml");
  ASSERT_TRUE(run) << base::render(run.error(), false);
  EXPECT_EQ(run->spec.recomputation.what, Recompute::full);
  EXPECT_EQ(run->spec.recomputation.layers, 1) << "by blocks";
  EXPECT_EQ(run->spec.states.zero_stage, 3);
  EXPECT_EQ(run->spec.numerics.precision, models::DType::fp8);
  EXPECT_EQ(run->stack, "pytorch-fsdp");
  EXPECT_THAT(run->warnings,
              Contains(::testing::Field(&base::Diagnostic::message, HasSubstr("fsdp_sharding_strategy"))))
      << "hybrid";
}

TEST(ImportRun, NemosNumbersAreExactAndWhatIsOffIsNoWarning) {
  std::string text = with(kNemo, "${multiply:3, ${.hidden_size}}", "${multiply:2.6875, ${.hidden_size}}");
  text = with(text, "warmup_steps: 20", "warmup_steps: 132.5");
  text = with(text, "max_steps: 1000", "max_steps: -1");
  text = with(text, "position_embedding_type: rope", "position_embedding_type: ROPE");
  text = with(text, "  fp8: False",
              "  override_vocab_size: 152064\n  fp8: False\n  fp8_wgrad: true\n  fsdp: False\n"
              "  fsdp_grad_reduce_dtype: fp32\n  cpu_offloading: False\n"
              "  cpu_offloading_num_layers: 3\n  activations_checkpoint_layers_per_pipeline: 0\n"
              "  ub_tp_comm_overlap_cfg: {qkv_dgrad: {num_sm: 2}, proj_fprop: {num_sm: 4}}");
  const auto run = read("defaults:\n  - _self_\n  - base_gpt\n" + text, "llama.yaml");
  ASSERT_TRUE(run) << base::render(run.error(), false);
  EXPECT_EQ(run->model.ffn_hidden, 2752);
  EXPECT_EQ(run->training.schedule.warmup_steps, 133);
  EXPECT_EQ(run->model.positions, models::Positions::rope);
  EXPECT_EQ(run->model.vocab, 152064);
  EXPECT_EQ(run->spec.numerics.vocab_multiple, 1) << "it is the padded one";
  ASSERT_EQ(run->warnings.size(), 2U) << base::render(run->warnings, false);
  const std::string warnings = base::render(run->warnings, false);
  EXPECT_THAT(warnings, HasSubstr("another file, base_gpt"));
  EXPECT_THAT(warnings, HasSubstr("`model.ub_tp_comm_overlap`"));
  const auto odd = refused(with(kNemo, "${multiply:3, ${.hidden_size}}", "${multiply:2.3, ${.hidden_size}}"), "a.yaml");
  EXPECT_THAT(odd, HasSubstr("E0652")) << "no whole number";
}

TEST(ImportRun, YamlOfOtherProgramsWithATrainerIsNotTakenForNemos) {
  EXPECT_EQ(run_format("trainer:\n  devices: 4\nmodel:\n  class_path: my.Net\n", "train.yaml"), std::nullopt);
  EXPECT_EQ(run_format(kNemo, "train.yaml"), RunFormat::nemo);
}

TEST(ImportRun, ASectionThatIsPassedOverIsNamedOnce) {
  const std::string more = "exp_manager:\n  name: x\n  log_step_timing: true\n  wandb_logger_kwargs: {project: y}\n";
  const auto run = read(more + kNemo, "llama.yaml");
  ASSERT_TRUE(run) << base::render(run.error(), false);
  EXPECT_THAT(run->notes, Contains(HasSubstr("`exp_manager.*`")));
  EXPECT_THAT(run->notes, ::testing::Each(::testing::Not(HasSubstr("log_step_timing"))));
}

TEST(ImportRun, ReferencesOfNemosThatMultiplyWithoutEndEnd) {
  std::string lists = "  a0: 1\n";
  for (int level = 1; level <= 4; ++level) {
    lists += "  a" + std::to_string(level) + ": ${multiply:1";
    for (int i = 0; i < 400; ++i) lists += ", ${.a" + std::to_string(level - 1) + "}";
    lists += "}\n";
  }
  const auto run = read(with(kNemo, "model:\n", "model:\n" + lists), "long.yaml");
  EXPECT_TRUE(run) << base::render(run.error(), false);
}

TEST(ImportRun, DegreesBeyondAnyRunAreRefusedBeforeTheyWrap) {
  const std::string huge = "--tensor-model-parallel-size 16777216 --pipeline-model-parallel-size 16777216 ";
  EXPECT_THAT(refused(std::string(kTrain) + huge + "--context-parallel-size 65536\n"), HasSubstr("E0653"));
  for (const char* const flag : {"--moe-router-topk 0", "--moe-router-topk 1e20", "--expert-tensor-parallel-size 1e20",
                                 "--kv-lora-rank 1e30", "--lr-warmup-samples 1e30", "--lr-warmup-fraction 1e20"})
    EXPECT_THAT(refused(std::string(kTrain) + "--num-experts 8 " + flag + "\n"), HasSubstr("E0653")) << flag;
  for (const char* const lines :
       {"data_parallel_replicate_degree = 65536\ntensor_parallel_degree = 65536\npipeline_parallel_degree = 65536\n"
        "context_parallel_degree = 65536\n",
        "data_parallel_shard_degree = 4000000000\n", "data_parallel_replicate_degree = -3\n",
        "pipeline_parallel_degree = 2\npipeline_parallel_layers_per_stage = 1e-300\n",
        "pipeline_parallel_degree = 2\npipeline_parallel_first_stage_less_layers = 1e25\n",
        "[activation_checkpoint]\nselective_ac_option = \"1e300\"\n"})
    EXPECT_THAT(outcome(read(std::string(kTitan) + lines, "a.toml", with_model())), HasSubstr("E0653")) << lines;
  for (const char* const json :
       {R"({"train_micro_batch_size_per_gpu": 16777216, "gradient_accumulation_steps": 549755813888})",
        R"({"train_micro_batch_size_per_gpu": 16777216, "gradient_accumulation_steps": 16777216})",
        R"({"train_batch_size": 16, "gradient_accumulation_steps": 549755813888})"}) {
    RunQuestion question = with_model("some");
    question.ranks = 1 << 20;
    EXPECT_THAT(outcome(read(json, "ds.json", question)), HasSubstr("E0653")) << json;
  }
}

int data_of(const std::string& before, const std::string& launcher) {
  const auto run = read(before + launcher + " " + kTrain + "\n");
  return run ? run->spec.mesh.data : -1;
}

TEST(ImportRun, RanksAreThoseOfWhatStartsTheProgramLast) {
  EXPECT_EQ(data_of("", "srun --ntasks-per-node=1 torchrun --nnodes 4 --nproc_per_node 8"), 32);
  EXPECT_EQ(data_of("", "srun --nodes=4 --ntasks=4 --ntasks-per-node=1 torchrun --nproc_per_node=8"), 32);
  EXPECT_EQ(data_of("", "mpirun -np 64"), 64);
  EXPECT_EQ(data_of("", "srun -N 4 -n 32"), 32);
  EXPECT_EQ(data_of("", "srun -N4 --ntasks-per-node 8"), 32);
  EXPECT_EQ(data_of("#!/bin/bash\n#SBATCH -N4\n#SBATCH --gpus=32\n", "srun"), 32);
  EXPECT_EQ(data_of("#!/bin/bash\n#SBATCH -N4\n#SBATCH --gres=gpu:a100:8\n#SBATCH --ntasks-per-node=1\n",
                    "srun torchrun --nnodes 4 --nproc_per_node $GPUS"),
            32);
  EXPECT_EQ(data_of("", "torchrun --nproc_per_node 8"), 8);
  EXPECT_EQ(data_of("", "deepspeed --num_nodes 2 --num_gpus 8"), 16);
}

TEST(ImportRun, RanksOfDeepSpeedFollowOnlyFromAllThreeBatches) {
  RunQuestion question = with_model("some");
  question.ranks_otherwise = 8;
  const auto two = read(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4})", "ds.json", question);
  ASSERT_TRUE(two) << outcome(two);
  EXPECT_EQ(two->spec.mesh.data, 8);  // and two micro-batches each
  EXPECT_THAT(two->notes, Contains(HasSubstr("Assumed: 8 ranks")));
  const char* const kAll =
      R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4})";
  const auto three = read(kAll, "ds.json", question);
  ASSERT_TRUE(three) << outcome(three);
  EXPECT_EQ(three->spec.mesh.data, 4);
  EXPECT_THAT(three->notes, Not(Contains(HasSubstr("ranks, as many"))));
}

TEST(ImportRun, RanksThatContradictTorchtitansDegreesAreAnError) {
  RunQuestion question = with_model();
  question.ranks_otherwise = 64;
  const std::string text = std::string(kTitan) + "data_parallel_shard_degree = 4\ntensor_parallel_degree = 2\n";
  const auto run = read(text, "a.toml", question);
  ASSERT_TRUE(run) << outcome(run);
  EXPECT_EQ(run->spec.mesh.ranks(), 8);
  EXPECT_THAT(run->notes, Not(Contains(HasSubstr("ranks, as many"))));
  question.ranks = 16;
  EXPECT_THAT(outcome(read(text, "a.toml", question)), HasSubstr("E0654"));
  question.ranks = 8;
  EXPECT_TRUE(read(text, "a.toml", question));
}

TEST(ImportRun, AutomaticValuesAreOneErrorEachUnlessNoTimeFollowsFromThem) {
  RunQuestion question = with_model("some");
  question.ranks = 8;
  const char* const kAuto =
      R"({"train_micro_batch_size_per_gpu": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto",)"
      R"( "betas": "auto", "eps": "auto", "weight_decay": "auto"}}, "scheduler": {"type": "WarmupLR", "params":)"
      R"( {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}}})";
  const auto run = read(kAuto, "ds.json", question);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().size(), 1U) << outcome(run);
  EXPECT_EQ(run.error()[0].code, "E0652");
  question.set["train_micro_batch_size_per_gpu"] = "4";
  const auto given = read(kAuto, "ds.json", question);
  ASSERT_TRUE(given) << outcome(given);
  EXPECT_EQ(given->spec.shape.batch, 32);
  EXPECT_THAT(given->notes, Contains(HasSubstr("`optimizer.params.betas`")));
  question.set["optimizer.params.betas"] = "0.8 0.9";
  const auto betas = read(kAuto, "ds.json", question);
  ASSERT_TRUE(betas) << outcome(betas);
  EXPECT_DOUBLE_EQ(betas->training.optimizer.beta1, 0.8);
}

TEST(ImportRun, SettingsOfTheCommandLineServeEveryFileAndNoUnknownName) {
  RunQuestion question;
  question.set["zero_optimization.stage"] = "2";
  const std::vector<RunFile> files = {
      {std::string("torchrun --nproc_per_node 8 ") + kTrain + "--deepspeed --deepspeed_config ds.json\n", "train.sh",
       RunFormat::megatron},
      {R"({"zero_optimization": {"stage": "auto"}})", "ds.json", RunFormat::deepspeed}};
  const auto run = import_run(files, question);
  ASSERT_TRUE(run) << outcome(run);
  EXPECT_EQ(run->spec.states.zero_stage, 2);
  question.set["micro-batch-sise"] = "2";
  EXPECT_THAT(outcome(import_run(files, question)), HasSubstr("did you mean micro-batch-size?"));
}

TEST(ImportRun, AConfigurationOfDeepSpeedsThatIsNotGivenIsAnError) {
  const std::string script = std::string("torchrun --nproc_per_node 8 ") + kTrain + "--deepspeed --deepspeed_config ";
  EXPECT_THAT(refused(script + "conf/z3.json\n"), HasSubstr("give z3.json too"));
  EXPECT_THAT(refused(script + "$CONF\n"), HasSubstr("E0654"));
  EXPECT_EQ(refused("cat > z3.json <<EOF\n{\"zero_optimization\": {\"stage\": 1}}\nEOF\n" + script + "z3.json\n"), "");
}

TEST(ImportRun, WithoutATensorGroupCheckpointsStayWhole) {
  RunQuestion question = with_model("some");
  question.ranks = 8;
  const auto run =
      read(R"({"train_micro_batch_size_per_gpu": 1, "activation_checkpointing": {"partition_activations": true}})",
           "ds.json", question);
  ASSERT_TRUE(run) << outcome(run);
  EXPECT_FALSE(run->spec.recomputation.partition_checkpoints);
  EXPECT_THAT(run->notes, Contains(HasSubstr("partition_activations")));
  const auto script = read(std::string(kTrain) + "--checkpoint-activations --partition-activations\n");
  ASSERT_TRUE(script) << outcome(script);
  EXPECT_FALSE(script->spec.recomputation.partition_checkpoints);
}

TEST(ImportRun, WhatIsFilledInIsSaid) {
  const auto script = read(std::string("python pretrain_gpt.py --num-layers 12 --hidden-size 768 --seq-length 1024 ") +
                           "--num-attention-heads 12 --vocab-size 32000\n");
  ASSERT_TRUE(script) << outcome(script);
  for (const char* const key : {"--set micro-batch-size", "--set train-iters", "--set lr"})
    EXPECT_THAT(script->notes, Contains(AllOf(HasSubstr("Assumed"), HasSubstr(key))));
  const auto titan = read(kTitan, "a.toml", with_model());
  ASSERT_TRUE(titan) << outcome(titan);
  for (const char* const key : {"training.seq_len", "training.steps", "optimizer.lr"})
    EXPECT_THAT(titan->notes, Contains(AllOf(HasSubstr("Assumed"), HasSubstr(key))));
}

TEST(ImportRun, ManyUnknownFlagsAreCountedAndPlacedInOnePass) {
  std::string text = kTrain;
  for (int i = 0; i < 20'000; ++i) text += "\\\n --unknown-" + std::to_string(i) + " 1";
  const auto run = read(text + "\n");
  ASSERT_TRUE(run) << outcome(run);
  ASSERT_EQ(run->warnings.size(), 21U);
  EXPECT_EQ(run->warnings[19].where.line, 21);
  EXPECT_EQ(run->warnings[19].where.column, 2);
  EXPECT_THAT(run->warnings[20].message, HasSubstr("19980 more"));
}

}  // namespace import_run_test
}  // namespace orrery::plan

// GPT-NeoX's keys beside Megatron-LM's flags.
#include "plan/frameworks/neox.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "plan/frameworks/flatten.h"
#include "plan/frameworks/import.h"
#include "plan/spec/words.h"

namespace orrery::plan {
namespace {

constexpr std::int64_t kMostNeoxWidth = 1 << 24;

constexpr NamedKey kNeoxNamed[] = {
    {"rotary_pct", "rotary-percent"},
    {"rotary_emb_base", "rotary-base"},
    {"no_weight_tying", "untie-embeddings-and-output-weights", KeyAs::where_true},
    {"use_qk_layernorm", "qk-layernorm", KeyAs::where_true},
    {"bias_gelu_fusion", "no-bias-gelu-fusion", KeyAs::where_false},
    {"moe_num_experts", "num-experts"},
    {"moe_top_k", "moe-router-topk"},
    {"moe_expert_interval", "moe-layer-freq"},
    {"warmup", "lr-warmup-fraction"},
    {"warmup_iters", "lr-warmup-iters"},
    {"clip_grad", "clip-grad"},
    {"gradient_clipping", "clip-grad"},
    {"optimizer.params.lr", "lr"},
    {"optimizer.params.eps", "adam-eps"},
    {"optimizer.params.weight_decay", "weight-decay"},
    {"optimizer.params.momentum", "sgd-momentum"},
};

constexpr WordedKey kNeoxWorded[] = {
    {"precision", "fp16", "fp16"},
    {"precision", "bfloat16", "bf16"},
    {"precision", "fp32", ""},
    {"norm", "layernorm", "normalization LayerNorm"},
    {"norm", "rmsnorm", "normalization RMSNorm"},
    {"pos_emb", "rotary", "position-embedding-type rope"},
    {"pos_emb", "learned", "position-embedding-type learned_absolute"},
    {"pos_emb", "alibi", "position-embedding-type alibi"},
    {"pos_emb", "none", "position-embedding-type none"},
    {"activation", "gelu", ""},
    {"activation", "swiglu", "swiglu"},
    {"activation", "geglu", "glu-activation geglu"},
    {"optimizer.type", "Adam", "optimizer adam"},
    {"optimizer.type", "adam", "optimizer adam"},
    {"optimizer.type", "cpu_adam", "optimizer adam,cpu-optimizer"},
    {"optimizer.type", "cpu_torch_adam", "optimizer adam,cpu-optimizer"},
    {"optimizer.type", "Lion", "optimizer lion"},
    {"optimizer.type", "lion", "optimizer lion"},
    {"optimizer.type", "sgd", "optimizer sgd"},
    {"train_impl", "normal", ""},
};

const std::vector<PassedKeys>& neox_passed() {
  static const std::vector<PassedKeys> all = {
      {"data and tokenizers are a job's own (training.data)",
       false,
       {"data_path",
        "data_impl",
        "train_data_",
        "valid_data_",
        "test_data_",
        "train_label_",
        "valid_label_",
        "test_label_",
        "train_reward_",
        "valid_reward_",
        "test_reward_",
        "pos_train_",
        "pos_valid_",
        "pos_test_",
        "neg_train_",
        "neg_valid_",
        "neg_test_",
        "pos_",
        "neg_",
        "pack_impl",
        "dataset_impl",
        "split",
        "num_workers",
        "weight_by_num_documents",
        "weighted_sampler_alpha",
        "mmap_warmup",
        "vocab_file",
        "merge_file",
        "allow_chopped",
        "eod_mask_loss",
        "use_shared_fs",
        "short_seq_prob",
        "online_dataserver_",
        "reset_attention_mask",
        "reset_position_ids"}},
      {"it launches, logs, measures, saves or ends the run",
       false,
       {"save",
        "load",
        "checkpoint_factor",
        "checkpoint_scale",
        "checkpoint_validation_with_forward_pass",
        "extra_save_iters",
        "save_iters",
        "keep_last_n_checkpoints",
        "finetune",
        "no_save_",
        "no_load_",
        "eval_",
        "log_",
        "steps_per_print",
        "wall_clock_breakdown",
        "tensorboard_",
        "wandb_",
        "use_wandb",
        "comet_",
        "use_comet",
        "memory_profiling",
        "memory_profiling_path",
        "profile",
        "profile_",
        "prof_",
        "peak_theoretical_tflops",
        "iteration",
        "exit_interval",
        "s3_",
        "git_hash",
        "hostfile",
        "launcher",
        "deepspeed_slurm",
        "deepspeed_mpi",
        "deepspeed_jsrun",
        "deepspeed_extra_args",
        "num_gpus",
        "num_nodes",
        "master_",
        "include",
        "exclude",
        "comment",
        "no_ssh_check",
        "account",
        "user_script",
        "autotuning",
        "do_",
        "char_level_ppl",
        "text_gen_type",
        "temperature",
        "top_",
        "maximum_tokens",
        "prompt_end",
        "sample_",
        "num_samples",
        "recompute",
        "return_logits",
        "serve_model_weights",
        "weight_server_port",
        "distributed_backend",
        "local_rank",
        "rank",
        "lazy_mpu_init",
        "world_size",
        "is_pipe_parallel",
        "adlr_",
        "deepscale",
        "onnx_safe",
        "verbose",
        "pipeline_execution_"}},
      {"it changes no time or memory of a step",
       false,
       {"init_method",
        "output_layer_init_method",
        "use_cpu_initialization",
        "apply_query_key_layer_scaling",
        "mup_",
        "use_mup",
        "coord_check",
        "save_base_shapes",
        "base_shapes_file",
        "override_lr_scheduler",
        "use_checkpoint_lr_scheduler",
        "lr_decay_fraction",
        "hysteresis",
        "min_scale",
        "loss_scale",
        "loss_scale_window",
        "dynamic_loss_scale",
        "rotary_save_freqs_buffer",
        "fp16.fp16",
        "opt_pos_emb_offset",
        "attention_softmax_in_fp32",
        "z_loss"}},
      {"layers are split as evenly as they go here", false, {"pipe_partition_method"}},
      {"the stack says which kernels are fused, and what runs beside what",
       false,
       {"output_layer_parallelism", "scaled_upper_triang_masked_softmax_fusion", "scaled_masked_softmax_fusion",
        "bias_dropout_fusion", "rope_fusion", "layernorm_fusion", "rmsnorm_fusion", "use_flashattn_swiglu", "te_",
        "mamba_", "fused_kernels_build_path", "synchronize_each_layer", "contiguous_checkpointing",
        "deepspeed_activation_checkpointing", "profile_backward", "gradient_noise_scale_"}},
      {"there is no word for it",
       true,
       {"sparsity_config.", "soft_prompt_tuning.", "num_unique_layers", "param_sharing_style", "moe_", "gmlp_", "rpe_",
        "use_bnb_optimizer", "sliding_window_width", "optimizer.params.", "dpo_", "kto_", "reinforce_", "kl_",
        "train_epochs", "fp16_lm_cross_entropy", "make_gated", "lora_"}},
  };
  return all;
}
const KeyTable kNeoxTable = {kNeoxNamed, kNeoxWorded, neox_passed(), ""};

/// Keys that mean something only beside others.
constexpr std::array<const char*, 18> kNeoxOwn = {"pipe_parallel_size",
                                                  "num_kv_heads",
                                                  "attention_config",
                                                  "gpt_j_residual",
                                                  "gpt_j_tied",
                                                  "intermediate_size",
                                                  "expansion_factor",
                                                  "mlp_multiple_of",
                                                  "layernorm_epsilon",
                                                  "rms_norm_epsilon",
                                                  "use_bias_in_norms",
                                                  "use_bias_in_attn_linear",
                                                  "use_bias_in_mlp",
                                                  "train_batch_size",
                                                  "train_micro_batch_size_per_gpu",
                                                  "gradient_accumulation_steps",
                                                  "batch_size",
                                                  "optimizer.params.betas"};

bool is_own(std::string_view key) {
  return std::find(kNeoxOwn.begin(), kNeoxOwn.end(), key) != kNeoxOwn.end();
}
bool is_deepspeeds(std::string_view key) {
  const auto table = deepspeed_settings_table();
  return std::any_of(table.begin(), table.end(), [&](const Setting& one) { return key == one.key; });
}

const Given* own_of(const NeoxSettings& settings, std::string_view key) {
  const Given* out = nullptr;
  for (const Given& one : settings.own)
    if (one.key == key) out = &one;
  return out;
}
bool is_none(const Given& at) {
  const std::string text = at.values.empty() ? std::string() : at.values.front().text;
  return text.empty() || text == "null" || text == "None" || text == "~";
}
bool own_flag(const NeoxSettings& settings, std::string_view key, bool otherwise) {
  const Given* const at = own_of(settings, key);
  return at == nullptr ? otherwise : is_true(*at);
}

/// Which attention each layer has: [[["flash", "global"], 12]].
void take_attention(const Given& at, Reading& r, Draft& d) {
  for (const GivenValue& value : at.values) {
    double number = 0;
    const std::string& kind = value.text;
    if (kind == "flash")
      d.open["flash"] = 1;
    else if (kind == "local" || kind.starts_with("sparse_") || kind == "bigbird" || kind == "bslongformer")
      r.leave(at, fmt::format("attention that reads a part of the tokens ({}) is read as if it read all", kind));
    else if (kind != "global" && kind != "all" && !read_number(kind, number))
      r.error("E0653", value.where, fmt::format("layers of kind {} have no counterpart here", base::quoted(kind)),
              "global or flash");
  }
}

/// megatron/model/transformer.py, ParallelMLP: of a gated MLP's width a third each for gate, values and what is saved.
void take_mlp(const NeoxSettings& settings, Reading& r, Draft& d) {
  models::Model& m = d.model;
  if (m.hidden <= 0) return;
  std::int64_t width = 4 * m.hidden, multiple = 1;
  if (const Given* const at = own_of(settings, "intermediate_size"); at != nullptr && !is_none(*at))
    width = r.integer(*at, 1, kMostNeoxWidth);
  else if (const Given* const factor = own_of(settings, "expansion_factor"); factor != nullptr && !is_none(*factor))
    width = static_cast<std::int64_t>(r.number(*factor, 1e-3, 1e3) * static_cast<double>(m.hidden));
  if (const Given* const at = own_of(settings, "mlp_multiple_of")) multiple = r.integer(*at, 1, kMostNeoxWidth);
  if (models::traits_of(m.activation).gated) width = width * 2 / 3 / 2;
  m.ffn_hidden = (width + multiple - 1) / multiple * multiple;
}

/// runtime/config.py of DeepSpeed: any two of three, and the replicas, give the last.
void take_batch(const NeoxSettings& settings, Reading& r, Draft& d, const base::Location& where) {
  const auto count = [&](const char* key) {
    const Given* const at = own_of(settings, key);
    return at == nullptr || is_none(*at) ? std::int64_t{0} : r.integer(*at, 1, kMostBatch);
  };
  std::int64_t batch = count("train_batch_size"), steps = count("gradient_accumulation_steps");
  std::int64_t micro = count("train_micro_batch_size_per_gpu");
  if (micro == 0) micro = count("batch_size");
  if (d.open.contains("micro-batch-size")) micro = d.spec.shape.micro_batch;  // the command line's
  if (r.failed()) return;
  const auto inner = product_up_to(kMostRanks, {d.spec.mesh.tensor, d.spec.mesh.pipeline});
  if (!inner || d.ranks % *inner != 0) return;  // finish_megatron says so
  const std::int64_t replicas = std::max<std::int64_t>(1, d.ranks / *inner);
  if (batch > 0 && micro == 0) {
    steps = std::max<std::int64_t>(steps, 1);
    micro = std::max<std::int64_t>(1, batch / (steps * replicas));
  }
  if (micro == 0)
    return r.error("E0654", where, "no batch is given",
                   "GPT-NeoX needs train_micro_batch_size_per_gpu, or train_batch_size: --set micro-batch-size=4");
  if (batch == 0) {
    const auto all = product_up_to(kMostBatch, {micro, std::max<std::int64_t>(steps, 1), replicas});
    if (!all) return r.error("E0653", where, "more sequences than any batch has", "");
    batch = *all;
  }
  d.spec.shape.micro_batch = micro;
  d.open["micro-batch-size"] = 1;
  d.open.emplace("global-batch-size", static_cast<double>(batch));
}

}  // namespace

bool is_neox(std::string_view text) {
  const auto has = [&](std::string_view word) { return text.find(word) != std::string_view::npos; };
  const auto key = [&](std::string_view under, std::string_view dashed) { return has(under) || has(dashed); };
  if (key("pipe_parallel_size", "pipe-parallel-size") || key("no_weight_tying", "no-weight-tying")) return true;
  if (has("train_micro_batch_size_per_gpu") && key("num_layers", "num-layers")) return true;
  // What lies beside: where data and checkpoints are.
  return key("checkpoint_factor", "checkpoint-factor") ||
         (key("data_path", "data-path") && key("vocab_file", "vocab-file")) ||
         key("train_data_paths", "train-data-paths");
}

base::Result<NeoxSettings> neox_settings(const std::vector<std::pair<std::string_view, std::string>>& files) {
  NeoxSettings out;
  KeysAsFlags flags(kNeoxTable, out);
  for (const auto& [text, file] : files) {
    auto all = json_settings(text, file);  // which is YAML, too
    if (!all) return tl::unexpected(all.error());
    for (Given& one : *all) {
      // A key may have dashes; DeepSpeed's within a map never do.
      one.said = one.key;
      std::replace(one.key.begin(), one.key.end(), '-', '_');
      Given plain = one;
      plain.said = one.key;
      if (is_own(one.key))
        out.own.push_back(std::move(one));
      else if (!flags.take(plain))
        (is_deepspeeds(one.key) ? out.deepspeed : out.unknown).push_back(std::move(one));
    }
  }
  return out;
}

Draft neox_defaults() {
  Draft d = megatron_defaults();
  d.model.dropout = {0, 0, 0};
  d.open["deepspeed"] = 1;
  d.open["lr-warmup-fraction"] = 0.01;
  d.open["weight-decay"] = 0.1;
  d.open["moe-router-topk"] = 1;
  d.training.loss_scaling.initial = 65536;
  return d;
}

void begin_neox(const NeoxSettings& settings, Reading& r, Draft& d, const base::Location& where) {
  if (const Given* const at = own_of(settings, "pipe_parallel_size"))  // 0 and 1: no pipeline
    d.spec.mesh.pipeline = static_cast<int>(std::max<std::int64_t>(1, r.integer(*at, 0, kMostRanks)));
  if (const Given* const at = own_of(settings, "num_kv_heads"); at != nullptr && !is_none(*at)) {
    d.model.kv_heads = r.integer(*at, 1, kMostNeoxWidth);
    d.open["group-query-attention"] = 1;
  }
  if (const Given* const at = own_of(settings, "attention_config")) take_attention(*at, r, d);
  const bool rms = d.model.normalisation == models::Normalisation::rms_norm;
  const Given* const epsilon = own_of(settings, rms ? "rms_norm_epsilon" : "layernorm_epsilon");
  constexpr double kRms = 1e-8, kLayer = 1e-5;  // the class's
  d.model.norm_epsilon = epsilon == nullptr ? rms ? kRms : kLayer : r.number(*epsilon, 1e-12, 1);
  if (const Given* const at = own_of(settings, "optimizer.params.betas"); at != nullptr && at->values.size() == 2) {
    double beta = 0;
    for (std::size_t i = 0; i < at->values.size(); ++i)
      if (read_number(at->values[i].text, beta) && beta >= 0 && beta < 1)
        d.open[i == 0 ? "adam-beta1" : "adam-beta2"] = beta;
  }
  d.model.parallel = own_flag(settings, "gpt_j_residual", false);
  d.model.shared_norm = d.model.parallel && own_flag(settings, "gpt_j_tied", false);
  d.model.bias = own_flag(settings, "use_bias_in_mlp", true);
  const bool attention = own_flag(settings, "use_bias_in_attn_linear", true);
  d.model.attention_bias = attention;
  if (attention && !d.model.bias) d.model.qkv_bias = d.model.out_bias = true;
  // The class's tokenizer, where none is named.
  if (d.model.vocab == 0 && d.words["tokenizer-type"].empty()) d.words["tokenizer-type"] = "GPT2BPETokenizer";
  take_mlp(settings, r, d);
  take_batch(settings, r, d, where);
}

void finish_neox(const NeoxSettings& settings, Draft& d) {
  if (d.model.normalisation == models::Normalisation::layer_norm)
    d.model.norm_bias = own_flag(settings, "use_bias_in_norms", true);
}

}  // namespace orrery::plan

// GPT-NeoX's keys beside Megatron-LM's flags.
#include "plan/frameworks/neox.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "plan/frameworks/flatten.h"
#include "plan/frameworks/launch_script.h"
#include "plan/spec/words.h"

namespace orrery::plan {
namespace {

constexpr std::int64_t kMostNeoxWidth = 1 << 24;

constexpr NamedKey kNeoxNamed[] = {
    {"model_parallel_size", "tensor-model-parallel-size"},
    {"num_layers", "num-layers"},
    {"hidden_size", "hidden-size"},
    {"num_attention_heads", "num-attention-heads"},
    {"seq_length", "seq-length"},
    {"max_position_embeddings", "max-position-embeddings"},
    {"make_vocab_size_divisible_by", "make-vocab-size-divisible-by"},
    {"padded_vocab_size", "padded-vocab-size"},
    {"tokenizer_type", "tokenizer-type"},
    {"init_method_std", "init-method-std"},
    {"attention_dropout", "attention-dropout"},
    {"hidden_dropout", "hidden-dropout"},
    {"sequence_parallel", "sequence-parallel", KeyAs::where_true},
    {"checkpoint_activations", "checkpoint-activations", KeyAs::where_true},
    {"checkpoint_num_layers", "checkpoint-num-layers"},
    {"partition_activations", "partition-activations", KeyAs::where_true},
    {"checkpoint_in_cpu", "checkpoint-in-cpu", KeyAs::where_true},
    {"train_iters", "train-iters"},
    {"lr", "lr"},
    {"min_lr", "min-lr"},
    {"lr_decay_style", "lr-decay-style"},
    {"lr_decay_iters", "lr-decay-iters"},
    {"weight_decay", "weight-decay"},
    {"seed", "seed"},
    {"rotary_pct", "rotary-percent"},
    {"rotary_emb_base", "rotary-base"},
    {"no_weight_tying", "untie-embeddings-and-output-weights", KeyAs::where_true},
    {"use_qk_layernorm", "qk-layernorm", KeyAs::where_true},
    {"bias_gelu_fusion", "no-bias-gelu-fusion", KeyAs::where_false},
    {"moe_num_experts", "num-experts"},
    {"moe_top_k", "moe-router-topk"},
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
    {"norm", "te_layernorm", "normalization LayerNorm"},
    {"norm", "rmsnorm", "normalization RMSNorm"},
    {"norm", "te_rmsnorm", "normalization RMSNorm"},
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
       {"zero_stage",
        "init_method",
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
        "rpe_",
        "param_sharing_style",
        "fp32_reinforce",
        "z_loss"}},
      {"layers are split as evenly as they go here", false, {"pipe_partition_method"}},
      {"the stack says which kernels are fused, and what runs beside what",
       false,
       {"output_layer_parallelism", "scaled_upper_triang_masked_softmax_fusion", "scaled_masked_softmax_fusion",
        "bias_dropout_fusion", "rope_fusion", "layernorm_fusion", "rmsnorm_fusion", "use_flashattn_swiglu",
        "te_columnparallel", "te_rowparallel", "te_layernorm_mlp", "te_mha", "mamba_", "fused_kernels_build_path",
        "synchronize_each_layer", "contiguous_checkpointing", "deepspeed_activation_checkpointing", "profile_backward",
        "gradient_noise_scale_"}},
      {"there is no word for it",
       true,
       {"sparsity_config.", "soft_prompt_tuning.", "num_unique_layers", "param_sharing_style", "te_fp8_", "moe_",
        "gmlp_", "rpe_", "use_bnb_optimizer", "sliding_window_width", "optimizer.params.", "dpo_", "kto_", "reinforce_",
        "kl_", "train_epochs", "fp16_lm_cross_entropy", "make_gated", "lora_"}},
  };
  return all;
}
const KeyTable kNeoxTable = {kNeoxNamed, kNeoxWorded, neox_passed()};

constexpr const char* kNeoxOwn[] = {"pipe_parallel_size",
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
                                    "optimizer.params.betas",
                                    "moe_expert_interval",
                                    "num_nodes",
                                    "num_gpus",
                                    "global_num_gpus"};

bool is_own(std::string_view key) {
  return std::find(std::begin(kNeoxOwn), std::end(kNeoxOwn), key) != std::end(kNeoxOwn);
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
bool own_flag(const NeoxSettings& settings, Reading& r, std::string_view key, bool otherwise) {
  const Given* const at = own_of(settings, key);
  return at == nullptr ? otherwise : r.boolean(*at);
}
/// The number; 0: the key is not there, or has none.
std::int64_t own_count(const NeoxSettings& settings, Reading& r, std::string_view key, std::int64_t most) {
  const Given* const at = own_of(settings, key);
  return at == nullptr || is_none(*at) ? 0 : r.integer(*at, 1, most);
}

/// Which attention each layer has: [[["flash", "global"], 12]], where a number says how often its kinds repeat.
void take_attention(const Given& at, Reading& r, Draft& d) {
  std::int64_t kinds = 0, layers = 0, flash = 0, flashes = 0;
  for (const GivenValue& value : at.values) {
    double number = 0;
    const std::string& kind = value.text;
    if (kind == "all" || read_number(kind, number)) {
      const auto times = kind == "all" ? d.model.layers / std::max<std::int64_t>(1, kinds)
                                       : static_cast<std::int64_t>(std::clamp(number, 0.0, 1e6));
      layers += kinds * times, flashes += flash * times;
      kinds = flash = 0;
      continue;
    }
    ++kinds;
    if (kind == "flash")
      ++flash;
    else if (kind == "local" || kind.starts_with("sparse_") || kind == "bigbird" || kind == "bslongformer")
      r.leave(at, fmt::format("attention that reads a part of the tokens ({}) is read as if it read all", kind));
    else if (kind != "global")
      r.error("E0653", value.where, fmt::format("layers of kind {} have no counterpart here", base::quoted(kind)),
              "global or flash");
  }
  layers += kinds, flashes += flash;
  if (layers != d.model.layers && d.model.layers > 0)
    r.error("E0653", at.where, fmt::format("`attention_config` says {} of {} layers", layers, d.model.layers),
            fmt::format("[[[\"flash\"], {}]]", d.model.layers));
  d.open["flash"] = flashes > 0 ? 1 : 0;
  if (flashes > 0 && flashes < layers)
    r.leave(at, fmt::format("only {} of {} layers have a flash kernel, here all of them", flashes, layers));
}

/// megatron/model/transformer.py, ParallelMLP: of a gated MLP's width a third each for gate, values and what is saved.
/// moe.py, ParallelDroplessMLP: experts have no gate, and all of the width.
void take_mlp(const NeoxSettings& settings, Reading& r, Draft& d) {
  models::Model& m = d.model;
  if (m.hidden <= 0) return;
  constexpr std::int64_t kExpertMultiple = 256;
  const auto up_to = [](std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; };
  std::int64_t width = own_count(settings, r, "intermediate_size", kMostNeoxWidth);
  const bool given = width > 0;
  if (!given) width = 4 * m.hidden;
  if (const Given* const factor = own_of(settings, "expansion_factor"); !given && factor && !is_none(*factor))
    width = static_cast<std::int64_t>(r.number(*factor, 1e-3, 1e3) * static_cast<double>(m.hidden));
  const std::int64_t multiple = std::max<std::int64_t>(1, own_count(settings, r, "mlp_multiple_of", kMostNeoxWidth));
  const bool gated = models::traits_of(m.activation).gated;
  if (m.experts.any()) {
    m.experts.hidden = given ? width : up_to(width, kExpertMultiple);
    m.activation = models::Activation::gelu;
    if (gated) r.assume("experts have no gate, whatever `activation` says: GPT-NeoX's grouped products have none");
  }
  if (!settings.set.contains("ffn-hidden-size"))
    m.ffn_hidden = up_to(gated && !m.experts.any() ? width * 2 / 3 / 2 : width, multiple);
}

/// Experts lie over the ranks of model parallelism, whole (moe.py, ParallelDroplessMLP).
void take_experts(const NeoxSettings& settings, Reading& r, Draft& d) {
  if (!d.model.experts.any()) return;
  if (own_count(settings, r, "moe_expert_interval", kMostLayers) > 1)
    r.error("E0653", own_of(settings, "moe_expert_interval")->where,
            "experts in the first of every so many layers have no counterpart here, only in the last", "1");
  if (!settings.set.contains("expert-model-parallel-size")) d.spec.mesh.expert = d.spec.mesh.tensor;
  d.open.emplace("expert-tensor-parallel-size", 1);
}

/// megatron/neox_arguments/arguments.py, calculate_batch_parameters: accumulation is 1 where no file says it.
void take_batch(const NeoxSettings& settings, Reading& r, Draft& d, const base::Location& where) {
  std::int64_t batch = own_count(settings, r, "train_batch_size", kMostBatch);
  std::int64_t micro = own_count(settings, r, "train_micro_batch_size_per_gpu", kMostBatch);
  std::int64_t steps = own_count(settings, r, "gradient_accumulation_steps", kMostBatch);
  if (settings.set.contains("micro-batch-size")) micro = d.spec.shape.micro_batch;
  if (settings.set.contains("global-batch-size")) batch = 0;
  if (r.failed()) return;
  const auto inner = product_up_to(kMostRanks, {d.spec.mesh.tensor, d.spec.mesh.pipeline});
  if (!inner || d.ranks % *inner != 0) return;  // finish_megatron says so
  const std::int64_t replicas = std::max<std::int64_t>(1, d.ranks / *inner);
  steps = std::max<std::int64_t>(1, steps);
  if (batch > 0 && micro == 0) micro = std::max<std::int64_t>(1, batch / replicas / steps);
  if (micro == 0)
    return r.error("E0654", where, "no batch is given",
                   "GPT-NeoX needs train_micro_batch_size_per_gpu or train_batch_size: --set "
                   "train_micro_batch_size_per_gpu=4");
  const auto all = product_up_to(kMostBatch, {micro, steps, replicas});
  if (!all) return r.error("E0653", where, "more sequences than any batch has", "");
  if (batch > 0 && batch != *all)
    return r.error(
        "E0653", where,
        fmt::format("the batches do not multiply up: {} is not {} x {} x {} replicas", batch, micro, steps, replicas),
        "train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps (1 if no file says "
        "it) x replicas");
  d.spec.shape.micro_batch = micro;
  d.open["micro-batch-size"] = 1;
  d.open.emplace("global-batch-size", static_cast<double>(*all));
}

/// The keys of the outermost map, with underscores: those that begin a line, or stand in the first braces.
std::set<std::string, std::less<>> outer_keys(std::string_view text) {
  std::set<std::string, std::less<>> out;
  const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; };
  int depth = 0;
  for (std::size_t at = 0, line = 0; at < text.size();) {
    if (text[at] == '#' && (at == line || text[at - 1] == ' ')) {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (text[at] == '\n') line = at + 1;
    if (text[at] == '{' || text[at] == '[') ++depth;
    if (text[at] == '}' || text[at] == ']') --depth;
    const bool quoted = text[at] == '"' || text[at] == '\'';
    if (!quoted && !in_word(text[at])) {
      ++at;
      continue;
    }
    const std::size_t begin = at + (quoted ? 1 : 0);
    std::size_t end = begin;
    while (end < text.size() && (quoted ? text[end] != text[at] && text[end] != '\n' : in_word(text[end]))) ++end;
    std::size_t after = std::min(text.size(), end + (quoted ? 1 : 0));
    while (after < text.size() && text[after] == ' ') ++after;
    if (after < text.size() && text[after] == ':' && (depth == 1 || (depth == 0 && at == line))) {
      std::string key(text.substr(begin, end - begin));
      std::replace(key.begin(), key.end(), '-', '_');
      out.insert(std::move(key));
    }
    at = std::max(after, at + 1);
  }
  return out;
}

/// The outermost key of a path.
std::string outermost(const std::string& key) {
  return key.substr(0, key.find('.'));
}

}  // namespace

std::span<const Setting> neox_settings_table() {
  static const std::vector<Setting> all = [] {
    std::vector<Setting> out;
    for (const char* const key : kNeoxOwn) out.push_back({"", key, nullptr, nullptr, "", false});
    return out;
  }();
  return all;
}

bool is_neox(std::string_view text) {
  const auto keys = outer_keys(text);
  const auto has = [&](const char* key) { return keys.contains(key); };
  if (has("pipe_parallel_size") || has("no_weight_tying")) return true;
  if (has("train_micro_batch_size_per_gpu") && has("num_layers")) return true;
  // What lies beside: where data and checkpoints are.
  return has("checkpoint_factor") || has("train_data_paths") ||
         (has("data_path") && has("vocab_file") && (has("save") || has("load") || has("merge_file")));
}

base::Result<NeoxSettings> neox_settings(const std::vector<std::pair<std::string_view, std::string>>& files) {
  NeoxSettings out;
  KeysAsFlags flags(kNeoxTable, out);
  constexpr std::string_view kExtra = "deepspeed_extra_args.";
  std::map<std::string, std::string> given_by;  // a file
  base::Diagnostics twice;
  for (const auto& [text, file] : files) {
    auto all = json_settings(text, file);  // which is YAML, too
    if (!all) return tl::unexpected(all.error());
    for (Given& one : *all) {
      // A key may have dashes; DeepSpeed's within a map never do.
      one.said = one.key;
      std::replace(one.key.begin(), one.key.end(), '-', '_');
      const auto [by, is_new] = given_by.emplace(outermost(one.key), file);
      if (!is_new && by->second != file)
        twice.push_back(run_problem("E0650", one.where,
                                    fmt::format("`{}` is in {} too", outermost(one.key), file_name(by->second)),
                                    "GPT-NeoX takes each key from one file alone"));
      const bool extra = one.key.starts_with(kExtra);
      if (extra) one.key.erase(0, kExtra.size());
      Given plain = one;
      plain.said = one.key;
      if (!extra && is_own(one.key))
        out.own.push_back(std::move(one));
      else if (extra || !flags.take(plain))
        (is_deepspeeds(one.key) ? out.deepspeed : out.unknown).push_back(std::move(one));
    }
  }
  if (!twice.empty()) return base::fail(std::move(twice));
  return out;
}

NeoxRanks neox_ranks(const NeoxSettings& settings, Reading& r) {
  const std::int64_t nodes = own_count(settings, r, "num_nodes", kMostRanks);
  const std::int64_t each = own_count(settings, r, "num_gpus", kMostRanks);
  const std::int64_t all = own_count(settings, r, "global_num_gpus", kMostRanks);
  const auto product = product_up_to(kMostRanks, {nodes, each});
  const std::int64_t told = all > 0 ? all : nodes > 0 && each > 0 && product ? *product : 0;
  return {static_cast<int>(told), static_cast<int>(each)};
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
  const auto open = [&](std::string_view flag) { return !settings.set.contains(flag); };
  // A word of these that is not known would be another model.
  for (const auto& [at, because] : settings.left)
    if (at.said == "activation" || at.said == "pos_emb" || at.said == "norm")
      r.error("E0653", at.where, fmt::format("`{}` {} has no counterpart here", at.said, base::quoted(r.text(at))), "");
  if (const Given* const at = own_of(settings, "pipe_parallel_size"); at && open("pipeline-model-parallel-size"))
    d.spec.mesh.pipeline = static_cast<int>(std::max<std::int64_t>(1, r.integer(*at, 0, kMostRanks)));  // 0: none
  if (const auto heads = own_count(settings, r, "num_kv_heads", kMostNeoxWidth); heads > 0 && open("num-query-groups"))
    d.model.kv_heads = heads, d.open["group-query-attention"] = 1;
  if (const Given* const at = own_of(settings, "attention_config")) take_attention(*at, r, d);
  const bool rms = d.model.normalisation == models::Normalisation::rms_norm;
  constexpr double kRms = 1e-8, kLayer = 1e-5;  // the classes'
  if (open("norm-epsilon")) {
    const Given* const at = own_of(settings, rms ? "rms_norm_epsilon" : "layernorm_epsilon");
    d.model.norm_epsilon = at != nullptr ? r.number(*at, 1e-12, 1) : rms ? kRms : kLayer;
  }
  if (const Given* const at = own_of(settings, "optimizer.params.betas"); at != nullptr && at->values.size() == 2)
    for (const auto& [flag, value] : {std::pair{"adam-beta1", at->values[0]}, {"adam-beta2", at->values[1]}})
      if (open(flag)) d.open[flag] = r.number({at->key, at->where, {value}, at->said}, 0, 1);
  d.model.parallel = own_flag(settings, r, "gpt_j_residual", false);
  d.model.shared_norm = own_flag(settings, r, "gpt_j_tied", false) && d.model.parallel;
  const bool attention = own_flag(settings, r, "use_bias_in_attn_linear", true);
  const bool mlp = own_flag(settings, r, "use_bias_in_mlp", true);
  if (open("disable-bias-linear")) {
    d.model.bias = mlp;
    d.model.attention_bias = attention;
    if (attention && !mlp) d.model.qkv_bias = d.model.out_bias = true;
  }
  // The class's tokenizer, where none is named.
  if (d.model.vocab == 0 && d.words["tokenizer-type"].empty()) d.words["tokenizer-type"] = "GPT2BPETokenizer";
  take_experts(settings, r, d);
  take_mlp(settings, r, d);
  take_batch(settings, r, d, where);
}

void finish_neox(const NeoxSettings& settings, Reading& r, Draft& d) {
  if (d.model.normalisation == models::Normalisation::layer_norm)
    d.model.norm_bias = own_flag(settings, r, "use_bias_in_norms", true);
}

}  // namespace orrery::plan

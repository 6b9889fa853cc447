// NeMo's keys beside Megatron-LM's flags, by examples/nlp/language_modeling/conf/megatron_gpt_config.yaml of NeMo 1.23
// and 2.0 and by the configurations of NeMo-Framework-Launcher.
#include "plan/frameworks/nemo.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>

#include "plan/frameworks/flatten.h"
#include "plan/spec/words.h"

namespace orrery::plan {
namespace {

constexpr NamedKey kNamed[] = {
    {"model.encoder_seq_length", "seq-length"},
    {"model.override_vocab_size", "pad-vocab-size-to"},  // in place of the padded one
    {"model.rotary_percentage", "rotary-percent"},
    {"model.seq_len_interpolation_factor", "rotary-seq-len-interpolation-factor"},
    {"model.layernorm_epsilon", "norm-epsilon"},
    {"model.bias", "disable-bias-linear", KeyAs::where_false},
    {"model.qkv_bias", "add-qkv-bias", KeyAs::where_true},
    {"model.share_embeddings_and_output_weights", "untie-embeddings-and-output-weights", KeyAs::where_false},
    {"model.activations_checkpoint_granularity", "recompute-granularity"},
    {"model.activations_checkpoint_method", "recompute-method"},
    {"model.activations_checkpoint_num_layers", "recompute-num-layers"},
    {"model.virtual_pipeline_model_parallel_size", "num-virtual-stages-per-pipeline-rank"},
    {"model.num_moe_experts", "num-experts"},
    {"model.moe_router_load_balancing_type", "moe-router-load-balancing-type"},
    {"model.fp8", "fp8-hybrid", KeyAs::where_true},
    {"model.fp8_params", "fp8-param-gather", KeyAs::where_true},
    {"model.cpu_offloading", "cpu-offloading", KeyAs::where_true},
    {"model.cpu_offloading_num_layers", "cpu-offloading-num-layers"},
    {"model.mcore_gpt", "use-legacy-models", KeyAs::where_false},
    {"model.native_amp_init_scale", "initial-loss-scale"},
    {"model.native_amp_growth_interval", "loss-scale-window"},
    {"model.ub_tp_comm_overlap", "tp-comm-overlap", KeyAs::where_true},
    {"model.use_flash_attention", "use-flash-attn", KeyAs::where_true},
    {"model.fsdp", "use-torch-fsdp2", KeyAs::where_true},
    {"model.tokenizer.type", "tokenizer-type"},
    {"model.optim.lr", "lr"},
    {"model.optim.weight_decay", "weight-decay"},
    {"model.optim.eps", "adam-eps"},
    {"model.optim.overlap_grad_sync", "overlap-grad-reduce", KeyAs::where_true},
    {"model.optim.overlap_param_sync", "overlap-param-gather", KeyAs::where_true},
    {"model.optim.sched.min_lr", "min-lr"},
    {"trainer.max_steps", "train-iters"},
    {"trainer.gradient_clip_val", "clip-grad"},
};

constexpr WordedKey kWorded[] = {
    {"trainer.precision", "bf16", "bf16"},
    {"trainer.precision", "bf16-mixed", "bf16"},
    {"trainer.precision", "16", "fp16"},
    {"trainer.precision", "16-mixed", "fp16"},
    {"trainer.precision", "32", ""},
    {"trainer.precision", "32-true", ""},
    {"model.normalization", "layernorm", "normalization LayerNorm"},
    {"model.normalization", "layernorm1p", "normalization LayerNorm,apply-layernorm-1p"},
    {"model.normalization", "low_precision_layernorm", "normalization LayerNorm"},
    {"model.normalization", "rmsnorm", "normalization RMSNorm"},
    {"model.activation", "gelu", ""},
    {"model.activation", "swiglu", "swiglu"},
    {"model.activation", "fast-swiglu", "swiglu"},
    {"model.activation", "geglu", "glu-activation geglu"},
    {"model.activation", "fast-geglu", "glu-activation geglu"},
    {"model.activation", "squared-relu", "squared-relu"},
    {"model.optim.name", "distributed_fused_adam", "optimizer adam,use-distributed-optimizer"},
    {"model.optim.name", "mcore_distributed_optim", "optimizer adam,use-distributed-optimizer"},
    {"model.optim.name", "megatron_fused_adam", "optimizer adam"},
    {"model.optim.name", "fused_adam", "optimizer adam"},
    {"model.optim.name", "adamw", "optimizer adam"},
    {"model.optim.name", "adam", "optimizer adam"},
    {"model.optim.name", "sgd", "optimizer sgd"},
    {"model.optim.grad_sync_dtype", "bf16", "grad-reduce-in-bf16"},
    {"model.optim.grad_sync_dtype", "bfloat16", "grad-reduce-in-bf16"},
    {"model.optim.grad_sync_dtype", "fp32", ""},
    {"model.optim.sched.name", "CosineAnnealing", "lr-decay-style cosine"},
    {"model.optim.sched.name", "InverseSquareRootAnnealing", "lr-decay-style inverse-square-root"},
    {"model.optim.sched.name", "WarmupAnnealing", "lr-decay-style linear"},
    {"model.optim.sched.name", "WarmupPolicy", "lr-decay-style constant"},
    {"model.megatron_amp_O2", "True", ""},
    {"model.megatron_amp_O2", "true", ""},
    {"model.transformer_block_type", "pre_ln", ""},
    {"model.attention_type", "multihead", ""},
    {"model.headscale", "False", ""},
    {"model.headscale", "false", ""},
    {"model.fsdp_sharding_strategy", "full", ""},
};

const std::vector<PassedKeys>& passed_over() {
  static const std::vector<PassedKeys> all = {
      {"data and tokenizers are a job's own (training.data)", false, {"model.data.", "model.tokenizer."}},
      {"it logs, measures, saves or ends the run",
       false,
       {"run.",
        "exp_manager.",
        "hydra.",
        "name",
        "restore_from_path",
        "trainer.logger",
        "trainer.enable_",
        "trainer.max_",
        "trainer.log_",
        "trainer.val_",
        "trainer.limit_",
        "trainer.accelerator",
        "trainer.benchmark",
        "trainer.use_distributed_sampler",
        "trainer.replace_sampler_ddp",
        "trainer.strategy",
        "trainer.check_val_every_n_epoch",
        "trainer.num_sanity_val_steps",
        "trainer.accumulate_grad_batches",
        "trainer.resume_from_checkpoint",
        "trainer.profiler",
        "model.nsys_profile.",
        "model.memory_profile.",
        "model.resume_from_checkpoint",
        "model.save_",
        "model.dist_ckpt_",
        "model.gc_interval",
        "model.apex_transformer_log_level",
        "model.precision",
        "model.target",
        "model.nemo_version",
        "model.perf_",
        "cluster_type",
        "wandb_",
        "stages",
        "model.get_attention_mask_from_fusion",
        "model.inference.",
        "model.deterministic_mode",
        "model.log_"}},
      {"it changes no time or memory of a step",
       false,
       {"model.use_scaled_init_method",
        "model.pre_process",
        "model.post_process",
        "model.onnx_safe",
        "model.do_layer_norm_weight_decay",
        "model.use_cpu_initialization",
        "model.normalize_attention_scores",
        "model.sync_batch_comm",
        "model.name",
        "model.transformer_engine",
        "model.reduce_amax",
        "model.use_emha",
        "model.optim.sched.",
        "model.ffn_dropout",
        "model.scale_positional_embedding",
        "model.megatron_legacy",
        "model.legacy_",
        "model.use_te_rng_tracker",
        "model.name_template",
        "model.masked_"}},
      {"the stack says which kernels are fused, and how large its buckets are",
       false,
       {"model.gradient_as_bucket_view", "model.grad_div_ar_fusion", "model.gradient_accumulation_fusion",
        "model.bias_activation_fusion", "model.bias_dropout_add_fusion", "model.masked_softmax_fusion",
        "model.persist_layer_norm", "model.grad_allreduce_chunk_size_mb", "model.optim.bucket_cap_mb",
        "model.optim.contiguous_", "model.optim.capturable", "model.optim.master_weights",
        "model.optim.store_param_remainders"}},
      {"the stack says what overlaps", false, {"model.ub_tp_comm_overlap_cfg."}},  // the switch itself is a warning
      {"the stack says what overlaps",
       true,
       {"model.ub_tp_comm_", "model.overlap_p2p_comm", "model.batch_p2p_comm", "model.wgrad_deferral_limit",
        "model.nccl_communicator_config_path", "model.sharp"}},
      {"there is no word for it",
       true,
       {"model.num_micro_batches_with_partial_activation_checkpoints",
        "model.activations_checkpoint_layers_per_pipeline", "model.peft.", "model.optim.param_sync_dtype",
        "model.fsdp_", "model.mcore_customization_config.", "model.cpu_offloading_"}},
  };
  return all;
}

using Keys = std::map<std::string, const Given*, std::less<>>;

/// Follows references within the file; nothing where one leads elsewhere.
class References {
 public:
  explicit References(const Keys& keys) : keys_(keys) {}

  [[nodiscard]] std::optional<std::string> value(std::string_view text, std::string_view section, int depth = 0) const {
    if (depth == 0) followed_ = 0;
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    if (!text.starts_with("${")) {
      if (text.find("${") != std::string_view::npos) return std::nullopt;
      return std::string(text);
    }
    if (!text.ends_with('}') || depth > kDeepest || ++followed_ > kMostFollowed) return std::nullopt;
    const std::string_view inner = text.substr(2, text.size() - 3);
    if (inner.starts_with("multiply:")) return product(inner.substr(9), section, depth);
    std::string path = inner.starts_with('.') ? fmt::format("{}{}", section, inner) : std::string(inner);
    if (path.starts_with("training.")) path.erase(0, 9);
    const auto at = keys_.find(path);
    if (at == keys_.end() || at->second->values.size() != 1) return std::nullopt;
    return value(at->second->values.front().text, section_of(path), depth + 1);
  }
  [[nodiscard]] static std::string_view section_of(std::string_view path) {
    return path.substr(0, std::min(path.rfind('.'), path.size()));
  }

 private:
  static constexpr int kDeepest = 8;

  [[nodiscard]] std::optional<std::string> product(std::string_view factors, std::string_view section,
                                                   int depth) const {
    double out = 1;
    int braces = 0;
    for (std::size_t begin = 0, at = 0; at <= factors.size(); ++at) {
      if (at < factors.size()) braces += factors[at] == '{' ? 1 : factors[at] == '}' ? -1 : 0;
      if (at < factors.size() && (factors[at] != ',' || braces > 0)) continue;
      const auto one = value(factors.substr(begin, at - begin), section, depth + 1);
      double number = 0;
      if (!one || !read_number(*one, number) || number <= 0) return std::nullopt;
      out *= number;
      if (out > kMostProduct) return std::nullopt;
      begin = at + 1;
    }
    if (out != std::floor(out)) return std::nullopt;
    return fmt::format("{}", static_cast<std::int64_t>(out));
  }
  static constexpr double kMostProduct = 1e15;
  static constexpr int kMostFollowed = 10'000;  // for a value

  const Keys& keys_;
  mutable int followed_ = 0;  ///< for this value so far
};

const KeyTable kTable = {kNamed, kWorded, passed_over(), "model."};

class Translation {
 public:
  Translation(const std::vector<Given>& all, NemoSettings& into) : all_(all), into_(into), flags_(kTable, into) {
    for (const Given& one : all) keys_.emplace(one.key, &one);
  }

  void run() {
    const References references(keys_);
    for (const Given& one : all_) {
      Given known = one;
      known.said = one.key;
      for (GivenValue& value : known.values) {
        const auto followed = references.value(value.text, References::section_of(one.key));
        value.missing = followed ? "" : value.text;
        if (followed) value.text = *followed;
      }
      if (!off(known) && !counts(known) && !flags_.take(known)) into_.unknown.push_back(std::move(known));
    }
    if (per_node_ > 0 && nodes_ > 0)
      if (const auto ranks = product_up_to(kMostRanks, {nodes_, per_node_}))
        into_.ranks = static_cast<int>(*ranks), into_.per_node = static_cast<int>(per_node_);
  }

 private:
  [[nodiscard]] bool fully_recomputed() const {
    const auto at = keys_.find("model.activations_checkpoint_granularity");
    return at != keys_.end() && at->second->values.size() == 1 && at->second->values.front().text == "full";
  }

  [[nodiscard]] bool is_on(std::string_view key) const {
    const auto at = keys_.find(key);
    return at != keys_.end() && is_true(*at->second);
  }

  /// Details of what is not used.
  bool off(const Given& at) {
    constexpr std::array<const char*, 3> kSwitches = {"model.fsdp", "model.cpu_offloading", "model.fp8"};
    for (const std::string_view one : kSwitches)
      if (at.said.starts_with(fmt::format("{}_", one)) && !is_on(one)) {
        into_.passed.emplace_back(at, fmt::format("`{}` is off", one));
        return true;
      }
    return false;
  }

  /// Numbers that are of the run, that stand together in one key, or that are written in another way.
  bool counts(const Given& at) {
    double number = 0;
    const bool one = at.values.size() == 1 && read_number(at.values.front().text, number) && number >= 1 &&
                     number <= static_cast<double>(kMostRanks);
    if (at.said == "trainer.devices" || at.said == "trainer.num_nodes") {
      (at.said == "trainer.devices" ? per_node_ : nodes_) = one ? static_cast<std::int64_t>(number) : 0;
      return true;
    }
    if (at.said == "model.optim.betas" && at.values.size() == 2) {
      flags_.add(at, "adam-beta1", {at.values[0]});
      flags_.add(at, "adam-beta2", {at.values[1]});
      return true;
    }
    if (at.said == "model.num_query_groups") {
      flags_.add(at, "group-query-attention", {});
      flags_.add(at, "num-query-groups", at.values);
      return true;
    }
    if (at.said == "trainer.max_steps" && at.values.size() == 1 && at.values.front().text == "-1") return true;
    if (at.said == "model.optim.sched.warmup_steps" && at.values.size() == 1 &&
        read_number(at.values.front().text, number) && number >= 0 && number <= static_cast<double>(kMostSteps)) {
      flags_.add(at, "lr-warmup-iters", {{fmt::format("{}", std::llround(number)), at.values.front().where}});
      return true;
    }
    if (at.said == "model.position_embedding_type" && at.values.size() == 1) {
      GivenValue word = at.values.front();
      std::transform(word.text.begin(), word.text.end(), word.text.begin(),
                     [](unsigned char c) { return std::tolower(c); });
      flags_.add(at, "position-embedding-type", {word});
      return true;
    }
    if (at.said == "defaults") {
      for (const GivenValue& one_file : at.values)
        if (one_file.text != "_self_")
          into_.left.emplace_back(at, fmt::format("the settings of another file, {}, are not read", one_file.text));
      return true;
    }
    // How many layers are recomputed, and which, means something only where all of a layer is.
    return !fully_recomputed() &&
           (at.said == "model.activations_checkpoint_method" || at.said == "model.activations_checkpoint_num_layers");
  }

  const std::vector<Given>& all_;
  NemoSettings& into_;
  KeysAsFlags flags_;
  Keys keys_;
  std::int64_t per_node_ = 0, nodes_ = 1;  ///< 0: not said; a trainer has one node unless it says another
};

}  // namespace

base::Result<NemoSettings> nemo_settings(std::string_view text, const std::string& file) {
  auto all = json_settings(text, file);  // which is YAML, too
  if (!all) return tl::unexpected(all.error());
  NemoSettings out;
  Translation(*all, out).run();
  return out;
}

}  // namespace orrery::plan

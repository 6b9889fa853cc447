// Which keys of a config.json may be left unread. A key stands here if no family's shapes, parameters or products
// depend on it; one that only some families leave unused is named by them (ConfigKeys::unused).
#include "models/read/idle_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/units.h"
#include "base/unread_keys.h"
#include "models/read/unread.h"

namespace orrery::models {
namespace {

/// Names, of which a `*` stands for any beginning or end.
struct IdleKeys {
  const char* why;
  std::vector<std::string_view> names;
};
const std::vector<IdleKeys>& idle_keys() {
  static const std::vector<IdleKeys> kAll = {
      {"ids of words, and how text becomes words", {"*_token_id",      "*_token_ids",   "*_token_index",
                                                    "bos_id",          "eos_id",        "pad_id",
                                                    "unk_id",          "sep_id",        "cls_id",
                                                    "mask_id",         "eod_id",        "eot_id",
                                                    "im_start_id",     "im_end_id",     "bos_token",
                                                    "eos_token",       "pad_token",     "unk_token",
                                                    "sep_token",       "cls_token",     "mask_token",
                                                    "eod_token",       "boi_token",     "eoi_token",
                                                    "image_token",     "video_token",   "audio_token",
                                                    "add_bos_token",   "add_eos_token", "model_max_length",
                                                    "tokenizer_class", "n_special",     "predict_special_tokens"}},
      {"who wrote the file, with which software, and the code beside it",
       {"transformers_version", "transformers.js_config", "_name_or_path", "_commit_hash", "_from_model_config",
        "auto_map", "custom_pipelines", "is_llama_config", "task_specific_params", "name_or_path", "hub_model_id",
        "unsloth_version", "unsloth_fixed", "is_composition", "finetuned"}},
      {"the types in which weights are stored and numbers kept, which a job says",
       {"torch_dtype", "dtype", "*_dtype", "bf16", "fp16", "fp32", "use_bfloat16", "residual_in_fp32", "*_in_fp32",
        "fp32_residual_connection", "apply_query_key_layer_scaling"}},
      {"how software computes it, not what",
       {"use_cache",
        "use_cache_*",
        "pretraining_tp",
        "ep_size",
        "_attn_*",
        "attn_implementation",
        "attn_impl",
        "moe_impl",
        "use_flash_attn*",
        "flash_attn",
        "flash_rotary",
        "fused_dense",
        "fused_add_norm",
        "*_fusion",
        "use_mamba_kernels",
        "num_logits_to_keep",
        "calc_logits_for_entire_prompt",
        "chunk_size_feed_forward",
        "gradient_checkpointing",
        "moe_shared_expert_overlap",
        "cache_implementation",
        "torchscript",
        "reorder_and_upcast_attn",
        "slow_but_exact",
        "pruned_heads",
        "init_device"}},
      {"what a runtime of MLC LLM is built for",
       {"prefill_chunk_size", "context_window_size", "sliding_window_size", "attention_sink_size",
        "tensor_parallel_shards", "max_batch_size"}},
      {"initial values, which only a training from nothing has",
       {"rescale_prenorm_residual", "initializer_factor", "init_method"}},
      {"how words are drawn",
       {"do_sample",
        "early_stopping",
        "num_beams",
        "num_beam_groups",
        "num_return_sequences",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
        "max_length",
        "min_length",
        "*_penalty",
        "*no_repeat_ngram_size",
        "bad_words_ids",
        "forced_*",
        "*suppress_tokens",
        "remove_invalid_values",
        "prefix",
        "output_scores",
        "output_past",
        "return_dict*",
        "output_attentions",
        "output_hidden_states",
        "generation_config"}},
      {"heads of other tasks",
       {"id2label", "label2id", "num_labels", "_num_labels", "problem_type", "finetuning_task", "summary_*",
        "classifier_*", "pooler_*", "directionality", "tf_legacy_loss", "cross_attention_hidden_size"}},
      {"what reads images or sound",
       {"vision_config", "audio_config", "img_processor", "audio_processor", "embd_layer", "anyres_*", "vit_*",
        "max_image_size", "max_video_size", "image_*", "video_*", "vision_*", "speech_*", "mrope_section",
        "mrope_interleaved"}},
  };
  return kAll;
}

/// Keys that many families' files have, with the one value that changes nothing where a class does not ask for it.
struct IdleValue {
  std::string_view key, value;
};
constexpr IdleValue kIdleValues[] = {{"is_decoder", "true"},
                                     {"is_decoder", "false"},
                                     {"is_encoder_decoder", "false"},
                                     {"tie_encoder_decoder", "false"},
                                     {"add_cross_attention", "false"},
                                     {"attention_bias", "false"},
                                     {"mlp_bias", "false"},
                                     {"qkv_bias", "false"},
                                     {"lm_head_bias", "false"},
                                     {"use_sliding_window", "false"},
                                     {"use_mrope", "false"},
                                     {"hidden_dropout_prob", "0"},
                                     {"attention_probs_dropout_prob", "0"},
                                     {"compression_ratio", "1"},
                                     {"norm_type", "low_precision_layernorm"},
                                     {"hidden_dropout", "0"},
                                     {"attention_dropout", "0"},
                                     {"use_bidirectional_attention", "false"},
                                     {"partial_rotary_factor", "1"},
                                     {"router_jitter_noise", "0"},
                                     {"num_nextn_predict_layers", "0"}};

bool matches(std::string_view name, std::string_view key) {
  if (name.starts_with('*')) return key.ends_with(name.substr(1));
  if (name.ends_with('*')) return key.starts_with(name.substr(0, name.size() - 1));
  return name == key;
}

bool is_idle(const base::UnreadKey& one) {
  double number = 0, idle = 0;
  const auto same = [&](std::string_view value) {
    return base::parse_number(value, idle) && base::parse_number(one.value, number) ? number == idle
                                                                                    : one.value == value;
  };
  return std::ranges::any_of(kIdleValues,
                             [&](const IdleValue& off) { return off.key == one.key && same(off.value); }) ||
         std::ranges::any_of(idle_keys(), [&](const IdleKeys& some) {
           return std::ranges::any_of(some.names, [&](std::string_view name) { return matches(name, one.key); });
         });
}

}  // namespace

void warn_of_unread(const base::Cursor& root, const LanguagePart& part) {
  const std::string within = part.path.empty() ? "" : part.path + ".";
  const std::vector<base::UnreadKey> all = base::unread_keys(root);
  const bool windows_off = std::ranges::any_of(all, [&](const base::UnreadKey& one) {
    return one.path == within + "use_sliding_window" && one.value == "false";
  });
  for (const base::UnreadKey& one : all) {
    const bool own = one.path.starts_with(within);
    if (windows_off && (one.path == within + "sliding_window" || one.path == within + "max_window_layers")) continue;
    if (is_idle(one) || (!own && one.near.empty())) continue;
    root.findings().warning(
        "E0113", one.where,
        fmt::format("key {} is not read: nothing here goes by it, and the model is counted as if it were not there",
                    base::quoted(one.path)),
        one.near.empty() ? fmt::format("if layers differ by it, write the model {}", kOwnForm)
                         : fmt::format("did you mean {}?", base::quoted(one.near)));
  }
}

}  // namespace orrery::models

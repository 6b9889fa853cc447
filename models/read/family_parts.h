#pragma once
/// What entries in the table of families share. Private to models/read/families*.cpp.
#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "models/limits.h"
#include "models/read/families.h"

namespace orrery::models::family_parts {

inline constexpr double kMostRate = 0.99;

inline void rate(ConfigKeys& k, const char* key, double& value) {
  k.real({key}, value, 0, kMostRate, 0);
}

inline void sizes(ConfigKeys& k, Model& m) {
  k.count({"num_hidden_layers", "n_layer"}, m.layers, 1, kMostLayers);
  k.count({"hidden_size", "n_embed", "n_embd"}, m.hidden, 1, kMostWidth);
  k.count({"num_attention_heads", "n_head"}, m.heads, 1, kMostWidth);
}

inline void positions_up_to(ConfigKeys& k, Model& m) {
  k.count({"max_position_embeddings"}, m.max_sequence, 1, kMostSequence);
}

// transformers 5 moved rope_theta into rope_parameters, which it also reads under the old name rope_scaling.
inline void rotation(ConfigKeys& k, Model& m, double share, double theta = 10000) {
  k.real({"rope_theta", "rope_parameters.rope_theta", "rope_scaling.rope_theta"}, m.rope_theta, 1, 1e12, theta);
  if (share > 0)
    k.real({"partial_rotary_factor", "rope_parameters.partial_rotary_factor"}, m.rotary_share, 0, 1, share);
  k.rope_scaling(m);
}

/// The number of a head's columns that rotate, as some classes have it; or a share of them, where the file has that
/// alone.
inline void rotated_columns(ConfigKeys& k, Model& m, std::int64_t fallback) {
  const std::int64_t width = m.head_dim > 0 ? m.head_dim : m.hidden / std::max<std::int64_t>(1, m.heads);
  double share = 0;
  if (k.reads()) k.real({"partial_rotary_factor", "rope_parameters.partial_rotary_factor"}, share, 0, 1, 0);
  if (share > 0) fallback = static_cast<std::int64_t>(share * static_cast<double>(width) + 1e-9);
  std::int64_t turned = k.reads() ? fallback : m.rotary_columns();
  k.count({"rotary_dim"}, turned, 1, kMostWidth, fallback);
  if (k.reads()) m.rotary_share = turned < width ? static_cast<double>(turned) / static_cast<double>(width) : 1;
}

/// A limit of the magnitudes of q, k and v, which nothing here has.
inline void clipped(ConfigKeys& k, const char* key) {
  double most = 0;
  k.real({key}, most, 0, 1e6, 0);
  if (k.reads() && most > 0) k.differs("q, k and v are not clipped at clip_qkv");
}

/// A window at least as long as the longest sequence is no window, unless it says more.
inline void window_within(ConfigKeys& k, Model& m) {
  if (k.reads() && m.window >= m.max_sequence && !window_is_more(m)) m.drop_window();
}

/// A number of modules that predict further tokens, which a model here has not.
inline void further_left_out(ConfigKeys& k, const char* key, const char* text) {
  if (!k.reads()) return;
  std::int64_t modules = 0;
  k.count({key}, modules, 0, kMostLayers, 0);
  if (modules > 0) k.remark(text);
}

/// Layers that see all do not rotate, in a class whose other layers have a window: all of them, if all see all.
inline void unrotated_where_full(ConfigKeys& k, Model& m, bool has_windows) {
  if (!k.reads()) return;
  m.unrotated_period = m.window_period;
  if (has_windows && m.window == 0) m.positions = Positions::none, m.rope_scaling = {};
  if (m.full_first || !m.full_layers.empty())
    k.refuse("layer_types", "layers that see everything, and so do not rotate, follow no period",
             "only every n-th layer may be without a window");
}

inline FamilyTraits entry(Family family, const char* name, const char* title, const char* architecture,
                          const char* architectures, void (*defaults)(Model&), void (*config)(ConfigKeys&, Model&),
                          WeightNames weights) {
  return {.family = family,
          .name = name,
          .title = title,
          .model_types = {name},
          .architecture = architecture,
          .architectures = architectures,
          .defaults = defaults,
          .config = config,
          .weights = std::move(weights)};
}

// -- Llama and its descendants ---------------------------------------------------------------------------------------

/// Of each block whether it attends: 1 or 0.
inline std::vector<std::size_t> attending(const Model& m) {
  std::vector<std::size_t> out;
  for (std::int64_t i = 0; i < m.layers; ++i) out.push_back(m.parts(i).mixer == Mixer::attention ? 1 : 0);
  return out;
}

/// What Llama and its descendants have in common. `kv_heads`: the class's where a file is silent, if these are not all
/// heads, which null means in any case.
inline void llama_keys(ConfigKeys& k, Model& m, double epsilon, bool tied, const char* epsilon_key = "rms_norm_eps",
                       std::int64_t kv_heads = 0) {
  sizes(k, m);
  constexpr const char* kShared = "num_key_value_heads";
  k.count({kShared}, m.kv_heads, 1, kMostWidth, kv_heads > 0 && !k.written(kShared) ? kv_heads : m.heads);
  k.count({"intermediate_size"}, m.ffn_hidden, 1, kMostWidth);
  positions_up_to(k, m);
  k.real({epsilon_key, "layer_norm_eps"}, m.norm_epsilon, 0, 1, epsilon);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, tied);
  rate(k, "attention_dropout", m.dropout.attention);
}

inline void silu(ConfigKeys& k, Model& m, const char* title) {
  k.activation({"hidden_act"}, m, {{"silu", Activation::swiglu}}, title);
}

inline void no_biases(ConfigKeys& k, const char* key) {
  k.only(key, false, "its linear layers have no biases here");
}

inline void as_llama(Model& m) {
  m.normalisation = Normalisation::rms_norm;
  m.activation = Activation::swiglu;
  m.positions = Positions::rope;
  m.bias = false;
  m.tied_embeddings = false;
}

inline const WeightNames::Pairs kLlamaWhole = {{"wte", "embed_tokens"}, {"ln_f", "norm"}};
inline const WeightNames::Pairs kLlamaParts = {
    {"ln_1", "input_layernorm"},         {"ln_2", "post_attention_layernorm"},
    {"attn.q", "self_attn.q_proj"},      {"attn.k", "self_attn.k_proj"},
    {"attn.v", "self_attn.v_proj"},      {"attn.q_norm", "self_attn.q_norm"},
    {"attn.k_norm", "self_attn.k_norm"}, {"attn.proj", "self_attn.o_proj"},
    {"mlp.gate", "mlp.gate_proj"},       {"mlp.up", "mlp.up_proj"},
    {"mlp.fc", "mlp.up_proj"},           {"mlp.proj", "mlp.down_proj"}};

inline WeightNames llama_names(double norm_offset = 0) {
  return {
      .prefix = "model.", .layer = "layers.", .whole = kLlamaWhole, .parts = kLlamaParts, .norm_offset = norm_offset};
}

/// Granite's factors; logits are divided by theirs.
inline void granite_scales(ConfigKeys& k, Model& m) {
  const auto width = static_cast<double>(m.hidden) / static_cast<double>(m.heads);
  double scores = 1 / std::sqrt(m.query_scale > 0 ? m.query_scale : width);
  k.real({"attention_multiplier"}, scores, 1e-6, 1e3, 1);
  if (k.reads()) m.query_scale = std::abs(scores * scores * width - 1) < 1e-9 ? 0 : 1 / (scores * scores);
  constexpr double kMost = 1e6, kLeast = 1e-6;
  k.real({"embedding_multiplier"}, m.embedding_scale, 0, kMost, 1);
  k.real({"residual_multiplier"}, m.residual_scale, 0, kMost, 1);
  double divisor = 1 / m.logit_scale;
  k.real({"logits_scaling"}, divisor, kLeast, kMost, 1);
  if (k.reads()) m.logit_scale = 1 / divisor;
}

/// A file's number that, divided by `unit`, gave `value`: the one with few digits, if there is one.
inline double written_for(double value, double unit) {
  constexpr double kDigits = 1e9;
  const double exact = value * unit, few = std::round(exact * kDigits) / kDigits;
  return few / unit == value ? few : exact;
}

/// What MiniCPM's class has where a file says nothing. Of the last two null means that they change nothing.
struct MiniCpmScales {
  double embeddings, depth, base;
};
inline void minicpm_scales(ConfigKeys& k, Model& m, const MiniCpmScales& usual) {
  constexpr double kMost = 1e6, kLeast = 1e-6;
  k.real({"scale_emb"}, m.embedding_scale, kLeast, kMost, usual.embeddings);
  const double root = std::sqrt(static_cast<double>(m.layers)), width = static_cast<double>(m.hidden);
  double depth = written_for(m.residual_scale, root), base = m.logit_scale * width;
  k.real_or_none("scale_depth", depth, kMost, usual.depth);
  k.real_or_none("dim_model_base", base, kMost, usual.base);
  if (!k.reads()) return;
  for (const char* key : {"scale_depth", "dim_model_base"})
    if (k.given(key) && (std::string_view(key) == "scale_depth" ? depth : base) == 0)
      k.refuse(key, "a factor of 0 leaves nothing of what it scales", "null, which means that nothing is scaled");
  m.residual_scale = depth > 0 ? depth / root : 1;
  m.logit_scale = base > 0 ? base / width : 1;
}

/// EXAONE 4's layers: with windows, those that see all do not rotate (Yang et al. 2025, "Rope to Nope and Back Again").
inline void exaone_windows(ConfigKeys& k, Model& m) {
  // Without one, all layers rotate.
  constexpr double kSome = 4096;
  auto window = !k.reads() && m.positions == Positions::none ? kSome : static_cast<double>(m.window);
  k.real_or_none("sliding_window", window, kMostSequence, 4096);
  if (k.reads()) m.window = static_cast<std::int64_t>(window), m.window_period = m.window > 0 ? 4 : 0;
  if (k.reads() && m.window > 0 && !k.given("layer_types")) {
    std::string pattern = "LLLG";
    k.text({"sliding_window_pattern"}, pattern, "LLLG");
    if (pattern != "LLLG" && pattern != "4")
      k.refuse("sliding_window_pattern", "windows in another pattern are read from layer_types alone", "LLLG, or 4");
  } else {
    k.unused({"sliding_window_pattern"});
  }
  const bool has_windows = m.window > 0;
  k.layer_types(m);
  unrotated_where_full(k, m, has_windows);
  window_within(k, m);
}

// Tencent 2024, "Hunyuan-Large", section 2: a Llama that norms the heads of q and k behind their rotation.
inline void as_hunyuan(Model& m) {
  as_llama(m);
  m.qk_norm = m.late_qk_norm = true;
}

inline void hunyuan_keys(ConfigKeys& k, Model& m, const char* title) {
  llama_keys(k, m, 1e-5, false);
  k.count({"head_dim", "attention_head_dim"}, m.head_dim, 1, kMostWidth, 0);
  rotation(k, m, 0);
  silu(k, m, title);
  no_biases(k, "attention_bias");
  no_biases(k, "mlp_bias");
  k.flag({"use_qk_norm"}, m.qk_norm, true);
  if (k.reads()) m.late_qk_norm = m.qk_norm;
  k.only("use_cla", false, "each layer makes keys and values of its own here");
  for (const char* key : {"use_mla", "position_embedding_xdrope", "group_limited_greedy"})
    k.fixed(key, "false", "its class has none of that");
  k.fixed("use_rotary_pos_emb", "true", "positions rotate in its class");
  k.fixed("norm_type", "rms", "norms are RMSNorms in its class");
  k.fixed("routed_scaling_factor", "1", "weights of experts are not scaled in its class");
  k.unused({"cla_share_factor", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
            "n_group", "topk_group", "moe_random_routing_dropped_token", "use_mixed_mlp_moe", "org_vocab_size",
            "add_classification_head", "class_num", "pool_type", "dense_list", "num_media_embeds", "skip_cls_token"});
}

inline WeightNames hunyuan_names() {
  WeightNames names = llama_names();
  for (auto& [logical, file] : names.parts) {
    if (std::string_view(logical) == "attn.q_norm") file = "self_attn.query_layernorm";
    if (std::string_view(logical) == "attn.k_norm") file = "self_attn.key_layernorm";
  }
  return names;
}

/// If there is a window, layers from max_window_layers on have it.
inline void qwen_window(ConfigKeys& k, Model& m) {
  bool uses = m.window > 0;
  std::int64_t first = 0;
  while (!k.reads() && first < m.layers && !m.windowed(first)) ++first;
  k.flag({"use_sliding_window"}, uses, false);
  if (uses) {
    k.count({"sliding_window"}, m.window, 1, kMostSequence, 4096);
    k.count({"max_window_layers"}, first, 0, kMostLayers, 28);
  } else {
    k.unused({"sliding_window", "max_window_layers"});
  }
  if (k.reads() && !k.given("layer_types")) {
    std::vector<bool> sliding;
    for (std::int64_t i = 0; i < m.layers; ++i) sliding.push_back(i >= first);
    place_windows(sliding, m);
  }
  k.layer_types(m);
  window_within(k, m);
}

}  // namespace orrery::models::family_parts

// Gemma 4. Keys and their defaults come from its class's configuration in Hugging Face's transformers 5
// (src/transformers/models/gemma4/configuration_gemma4.py), names from the class's module.
#include "models/read/experts_parts.h"

namespace orrery::models {
namespace {

using namespace family_parts;

constexpr double kFullTheta = 1e6, kWindowTheta = 10000, kTurningShare = 0.25;

// Gemma 3's layers, whose queries are not scaled, since heads of q, k and v are all normed. Layers that see all have
// heads of another width, of which few pairs turn, and may norm k in place of v. Experts stand beside the MLP.
void as_gemma4(Model& m) {
  as_llama(m);
  m.activation = Activation::geglu;
  m.tied_embeddings = m.scaled_embedding = m.output_norm = m.qk_norm = m.value_norm = true;
  m.norm_epsilon = 1e-6;
  m.query_scale = 1;
  m.rope_theta = kFullTheta;
  m.rope_scaling = {.kind = RopeKind::proportional, .share = kTurningShare};
  m.window = 512;
  m.window_period = 6;
  m.window_theta = kWindowTheta;
  m.experts.normalised = m.experts.beside = m.experts.own_router_norm = true;
}

/// The file's head_dim and num_key_value_heads are those of layers with a window.
void gemma4_heads(ConfigKeys& k, Model& m) {
  std::int64_t narrow = m.window_head_dim > 0 ? m.window_head_dim : m.head_dim, wide = m.head_dim;
  std::int64_t in_windows = m.window_kv_heads > 0 ? m.window_kv_heads : m.kv_heads, elsewhere = m.kv_heads;
  k.count({"head_dim"}, narrow, 1, kMostWidth, 256);
  k.count({"global_head_dim"}, wide, 1, kMostWidth, 512);
  k.count({"num_key_value_heads"}, in_windows, 1, kMostWidth, 4);
  k.count({"num_global_key_value_heads"}, elsewhere, 1, kMostWidth, in_windows);
  k.flag({"attention_k_eq_v"}, m.keys_as_values, false);
  if (!k.reads()) return;
  if (k.given("per_layer_config"))
    k.refuse("per_layer_config", "what layers each have is read from keys of their kinds alone",
             "global_head_dim, num_global_key_value_heads and layer_types");
  m.head_dim = wide;
  m.window_head_dim = narrow == wide ? 0 : narrow;
  m.kv_heads = m.keys_as_values ? elsewhere : in_windows;
  m.window_kv_heads = m.kv_heads == in_windows ? 0 : in_windows;
}

/// The class has a window in all layers but every sixth and, whatever the file says, the last.
void gemma4_windows(ConfigKeys& k, Model& m) {
  k.count({"sliding_window"}, m.window, 1, kMostSequence, 512);
  if (k.reads()) m.window_period = 6, m.full_layers.clear();
  k.layer_types(m);
  if (!k.reads()) return;
  std::vector<bool> sliding;
  for (std::int64_t i = 0; i < m.layers; ++i) sliding.push_back(i + 1 < m.layers && m.windowed(i));
  place_windows(sliding, m);
  if (m.window == 0) m.window_head_dim = m.window_kv_heads = 0;
  window_within(k, m);
}

void gemma4_rotation(ConfigKeys& k, Model& m) {
  k.real({"rope_parameters.full_attention.rope_theta"}, m.rope_theta, 1, 1e12, kFullTheta);
  if (!k.reads() && m.window_theta == 0) m.window_theta = kWindowTheta;  // of no layer
  k.real({"rope_parameters.sliding_attention.rope_theta"}, m.window_theta, 1, 1e12, kWindowTheta);
  const bool some = m.rope_scaling.kind == RopeKind::proportional;
  std::string full = some ? "proportional" : "default", sliding = "default";
  const char* const silent = k.given("rope_parameters") ? "missing" : "proportional";
  k.text({"rope_parameters.full_attention.rope_type"}, full, silent);
  k.text({"rope_parameters.sliding_attention.rope_type"}, sliding, "default");
  if (!k.reads()) {
    if (!some) return;
    k.real({"rope_parameters.full_attention.partial_rotary_factor"}, m.rope_scaling.share, 0, 1, 1);
    return k.real({"rope_parameters.full_attention.factor"}, m.rope_scaling.factor, 1, 1e6, 1);
  }
  if (full == "missing")
    k.refuse("rope_parameters", "it does not say how layers that see everything rotate",
             R"({"full_attention": {"rope_type": ...}, "sliding_attention": {...}})");
  if (sliding != "default")
    k.refuse("rope_parameters", "layers with a window rotate at rates that are not scaled",
             "rope_type default for sliding_attention");
  k.rope_scaling(m);
}

void gemma4_experts(ConfigKeys& k, Model& m) {
  Experts& e = m.experts;
  bool mixed = e.any();
  k.flag({"enable_moe_block"}, mixed, false);
  if (!mixed) return;
  experts_count(k, m, "num_experts");
  k.count({"top_k_experts"}, e.chosen, 1, kMostExperts);
  k.count({"moe_intermediate_size", "expert_intermediate_size"}, e.hidden, 1, kMostWidth);
}

void gemma4_config(ConfigKeys& k, Model& m) {
  k.count({"num_hidden_layers"}, m.layers, 1, kMostLayers, 30);
  k.count({"hidden_size"}, m.hidden, 1, kMostWidth, 2304);
  k.count({"num_attention_heads"}, m.heads, 1, kMostWidth, 8);
  k.count({"intermediate_size"}, m.ffn_hidden, 1, kMostWidth, 9216);
  k.count({"max_position_embeddings"}, m.max_sequence, 1, kMostSequence, 131072);
  k.real({"rms_norm_eps"}, m.norm_epsilon, 0, 1, 1e-6);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, true);
  rate(k, "attention_dropout", m.dropout.attention);
  k.activation({"hidden_activation"}, m, {{"gelu_pytorch_tanh", Activation::geglu}}, "gemma4");
  no_biases(k, "attention_bias");
  k.real_or_none("final_logit_softcapping", m.logit_cap, 1e6, 0);
  gemma4_heads(k, m);
  gemma4_rotation(k, m);
  gemma4_windows(k, m);
  gemma4_experts(k, m);
  k.count({"hidden_size_per_layer_input"}, m.layer_inputs.width, 0, kMostWidth, 256);
  if (k.reads() || m.layer_inputs.any())
    k.count({"vocab_size_per_layer_input"}, m.layer_inputs.vocab, 1, kMostVocab, 262144);
  if (k.reads() && !m.layer_inputs.any()) m.layer_inputs = {};
  k.count({"num_kv_shared_layers"}, m.shared_keys.layers, 0, kMostLayers, 0);
  k.flag({"use_double_wide_mlp"}, m.shared_keys.widens, false);
  if (!k.reads()) return;
  if (!m.shared_keys.any()) m.shared_keys = {};
  std::string both_ways = "vision";
  k.text({"use_bidirectional_attention"}, both_ways, "vision");
  if (both_ways != "vision")
    k.refuse("use_bidirectional_attention", "tokens of text see those before them alone", "vision, or null");
  k.differs("a block's output is not multiplied by the number (layer_scalar) that files of weights bring for it");
}

WeightNames gemma4_names() {
  WeightNames names = with_experts("router.proj", "experts", kStacked);
  names.parts[1] = {"ln_2", "pre_feedforward_layernorm"};
  for (const auto& pair : WeightNames::Pairs{{"ln_1_out", "post_attention_layernorm"},
                                             {"ln_2_out", "post_feedforward_layernorm"},
                                             {"ln_2_mlp_out", "post_feedforward_layernorm_1"},
                                             {"ln_2_experts", "pre_feedforward_layernorm_2"},
                                             {"ln_2_experts_out", "post_feedforward_layernorm_2"},
                                             {"mlp.router.norm.weight", "router.scale"},
                                             {"mlp.router.scale", "router.per_expert_scale"},
                                             {"layer_input.gate", "per_layer_input_gate"},
                                             {"layer_input.proj", "per_layer_projection"},
                                             {"layer_input.norm", "post_per_layer_input_norm"}})
    names.parts.push_back(pair);
  for (const auto& pair : WeightNames::Pairs{{"layer_input.table", "embed_tokens_per_layer"},
                                             {"layer_input.product", "per_layer_model_projection"},
                                             {"layer_input.product_norm", "per_layer_projection_norm"}})
    names.whole.push_back(pair);
  names.stacked_by_rows = true;
  return names;
}

}  // namespace

std::vector<FamilyTraits> gemma4_families() {
  std::vector<FamilyTraits> all = {entry(Family::gemma4, "gemma4_text", "Gemma 4", "Gemma4ForCausalLM", "Gemma4For",
                                         as_gemma4, gemma4_config, gemma4_names())};
  all.front().name = "gemma4";
  all.front().names = stack_experts;
  all.front().vocab = 262144;
  return all;
}

}  // namespace orrery::models

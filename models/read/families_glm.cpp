// Families near Llama that order, rotate or name their layers otherwise: GLM, EXAONE, OLMo, Command R. For sources of
// keys and names see models/read/families_llama.cpp.
#include <string>
#include <string_view>

#include "models/read/family_parts.h"

namespace orrery::models {
namespace {

using namespace family_parts;
using Qkv = WeightNames::Qkv;

// -- GLM 4 ------------------------------------------------------------------------------------------------------------

// GLM Team 2024, "ChatGLM"; the models of April 2025 (glm4) normalise outputs too.
void as_glm(Model& m) {
  as_llama(m);
  m.qkv_bias = true;
  m.rotary_share = 0.5;
}
void as_glm4(Model& m) {
  as_glm(m);
  m.output_norm = true;
}

void glm_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1.5625e-7, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 128);
  rotation(k, m, 0.5);
  silu(k, m, "glm");
  k.flag({"attention_bias"}, m.qkv_bias, true);
}

WeightNames glm_names() {
  WeightNames names = llama_names();
  for (auto& [logical, file] : names.parts)
    if (std::string_view(logical) == "mlp.gate" || std::string_view(logical) == "mlp.up") file = "mlp.gate_up_proj";
  names.adjacent_pairs = true;
  return names;
}
WeightNames glm4_names() {
  WeightNames names = glm_names();
  names.parts.push_back({"ln_1_out", "post_self_attn_layernorm"});
  names.parts.push_back({"ln_2_out", "post_mlp_layernorm"});
  return names;
}

// -- ChatGLM 2 and 3, and GLM 4's first files ------------------------------------------------------------------------

// GLM's layers under the names and keys of modeling_chatglm.py, which lies beside the weights.
void chatglm_config(ConfigKeys& k, Model& m) {
  k.count({"num_layers"}, m.layers, 1, kMostLayers);
  k.count({"hidden_size"}, m.hidden, 1, kMostWidth);
  k.count({"num_attention_heads"}, m.heads, 1, kMostWidth);
  bool grouped = m.kv_heads != m.heads;
  k.flag({"multi_query_attention"}, grouped, false);
  if (grouped)
    k.count({"multi_query_group_num"}, m.kv_heads, 1, kMostWidth, 1);
  else if (k.reads())
    m.kv_heads = m.heads;
  k.count({"kv_channels"}, m.head_dim, 1, kMostWidth, 0);
  k.count({"ffn_hidden_size"}, m.ffn_hidden, 1, kMostWidth);
  k.count({"seq_length"}, m.max_sequence, 1, kMostSequence, 2048);
  k.real({"layernorm_epsilon"}, m.norm_epsilon, 0, 1, 1e-5);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, false);
  k.flag({"add_qkv_bias"}, m.qkv_bias, false);
  constexpr double kBase = 10000;
  double slower = m.rope_theta / kBase;
  k.real({"rope_ratio"}, slower, 1e-4, 1e8, 1);
  if (k.reads()) m.rope_theta = kBase * slower;
  rate(k, "attention_dropout", m.dropout.attention);
  rate(k, "hidden_dropout", m.dropout.residual);
  k.only("rmsnorm", true, "norms are RMSNorms here");
  k.only("post_layer_norm", true, "there is a norm before the head here");
  k.only("apply_residual_connection_post_layernorm", false, "residuals here are taken before the norms");
  no_biases(k, "add_bias_linear");
  k.fixed("original_rope", "true", "half of a head's columns rotate here");
  for (const char* key : {"prefix_projection", "interleaved_qkv"}) k.fixed(key, "false", "its class has none of that");
  k.unused({"quantization_bit"});
  k.unused({"num_hidden_layers"});  // num_layers, again
  k.unused({"padded_vocab_size"});  // rows of vocab_size, where the file has both
}

WeightNames chatglm_names() {
  return {.prefix = "transformer.",
          .layer = "encoder.layers.",
          .whole = {{"wte", "embedding.word_embeddings"}, {"ln_f", "encoder.final_layernorm"}},
          .parts = {{"ln_1", "input_layernorm"},
                    {"ln_2", "post_attention_layernorm"},
                    {"attn.q", "self_attention.query_key_value"},
                    {"attn.k", "self_attention.query_key_value"},
                    {"attn.v", "self_attention.query_key_value"},
                    {"attn.proj", "self_attention.dense"},
                    {"mlp.gate", "mlp.dense_h_to_4h"},
                    {"mlp.up", "mlp.dense_h_to_4h"},
                    {"mlp.proj", "mlp.dense_4h_to_h"}},
          .heads = {{"lm_head.weight", "transformer.output_layer.weight"}},
          .qkv = Qkv::in_turn,
          .adjacent_pairs = true};
}

// -- EXAONE 3 and 4, OLMo 1 to 3
// ---------------------------------------------------------------------------------------

// LG AI Research 2024, "EXAONE 3.0": a Llama; keys and names as in modeling_exaone.py beside the weights.
void exaone_config(ConfigKeys& k, Model& m) {
  k.count({"num_layers", "num_hidden_layers"}, m.layers, 1, kMostLayers);
  k.count({"hidden_size"}, m.hidden, 1, kMostWidth);
  k.count({"num_attention_heads"}, m.heads, 1, kMostWidth);
  k.count({"num_key_value_heads"}, m.kv_heads, 1, kMostWidth, m.heads);
  k.count({"intermediate_size"}, m.ffn_hidden, 1, kMostWidth, 4 * m.hidden);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);
  positions_up_to(k, m);
  k.real({"layer_norm_epsilon"}, m.norm_epsilon, 0, 1, 1e-5);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, true);
  rotation(k, m, 0);
  k.activation({"activation_function"}, m, {{"silu", Activation::swiglu}}, "exaone");
  rate(k, "attention_dropout", m.dropout.attention);
  rate(k, "embed_dropout", m.dropout.embedding);
}

WeightNames exaone_names() {
  return {.prefix = "transformer.",
          .layer = "h.",
          .whole = {{"wte", "wte"}, {"ln_f", "ln_f"}},
          .parts = {{"ln_1", "ln_1"},
                    {"ln_2", "ln_2"},
                    {"attn.q", "attn.attention.q_proj"},
                    {"attn.k", "attn.attention.k_proj"},
                    {"attn.v", "attn.attention.v_proj"},
                    {"attn.proj", "attn.attention.out_proj"},
                    {"mlp.gate", "mlp.c_fc_0"},
                    {"mlp.up", "mlp.c_fc_1"},
                    {"mlp.proj", "mlp.c_proj"}}};
}

// Groeneveld et al. 2024, "OLMo", section 2: a Llama whose LayerNorms have no parameters.
void as_olmo(Model& m) {
  as_llama(m);
  m.normalisation = Normalisation::layer_norm;
  m.norm_weight = m.norm_bias = false;
}

void olmo_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false, "layer_norm_eps");
  rotation(k, m, 0);
  silu(k, m, "olmo");
  no_biases(k, "attention_bias");
  clipped(k, "clip_qkv");
}

// OLMo Team 2024, "2 OLMo 2 Furious": norms after attention and MLP alone, and one over all heads of q and
// of k.
void as_olmo2(Model& m) {
  as_llama(m);
  m.input_norm = false;
  m.output_norm = true;
  m.qk_norm = m.joint_qk_norm = true;
}
// Three layers with a window for each that sees all.
void as_olmo3(Model& m) {
  as_olmo2(m);
  m.window = 4096;
  m.window_period = 4;
}
// LG AI Research 2025, "EXAONE 4.0": OLMo 2's order with Qwen3's norms of heads.
void as_exaone4(Model& m) {
  as_olmo2(m);
  m.joint_qk_norm = false;
}

void olmo2_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false);
  rotation(k, m, 0);
  silu(k, m, "olmo2");
  no_biases(k, "attention_bias");
}

// Scaled rotation is for layers without a window alone.
void olmo3_config(ConfigKeys& k, Model& m) {
  olmo2_config(k, m);
  k.count({"sliding_window"}, m.window, 1, kMostSequence, 4096);
  k.layer_types(m);
  if (k.reads() && m.rope_scaling.kind != RopeKind::none) m.window_theta = m.rope_theta;
  window_within(k, m);
}

void exaone4_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);
  rotation(k, m, 0);
  silu(k, m, "exaone4");
  exaone_windows(k, m);
}

WeightNames olmo2_names() {
  WeightNames names = llama_names();
  names.parts[0] = {"ln_1_out", "post_attention_layernorm"};
  names.parts[1] = {"ln_2_out", "post_feedforward_layernorm"};
  return names;
}

// -- Command R --------------------------------------------------------------------------------------------------------

// Cohere 2024: attention and MLP read one LayerNorm without bias, and rotated pairs stand side by side.
void as_cohere(Model& m) {
  as_llama(m);
  m.normalisation = Normalisation::layer_norm;
  m.norm_bias = false;
  m.parallel = m.shared_norm = true;
  m.tied_embeddings = true;
}

// Cohere 2024, Command R7B: three layers with a window for each that sees all and does not rotate (Yang et al. 2025,
// "Rope to Nope and Back Again").
void as_cohere2(Model& m) {
  as_cohere(m);
  m.window = 4096;
  m.window_period = m.unrotated_period = 4;
}

void cohere_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, true, "layer_norm_eps");
  rotation(k, m, 0);
  silu(k, m, "cohere");
  no_biases(k, "attention_bias");
  k.only("use_qk_norm", false, "heads have no LayerNorms of their own here");
  k.real({"logit_scale"}, m.logit_scale, 0, 1e6, 0.0625);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);
  for (const char* key : {"use_parallel_block", "use_gated_activation"}) k.fixed(key, "true", "its class has them");
  k.fixed("rotary_pct", "1", "all columns rotate in its class");
  k.fixed("order_of_interleaved_layers", "local_attn_first", "the last layer of each period sees all in its class");
  k.unused({"layer_switch", "position_embedding_type", "use_embedding_sharing", "use_parallel_embedding"});
}

void cohere2_config(ConfigKeys& k, Model& m) {
  cohere_config(k, m);
  k.count({"sliding_window"}, m.window, 0, kMostSequence, 4096);
  k.count({"sliding_window_pattern", "_sliding_window_pattern"}, m.window_period, 1, kMostLayers, 4);
  if (k.reads() && m.window == 0) m.window_period = 0;
  const bool has_windows = m.window > 0;
  if (k.reads() && m.window_period == 1 && !k.given("layer_types")) m.drop_window();
  k.layer_types(m);
  unrotated_where_full(k, m, has_windows);
  window_within(k, m);
}

WeightNames cohere_names() {
  WeightNames names = llama_names();
  names.adjacent_pairs = true;
  return names;
}

// -- the entries ------------------------------------------------------------------------------------------------------

}  // namespace

std::vector<FamilyTraits> glm_families() {
  std::vector<FamilyTraits> all = {
      entry(Family::glm, "glm", "GLM", "GlmForCausalLM", "GlmFor", as_glm, glm_config, glm_names()),
      entry(Family::glm4, "glm4", "GLM 4", "Glm4ForCausalLM", "Glm4For", as_glm4, glm_config, glm4_names()),
      entry(Family::cohere, "cohere", "Command R", "CohereForCausalLM", "CohereFor", as_cohere, cohere_config,
            cohere_names()),
      entry(Family::cohere2, "cohere2", "Command R7B", "Cohere2ForCausalLM", "Cohere2", as_cohere2, cohere2_config,
            cohere_names()),
      entry(Family::chatglm, "chatglm", "ChatGLM", "ChatGLMForConditionalGeneration", "ChatGLM", as_glm, chatglm_config,
            chatglm_names()),
      entry(Family::exaone, "exaone", "EXAONE 3", "ExaoneForCausalLM", "ExaoneFor", as_llama, exaone_config,
            exaone_names()),
      entry(Family::exaone4, "exaone4", "EXAONE 4", "Exaone4ForCausalLM", "Exaone4", as_exaone4, exaone4_config,
            olmo2_names()),
      entry(Family::olmo, "olmo", "OLMo", "OlmoForCausalLM", "OlmoFor", as_olmo, olmo_config, llama_names()),
      entry(Family::olmo2, "olmo2", "OLMo 2", "Olmo2ForCausalLM", "Olmo2", as_olmo2, olmo2_config, olmo2_names()),
      entry(Family::olmo3, "olmo3", "OLMo 3", "Olmo3ForCausalLM", "Olmo3", as_olmo3, olmo3_config, olmo2_names()),
  };
  for (FamilyTraits& one : all) {
    if (one.family == Family::glm4) one.model_types.push_back("glm4v_text");
    if (one.family == Family::exaone4) one.model_types.push_back("exaone4_5_text");
  }
  return all;
}

}  // namespace orrery::models

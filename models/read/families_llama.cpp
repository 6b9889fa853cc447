// Llama and its descendants. Keys and their defaults come from the classes' configurations in Hugging Face's
// transformers 4 and 5 (src/transformers/models/FAMILY/configuration_FAMILY.py), names from the classes' modules.
#include <cmath>
#include <string_view>

#include "models/read/family_parts.h"

namespace orrery::models {
namespace {

using namespace family_parts;
using Qkv = WeightNames::Qkv;

// -- Llama, Mistral -------------------------------------------------------------------------------------------------

void llama_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);
  rotation(k, m, 0);
  silu(k, m, "llama");
  no_biases(k, "attention_bias");
  no_biases(k, "mlp_bias");
  k.fixed("rope_interleaved", "false", "rotated columns are half of a head apart in its class");
  k.unused({"max_sequence_length"});  // max_position_embeddings, again
}

// Jiang et al. 2023; later models have no window.
void mistral_config(ConfigKeys& k, Model& m) {
  llama_config(k, m);
  k.count({"sliding_window"}, m.window, 0, kMostSequence, 0);
  if (k.reads() || m.window_period > 0 || !m.full_layers.empty()) k.layer_types(m);
  window_within(k, m);
}

// -- Qwen 2, 2.5 and 3 ------------------------------------------------------------------------------------------------

void as_qwen2(Model& m) {
  as_llama(m);
  m.qkv_bias = true;
}

void qwen2_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, false);
  rotation(k, m, 0);
  silu(k, m, "qwen2");
  qwen_window(k, m);
}

void as_qwen3(Model& m) {
  as_llama(m);
  m.qk_norm = true;
}

void qwen3_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 128);
  rotation(k, m, 0);
  silu(k, m, "qwen3");
  no_biases(k, "attention_bias");
  qwen_window(k, m);
}

// -- MiMo 7B ----------------------------------------------------------------------------------------------------------

// Xiaomi 2025, "MiMo", section 2.2: a Qwen2 with a module that predicts a token further; names as in modeling_mimo.py
// beside the weights.
void mimo_config(ConfigKeys& k, Model& m) {
  qwen2_config(k, m);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);
  k.flag({"attention_bias"}, m.qkv_bias, true);
  k.count({"num_nextn_predict_layers"}, m.further.modules, 0, 1, 0);
  k.fixed("use_mrope", "false", "positions have one number here");
}

WeightNames mimo_names() {
  WeightNames names = llama_names();
  for (const auto& pair : WeightNames::Pairs{{"hnorm", "hidden_layernorm"},
                                             {"enorm", "token_layernorm"},
                                             {"eh_proj.hidden", "input_proj"},
                                             {"eh_proj.token", "input_proj"},
                                             {"ln_f", "final_layernorm"}})
    names.parts.push_back(pair);
  names.further = "mtp_layers.";
  names.hidden_first = true;
  return names;
}
void number_modules(WeightNames& names, const Model& model) {
  names.layers = model.layers;
}

// -- HunYuan ----------------------------------------------------------------------------------------------------------

void hunyuan_config(ConfigKeys& k, Model& m) {
  hunyuan_keys(k, m, "hunyuan_v1_dense");
}

// -- Gemma 1 and 2 ----------------------------------------------------------------------------------------------------

void as_gemma(Model& m) {
  as_llama(m);
  m.activation = Activation::geglu;
  m.tied_embeddings = true;
  m.scaled_embedding = true;
  m.norm_epsilon = 1e-6;
}

void gemma_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, true);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 256);
  rotation(k, m, 0);
  // The first files say gelu, but training used, and the class computes, the tanh form.
  k.activation({"hidden_activation", "hidden_act"}, m,
               {{"gelu_pytorch_tanh", Activation::geglu}, {"gelu", Activation::geglu}}, "gemma");
  no_biases(k, "attention_bias");
}

// Gemma Team 2024, "Gemma 2", section 2.
void as_gemma2(Model& m) {
  as_gemma(m);
  m.output_norm = true;
  m.attention_cap = 50;
  m.logit_cap = 30;
  m.window = 4096;
  m.window_period = 2;
}

void scaled_queries(ConfigKeys& k, Model& m) {
  const auto width = static_cast<double>(m.head_dim);
  double scale = m.query_scale > 0 ? m.query_scale : width;
  k.real({"query_pre_attn_scalar"}, scale, 1e-6, 1e6, 256);
  m.query_scale = scale == width ? 0 : scale;
}

void gemma2_config(ConfigKeys& k, Model& m) {
  gemma_config(k, m);
  scaled_queries(k, m);
  k.real_or_none("attn_logit_softcapping", m.attention_cap, 1e6, 50);
  k.real_or_none("final_logit_softcapping", m.logit_cap, 1e6, 30);
  k.count({"sliding_window"}, m.window, 1, kMostSequence, 4096);
  if (k.reads()) m.window_period = 2;
  k.layer_types(m);
  window_within(k, m);
}

WeightNames gemma2_names() {
  WeightNames names = llama_names(1);
  names.parts[1] = {"ln_2", "pre_feedforward_layernorm"};
  names.parts.push_back({"ln_1_out", "post_attention_layernorm"});
  names.parts.push_back({"ln_2_out", "post_feedforward_layernorm"});
  return names;
}

// -- Gemma 3 ----------------------------------------------------------------------------------------------------------

// Gemma Team 2025, "Gemma 3", section 2: five layers with a short window for each that sees all, norms of q and k in
// place of caps, and slower rotation where all is seen.
void as_gemma3(Model& m) {
  as_gemma(m);
  m.output_norm = true;
  m.qk_norm = true;
  m.rope_theta = 1e6;
  m.window = 4096;
  m.window_period = 6;
  m.window_theta = 10000;
}

// Published files leave out whatever equals the class's default.
void gemma3_config(ConfigKeys& k, Model& m) {
  k.count({"num_hidden_layers"}, m.layers, 1, kMostLayers, 26);
  k.count({"hidden_size"}, m.hidden, 1, kMostWidth, 2304);
  k.count({"num_attention_heads"}, m.heads, 1, kMostWidth, 8);
  k.count({"num_key_value_heads"}, m.kv_heads, 1, kMostWidth, 4);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 256);
  k.count({"intermediate_size"}, m.ffn_hidden, 1, kMostWidth, 9216);
  k.count({"max_position_embeddings"}, m.max_sequence, 1, kMostSequence, 131072);
  k.real({"rms_norm_eps"}, m.norm_epsilon, 0, 1, 1e-6);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, true);
  rate(k, "attention_dropout", m.dropout.attention);
  k.real({"rope_theta", "rope_parameters.full_attention.rope_theta"}, m.rope_theta, 1, 1e12, 1e6);
  if (!k.reads() && m.window_theta == 0) m.window_theta = 10000;  // of no layer
  k.real({"rope_local_base_freq", "rope_parameters.sliding_attention.rope_theta"}, m.window_theta, 1, 1e12, 10000);
  k.rope_scaling(m);
  k.fixed("rope_parameters.sliding_attention.rope_type", "default", "rotations of layers with a window are not scaled");
  k.activation({"hidden_activation"}, m, {{"gelu_pytorch_tanh", Activation::geglu}}, "gemma3");
  no_biases(k, "attention_bias");
  scaled_queries(k, m);
  k.real_or_none("attn_logit_softcapping", m.attention_cap, 1e6, 0);
  k.real_or_none("final_logit_softcapping", m.logit_cap, 1e6, 0);
  k.count({"sliding_window"}, m.window, 1, kMostSequence, 4096);
  k.count({"sliding_window_pattern", "_sliding_window_pattern"}, m.window_period, 1, kMostLayers, 6);
  if (k.reads() && m.window_period == 1 && !k.given("layer_types")) m.drop_window();
  k.layer_types(m);
  window_within(k, m);
}

// -- Phi-3 ------------------------------------------------------------------------------------------------------------

void phi3_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false);
  rotation(k, m, 1);
  silu(k, m, "phi3");
  rate(k, "embd_pdrop", m.dropout.embedding);
  rate(k, "resid_pdrop", m.dropout.residual);
  k.count({"sliding_window"}, m.window, 0, kMostSequence, 0);
  window_within(k, m);
  for (const char* key : {"attention_bias", "mlp_bias", "lm_head_bias"}) no_biases(k, key);
  k.fixed("full_attn_mod", "1", "all layers see as much in its class");
  k.fixed("interpolate_factor", "1", "positions are not interpolated in its class");
  k.unused({"original_max_position_embeddings"});  // of a scaled rotation, which asks for it
}

WeightNames phi3_names() {
  WeightNames names = llama_names();
  for (auto& [logical, file] : names.parts) {
    const std::string one = logical;
    if (one == "attn.q" || one == "attn.k" || one == "attn.v") file = "self_attn.qkv_proj";
    if (one == "mlp.gate" || one == "mlp.up") file = "mlp.gate_up_proj";
  }
  names.qkv = Qkv::in_turn;
  return names;
}

// -- Nemotron ---------------------------------------------------------------------------------------------------------

// Parmar et al. 2024, "Nemotron-4 15B", section 2; NVIDIA 2024, "Nemotron-4 340B".
void as_nemotron(Model& m) {
  as_llama(m);
  m.normalisation = Normalisation::layer_norm;
  m.activation = Activation::squared_relu;
  m.initial_stddev = 0.0134;
  m.rotary_share = 0.5;
}

void nemotron_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false, "norm_eps");
  k.count({"head_dim", "kv_channels"}, m.head_dim, 1, kMostWidth, 0);
  rotation(k, m, 0.5);
  k.activation({"hidden_act"}, m, {{"relu2", Activation::squared_relu}}, "nemotron");
  no_biases(k, "attention_bias");
  no_biases(k, "mlp_bias");
}

// -- StarCoder 2 ------------------------------------------------------------------------------------------------------

// Lozhkov et al. 2024, section 6: GPT-2's norms, biases and MLP, with rotation and grouped queries.
void as_starcoder2(Model& m) {
  m.initial_stddev = 0.018042;
  m.positions = Positions::rope;
}

void starcoder2_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, true, "norm_epsilon");
  rotation(k, m, 0);
  k.activation({"hidden_act"}, m, {{"gelu_pytorch_tanh", Activation::gelu}, {"gelu", Activation::gelu, Gelu::erf}},
               "starcoder2");
  rate(k, "residual_dropout", m.dropout.residual);
  rate(k, "embedding_dropout", m.dropout.embedding);
  k.count({"sliding_window"}, m.window, 0, kMostSequence, 0);
  window_within(k, m);
  k.flag({"use_bias"}, m.bias, true);
  k.fixed("mlp_type", "default", "its class has one MLP");
  k.fixed("norm_type", "layer_norm", "its class has LayerNorms");
  k.unused({"activation_function", "layer_norm_epsilon", "scale_attn_weights"});  // hidden_act and norm_epsilon say it
}

WeightNames starcoder2_names() {
  WeightNames names = llama_names();
  for (auto& [logical, file] : names.parts) {
    if (std::string_view(logical) == "mlp.fc") file = "mlp.c_fc";
    if (std::string_view(logical) == "mlp.proj") file = "mlp.c_proj";
  }
  return names;
}

// -- StableLM ---------------------------------------------------------------------------------------------------------

void as_stablelm(Model& m) {
  as_llama(m);
  m.normalisation = Normalisation::layer_norm;
  m.rotary_share = 0.25;
}

void stablelm_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false, "layer_norm_eps");
  rotation(k, m, 0.25);
  silu(k, m, "stablelm");
  k.flag({"use_qkv_bias"}, m.qkv_bias, false);
  rate(k, "hidden_dropout", m.dropout.residual);
  k.only("qk_layernorm", false, "heads have no LayerNorms of their own here");
  k.only("use_parallel_residual", false, "attention and MLP follow one another here");
  k.fixed("rotary_scaling_factor", "1", "rotations are not scaled in its class");
  k.unused({"rope_pct"});  // partial_rotary_factor, again
}

// -- InternLM 2 -------------------------------------------------------------------------------------------------------

// Cai et al. 2024, "InternLM2 Technical Report", section 2.2: a Llama whose q, k and v are one tensor, head by head.
void internlm2_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false);
  rotation(k, m, 0);
  silu(k, m, "internlm2");
  no_biases(k, "bias");
}

WeightNames internlm2_names() {
  return {.prefix = "model.",
          .layer = "layers.",
          .whole = {{"wte", "tok_embeddings"}, {"ln_f", "norm"}},
          .parts = {{"ln_1", "attention_norm"},
                    {"ln_2", "ffn_norm"},
                    {"attn.q", "attention.wqkv"},
                    {"attn.k", "attention.wqkv"},
                    {"attn.v", "attention.wqkv"},
                    {"attn.proj", "attention.wo"},
                    {"mlp.gate", "feed_forward.w1"},
                    {"mlp.up", "feed_forward.w3"},
                    {"mlp.proj", "feed_forward.w2"}},
          .heads = {{"lm_head.weight", "output.weight"}},
          .qkv = Qkv::by_head};
}

// -- ERNIE 4.5, Helium, Seed-OSS, SmolLM 3, AFM (Arcee), Granite
// --------------------------------------------------------------

void as_ernie(Model& m) {
  as_llama(m);
  m.tied_embeddings = true;
  m.rope_theta = 500000;
}

void ernie_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, true);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 128);
  rotation(k, m, 0, 500000);
  silu(k, m, "ernie4_5");
  no_biases(k, "use_bias");
}

WeightNames side_by_side_names() {
  WeightNames names = llama_names();
  names.adjacent_pairs = true;
  return names;
}

// Kyutai 2025, "Helium 1": a Llama whose rotated pairs stand side by side.
void helium_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-8, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 128);
  rotation(k, m, 0, 100000);
  silu(k, m, "helium");
  no_biases(k, "attention_bias");
  no_biases(k, "mlp_bias");
}

void seed_oss_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 128);
  rotation(k, m, 0);
  silu(k, m, "seed_oss");
  rate(k, "residual_dropout", m.dropout.residual);
  k.flag({"attention_bias"}, m.qkv_bias, true);
  no_biases(k, "attention_out_bias");
  no_biases(k, "mlp_bias");
}

// Hugging Face 2025: no rotation in every fourth layer (Yang et al. 2025, "Rope to Nope and Back Again").
void as_smollm3(Model& m) {
  as_llama(m);
  m.tied_embeddings = true;
  m.rope_theta = 2e6;
  m.unrotated_period = 4;
}

void smollm3_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, true);
  rotation(k, m, 0, 2e6);
  silu(k, m, "smollm3");
  no_biases(k, "attention_bias");
  no_biases(k, "mlp_bias");
  k.only("use_sliding_window", false, "layers without rotation have no window here");
  k.unrotated_layers("no_rope_layers", "no_rope_layer_interval", m, 4);
  k.fixed("layer_types", "full_attention", "layers without rotation have no window here");
  k.unused({"max_window_layers", "sliding_window"});
}

void as_arcee(Model& m) {
  as_llama(m);
  m.activation = Activation::squared_relu;
}

void arcee_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);
  rotation(k, m, 0);
  k.activation({"hidden_act"}, m, {{"relu2", Activation::squared_relu}}, "arcee");
  no_biases(k, "attention_bias");
  no_biases(k, "mlp_bias");
}

void granite_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, false);
  rotation(k, m, 0);
  silu(k, m, "granite");
  no_biases(k, "attention_bias");
  no_biases(k, "mlp_bias");
  granite_scales(k, m);
}

// -- nanochat ---------------------------------------------------------------------------------------------------------

// Karpathy 2025, nanochat: squared ReLU, capped logits, norms without weights, also behind the token table and, behind
// their rotation, of the heads of q and k. It rotates backwards, which is forwards with the halves of a head swapped.
void as_nanochat(Model& m) {
  as_llama(m);
  m.activation = Activation::squared_relu;
  m.norm_weight = false;
  m.qk_norm = m.late_qk_norm = true;
  m.embedding_norm = true;
  m.norm_epsilon = 1e-6;
  m.logit_cap = 15;
}

void nanochat_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, false);
  rotation(k, m, 0);
  k.activation({"hidden_act"}, m, {{"relu2", Activation::squared_relu}}, "nanochat");
  no_biases(k, "attention_bias");
  k.real_or_none("final_logit_softcapping", m.logit_cap, 1e6, 15);
}

WeightNames nanochat_names() {
  WeightNames names = llama_names();
  for (auto& [logical, file] : names.parts) {
    if (std::string_view(logical) == "mlp.fc") file = "mlp.fc1";
    if (std::string_view(logical) == "mlp.proj") file = "mlp.fc2";
  }
  names.swapped_pairs = true;
  return names;
}

// -- Apertus ----------------------------------------------------------------------------------------------------------

// Swiss AI Initiative 2025, "Apertus": norms of the heads of q and k, and an activation with parameters, without a
// gate.
void as_apertus(Model& m) {
  as_llama(m);
  m.activation = Activation::xielu;
  m.qk_norm = true;
  m.rope_theta = 12e6;
}

void apertus_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false);
  // The class's own, where a file says nothing of it.
  if (k.reads()) m.rope_scaling = {.kind = RopeKind::llama3, .factor = 8, .original = 8192, .low = 1, .high = 4};
  rotation(k, m, 0, 12e6);
  k.activation({"hidden_act"}, m, {{"xielu", Activation::xielu}}, "apertus");
  no_biases(k, "attention_bias");
  no_biases(k, "mlp_bias");
  k.only("post_norm", false, "norms come before attention and MLP here");
  k.only("qk_norm", true, "heads of q and k have norms here");
}

WeightNames apertus_names() {
  WeightNames names = llama_names();
  names.parts[0] = {"ln_1", "attention_layernorm"};
  names.parts[1] = {"ln_2", "feedforward_layernorm"};
  names.parts.push_back({"mlp.alpha_p", "mlp.act_fn.alpha_p"});
  names.parts.push_back({"mlp.alpha_n", "mlp.act_fn.alpha_n"});
  return names;
}

// -- Baichuan, InternLM 3 ---------------------------------------------------------------------------------------------

// Yang et al. 2023, "Baichuan 2", section 2.3: 7B rotates, 13B has slopes. Only the latter's files leave out
// max_position_embeddings (modeling_baichuan.py beside the weights).
void baichuan_config(ConfigKeys& k, Model& m) {
  sizes(k, m);
  if (k.reads()) m.kv_heads = m.heads;
  k.count({"intermediate_size"}, m.ffn_hidden, 1, kMostWidth);
  if (k.reads()) m.positions = k.given("max_position_embeddings") ? Positions::rope : Positions::alibi;
  if (m.positions == Positions::rope) {
    positions_up_to(k, m);
    rotation(k, m, 0);
    k.unused({"model_max_length"});
  } else {
    k.count({"model_max_length"}, m.max_sequence, 1, kMostSequence);
  }
  k.real({"rms_norm_eps"}, m.norm_epsilon, 0, 1, 1e-6);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, false);
  silu(k, m, "baichuan");
  if (k.given("z_loss_weight")) k.differs("its head's rows are not scaled to length 1, as Baichuan 2's are");
}

WeightNames baichuan_names() {
  WeightNames names = llama_names();
  for (auto& [logical, file] : names.parts) {
    const std::string_view one = logical;
    if (one == "attn.q" || one == "attn.k" || one == "attn.v") file = "self_attn.W_pack";
  }
  names.qkv = Qkv::in_turn;
  return names;
}

void internlm3_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);
  rotation(k, m, 0);
  silu(k, m, "internlm3");
  k.flag({"qkv_bias"}, m.qkv_bias, false);
  no_biases(k, "bias");
}

// -- the entries ------------------------------------------------------------------------------------------------------

}  // namespace

std::vector<FamilyTraits> llama_families() {
  std::vector<FamilyTraits> all = {
      entry(Family::llama, "llama", "Llama", "LlamaForCausalLM", "Llama", as_llama, llama_config, llama_names()),
      entry(Family::mistral, "mistral", "Mistral", "MistralForCausalLM", "Mistral", as_llama, mistral_config,
            llama_names()),
      entry(Family::qwen2, "qwen2", "Qwen2", "Qwen2ForCausalLM", "Qwen2For", as_qwen2, qwen2_config, llama_names()),
      entry(Family::qwen3, "qwen3", "Qwen3", "Qwen3ForCausalLM", "Qwen3For", as_qwen3, qwen3_config, llama_names()),
      entry(Family::mimo, "mimo", "MiMo", "MiMoForCausalLM", "MiMoFor", as_qwen2, mimo_config, mimo_names()),
      entry(Family::hunyuan, "hunyuan_v1_dense", "HunYuan", "HunYuanDenseV1ForCausalLM", "HunYuanDense", as_hunyuan,
            hunyuan_config, hunyuan_names()),
      entry(Family::gemma, "gemma", "Gemma", "GemmaForCausalLM", "GemmaFor", as_gemma, gemma_config, llama_names(1)),
      entry(Family::gemma2, "gemma2", "Gemma 2", "Gemma2ForCausalLM", "Gemma2For", as_gemma2, gemma2_config,
            gemma2_names()),
      entry(Family::gemma3, "gemma3_text", "Gemma 3", "Gemma3ForCausalLM", "Gemma3For", as_gemma3, gemma3_config,
            gemma2_names()),
      entry(Family::phi3, "phi3", "Phi-3", "Phi3ForCausalLM", "Phi3For", as_llama, phi3_config, phi3_names()),
      entry(Family::nemotron, "nemotron", "Nemotron", "NemotronForCausalLM", "NemotronFor", as_nemotron,
            nemotron_config, llama_names(1)),
      entry(Family::starcoder2, "starcoder2", "StarCoder 2", "Starcoder2ForCausalLM", "Starcoder2", as_starcoder2,
            starcoder2_config, starcoder2_names()),
      entry(Family::stablelm, "stablelm", "StableLM", "StableLmForCausalLM", "StableLm", as_stablelm, stablelm_config,
            llama_names()),
      entry(Family::internlm2, "internlm2", "InternLM 2", "InternLM2ForCausalLM", "InternLM2", as_llama,
            internlm2_config, internlm2_names()),
      entry(Family::ernie, "ernie4_5", "ERNIE 4.5", "Ernie4_5ForCausalLM", "Ernie4_5For", as_ernie, ernie_config,
            side_by_side_names()),
      entry(Family::helium, "helium", "Helium", "HeliumForCausalLM", "Helium", as_llama, helium_config,
            side_by_side_names()),
      entry(Family::seed_oss, "seed_oss", "Seed-OSS", "SeedOssForCausalLM", "SeedOss", as_qwen2, seed_oss_config,
            llama_names()),
      entry(Family::smollm3, "smollm3", "SmolLM 3", "SmolLM3ForCausalLM", "SmolLM3", as_smollm3, smollm3_config,
            llama_names()),
      entry(Family::arcee, "arcee", "Arcee", "ArceeForCausalLM", "Arcee", as_arcee, arcee_config, llama_names()),
      entry(Family::granite, "granite", "Granite", "GraniteForCausalLM", "GraniteFor", as_llama, granite_config,
            llama_names()),
      entry(Family::nanochat, "nanochat", "nanochat", "NanoChatForCausalLM", "NanoChat", as_nanochat, nanochat_config,
            nanochat_names()),
      entry(Family::apertus, "apertus", "Apertus", "ApertusForCausalLM", "Apertus", as_apertus, apertus_config,
            apertus_names()),
      entry(Family::baichuan, "baichuan", "Baichuan", "BaichuanForCausalLM", "Baichuan", as_llama, baichuan_config,
            baichuan_names()),
      entry(Family::internlm3, "internlm3", "InternLM 3", "InternLM3ForCausalLM", "InternLM3", as_llama,
            internlm3_config, llama_names()),
  };
  // The language models within those of text and images have the same layers.
  for (FamilyTraits& one : all) {
    if (one.family == Family::mistral) one.model_types.push_back("ministral3");
    if (one.family == Family::qwen2)
      for (const char* type : {"qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_5_omni_text"})
        one.model_types.push_back(type);
    if (one.family == Family::qwen3) one.model_types.push_back("qwen3_vl_text");
    if (one.family == Family::phi3)
      for (const char* type : {"phi3_v", "phi4mm"}) one.model_types.push_back(type);
    if (one.family == Family::mimo) one.names = number_modules;
    if (one.family == Family::gemma3) one.name = "gemma3", one.vocab = 262208;
  }
  return all;
}

}  // namespace orrery::models

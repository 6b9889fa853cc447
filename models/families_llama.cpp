// Llama and its descendants. Keys and their defaults come from the classes' configurations in Hugging Face's
// transformers 4 and 5 (src/transformers/models/FAMILY/configuration_FAMILY.py), names from the classes' modules.
#include "models/family_parts.h"

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
}

// Jiang et al. 2023; later models have no window.
void mistral_config(ConfigKeys& k, Model& m) {
  llama_config(k, m);
  k.count({"sliding_window"}, m.window, 0, kMostSequence, 0);
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

void gemma2_config(ConfigKeys& k, Model& m) {
  gemma_config(k, m);
  const auto width = static_cast<double>(m.head_dim);
  double scale = m.query_scale > 0 ? m.query_scale : width;
  k.real({"query_pre_attn_scalar"}, scale, 1e-6, 1e6, 256);
  m.query_scale = scale == width ? 0 : scale;
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

// -- Phi-3 ------------------------------------------------------------------------------------------------------------

void phi3_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false);
  rotation(k, m, 1);
  silu(k, m, "phi3");
  rate(k, "embd_pdrop", m.dropout.embedding);
  rate(k, "resid_pdrop", m.dropout.residual);
  k.count({"sliding_window"}, m.window, 0, kMostSequence, 0);
  window_within(k, m);
  no_biases(k, "attention_bias");
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

// -- the entries ------------------------------------------------------------------------------------------------------

}  // namespace

std::vector<FamilyTraits> llama_families() {
  return {
      {Family::llama, "llama", "Llama", {"llama"}, "LlamaForCausalLM", "Llama", as_llama, llama_config, llama_names()},
      {Family::mistral,
       "mistral",
       "Mistral",
       {"mistral"},
       "MistralForCausalLM",
       "Mistral",
       as_llama,
       mistral_config,
       llama_names()},
      {Family::qwen2,
       "qwen2",
       "Qwen2",
       {"qwen2"},
       "Qwen2ForCausalLM",
       "Qwen2For",
       as_qwen2,
       qwen2_config,
       llama_names()},
      {Family::qwen3,
       "qwen3",
       "Qwen3",
       {"qwen3"},
       "Qwen3ForCausalLM",
       "Qwen3For",
       as_qwen3,
       qwen3_config,
       llama_names()},
      {Family::gemma,
       "gemma",
       "Gemma",
       {"gemma"},
       "GemmaForCausalLM",
       "GemmaFor",
       as_gemma,
       gemma_config,
       llama_names(1)},
      {Family::gemma2,
       "gemma2",
       "Gemma 2",
       {"gemma2"},
       "Gemma2ForCausalLM",
       "Gemma2For",
       as_gemma2,
       gemma2_config,
       gemma2_names()},
      {Family::phi3, "phi3", "Phi-3", {"phi3"}, "Phi3ForCausalLM", "Phi3For", as_llama, phi3_config, phi3_names()},
      {Family::nemotron,
       "nemotron",
       "Nemotron",
       {"nemotron"},
       "NemotronForCausalLM",
       "NemotronFor",
       as_nemotron,
       nemotron_config,
       llama_names(1)},
  };
}

}  // namespace orrery::models

// GPT-J, CodeGen, Phi-1 and 2, GPT-Neo. For sources of keys and names see models/read/families_llama.cpp.
#include <fmt/format.h>

#include "models/read/family_parts.h"

namespace orrery::models {
namespace {

using namespace family_parts;
using Qkv = WeightNames::Qkv;

// -- GPT-J, Phi-1 and 2 -----------------------------------------------------------------------------------------------

// Wang and Komatsuzaki 2021: attention without biases beside an MLP with them, behind one norm.
void as_gptj(Model& m) {
  m.positions = Positions::rope;
  m.parallel = m.shared_norm = true;
  m.attention_bias = m.tied_embeddings = false;
  m.head_bias = true;
}

void gptj_config(ConfigKeys& k, Model& m) {
  k.count({"n_layer", "num_hidden_layers"}, m.layers, 1, kMostLayers);
  k.count({"n_embd", "hidden_size"}, m.hidden, 1, kMostWidth);
  k.count({"n_head", "num_attention_heads"}, m.heads, 1, kMostWidth);
  if (k.reads()) m.kv_heads = m.heads;
  k.count({"n_inner"}, m.ffn_hidden, 1, kMostWidth, 4 * m.hidden);
  k.count({"n_positions", "max_position_embeddings"}, m.max_sequence, 1, kMostSequence);
  rotated_columns(k, m, 64);
  k.real({"layer_norm_epsilon"}, m.norm_epsilon, 0, 1, 1e-5);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, false);
  k.activation({"activation_function"}, m,
               {{"gelu_new", Activation::gelu}, {"gelu", Activation::gelu, Gelu::erf}, {"relu", Activation::relu}},
               "gptj");
  rate(k, "embd_pdrop", m.dropout.embedding);
  rate(k, "attn_pdrop", m.dropout.attention);
  rate(k, "resid_pdrop", m.dropout.residual);
  k.fixed("scale_attn_weights", "true", "scores are divided by the root of a head's width here");
  k.fixed("rotary", "true", "positions rotate here");
  k.unused({"n_ctx", "rope_scaling"});
}

// Nijkamp et al. 2023, "CodeGen", section 2.2: GPT-J's layers.
void codegen_config(ConfigKeys& k, Model& m) {
  gptj_config(k, m);
  constexpr std::int64_t kCores = 4;
  if (k.reads() && m.heads % kCores != 0)
    k.refuse("n_head", fmt::format("{} heads do not divide over the {} cores of CodeGen's files", m.heads, kCores),
             "a multiple of 4");
}

// Li et al. 2023, "Textbooks Are All You Need II": GPT-J's order with biases everywhere.
void as_phi(Model& m) {
  as_gptj(m);
  m.attention_bias = true;
  m.rotary_share = 0.5;
}

/// The keys of the class beside Phi's first weights (configuration_phi.py), which are GPT-J's.
void first_phi_config(ConfigKeys& k, Model& m) {
  gptj_config(k, m);
  rotated_columns(k, m, 32);
  k.count({"n_head_kv"}, m.kv_heads, 1, kMostWidth, m.heads);
  k.differs("its files of weights, under the first class's names, are not read");
}

void phi_config(ConfigKeys& k, Model& m) {
  if (k.reads() && k.given("n_embd")) return first_phi_config(k, m);
  llama_keys(k, m, 1e-5, false, "layer_norm_eps");
  rotation(k, m, 0.5);
  k.activation({"hidden_act"}, m, {{"gelu_new", Activation::gelu}, {"gelu", Activation::gelu, Gelu::erf}}, "phi");
  rate(k, "embd_pdrop", m.dropout.embedding);
  rate(k, "resid_pdrop", m.dropout.residual);
  k.only("qk_layernorm", false, "heads have no LayerNorms of their own here");
}

// -- GPT-Neo ----------------------------------------------------------------------------------------------------------

// Black et al. 2021: GPT-2 whose every second layer sees 256 tokens, whose scores are not scaled, and whose q, k and v
// have no biases.
void as_gpt_neo(Model& m) {
  m.attention_bias = false;
  m.out_bias = true;
  m.query_scale = 1;
  m.window = 256;
  m.window_period = 2;
  m.full_first = true;
}

void gpt_neo_config(ConfigKeys& k, Model& m) {
  k.count({"num_layers", "num_hidden_layers"}, m.layers, 1, kMostLayers);
  k.count({"hidden_size"}, m.hidden, 1, kMostWidth);
  k.count({"num_heads", "num_attention_heads"}, m.heads, 1, kMostWidth);
  if (k.reads()) m.kv_heads = m.heads;
  k.count({"intermediate_size"}, m.ffn_hidden, 1, kMostWidth, 4 * m.hidden);
  positions_up_to(k, m);
  k.real({"layer_norm_epsilon"}, m.norm_epsilon, 0, 1, 1e-5);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, true);
  k.activation({"activation_function"}, m,
               {{"gelu_new", Activation::gelu}, {"gelu", Activation::gelu, Gelu::erf}, {"relu", Activation::relu}},
               "gpt_neo");
  rate(k, "embed_dropout", m.dropout.embedding);
  rate(k, "attention_dropout", m.dropout.attention);
  rate(k, "resid_dropout", m.dropout.residual);
  k.count({"window_size"}, m.window, 1, kMostSequence, 256);
  k.attention_types("attention_types", "attention_layers", m);
  window_within(k, m);
}

}  // namespace

std::vector<FamilyTraits> gptj_families() {
  std::vector<FamilyTraits> all = {
      entry(Family::gptj, "gptj", "GPT-J", "GPTJForCausalLM", "GPTJ", as_gptj, gptj_config,
            {.prefix = "transformer.",
             .layer = "h.",
             .whole = {{"wte", "wte"}, {"ln_f", "ln_f"}},
             .parts = {{"ln_1", "ln_1"},
                       {"attn.q", "attn.q_proj"},
                       {"attn.k", "attn.k_proj"},
                       {"attn.v", "attn.v_proj"},
                       {"attn.proj", "attn.out_proj"},
                       {"mlp.fc", "mlp.fc_in"},
                       {"mlp.proj", "mlp.fc_out"}},
             .heads = {{"head.bias", "lm_head.bias"}},
             .adjacent_pairs = true}),
      entry(Family::codegen, "codegen", "CodeGen", "CodeGenForCausalLM", "CodeGen", as_gptj, codegen_config,
            {.prefix = "transformer.",
             .layer = "h.",
             .whole = {{"wte", "wte"}, {"ln_f", "ln_f"}},
             .parts = {{"ln_1", "ln_1"},
                       {"attn.q", "attn.qkv_proj"},
                       {"attn.k", "attn.qkv_proj"},
                       {"attn.v", "attn.qkv_proj"},
                       {"attn.proj", "attn.out_proj"},
                       {"mlp.fc", "mlp.fc_in"},
                       {"mlp.proj", "mlp.fc_out"}},
             .heads = {{"head.bias", "lm_head.bias"}},
             .qkv = Qkv::by_core,
             .adjacent_pairs = true}),
      entry(Family::gpt_neo, "gpt_neo", "GPT-Neo", "GPTNeoForCausalLM", "GPTNeoFor", as_gpt_neo, gpt_neo_config,
            {.prefix = "transformer.",
             .layer = "h.",
             .whole = {{"wte", "wte"}, {"wpe", "wpe"}, {"ln_f", "ln_f"}},
             .parts = {{"ln_1", "ln_1"},
                       {"ln_2", "ln_2"},
                       {"attn.q", "attn.attention.q_proj"},
                       {"attn.k", "attn.attention.k_proj"},
                       {"attn.v", "attn.attention.v_proj"},
                       {"attn.proj", "attn.attention.out_proj"},
                       {"mlp.fc", "mlp.c_fc"},
                       {"mlp.proj", "mlp.c_proj"}}}),
      entry(Family::phi, "phi", "Phi", "PhiForCausalLM", "PhiFor", as_phi, phi_config,
            {.prefix = "model.",
             .layer = "layers.",
             .whole = {{"wte", "embed_tokens"}, {"ln_f", "final_layernorm"}},
             .parts = {{"ln_1", "input_layernorm"},
                       {"attn.q", "self_attn.q_proj"},
                       {"attn.k", "self_attn.k_proj"},
                       {"attn.v", "self_attn.v_proj"},
                       {"attn.proj", "self_attn.dense"},
                       {"mlp.fc", "mlp.fc1"},
                       {"mlp.proj", "mlp.fc2"}},
             .heads = {{"head.bias", "lm_head.bias"}}}),
  };
  all.back().model_types.push_back("phi-msft");
  return all;
}

}  // namespace orrery::models

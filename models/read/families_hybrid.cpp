// Families with state spaces or gated delta networks, alone or between attention. Keys and their
// defaults come from the classes' configurations in Hugging Face's transformers 4 and 5 (Nemotron-H's from the
// configuration_nemotron_h.py beside its weights), names from the classes' modules.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "models/read/experts_parts.h"

namespace orrery::models {
namespace {

using namespace family_parts;

/// The sizes under each class's own names.
struct StateSpaceKeys {
  const char *heads, *width, *groups, *state, *taps, *chunk, *conv_bias;
};

void state_space_keys(ConfigKeys& k, Model& m, const StateSpaceKeys& keys, std::int64_t chunk) {
  StateSpace& s = m.ssm;
  k.count({keys.heads}, s.heads, 1, kMostWidth);
  k.count({keys.width}, s.width, 1, kMostWidth);
  k.count({keys.groups}, s.groups, 1, kMostWidth);
  k.count({keys.state}, s.state, 1, kMostWidth);
  k.count({keys.taps}, s.taps, 1, kMostWidth, 4);
  k.count({keys.chunk}, s.chunk, 1, kMostSequence, chunk);
  k.flag({keys.conv_bias}, s.conv_bias, true);
  k.unlimited("time_step_limit", "a state space's steps have no bounds here");
  k.unused({"time_step_min", "time_step_max", "time_step_floor", "time_step_rank"});
}

/// The convolution's activation.
void only_silu(ConfigKeys& k, const char* key) {
  std::string name = "silu";
  k.text({key}, name, "silu");
  if (k.reads() && name != "silu" && name != "swish")
    k.refuse(key, "a state space's convolution with another activation than silu is not supported", "silu");
}

/// Numbers of the model's blocks that `holds`.
template <class Holds>
std::vector<std::int64_t> numbers_of(const Model& m, const Holds& holds) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < m.layers; ++i)
    if (holds(m.parts(i))) out.push_back(i);
  return out;
}
/// Bamba's and Granite's names. Their gated norm takes all columns together.
void mamba_keys(ConfigKeys& k, Model& m) {
  state_space_keys(k, m,
                   {"mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv",
                    "mamba_chunk_size", "mamba_conv_bias"},
                   256);
  if (k.reads()) m.ssm.norm_groups = m.ssm.groups > 1 ? 1 : 0;
  k.only("mamba_proj_bias", false, "a state space's products have no biases here");
  k.unused({"mamba_expand", "attn_rotary_emb", "z_loss_coefficient"});
}

/// The classes call the module `mixer`, or `mamba` where attention stands beside it.
WeightNames::Pairs state_space_parts(bool mixer) {
  const auto at = [mixer](const char* one, const char* other) { return mixer ? one : other; };
  WeightNames::Pairs parts;
  for (const char* one : {"ssm.z", "ssm.x", "ssm.b", "ssm.c", "ssm.dt"})
    parts.emplace_back(one, at("mixer.in_proj", "mamba.in_proj"));
  for (const char* one : {"ssm.conv_x", "ssm.conv_b", "ssm.conv_c"})
    parts.emplace_back(one, at("mixer.conv1d", "mamba.conv1d"));
  parts.emplace_back("ssm.dt_bias", at("mixer.dt_bias", "mamba.dt_bias"));
  parts.emplace_back("ssm.a_log", at("mixer.A_log", "mamba.A_log"));
  parts.emplace_back("ssm.d", at("mixer.D", "mamba.D"));
  parts.emplace_back("ssm.norm", at("mixer.norm", "mamba.norm"));
  parts.emplace_back("ssm.proj", at("mixer.out_proj", "mamba.out_proj"));
  return parts;
}

// -- Mamba 2 ----------------------------------------------------------------------------------------------------------

// Dao and Gu 2024: state spaces alone. The class's gated norm takes all columns together, the authors' code each group.
void as_mamba2(Model& m) {
  as_llama(m);
  m.activation = Activation::gelu;
  m.positions = Positions::none;
  m.norm_epsilon = 1e-5;
  m.initial_stddev = 0.1;
  m.pattern = {{Mixer::mamba, Feed::none}};
}

void mamba2_config(ConfigKeys& k, Model& m) {
  k.count({"num_hidden_layers", "n_layer"}, m.layers, 1, kMostLayers);
  k.count({"hidden_size", "d_model"}, m.hidden, 1, kMostWidth);
  state_space_keys(
      k, m, {"num_heads", "head_dim", "n_groups", "state_size", "conv_kernel", "chunk_size", "use_conv_bias"}, 256);
  only_silu(k, "hidden_act");
  if (k.reads()) {
    m.ssm.norm_groups = m.ssm.groups > 1 ? 1 : 0;
    m.heads = m.kv_heads = m.ssm.heads;
    m.head_dim = m.ssm.width;
    m.ffn_hidden = 4 * m.hidden;
    m.pattern = {{Mixer::mamba, Feed::none}};
  }
  k.any_length(m, 2048, "its authors trained with 2,048 tokens (Dao and Gu 2024, section 9)");
  k.real({"layer_norm_epsilon"}, m.norm_epsilon, 0, 1, 1e-5);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, false);
  k.only("use_bias", false, "a state space's products have no biases here");
  k.fixed("rms_norm", "true", "its class has RMSNorms");
  // Heads say its width, and its class gates before the norm, whatever a file says.
  k.unused({"expand", "intermediate_size", "norm_before_gate", "time_step_init_scheme"});
}

WeightNames mamba2_names() {
  return {.prefix = "backbone.", .layer = "layers.", .whole = {{"wte", "embeddings"}, {"ln_f", "norm_f"}}, .parts = [] {
            WeightNames::Pairs parts = state_space_parts(true);
            parts.emplace_back("ln_1", "norm");
            return parts;
          }()};
}

// -- Nemotron-H -------------------------------------------------------------------------------------------------------

// NVIDIA 2025, "Nemotron-H", section 2.1: state spaces, MLPs and some attention, each with a norm and a residual of its
// own; no positions. Later models have experts in place of MLPs, routed as DeepSeek-V3's, which from Nemotron 3 Super
// on work on narrower copies of the tokens.
void as_nemotron_h(Model& m) {
  as_llama(m);
  m.activation = Activation::squared_relu;
  m.positions = Positions::none;
  m.norm_epsilon = 1e-5;
  m.experts.scores = Scores::sigmoid;
  m.experts.normalised = true;
  m.experts.balance_bias = true;
  m.experts.bias_rate = 0.001;  // DeepSeek-V3's
}

void nemotron_h_experts(ConfigKeys& k, Model& m) {
  Experts& e = m.experts;
  k.count({"n_routed_experts"}, e.count, 1, kMostExperts);
  k.count({"num_experts_per_tok"}, e.chosen, 1, kMostExperts);
  k.count({"moe_intermediate_size"}, e.hidden, 1, kMostWidth);
  k.count({"moe_shared_expert_intermediate_size"}, e.shared, 0, kMostWidth, 0);
  k.count({"n_group"}, e.groups, 1, kMostExperts, 1);
  k.count({"topk_group"}, e.groups_chosen, 1, kMostExperts, 1);
  k.flag({"norm_topk_prob"}, e.normalised, true);
  constexpr double kMostScale = 1e6;
  k.real({"routed_scaling_factor"}, e.weight_scale, 0, kMostScale, 1);
  further_left_out(k, "num_nextn_predict_layers", "the module that predicts a token further is left out");
  k.count({"moe_latent_size"}, e.narrow, 1, kMostWidth, 0);
  k.fixed("n_shared_experts", "1", "its class has one shared expert");
}

void nemotron_h_config(ConfigKeys& k, Model& m) {
  k.count({"num_hidden_layers"}, m.layers, 0, kMostLayers, 0);  // if missing, those of the pattern
  k.count({"hidden_size"}, m.hidden, 1, kMostWidth);
  k.count({"num_attention_heads"}, m.heads, 1, kMostWidth);
  k.count({"num_key_value_heads"}, m.kv_heads, 1, kMostWidth, m.heads);
  k.count({"head_dim", "attention_head_dim"}, m.head_dim, 1, kMostWidth);
  k.count({"intermediate_size"}, m.ffn_hidden, 1, kMostWidth);
  positions_up_to(k, m);
  k.real({"layer_norm_epsilon", "norm_eps", "rms_norm_eps"}, m.norm_epsilon, 0, 1, 1e-5);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, false);
  k.activation({"mlp_hidden_act"}, m, {{"relu2", Activation::squared_relu}}, "nemotron_h");
  k.pattern("hybrid_override_pattern", "layers_block_type", Feed::none, m);
  state_space_keys(
      k, m,
      {"mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel", "chunk_size", "use_conv_bias"},
      128);
  only_silu(k, "mamba_hidden_act");
  if (m.expert_layers(m.layers) > 0) nemotron_h_experts(k, m);
  rate(k, "attention_dropout", m.dropout.attention);
  no_biases(k, "attention_bias");
  no_biases(k, "mlp_bias");
  no_biases(k, "use_bias");
  no_biases(k, "mamba_proj_bias");
  k.fixed("hidden_dropout", "0", "nothing is dropped in its layers here");
  k.unused({"expand", "rope_theta", "partial_rotary_factor", "mtp_hybrid_override_pattern", "mtp_layers_block_type",
            "num_query_groups"});  // num_key_value_heads, again
}

WeightNames nemotron_h_names() {
  WeightNames names = mamba2_names();
  for (const auto& pair : WeightNames::Pairs{{"ln_2", "norm"},
                                             {"attn.q", "mixer.q_proj"},
                                             {"attn.k", "mixer.k_proj"},
                                             {"attn.v", "mixer.v_proj"},
                                             {"attn.proj", "mixer.o_proj"},
                                             {"mlp.fc", "mixer.up_proj"},
                                             {"mlp.proj", "mixer.down_proj"},
                                             {"mlp.router", "mixer.gate"},
                                             {"mlp.router.balance", "mixer.gate.e_score_correction_bias"},
                                             {"mlp.narrow", "mixer.fc1_latent_proj"},
                                             {"mlp.widen", "mixer.fc2_latent_proj"},
                                             {"mlp.shared.fc", "mixer.shared_experts.up_proj"},
                                             {"mlp.shared.proj", "mixer.shared_experts.down_proj"}})
    names.parts.push_back(pair);
  names.experts = "mixer.experts";
  names.expert_parts = {{"fc", "up_proj"}, {"proj", "down_proj"}};
  return names;
}

// -- Bamba ------------------------------------------------------------------------------------------------------------

// IBM, Princeton, CMU and UIUC 2024: Mamba-2's mixer or attention, of which half of a head rotates, then a gated MLP.
void as_bamba(Model& m) {
  as_llama(m);
  m.rotary_share = 0.5;
}

void bamba_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false, "rms_norm_eps", 8);
  rotation(k, m, 0.5);
  silu(k, m, "bamba");
  // Blocks that attend, by number; the others are state spaces.
  constexpr const char* kAttending = "attn_layer_indices";
  std::vector<std::int64_t> layers = numbers_of(m, [](const BlockParts& one) { return attends(one); });
  k.layer_numbers(kAttending, layers, m);
  std::vector<BlockParts> blocks(static_cast<std::size_t>(m.layers), BlockParts{Mixer::mamba, Feed::mlp});
  for (const std::int64_t one : layers) blocks[static_cast<std::size_t>(one)].mixer = Mixer::attention;
  k.blocks(kAttending, std::move(blocks), m);
  mamba_keys(k, m);
  no_biases(k, "attention_bias");
  no_biases(k, "mlp_bias");
}

WeightNames bamba_names() {
  WeightNames names = llama_names();
  names.whole[1] = {"ln_f", "final_layernorm"};
  for (auto& [logical, file] : names.parts) {
    const std::string one = logical;
    if (one == "ln_2") file = "pre_ff_layernorm";
    if (one == "mlp.gate") file = "feed_forward.gate_proj";
    if (one == "mlp.up") file = "feed_forward.up_proj";
    if (one == "mlp.proj") file = "feed_forward.down_proj";
  }
  for (auto& pair : state_space_parts(false)) names.parts.push_back(pair);
  return names;
}

// -- Granite 4 --------------------------------------------------------------------------------------------------------

// IBM 2025: as Bamba, without positions or with all columns rotating. The gated MLP is the class's shared one, alone or
// beside experts, which then are in every block.
void as_granite_hybrid(Model& m) {
  as_llama(m);
  m.tied_embeddings = true;
  m.positions = Positions::none;
}

void granite_hybrid_config(ConfigKeys& k, Model& m) {
  sizes(k, m);
  k.count({"num_key_value_heads"}, m.kv_heads, 1, kMostWidth, m.heads);
  Experts& e = m.experts;
  k.count({"num_local_experts"}, e.count, 0, kMostExperts, 8);
  std::int64_t shared = e.any() ? e.shared : m.ffn_hidden;
  k.count({"shared_intermediate_size"}, shared, 1, kMostWidth);
  if (k.reads()) m.ffn_hidden = shared;
  if (e.any()) {
    k.count({"num_experts_per_tok"}, e.chosen, 1, kMostExperts, 2);
    k.count({"intermediate_size"}, e.hidden, 1, kMostWidth);
    auxiliary_loss(k, m, 0.001);
    if (k.reads()) e.shared = shared, e.normalised = true;
  } else {
    k.unused({"num_experts_per_tok", "intermediate_size", "output_router_logits", "router_aux_loss_coef"});
  }
  k.fixed("normalization_function", "rmsnorm", "norms are RMSNorms in its class");
  positions_up_to(k, m);
  k.real({"rms_norm_eps"}, m.norm_epsilon, 0, 1, 1e-6);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, true);
  silu(k, m, "granitemoehybrid");
  std::string positions = m.positions == Positions::rope ? "rope" : "nope";
  k.text({"position_embedding_type"}, positions, "nope");
  if (k.reads()) m.positions = positions == "rope" ? Positions::rope : Positions::none;
  if (m.positions == Positions::rope)
    rotation(k, m, 0);
  else
    k.unused({"rope_theta", "rope_scaling", "rope_parameters"});
  k.pattern(nullptr, "layer_types", e.any() ? Feed::experts : Feed::mlp, m);
  mamba_keys(k, m);
  granite_scales(k, m);
  no_biases(k, "attention_bias");
}

WeightNames granite_hybrid_names() {
  WeightNames names = llama_names();
  for (auto& [logical, file] : names.parts) {
    const std::string one = logical;
    if (one == "mlp.gate" || one == "mlp.up") file = "shared_mlp.input_linear";
    if (one == "mlp.proj") file = "shared_mlp.output_linear";
  }
  add_granite_experts(names);
  for (auto& pair : state_space_parts(false)) names.parts.push_back(pair);
  return names;
}

// -- Qwen3-Next -------------------------------------------------------------------------------------------------------

// Qwen Team 2025: gated delta networks, or attention with a gate, of which a quarter of a head rotates; norms' weights
// are stored less one; then experts, one of which, with a gate, every token takes.
void as_qwen3_next(Model& m) {
  as_llama(m);
  m.norm_epsilon = 1e-6;
  m.qk_norm = true;
  m.attention_gate = true;
  m.rotary_share = 0.25;
  m.experts.normalised = true;
  m.experts.shared_gate = true;
}

void delta_keys(ConfigKeys& k, Model& m) {
  StateSpace& s = m.ssm;
  k.count({"linear_num_value_heads"}, s.heads, 1, kMostWidth, 32);
  k.count({"linear_value_head_dim"}, s.width, 1, kMostWidth, 128);
  k.count({"linear_num_key_heads"}, s.groups, 1, kMostWidth, 16);
  k.count({"linear_key_head_dim"}, s.state, 1, kMostWidth, 128);
  k.count({"linear_conv_kernel_dim"}, s.taps, 1, kMostWidth, 4);
  constexpr std::int64_t kChunk = 64;  // of the class's own recurrence
  if (k.reads()) s.chunk = kChunk, s.conv_bias = false;
}

/// Gated delta networks, but attention in every `full_attention_interval`-th block or where `layer_types` says so; then
/// experts, if the model has any, in every `decoder_sparse_step`-th but those of `mlp_only_layers`; elsewhere an MLP.
void delta_blocks(ConfigKeys& k, Model& m) {
  std::int64_t interval = 4, step = 1;
  if (k.reads()) k.count({"full_attention_interval"}, interval, 1, kMostLayers, 4);
  std::vector<std::size_t> attend = attending(m);
  k.layer_words("layer_types", {"linear_attention", "full_attention"}, attend);
  k.count({"decoder_sparse_step"}, step, 1, kMostLayers, 1);
  std::vector<std::int64_t> dense = numbers_of(m, [](const BlockParts& one) { return one.feed == Feed::mlp; });
  k.layer_numbers("mlp_only_layers", dense, m);
  std::vector<BlockParts> blocks(attend.empty() ? static_cast<std::size_t>(m.layers) : attend.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto number = static_cast<std::int64_t>(i) + 1;
    const bool attends = attend.empty() ? number % interval == 0 : attend[i] == 1;
    blocks[i] = {attends ? Mixer::attention : Mixer::delta,
                 m.experts.any() && number % step == 0 ? Feed::experts : Feed::mlp};
  }
  for (const std::int64_t one : dense)
    if (std::cmp_less(one, blocks.size())) blocks[static_cast<std::size_t>(one)].feed = Feed::mlp;
  k.blocks("layer_types", std::move(blocks), m);
}

/// `experts`, `chosen`: how many the class has where a file says nothing.
void qwen_delta_keys(ConfigKeys& k, Model& m, const char* title, std::int64_t experts, std::int64_t chosen) {
  sizes(k, m);
  k.count({"num_key_value_heads"}, m.kv_heads, 1, kMostWidth, m.heads);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 256);
  k.count({"intermediate_size"}, m.ffn_hidden, 1, kMostWidth, 5632);
  positions_up_to(k, m);
  k.real({"rms_norm_eps"}, m.norm_epsilon, 0, 1, 1e-6);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, false);
  rate(k, "attention_dropout", m.dropout.attention);
  rotation(k, m, 0.25);
  silu(k, m, title);
  no_biases(k, "attention_bias");
  delta_keys(k, m);
  Experts& e = m.experts;
  k.count({"num_experts"}, e.count, 0, kMostExperts, experts);
  if (e.any()) {
    k.count({"num_experts_per_tok"}, e.chosen, 1, kMostExperts, chosen);
    k.count({"moe_intermediate_size"}, e.hidden, 1, kMostWidth, 512);
    k.count({"shared_expert_intermediate_size"}, e.shared, 1, kMostWidth, 512);
    k.flag({"norm_topk_prob"}, e.normalised, true);
    auxiliary_loss(k, m, 0.001);
  }
  delta_blocks(k, m);
}

void qwen3_next_config(ConfigKeys& k, Model& m) {
  qwen_delta_keys(k, m, "qwen3_next", 512, 10);
}

// Qwen Team 2026, "Qwen3.5": its text models are the same layers, with MLPs or with experts.
void qwen3_5_keys(ConfigKeys& k, Model& m, const char* title, std::int64_t experts) {
  qwen_delta_keys(k, m, title, experts, 8);
  if (!k.reads()) return;
  k.only("attn_output_gate", true, "the class always gates attention's output");
  k.fixed("output_gate_type", "swish", "gates of delta networks are silu in its class");
  k.unused({"mtp_use_dedicated_embeddings"});
  further_left_out(k, "mtp_num_hidden_layers", "the module that predicts a token further is left out");
}
void qwen3_5_config(ConfigKeys& k, Model& m) {
  qwen3_5_keys(k, m, "qwen3_5", 0);
  if (k.reads() && m.experts.any()) k.refuse("num_experts", "this class has no experts", "model_type qwen3_5_moe_text");
}
void qwen3_5_moe_config(ConfigKeys& k, Model& m) {
  qwen3_5_keys(k, m, "qwen3_5_moe", 256);
}

WeightNames qwen3_next_names() {
  WeightNames names = llama_names(1);
  for (const auto& pair : WeightNames::Pairs{{"attn.gate", "self_attn.q_proj"},
                                             {"delta.z", "linear_attn.in_proj_qkvz"},
                                             {"delta.v", "linear_attn.in_proj_qkvz"},
                                             {"delta.k", "linear_attn.in_proj_qkvz"},
                                             {"delta.q", "linear_attn.in_proj_qkvz"},
                                             {"delta.a", "linear_attn.in_proj_ba"},
                                             {"delta.b", "linear_attn.in_proj_ba"},
                                             {"delta.conv_v", "linear_attn.conv1d"},
                                             {"delta.conv_k", "linear_attn.conv1d"},
                                             {"delta.conv_q", "linear_attn.conv1d"},
                                             {"delta.dt_bias", "linear_attn.dt_bias"},
                                             {"delta.a_log", "linear_attn.A_log"},
                                             {"delta.norm", "linear_attn.norm"},
                                             {"delta.proj", "linear_attn.out_proj"},
                                             {"mlp.router", "mlp.gate"},
                                             {"mlp.shared.gate", "mlp.shared_expert.gate_proj"},
                                             {"mlp.shared.up", "mlp.shared_expert.up_proj"},
                                             {"mlp.shared.proj", "mlp.shared_expert.down_proj"},
                                             {"mlp.shared_gate", "mlp.shared_expert_gate"}})
    names.parts.push_back(pair);
  names.experts = "mlp.experts";
  names.expert_parts = kProjections;
  return names;
}

// In transformers 5, modeling_qwen3_5.py and modeling_qwen3_5_moe.py, whose experts are rows of one tensor.
WeightNames qwen3_5_names() {
  WeightNames names = qwen3_next_names();
  for (auto& [logical, file] : names.parts) {
    const std::string one = logical;
    if (one == "delta.q" || one == "delta.k" || one == "delta.v") file = "linear_attn.in_proj_qkv";
    if (one == "delta.z") file = "linear_attn.in_proj_z";
    if (one == "delta.a") file = "linear_attn.in_proj_a";
    if (one == "delta.b") file = "linear_attn.in_proj_b";
  }
  names.deltas_apart = true;
  names.expert_parts = kStacked;
  names.stacked_by_rows = true;
  return names;
}

// -- Falcon-H1 --------------------------------------------------------------------------------------------------------

// Technology Innovation Institute 2025, "Falcon-H1", section 2: in each block attention and Mamba-2's mixer read one
// norm and are summed, before a gated MLP; fixed multipliers stand at most products.
void as_falcon_h1(Model& m) {
  as_llama(m);
  m.norm_epsilon = 1e-5;
  m.pattern = {{Mixer::both, Feed::mlp}};
}

/// Multipliers of attention's input and of its keys are a factor of scores and of values. A file is written with those
/// of the inputs 1.
void falcon_h1_scales(ConfigKeys& k, Model& m) {
  StateSpace& s = m.ssm;
  double into = 1, key = m.score_factor, out = m.value_scale, into_state = 1;
  k.real({"attention_in_multiplier"}, into, kLeastScale, kMostCap, 1);
  k.real({"key_multiplier"}, key, kLeastScale, kMostCap, 1);
  k.real({"attention_out_multiplier"}, out, kLeastScale, kMostCap, 1);
  k.real({"ssm_in_multiplier"}, into_state, kLeastScale, kMostCap, 1);
  k.real({"ssm_out_multiplier"}, s.out_scale, kLeastScale, kMostCap, 1);
  std::vector<double> of_mlp = {m.gate_scale, m.mlp_scale}, of_state(s.scales.begin(), s.scales.end());
  k.reals("mlp_multipliers", of_mlp, kMostCap);
  k.reals("ssm_multipliers", of_state, kMostCap);
  k.real({"embedding_multiplier"}, m.embedding_scale, kLeastScale, kMostCap, 1);
  k.real({"lm_head_multiplier"}, m.logit_scale, kLeastScale, kMostCap, 1);
  if (!k.reads()) return;
  m.score_factor = key * into * into;
  m.value_scale = out * into;
  m.gate_scale = of_mlp[0], m.mlp_scale = of_mlp[1];
  for (std::size_t i = 0; i < s.scales.size(); ++i) s.scales[i] = into_state * of_state[i];
  const auto within = [&](const char* name, double least, std::initializer_list<double> products) {
    for (const double one : products)
      if (one < least || one > kMostCap)
        k.refuse(name, fmt::format("the multipliers come to {}", one), fmt::format("{} to {}", least, kMostCap));
  };
  within("key_multiplier", kLeastScale, {m.score_factor});
  within("attention_out_multiplier", kLeastScale, {m.value_scale});
  within("mlp_multipliers", kLeastScale, {m.gate_scale, m.mlp_scale});
  for (const double one : s.scales) within("ssm_multipliers", -kMostCap, {one});
}

void falcon_h1_config(ConfigKeys& k, Model& m) {
  StateSpace& s = m.ssm;
  llama_keys(k, m, 1e-5, false, "rms_norm_eps", 8);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);
  rotation(k, m, 0);
  silu(k, m, "falcon_h1");
  std::int64_t inner = s.inner();
  k.count({"mamba_n_heads"}, s.heads, 1, kMostWidth, 128);
  std::string width = "auto";
  k.text({"mamba_d_head"}, width, "auto");
  if (k.reads() && !k.given("mamba_d_ssm")) {
    // Null is not missing: the class then widens the stream.
    constexpr double kUsual = 1024;
    double missing = kUsual;
    std::int64_t expand = 2;
    k.real_or_none("mamba_d_ssm", missing, kMostWidth, kUsual);
    k.count({"mamba_expand"}, expand, 1, kMostWidth, 2);
    inner = missing > 0 ? static_cast<std::int64_t>(missing) : expand * m.hidden;
  } else {
    k.count({"mamba_d_ssm"}, inner, 1, kMostWidth);
  }
  if (k.reads()) {
    s.width = inner / std::max<std::int64_t>(1, s.heads);
    if (s.width * s.heads != inner || (width != "auto" && width != fmt::format("{}", s.width)))
      k.refuse("mamba_d_head", "heads of the state space do not fill mamba_d_ssm",
               "auto, or mamba_d_ssm / mamba_n_heads");
  }
  k.count({"mamba_n_groups"}, s.groups, 1, kMostWidth, 1);
  k.count({"mamba_d_state"}, s.state, 1, kMostWidth, 256);
  k.count({"mamba_d_conv"}, s.taps, 1, kMostWidth, 4);
  k.count({"mamba_chunk_size"}, s.chunk, 1, kMostSequence, 256);
  k.flag({"mamba_conv_bias"}, s.conv_bias, true);
  k.unlimited("time_step_limit", "a state space's steps have no bounds here");
  k.flag({"mamba_rms_norm"}, s.normed, false);
  bool gates_after = false;
  k.flag({"mamba_norm_before_gate"}, gates_after, true);
  if (s.normed && gates_after)
    k.refuse("mamba_norm_before_gate", "a state space's norm stands behind its gate here", "false");
  for (const char* key : {"attention_bias", "mlp_bias", "projectors_bias", "mamba_proj_bias"}) no_biases(k, key);
  k.fixed("mamba_use_mlp", "true", "its class has an MLP in every layer");
  k.unused({"mamba_expand", "time_step_min", "time_step_max", "time_step_floor"});
  if (k.given("attn_layer_indices")) k.refuse("attn_layer_indices", "its class has attention in every layer", "null");
  falcon_h1_scales(k, m);
}

}  // namespace

std::vector<FamilyTraits> hybrid_families() {
  std::vector<FamilyTraits> all = {
      entry(Family::nemotron_h, "nemotron_h", "Nemotron-H", "NemotronHForCausalLM", "NemotronH", as_nemotron_h,
            nemotron_h_config, nemotron_h_names()),
      entry(Family::mamba2, "mamba2", "Mamba-2", "Mamba2ForCausalLM", "Mamba2", as_mamba2, mamba2_config,
            mamba2_names()),
      entry(Family::bamba, "bamba", "Bamba", "BambaForCausalLM", "Bamba", as_bamba, bamba_config, bamba_names()),
      entry(Family::granite_hybrid, "granitemoehybrid", "Granite 4", "GraniteMoeHybridForCausalLM", "GraniteMoeHybrid",
            as_granite_hybrid, granite_hybrid_config, granite_hybrid_names()),
      entry(Family::qwen3_next, "qwen3_next", "Qwen3-Next", "Qwen3NextForCausalLM", "Qwen3Next", as_qwen3_next,
            qwen3_next_config, qwen3_next_names()),
      entry(Family::qwen3_5, "qwen3_5_text", "Qwen3.5", "Qwen3_5ForCausalLM", "Qwen3_5For", as_qwen3_next,
            qwen3_5_config, qwen3_5_names()),
      entry(Family::qwen3_5_moe, "qwen3_5_moe_text", "Qwen3.5 of experts", "Qwen3_5MoeForCausalLM", "Qwen3_5Moe",
            as_qwen3_next, qwen3_5_moe_config, qwen3_5_names()),
      entry(Family::falcon_h1, "falcon_h1", "Falcon-H1", "FalconH1ForCausalLM", "FalconH1", as_falcon_h1,
            falcon_h1_config, bamba_names()),
  };
  for (FamilyTraits& one : all) {
    if (one.family == Family::granite_hybrid || one.family == Family::qwen3_5_moe) one.names = stack_experts;
    if (one.family == Family::qwen3_5) one.name = "qwen3_5";
    if (one.family == Family::qwen3_5_moe) one.name = "qwen3_5_moe";
  }
  return all;
}

}  // namespace orrery::models

// Families whose layers are other mixers than state spaces with heads and gated delta networks, alone or between
// attention: LFM2, MiniMax-01, Jamba, Mamba. Keys and their defaults come from the classes' configurations in Hugging
// Face's transformers 4 and 5, and from the files beside the weights of MiniMax-Text-01 and MiniMax-M1; names from the
// classes' modules.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "models/read/experts_parts.h"

namespace orrery::models {
namespace {

using namespace family_parts;

// -- LFM2 -------------------------------------------------------------------------------------------------------------

// Liquid AI 2025, "LFM2 Technical Report", section 2: gated short convolutions between grouped-query attention with
// norms of heads, each followed by a gated MLP, or later by experts that sigmoids choose with a balancing bias.
void as_lfm2(Model& m) {
  as_llama(m);
  m.tied_embeddings = true;
  m.norm_epsilon = 1e-5;
  m.rope_theta = 1e6;
  m.qk_norm = true;
}
void as_lfm2_moe(Model& m) {
  as_lfm2(m);
  m.experts.scores = Scores::sigmoid;
  m.experts.normalised = true;
  m.experts.balance_bias = true;
}

void lfm2_keys(ConfigKeys& k, Model& m) {
  sizes(k, m);
  k.count({"num_key_value_heads"}, m.kv_heads, 1, kMostWidth, 8);
  k.count({"max_position_embeddings"}, m.max_sequence, 1, kMostSequence, 128000);
  k.real({"norm_eps", "block_norm_eps"}, m.norm_epsilon, 0, 1, 1e-5);
  // Where a file has both, the class takes its first files' names.
  k.flag({k.given("tie_embedding") ? "tie_embedding" : "tie_word_embeddings"}, m.tied_embeddings, true);
  k.real({k.given("theta") ? "theta" : "rope_theta", "rope_parameters.rope_theta",
          "rope_parameters.full_attention.rope_theta"},
         m.rope_theta, 1, 1e12, 1e6);
  k.rope_scaling(m);
  k.count({"conv_L_cache"}, m.conv_taps, 1, kMostWidth, 3);
  no_biases(k, "conv_bias");
  k.fixed("block_use_swiglu", "true", "its class has gated MLPs");
  k.unused({"block_dim", "conv_dim", "conv_dim_out", "block_mlp_init_scale", "block_out_init_scale",
            "block_use_xavier_init"});
}

/// Short convolutions, but attention where `layer_types` or `full_attn_idxs` say so, else in all; then experts, if the
/// model has any, in all but the first `dense`, and elsewhere an MLP. Without short convolutions nothing has taps.
void lfm2_blocks(ConfigKeys& k, Model& m, std::int64_t dense) {
  std::vector<std::size_t> attend = attending(m);
  k.layer_words("layer_types", {"conv", "full_attention"}, attend);
  if (std::vector<std::int64_t> listed; k.reads() && attend.empty()) {
    attend.assign(static_cast<std::size_t>(m.layers), k.layer_numbers("full_attn_idxs", listed, m) ? 0 : 1);
    for (const std::int64_t one : listed) attend[static_cast<std::size_t>(one)] = 1;
  }
  std::vector<BlockParts> blocks(attend.size());
  for (std::size_t i = 0; i < blocks.size(); ++i)
    blocks[i] = {attend[i] == 1 ? Mixer::attention : Mixer::conv,
                 m.experts.any() && !std::cmp_less(i, dense) ? Feed::experts : Feed::mlp};
  k.blocks("layer_types", std::move(blocks), m);
  if (k.reads() && m.blocks_with(m.layers, [](const BlockParts& one) { return one.mixer == Mixer::conv; }) == 0)
    m.conv_taps = 0;
}

/// The class's gated MLP is two thirds as wide as the file says, times a factor, rounded up.
void lfm2_config(ConfigKeys& k, Model& m) {
  lfm2_keys(k, m);
  bool adjusts = false;
  k.flag({"block_auto_adjust_ff_dim"}, adjusts, true);
  if (k.reads() && k.given("block_ff_dim"))
    k.count({"block_ff_dim"}, m.ffn_hidden, 1, kMostWidth);
  else
    k.count({"intermediate_size"}, m.ffn_hidden, 1, kMostWidth);
  if (adjusts) {
    double factor = 1;
    std::int64_t multiple = 256;
    k.real_or_none("block_ffn_dim_multiplier", factor, kMostCoefficient, 1);
    k.count({"block_multiple_of"}, multiple, 1, kMostWidth, multiple);
    m.ffn_hidden = 2 * m.ffn_hidden / 3;
    if (factor > 0) {
      m.ffn_hidden = static_cast<std::int64_t>(factor * static_cast<double>(m.ffn_hidden));
      m.ffn_hidden = (m.ffn_hidden + multiple - 1) / multiple * multiple;
    }
    if (m.ffn_hidden < 1 || m.ffn_hidden > kMostWidth)
      k.refuse(k.given("block_ff_dim") ? "block_ff_dim" : "intermediate_size",
               fmt::format("what the class makes of it are {} columns", m.ffn_hidden),
               fmt::format("what leaves 1 to {}, or block_auto_adjust_ff_dim: false", kMostWidth));
  }
  lfm2_blocks(k, m, 0);
}

void lfm2_moe_config(ConfigKeys& k, Model& m) {
  Experts& e = m.experts;
  lfm2_keys(k, m);
  k.count({"intermediate_size"}, m.ffn_hidden, 1, kMostWidth, 7168);
  experts_keys(k, m, "num_experts");
  k.count({"moe_intermediate_size"}, e.hidden, 1, kMostWidth, 1792);
  k.flag({"use_expert_bias"}, e.balance_bias, true);
  k.flag({"norm_topk_prob"}, e.normalised, true);
  k.real({"routed_scaling_factor"}, e.weight_scale, 0, kMostCoefficient, 1);
  std::int64_t dense = 0;
  while (!k.reads() && dense < m.layers && m.parts(dense).feed == Feed::mlp) ++dense;
  k.count({"num_dense_layers"}, dense, 0, kMostLayers, 2);
  lfm2_blocks(k, m, dense);
}

WeightNames lfm2_names() {
  WeightNames names = llama_names();
  names.whole = {{"wte", "embed_tokens"}, {"ln_f", "embedding_norm"}};
  names.parts = {{"ln_1", "operator_norm"},
                 {"ln_2", "ffn_norm"},
                 {"attn.q", "self_attn.q_proj"},
                 {"attn.k", "self_attn.k_proj"},
                 {"attn.v", "self_attn.v_proj"},
                 {"attn.q_norm", "self_attn.q_layernorm"},
                 {"attn.k_norm", "self_attn.k_layernorm"},
                 {"attn.proj", "self_attn.out_proj"},
                 {"conv.b", "conv.in_proj"},
                 {"conv.c", "conv.in_proj"},
                 {"conv.x", "conv.in_proj"},
                 {"conv.taps", "conv.conv"},
                 {"conv.proj", "conv.out_proj"},
                 {"mlp.gate", "feed_forward.w1"},
                 {"mlp.up", "feed_forward.w3"},
                 {"mlp.proj", "feed_forward.w2"},
                 {"mlp.router", "feed_forward.gate"},
                 {"mlp.router.balance", "feed_forward.expert_bias"}};
  names.experts = "feed_forward.experts";
  names.expert_parts = {{"gate", "w1"}, {"up", "w3"}, {"proj", "w2"}};
  return names;
}

// -- MiniMax-01 -------------------------------------------------------------------------------------------------------

// MiniMax 2025, "MiniMax-01", section 2: seven layers of lightning attention, then one of softmax attention; experts in
// every layer; what norms make is added to, times a factor. MiniMax-M1 has the same layers.
void as_minimax(Model& m) {
  as_llama(m);
  m.norm_epsilon = 1e-5;
  m.rope_theta = 1e6;
  m.normed_skip = true;
  m.experts.normalised = true;
}

/// Which layers attend: by words in the class's form, by 1 and 0 in the first files'; where a file says nothing, every
/// second one from the first on.
void minimax_blocks(ConfigKeys& k, Model& m) {
  std::vector<std::size_t> attend = attending(m);
  const char* key = "layer_types";
  k.layer_words(key, {"linear_attention", "full_attention"}, attend);
  if (std::vector<std::size_t> numbered; k.reads()) {
    constexpr const char* kNumbered = "attn_type_list";
    k.layer_words(kNumbered, {"0", "1"}, numbered);
    if (!attend.empty() && !numbered.empty() && attend != numbered)
      k.refuse(kNumbered, "`layer_types` says otherwise", "one of the two, or the same in both");
    if (attend.empty() && !numbered.empty()) key = kNumbered, attend = std::move(numbered);
  }
  if (k.reads() && attend.empty())
    for (std::int64_t i = 0; i < m.layers; ++i) attend.push_back((i + 1) % 2 == 0 ? 0 : 1);
  std::vector<BlockParts> blocks;
  for (const std::size_t one : attend)
    blocks.push_back({one == 1 ? Mixer::attention : Mixer::lightning, Feed::experts});
  k.blocks(key, std::move(blocks), m);
}

/// Factors of what is added to (alpha), and of what is added (beta).
void minimax_scales(ConfigKeys& k, Model& m) {
  constexpr double kLeast = kLeastScale, kMost = kMostCap;
  const auto pair = [&](const char* alpha, const char* first_alpha, double& skip, const char* beta,
                        const char* first_beta, double& branch) {
    k.real({alpha, first_alpha}, skip, kLeast, kMost, 1);
    k.real({beta, first_beta}, branch, kLeast, kMost, 1);
  };
  pair("full_attn_alpha_factor", "layernorm_full_attention_alpha", m.skip_scales[0], "full_attn_beta_factor",
       "layernorm_full_attention_beta", m.value_scale);
  pair("linear_attn_alpha_factor", "layernorm_linear_attention_alpha", m.skip_scales[1], "linear_attn_beta_factor",
       "layernorm_linear_attention_beta", m.ssm.out_scale);
  pair("mlp_alpha_factor", "layernorm_mlp_alpha", m.skip_scales[2], "mlp_beta_factor", "layernorm_mlp_beta",
       m.experts.weight_scale);
}

constexpr const char* kTurnsAll = "its class turns all columns of a head, here the first of them";

const char* minimax_computes_else(const Model& m) {
  return m.rotary_share < 1 ? kTurnsAll : nullptr;
}

void minimax_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false, "rms_norm_eps", 8);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);
  k.real({"rope_theta", "rope_parameters.rope_theta"}, m.rope_theta, 1, 1e12, 1e6);
  const std::int64_t width = m.head_dim > 0 ? m.head_dim : m.hidden / std::max<std::int64_t>(1, m.heads);
  if (k.reads() && !k.given("rotary_dim"))
    k.real({"partial_rotary_factor", "rope_parameters.partial_rotary_factor"}, m.rotary_share, 0, 1, 1);
  else
    rotated_columns(k, m, width);
  // The first files' class, whose name the file says, turns `rotary_dim` columns; Hugging Face's has no such key.
  std::string type = "minimax";
  if (k.reads()) k.text({"model_type"}, type, "minimax");
  const bool first_class = type != "minimax";
  if (k.reads() && !first_class && m.rotary_share < 1) k.differs(kTurnsAll);
  k.rope_scaling(m);
  silu(k, m, "minimax");
  experts_keys(k, m, "num_local_experts");
  experts_as_wide_as_mlps(k, m);
  auxiliary_loss(k, m, 0.001);
  k.only("postnorm", true, "what norms make is added to in its class");
  if (k.reads() && first_class && !k.given("postnorm"))
    k.refuse("postnorm", "without `postnorm` this class adds to what has gone into norms, which no model here has",
             "postnorm: true");
  jitter_left_out(k);
  std::int64_t window = 0;
  if (k.reads()) k.count({"sliding_window"}, window, 0, kMostSequence, 0);
  if (window > 0) k.refuse("sliding_window", "attention of this class has no window here", "null");
  if (std::int64_t shared = 0; k.reads()) {
    k.count({"shared_intermediate_size"}, shared, 0, kMostWidth, 0);
    if (shared > 0) k.refuse("shared_intermediate_size", "its class has no shared expert", "0");
    k.unused({"shared_moe_mode", "shared_moe_coefficient"});
  }
  minimax_blocks(k, m);
  k.count({"block_size"}, m.ssm.chunk, 1, kMostSequence, 256);
  minimax_scales(k, m);
  if (!k.reads()) return;
  StateSpace& s = m.ssm;
  s.conv_bias = false;
  if (m.reads_in_order())
    s.heads = s.groups = m.heads, s.width = s.state = width;
  else
    s = {};
}

WeightNames minimax_names() {
  WeightNames names =
      with_experts("block_sparse_moe.gate", "block_sparse_moe.experts", {{"gate", "w1"}, {"up", "w3"}, {"proj", "w2"}});
  for (const auto& pair : WeightNames::Pairs{{"lightning.q", "self_attn.qkv_proj"},
                                             {"lightning.k", "self_attn.qkv_proj"},
                                             {"lightning.v", "self_attn.qkv_proj"},
                                             {"lightning.gate", "self_attn.output_gate"},
                                             {"lightning.norm", "self_attn.norm"},
                                             {"lightning.proj", "self_attn.out_proj"}})
    names.parts.push_back(pair);
  return names;
}

// -- Mamba's first form -----------------------------------------------------------------------------------------------

/// What a class calls the sizes of its state spaces.
struct SelectiveKeys {
  const char *expand, *state, *taps, *rank, *conv_bias, *bias;
};
/// Its columns are a multiple of the model's.
void selective_keys(ConfigKeys& k, Model& m, const SelectiveKeys& name) {
  StateSpace& s = m.ssm;
  std::int64_t expand = s.any() ? s.inner() / m.hidden : 2;
  k.count({name.expand}, expand, 1, kMostWidth, 2);
  k.count({name.state}, s.state, 1, kMostWidth, 16);
  k.count({name.taps}, s.taps, 1, kMostWidth, 4);
  k.flag({name.conv_bias}, s.conv_bias, true);
  no_biases(k, name.bias);
  std::string rank = k.reads() ? "auto" : "";
  if (k.reads() && k.given(name.rank)) k.text({name.rank}, rank, "auto");
  constexpr std::int64_t kShare = 16;  // of the width, rounded up
  const std::int64_t usual = (m.hidden + kShare - 1) / kShare;
  if (rank != "auto") k.count({name.rank}, s.rank, 1, kMostWidth, usual);
  if (!k.reads()) return;
  if (rank == "auto") s.rank = usual;
  k.unused({"time_step_min", "time_step_max", "time_step_floor", "time_step_scale", "time_step_init_scheme"});
  s.heads = expand * m.hidden, s.width = s.groups = 1;
}

// Gu and Dao 2023, "Mamba", section 3.4: selective state spaces alone.
void as_mamba(Model& m) {
  as_llama(m);
  m.tied_embeddings = true;
  m.positions = Positions::none;
  m.norm_epsilon = 1e-5;
  m.initial_stddev = 0.1;
  m.pattern = {{Mixer::selective, Feed::none}};
}

void mamba_config(ConfigKeys& k, Model& m) {
  k.count({"num_hidden_layers", "n_layer"}, m.layers, 1, kMostLayers);
  k.count({"hidden_size", "d_model"}, m.hidden, 1, kMostWidth);
  selective_keys(k, m, {"expand", "state_size", "conv_kernel", "time_step_rank", "use_conv_bias", "use_bias"});
  // Where a file says the columns themselves, as Falcon Mamba's does, its class goes by them.
  std::int64_t columns = m.ssm.inner();
  k.count({"intermediate_size"}, columns, 1, kMostWidth, columns);
  if (std::string word = "silu"; k.reads()) {
    k.text({"hidden_act"}, word, "silu");
    if (word != "silu" && word != "swish")
      k.refuse("hidden_act", "what is convolved and the gate go through silu here", "silu");
  }
  k.real({"layer_norm_epsilon"}, m.norm_epsilon, 0, 1, 1e-5);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, true);
  k.any_length(m, 2048, "Mamba's authors trained with 2,048 tokens (Gu and Dao 2023, section 4.2)");
  if (!k.reads()) return;
  k.fixed("rms_norm", "true", "its class has RMSNorms");
  k.unused({"d_inner", "ssm_cfg", "fused_add_norm", "pad_vocab_size_multiple"});
  m.ssm.heads = m.heads = m.kv_heads = columns;
  m.head_dim = 1;
  m.ffn_hidden = 4 * m.hidden;
  m.ssm.part_norms = PartNorms::none;
}

// Zuo et al. 2024, "Falcon Mamba", section 2: norms without weights of the step, B and C.
void falcon_mamba_config(ConfigKeys& k, Model& m) {
  mamba_config(k, m);
  k.real({"mixer_rms_eps"}, m.ssm.part_epsilon, 0, 1, 1e-6);
  if (k.reads()) m.ssm.part_norms = PartNorms::plain;
}

/// The tensors of a state space in files that call it `mixer`, or else `mamba`.
WeightNames::Pairs selective_parts(bool mixer) {
  const auto at = [mixer](const char* one, const char* other) { return mixer ? one : other; };
  return {{"selective.x", at("mixer.in_proj", "mamba.in_proj")},
          {"selective.z", at("mixer.in_proj", "mamba.in_proj")},
          {"selective.conv", at("mixer.conv1d", "mamba.conv1d")},
          {"selective.narrow", at("mixer.x_proj", "mamba.x_proj")},
          {"selective.dt", at("mixer.dt_proj", "mamba.dt_proj")},
          {"selective.a_log", at("mixer.A_log", "mamba.A_log")},
          {"selective.d", at("mixer.D", "mamba.D")},
          {"selective.proj", at("mixer.out_proj", "mamba.out_proj")}};
}

WeightNames mamba_names() {
  WeightNames::Pairs parts = selective_parts(true);
  parts.emplace_back("ln_1", "norm");
  return {.prefix = "backbone.",
          .layer = "layers.",
          .whole = {{"wte", "embeddings"}, {"ln_f", "norm_f"}},
          .parts = std::move(parts)};
}

// -- Jamba ------------------------------------------------------------------------------------------------------------

// AI21 Labs 2024, "Jamba", section 3: Mamba's first form, but attention in one of eight layers; an MLP, but experts in
// every second layer, weighted by a softmax over all; no positions.
void as_jamba(Model& m) {
  as_llama(m);
  m.norm_epsilon = 1e-6;
  m.positions = Positions::none;
}

void jamba_blocks(ConfigKeys& k, Model& m) {
  /// Every `period`-th layer, from `offset` on.
  struct Every {
    std::int64_t period, offset;
  };
  const auto every = [&](const char* period, const char* offset, Every usual, auto&& holds) {
    Every one = usual;
    if (!k.reads()) {
      // The first block that holds and the next one; of all that do not, a period behind the last.
      one = {m.layers + 1, m.layers};
      std::int64_t found = 0;
      for (std::int64_t i = 0; i < m.layers && found < 2; ++i)
        if (holds(m.parts(i))) (++found == 1 ? one.offset : one.period) = found == 1 ? i : i - one.offset;
    }
    k.count({period}, one.period, 1, kMostLayers + 1, usual.period);
    k.count({offset}, one.offset, 0, kMostLayers, usual.offset);
    if (k.reads() && one.offset >= one.period)
      k.refuse(offset, fmt::format("the first layer ({}) lies behind the first period of {}", one.offset, one.period),
               "an offset within the period");
    return one;
  };
  const Every attends = every("attn_layer_period", "attn_layer_offset", {8, 4},
                              [](const BlockParts& one) { return one.mixer == Mixer::attention; });
  const Every expert = every("expert_layer_period", "expert_layer_offset", {2, 1},
                             [](const BlockParts& one) { return one.feed == Feed::experts; });
  std::vector<BlockParts> blocks;
  for (std::int64_t i = 0; i < m.layers; ++i)
    blocks.push_back({i % attends.period == attends.offset ? Mixer::attention : Mixer::selective,
                      m.experts.count > 1 && i % expert.period == expert.offset ? Feed::experts : Feed::mlp});
  k.blocks("attn_layer_period", std::move(blocks), m);
}

void jamba_config(ConfigKeys& k, Model& m) {
  Experts& e = m.experts;
  StateSpace& s = m.ssm;
  llama_keys(k, m, 1e-6, false, "rms_norm_eps", 8);
  silu(k, m, "jamba");
  std::int64_t count = std::max<std::int64_t>(1, e.count), chosen = e.any() ? e.chosen : 1;
  k.count({"num_experts", "num_local_experts"}, count, 1, kMostExperts, 16);
  k.count({"num_experts_per_tok"}, chosen, 1, kMostExperts, 2);
  if (k.reads() && count > 1) e.count = count, e.chosen = chosen;
  if (e.any()) experts_as_wide_as_mlps(k, m);
  auxiliary_loss(k, m, 0.001);
  if (k.reads() && !e.any()) e.aux_coefficient = 0;
  if (std::int64_t window = 0; k.reads()) {
    k.count({"sliding_window"}, window, 0, kMostSequence, 0);
    if (window > 0) k.refuse("sliding_window", "attention of this class has no window here", "null");
  }
  k.fixed("mamba_inner_layernorms", "true", "steps, B and C have norms in its class");
  k.unused({"n_ctx"});  // max_position_embeddings, again
  jamba_blocks(k, m);
  if (k.reads() && m.expert_layers(m.layers) == 0) e = Experts{};
  selective_keys(
      k, m, {"mamba_expand", "mamba_d_state", "mamba_d_conv", "mamba_dt_rank", "mamba_conv_bias", "mamba_proj_bias"});
  if (k.reads() && !m.reads_in_order()) s = {};
}

WeightNames jamba_names() {
  WeightNames names = llama_names();
  names.whole[1] = {"ln_f", "final_layernorm"};
  for (auto& [logical, file] : names.parts) {
    const std::string_view one = logical;
    if (one == "ln_2") file = "pre_ff_layernorm";
    if (one == "mlp.gate") file = "feed_forward.gate_proj";
    if (one == "mlp.up") file = "feed_forward.up_proj";
    if (one == "mlp.proj") file = "feed_forward.down_proj";
  }
  for (const auto& pair : selective_parts(false)) names.parts.push_back(pair);
  for (const auto& pair : WeightNames::Pairs{{"selective.dt_norm", "mamba.dt_layernorm"},
                                             {"selective.b_norm", "mamba.b_layernorm"},
                                             {"selective.c_norm", "mamba.c_layernorm"},
                                             {"mlp.router", "feed_forward.router"}})
    names.parts.push_back(pair);
  names.experts = "feed_forward.experts";
  names.expert_parts = kProjections;
  return names;
}

}  // namespace

std::vector<FamilyTraits> recurrent_families() {
  std::vector<FamilyTraits> all = {
      entry(Family::lfm2, "lfm2", "LFM2", "Lfm2ForCausalLM", "Lfm2", as_lfm2, lfm2_config, lfm2_names()),
      entry(Family::lfm2_moe, "lfm2_moe", "LFM2 of experts", "Lfm2MoeForCausalLM", "Lfm2Moe", as_lfm2_moe,
            lfm2_moe_config, lfm2_names()),
      entry(Family::minimax, "minimax", "MiniMax-01", "MiniMaxForCausalLM", "MiniMaxFor", as_minimax, minimax_config,
            minimax_names()),
      entry(Family::jamba, "jamba", "Jamba", "JambaForCausalLM", "Jamba", as_jamba, jamba_config, jamba_names()),
      entry(Family::mamba, "mamba", "Mamba", "MambaForCausalLM", "MambaFor", as_mamba, mamba_config, mamba_names()),
      entry(Family::falcon_mamba, "falcon_mamba", "Falcon Mamba", "FalconMambaForCausalLM", "FalconMamba", as_mamba,
            falcon_mamba_config, mamba_names()),
  };
  for (FamilyTraits& one : all) {
    if (one.family != Family::minimax) continue;
    one.mixture = true;
    one.computes_else = minimax_computes_else;
    for (const char* type : {"minimax_text_01", "MiniMaxText01", "minimax_m1", "MiniMaxM1"})
      one.model_types.push_back(type);
  }
  return all;
}

}  // namespace orrery::models

// Families whose layers with a window differ from the others in more than the window. Keys and their defaults come from
// the classes' configurations in Hugging Face's transformers 5, names from the published files of weights, which these
// classes read and write.
#include "models/read/experts_parts.h"

namespace orrery::models {
namespace {

using namespace family_parts;

// -- MiMo-V2 ----------------------------------------------------------------------------------------------------------

// Xiaomi 2026, "MiMo-V2-Flash", section 2: layers with a window have sinks, their own number of key/value heads and
// their own rotation; values are narrower than keys and scaled; experts as DeepSeek-V3's, without a shared one.
void as_mimo_v2(Model& m) {
  as_deepseek_v3(m);
  m.norm_epsilon = 1e-5;
  m.rope_theta = 5e6;
  m.rotary_share = 0.334;
  m.window = 128;
  m.window_period = 6;
  m.window_theta = 10000;
  m.value_scale = 0.707;
  m.attention_sinks = m.sinks_in_windows = true;
}

std::vector<bool> sees_all(const Model& m) {
  std::vector<bool> all;
  for (std::int64_t i = 0; i < m.layers; ++i) all.push_back(!m.windowed(i));
  return all;
}

/// The class sees everything in its first layer and in every sixth.
void mimo_v2_windows(ConfigKeys& k, Model& m) {
  k.count({"sliding_window", "sliding_window_size"}, m.window, 1, kMostSequence, 128);
  double said = 1;
  if (k.reads() && !k.given("sliding_window_size")) k.real_or_none("sliding_window", said, kMostSequence, 1);
  const bool typed = k.given("layer_types"), flagged = k.given("hybrid_layer_pattern");
  if (k.reads() && !typed && !flagged) {
    constexpr std::int64_t kPeriod = 6;
    std::vector<bool> sliding;
    for (std::int64_t i = 0; i < m.layers; ++i) sliding.push_back(i != 0 && (i + 1) % kPeriod != 0);
    place_windows(sliding, m);
  }
  Model by_flags = m;
  k.layer_types(m);
  k.window_flags("hybrid_layer_pattern", by_flags);
  if (typed && flagged && sees_all(m) != sees_all(by_flags))
    k.refuse("hybrid_layer_pattern", "it and layer_types disagree on which layers have a window", "one of the two");
  if (flagged && !typed) m = std::move(by_flags);
  if (k.reads() && said == 0 && m.window > 0)
    k.refuse("sliding_window", "layers are said to have a window, but not how long it is", "128");
  k.real({"rope_theta", "rope_parameters.full_attention.rope_theta", "rope_parameters.rope_theta"}, m.rope_theta, 1,
         1e12, 5e6);
  if (!k.reads() && m.window_theta == 0) m.window_theta = 10000;  // of no layer
  k.real({"swa_rope_theta", "rope_parameters.sliding_attention.rope_theta"}, m.window_theta, 1, 1e12, 10000);
  k.real({"partial_rotary_factor", "rope_parameters.full_attention.partial_rotary_factor",
          "rope_parameters.partial_rotary_factor"},
         m.rotary_share, 0, 1, 0.334);
  k.rope_scaling(m);
}

/// transformers 5 has each kind of layer's rotation by itself.
void mimo_v2_rotations(ConfigKeys& k, Model& m) {
  double own = m.rotary_share;
  k.real({"rope_parameters.sliding_attention.partial_rotary_factor"}, own, 0, 1, own);
  if (k.reads() && own != m.rotary_share)
    k.refuse("rope_parameters", "all layers rotate the same share of a head here",
             "one partial_rotary_factor for full_attention and sliding_attention");
  std::string plain = "default";
  if (k.reads()) {
    k.text({"rope_parameters.sliding_attention.rope_type"}, plain, "default");
    if (plain != "default")
      k.refuse("rope_parameters", "layers with a window rotate at rates that are not scaled",
               "rope_type default for sliding_attention");
    return;
  }
  for (const char* key : {"rope_parameters.full_attention.rope_type", "rope_parameters.sliding_attention.rope_type"})
    k.text({key}, plain, "default");
  k.real({"rope_parameters.full_attention.rope_theta"}, m.rope_theta, 1, 1e12, 5e6);
  k.real({"rope_parameters.full_attention.partial_rotary_factor"}, m.rotary_share, 0, 1, 0.334);
  k.real({"rope_parameters.sliding_attention.rope_theta"}, m.window_theta, 1, 1e12, 10000);
}

/// What the published files say and the class has fixed.
void mimo_v2_published(ConfigKeys& k, Model& m) {
  const auto same = [&](const char* key, std::int64_t wanted) {
    std::int64_t own = wanted;
    k.count({key}, own, 1, kMostWidth, wanted);
    if (own != wanted)
      k.refuse(key, "layers with a window have the width and number of heads of the others", "the same");
  };
  same("swa_num_attention_heads", m.heads);
  same("swa_head_dim", m.head_dim);
  same("swa_v_head_dim", m.value_columns(0));
  m.window_kv_heads = 2 * m.kv_heads;
  k.count({"swa_num_key_value_heads"}, m.window_kv_heads, 1, kMostWidth, 2 * m.kv_heads);
  bool in_windows = true, elsewhere = false;
  k.flag({"add_swa_attention_sink_bias"}, in_windows, true);
  k.flag({"add_full_attention_sink_bias"}, elsewhere, false);
  if (elsewhere && !in_windows && m.window > 0)
    k.refuse("add_full_attention_sink_bias", "sinks are in all layers, or in those with a window", "false");
  m.attention_sinks = m.window > 0 ? in_windows : elsewhere;
  m.sinks_in_windows = m.window > 0 && in_windows && !elsewhere;
  if (m.window == 0) m.window_kv_heads = 0, m.window_theta = 0;
  const auto word = [&](const char* key, const char* wanted) {
    std::string given = wanted;
    k.text({key}, given, wanted);
    if (given != wanted) k.refuse(key, "experts are chosen in a way that its class does not have", wanted);
  };
  word("scoring_func", "sigmoid");
  word("topk_method", "noaux_tc");
  if (m.experts.shared > 0) k.refuse("n_shared_experts", "its class has no shared experts", "null");
  no_biases(k, "mlp_bias");
  k.only("use_qk_norm", false, "heads of q and k have no norms here");
  k.unused({"attention_chunk_size"});
  further_left_out(k, "num_nextn_predict_layers",
                   "the modules that predict further tokens are left out, as its class has none");
  if (k.given("attention_projection_layout"))
    k.differs("its files of weights, where q, k and v are one matrix for each part of a tensor group, are not read");
}

void mimo_v2_config(ConfigKeys& k, Model& m) {
  Experts& e = m.experts;
  llama_keys(k, m, 1e-5, false, k.given("layernorm_epsilon") ? "layernorm_epsilon" : "rms_norm_eps");
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 192);
  std::int64_t values = m.value_columns(0);
  k.count({"v_head_dim"}, values, 1, kMostWidth, 128);
  if (k.reads()) m.value_dim = values == m.head_dim ? 0 : values;
  double scale = m.value_scale == 1 ? 0 : m.value_scale;
  k.real_or_none("attention_value_scale", scale, 1e6, 0.707);
  if (k.reads() && scale == 0 && k.given("attention_value_scale"))
    k.refuse("attention_value_scale", "values times 0 are nothing", "null, where they are not scaled");
  if (k.reads()) m.value_scale = scale > 0 ? scale : 1;
  k.flag({"attention_bias"}, m.qkv_bias, false);
  silu(k, m, "mimo_v2");
  mimo_v2_windows(k, m);
  mimo_v2_rotations(k, m);
  experts_keys(k, m, "n_routed_experts");
  k.count({"moe_intermediate_size"}, e.hidden, 1, kMostWidth, 2048);
  if (k.reads()) e.first_dense = 1;
  Model by_flags = m;
  k.sparse_layers("mlp_layer_types", m);
  k.sparse_layers("moe_layer_freq", by_flags);
  const bool typed = k.given("mlp_layer_types"), flagged = k.given("moe_layer_freq");
  if (typed && flagged && !(by_flags.experts == e))
    k.refuse("moe_layer_freq", "it and mlp_layer_types disagree on which layers have experts", "one of the two");
  if (flagged && !typed) e = by_flags.experts;
  k.real({"routed_scaling_factor"}, e.weight_scale, 0, kMostCoefficient, 1);
  k.flag({"norm_topk_prob"}, e.normalised, true);
  k.count({"n_shared_experts"}, e.shared, 0, kMostExperts, 0);
  deepseek_groups(k, m);
  if (k.reads()) mimo_v2_published(k, m);
}

WeightNames mimo_v2_names() {
  WeightNames names = with_experts("mlp.gate", "mlp.experts", kProjections);
  names.parts.push_back({"attn.sinks", "self_attn.attention_sink_bias"});
  names.parts.push_back({"mlp.router.balance", "mlp.gate.e_score_correction_bias"});
  return names;
}

// -- Step 3.5 and 3.7 -------------------------------------------------------------------------------------------------

// StepFun 2026, "Step 3.5 Flash": three layers of four have a window, more heads and another rotation; each head's
// output has a gate; experts by sigmoids with a balancing bias from the fourth layer on.
void as_step3p5(Model& m) {
  as_deepseek_v3(m);
  m.norm_epsilon = 1e-5;
  m.qk_norm = m.head_gate = true;
  m.experts.first_dense = 3;
}

/// Of each kind of layer its own number, from one for each layer. E0111 at `key` if layers of a kind differ.
struct OfKinds {
  double full = 0, windowed = 0;
};
OfKinds of_kinds(ConfigKeys& k, const Model& m, const char* key, const std::vector<double>& all) {
  OfKinds out;
  for (std::int64_t i = 0; i < std::ssize(all); ++i) {
    double& own = m.windowed(i) ? out.windowed : out.full;
    const double given = all[static_cast<std::size_t>(i)];
    if (own != 0 && own != given) k.refuse(key, "layers of one kind rotate differently", "one number for each kind");
    own = given;
  }
  return out;
}

void step3p5_rotation(ConfigKeys& k, Model& m, std::int64_t modules) {
  constexpr double kTheta = 10000, kMostTheta = 1e12;
  if (!k.reads()) {
    double theta = m.window_theta > 0 ? m.window_theta : m.rope_theta;
    double share = m.window_rotary_share > 0 ? m.window_rotary_share : m.rotary_share;
    std::string plain = "default";
    k.real({"rope_parameters.full_attention.rope_theta"}, m.rope_theta, 1, kMostTheta, kTheta);
    k.real({"rope_parameters.full_attention.partial_rotary_factor"}, m.rotary_share, 0, 1, 1);
    k.rope_scaling_at("rope_parameters.full_attention", m);
    if (m.window == 0) return;
    k.real({"rope_parameters.sliding_attention.rope_theta"}, theta, 1, kMostTheta, kTheta);
    k.real({"rope_parameters.sliding_attention.partial_rotary_factor"}, share, 0, 1, 1);
    return k.text({"rope_parameters.sliding_attention.rope_type"}, plain, "default");
  }
  OfKinds theta, share;
  constexpr double kLeastShare = 1e-3;
  if (k.given("rope_parameters")) {
    k.real({"rope_parameters.full_attention.rope_theta"}, theta.full, 1, kMostTheta, kTheta);
    k.real({"rope_parameters.sliding_attention.rope_theta"}, theta.windowed, 1, kMostTheta, kTheta);
    k.real({"rope_parameters.full_attention.partial_rotary_factor"}, share.full, 0, 1, 1);
    k.real({"rope_parameters.sliding_attention.partial_rotary_factor"}, share.windowed, 0, 1, 1);
    k.fixed("rope_parameters.sliding_attention.rope_type", "default", "layers with a window rotate at plain rates");
  } else {
    theta = of_kinds(k, m, "rope_theta", k.each_layers("rope_theta", m, modules, 1, kMostTheta));
    const std::vector<double> shares = k.each_layers("partial_rotary_factors", m, modules, kLeastShare, 1);
    share = of_kinds(k, m, "partial_rotary_factors", shares);
  }
  m.rope_theta = theta.full > 0 ? theta.full : theta.windowed > 0 ? theta.windowed : kTheta;
  m.rotary_share = share.full > 0 ? share.full : share.windowed > 0 ? share.windowed : 1;
  k.rope_scaling(m);
  if (m.window == 0) return;
  // A scaled rotation is that of layers that see all.
  const double own = theta.windowed > 0 ? theta.windowed : kTheta;
  m.window_theta = own != m.rope_theta || m.rope_scaling.kind != RopeKind::none ? own : 0;
  m.window_rotary_share = share.windowed > 0 && share.windowed != m.rotary_share ? share.windowed : 0;
}

void step3p5_experts(ConfigKeys& k, Model& m) {
  Experts& e = m.experts;
  k.count({"n_routed_experts", "moe_num_experts", "num_local_experts", "num_experts"}, e.count, 1, kMostExperts, 288);
  k.count({"num_experts_per_tok", "moe_top_k"}, e.chosen, 1, kMostExperts, 8);
  k.count({"moe_intermediate_size"}, e.hidden, 1, kMostWidth, 1280);
  k.count({"share_expert_dim", "share_expert_dims"}, e.shared, 1, kMostWidth, 1280);
  k.real({"moe_router_scaling_factor"}, e.weight_scale, 0, kMostCoefficient, 1);
  k.flag({"use_moe_router_bias"}, e.balance_bias, true);
  k.flag({"norm_expert_weight"}, e.normalised, true);
  if (k.reads() && !e.balance_bias) e.bias_rate = 0;
  k.count({"first_k_dense_replace"}, e.first_dense, 0, kMostLayers, 3);
  if (std::vector<std::int64_t> with; k.reads() && k.layer_numbers("moe_layers_enum", with, m)) {
    std::vector<bool> listed(static_cast<std::size_t>(m.layers));
    for (const std::int64_t one : with) listed[static_cast<std::size_t>(one)] = true;
    k.expert_layers("moe_layers_enum", listed, m);
  }
  k.sparse_layers("mlp_layer_types", m);
  if (!k.reads()) return;
  for (const auto& [key, wanted] : {std::pair{"scoring_func", "sigmoid"}, {"moe_router_activation", "sigmoid"}}) {
    std::string given = wanted;
    k.text({key}, given, wanted);
    if (given != wanted) k.refuse(key, "experts are chosen in a way that its class does not have", wanted);
  }
}

/// What a file says of layers with a window, and what the class has fixed. Reading only.
void step3p5_published(ConfigKeys& k, Model& m, std::int64_t modules) {
  const auto same = [&](const char* key, std::int64_t wanted) {
    std::int64_t own = wanted;
    k.count({key}, own, 1, kMostWidth, wanted);
    if (own != wanted)
      k.refuse("attention_other_setting", "only the number of heads differs between kinds of layers", key);
  };
  same("attention_other_setting.num_attention_groups", m.kv_heads);
  same("attention_other_setting.head_dim", m.head_dim);
  k.fixed("attention_other_setting.attention_type", "sliding_attention", "the other kind of layer has a window");
  k.fixed("n_shared_experts", "1", "its class has one shared expert");
  if (modules > 0) k.remark("the modules that predict further tokens are left out, as its class has none");
  if (m.window > 0 && !k.given("num_sliding_attention_heads") && !k.given("attention_other_setting"))
    k.remark("the file does not say how many heads layers with a window have: as many as the others, as in its class");
  for (const char* key : {"swiglu_limits", "swiglu_limits_shared"}) {
    const std::vector<double> all = k.each_layers(key, m, modules);
    if (std::any_of(all.begin(), all.end(), [](double one) { return one > 0; }))
      return k.differs("gates and values of some layers' experts are not clamped (swiglu_limits)");
  }
}

void step3p5_config(ConfigKeys& k, Model& m) {
  k.count({"num_hidden_layers"}, m.layers, 1, kMostLayers, 45);
  k.count({"hidden_size"}, m.hidden, 1, kMostWidth, 4096);
  k.count({"num_attention_heads"}, m.heads, 1, kMostWidth, 64);
  k.count({"num_key_value_heads", "num_attention_groups"}, m.kv_heads, 1, kMostWidth, 8);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 128);
  k.count({"intermediate_size"}, m.ffn_hidden, 1, kMostWidth, 11264);
  k.count({"max_position_embeddings", "max_seq_len"}, m.max_sequence, 1, kMostSequence, 128000);
  k.real({"rms_norm_eps"}, m.norm_epsilon, 0, 1, 1e-5);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, false);
  rate(k, "attention_dropout", m.dropout.attention);
  silu(k, m, "step3p5");
  for (const char* key : {"attention_bias", "mlp_bias"}) no_biases(k, key);
  k.only("use_head_wise_attn_gate", true, "each head's output has a gate in its class");
  std::int64_t modules = 0;
  if (k.reads()) k.count({"num_nextn_predict_layers", "num_mtp_layers"}, modules, 0, kMostLayers, 0);
  k.count({"sliding_window"}, m.window, 0, kMostSequence, 0);
  if (k.reads()) m.window_period = 0, m.full_layers.clear();
  if (k.reads() && !k.given("layer_types")) m.drop_window();
  k.layer_types(m, modules);
  std::int64_t in_windows = m.window_heads > 0 ? m.window_heads : m.heads;
  k.count({"num_sliding_attention_heads", "attention_other_setting.num_attention_heads"}, in_windows, 1, kMostWidth,
          m.heads);
  if (k.reads()) m.window_heads = m.window > 0 && in_windows != m.heads ? in_windows : 0;
  step3p5_rotation(k, m, modules);
  step3p5_experts(k, m);
  window_within(k, m);
  if (k.reads()) step3p5_published(k, m, modules);
}

WeightNames step3p5_names() {
  WeightNames names = with_experts("mlp.gate", "mlp.experts", kStacked);
  names.norm_offset = 1;
  names.stacked_by_rows = true;
  for (const auto& pair : WeightNames::Pairs{{"attn.head_gate", "self_attn.g_proj"},
                                             {"mlp.router.balance", "mlp.gate.e_score_correction_bias"},
                                             {"mlp.shared.gate", "mlp.shared_experts.gate_proj"},
                                             {"mlp.shared.up", "mlp.shared_experts.up_proj"},
                                             {"mlp.shared.proj", "mlp.shared_experts.down_proj"}})
    names.parts.push_back(pair);
  return names;
}

}  // namespace

std::vector<FamilyTraits> window_families() {
  std::vector<FamilyTraits> all = {entry(Family::mimo_v2, "mimo_v2_flash", "MiMo-V2", "MiMoV2FlashForCausalLM",
                                         "MiMoV2", as_mimo_v2, mimo_v2_config, mimo_v2_names()),
                                   entry(Family::step3p5, "step3p5", "Step 3.5", "Step3p5ForCausalLM", "Step3p",
                                         as_step3p5, step3p5_config, step3p5_names())};
  for (FamilyTraits& one : all) one.mixture = true;
  all[0].model_types.push_back("mimo_v2");
  all[1].model_types.push_back("step3p7");
  all[1].names = stack_experts;
  all[1].vocab = 128815;
  return all;
}

}  // namespace orrery::models

// DeepSeek's mixtures and those that route like them: GLM 4.5, Ling, dots.llm1, ERNIE 4.5. For sources of keys and
// names see models/read/families_experts.cpp.
#include <algorithm>

#include "models/read/experts_parts.h"

namespace orrery::models {
namespace {

using namespace family_parts;

// -- DeepSeek-V2 and V3 -----------------------------------------------------------------------------------------------

// DeepSeek-AI 2024, "DeepSeek-V2", section 2.2: devices, and so groups of experts, are chosen by their best expert.
void as_deepseek_v2(Model& m) {
  as_llama(m);
  m.norm_epsilon = 1e-6;
  m.experts.groups_by_two = false;
}

/// `usual`: the class's where a file says nothing; null is none.
void query_rank(ConfigKeys& k, Model& m, double usual) {
  auto rank = static_cast<double>(m.latent.q_rank);
  k.real_or_none("q_lora_rank", rank, kMostWidth, usual);
  if (rank != std::floor(rank)) k.refuse("q_lora_rank", "it is a number of columns", "a whole number, or null");
  m.latent.q_rank = static_cast<std::int64_t>(rank);
}

void latent_keys(ConfigKeys& k, Model& m, double usual_rank) {
  query_rank(k, m, usual_rank);
  k.count({"kv_lora_rank"}, m.latent.kv_rank, 1, kMostWidth);
  k.count({"qk_nope_head_dim"}, m.latent.nope, 1, kMostWidth);
  k.count({"qk_rope_head_dim"}, m.latent.rope, 1, kMostWidth);
  k.count({"v_head_dim"}, m.latent.value, 1, kMostWidth);
  k.only("rope_interleave", true, "the latent attention's rotation turns adjacent columns");
  if (k.reads()) m.head_dim = m.latent.nope + m.latent.rope;
  k.unused({"head_dim", "qk_head_dim"});
}

/// The module that predicts a token further ahead.
void further_prediction(ConfigKeys& k, Model& m) {
  k.count({"num_nextn_predict_layers"}, m.further.modules, 0, 1, 0);
}

// The class's `topk_method` says how groups are chosen. Layers from the first_k_dense_replace-th on whose number, from
// 0, is a multiple of moe_layer_freq have experts.
void deepseek_routing(ConfigKeys& k, Model& m, bool third) {
  Experts& e = m.experts;
  std::string method = e.balance_bias ? "noaux_tc" : e.groups > 1 ? "group_limited_greedy" : "greedy";
  k.text({"topk_method"}, method, third ? "noaux_tc" : "greedy");
  std::string scores = e.scores == Scores::sigmoid ? "sigmoid" : "softmax";
  k.text({"scoring_func"}, scores, third ? "sigmoid" : "softmax");
  deepseek_groups(k, m);
  std::int64_t step = 1;
  k.count({"moe_layer_freq"}, step, 1, kMostLayers, 1);
  if (!k.reads()) return;
  if (step > 1) {
    std::vector<bool> with(static_cast<std::size_t>(m.layers));
    for (std::int64_t i = e.first_dense; i < m.layers; ++i) with[static_cast<std::size_t>(i)] = i % step == 0;
    k.expert_layers("moe_layer_freq", with, m);
  }
  if (method != "greedy" && method != "group_limited_greedy" && method != "noaux_tc")
    k.refuse("topk_method", "experts are chosen in a way that no known class uses",
             "greedy, group_limited_greedy or noaux_tc");
  if (scores != "softmax" && scores != "sigmoid")
    k.refuse("scoring_func", "scores are computed in a way that no known class uses", "softmax or sigmoid");
  if (method == "greedy") e.groups = e.groups_chosen = 1;
  e.balance_bias = method == "noaux_tc";
  e.groups_by_two = e.balance_bias;
  if (!e.balance_bias) e.bias_rate = 0;
  e.scores = scores == "sigmoid" ? Scores::sigmoid : Scores::softmax;
}

void deepseek_config(ConfigKeys& k, Model& m, bool third) {
  Experts& e = m.experts;
  llama_keys(k, m, 1e-6, false);
  rotation(k, m, 0);
  silu(k, m, "deepseek");
  no_biases(k, "attention_bias");
  latent_keys(k, m, 1536);
  experts_keys(k, m, "n_routed_experts");
  routed_like_deepseek(k, m, third ? RoutingDefaults{2.5, true, 1, 3} : RoutingDefaults{1, false, 0, 0});
  deepseek_routing(k, m, third);
  // V2 either divides the weights by their sum or scales them, never both.
  if (!third && k.reads() && e.normalised && e.chosen > 1) e.weight_scale = 1;
  if (k.given("aux_loss_alpha"))
    k.remark("aux_loss_alpha is left out: it weights a balance over each sequence, not over the step");
  k.unused({"seq_aux"});
  further_prediction(k, m);
}
void deepseek_v2_config(ConfigKeys& k, Model& m) {
  deepseek_config(k, m, false);
}
void deepseek_v3_config(ConfigKeys& k, Model& m) {
  deepseek_config(k, m, true);
}

WeightNames deepseek_names() {
  WeightNames names = with_experts("mlp.gate", "mlp.experts", kProjections);
  for (const auto& pair : WeightNames::Pairs{{"attn.q_a", "self_attn.q_a_proj"},
                                             {"attn.q_a_norm", "self_attn.q_a_layernorm"},
                                             {"attn.q_b", "self_attn.q_b_proj"},
                                             {"attn.kv_a", "self_attn.kv_a_proj_with_mqa"},
                                             {"attn.kv_a_norm", "self_attn.kv_a_layernorm"},
                                             {"attn.kv_b", "self_attn.kv_b_proj"},
                                             {"mlp.router.balance", "mlp.gate.e_score_correction_bias"},
                                             {"mlp.shared.gate", "mlp.shared_experts.gate_proj"},
                                             {"mlp.shared.up", "mlp.shared_experts.up_proj"},
                                             {"mlp.shared.proj", "mlp.shared_experts.down_proj"},
                                             {"hnorm", "hnorm"},
                                             {"enorm", "enorm"},
                                             {"eh_proj.hidden", "eh_proj"},
                                             {"eh_proj.token", "eh_proj"},
                                             {"ln_f", "shared_head.norm"}})
    names.parts.push_back(pair);
  names.further_copies = {{"wte.weight", "embed_tokens.weight"}, {"lm_head.weight", "shared_head.head.weight"}};
  return names;
}

// -- MiniCPM 3 --------------------------------------------------------------------------------------------------------

// OpenBMB 2024, "MiniCPM3-4B": MiniCPM's factors around DeepSeek-V2's latent attention, and MLPs alone.
void as_minicpm3(Model& m) {
  as_llama(m);
  m.tied_embeddings = true;
  m.norm_epsilon = 1e-5;
}

constexpr const char* kTurnsHalves =
    "its rotation turns columns half of a head's apart, here neighbours: its files of weights are neither read nor "
    "written";

void minicpm3_config(ConfigKeys& k, Model& m) {
  LatentAttention& l = m.latent;
  llama_keys(k, m, 1e-5, true);
  rotation(k, m, 0);
  silu(k, m, "minicpm3");
  for (const char* key : {"attention_bias", "mlp_bias"}) no_biases(k, key);
  query_rank(k, m, 768);
  k.count({"kv_lora_rank"}, l.kv_rank, 1, kMostWidth, 256);
  k.count({"qk_nope_head_dim"}, l.nope, 1, kMostWidth, 64);
  k.count({"qk_rope_head_dim"}, l.rope, 1, kMostWidth, 32);
  k.count({"v_head_dim"}, l.value, 1, kMostWidth, m.hidden / std::max<std::int64_t>(1, m.heads));
  if (k.reads()) m.head_dim = l.nope + l.rope;
  minicpm_scales(k, m, {12, 1.4, 256});
  if (k.reads()) k.differs(kTurnsHalves);
}

// -- DeepSeek-V3.2 and GLM-5 -----------------------------------------------------------------------------------------

// DeepSeek-AI 2025, "DeepSeek-V3.2": V3's layers, whose attention reads the tokens that an indexer chooses.
void indexer_keys(ConfigKeys& k, Model& m, std::int64_t heads) {
  Indexer& i = m.indexer;
  k.count({"index_n_heads"}, i.heads, 1, kMostWidth, heads);
  k.count({"index_head_dim"}, i.width, 1, kMostWidth, 128);
  k.count({"index_topk"}, i.chosen, 1, kMostSequence, 2048);
  k.count({"index_topk_freq"}, i.every, 1, kMostLayers, 1);
  k.count({"index_skip_topk_offset"}, i.first, 0, kMostLayers, 0);
  if (!k.reads()) return;
  k.unused({"indexer_rope_interleave", "index_share_for_mtp_iteration"});
  k.fixed("layer_types", "deepseek_sparse_attention", "all layers read chosen tokens in its class");
  const bool listed = k.given("indexer_types");
  if (i.every > 1 && !listed && !k.given("index_skip_topk_offset"))
    k.refuse("index_topk_freq", "which layers choose, and which read what a layer before chose, is not said",
             "index_skip_topk_offset, the number of first layers that choose, or indexer_types");
  if (k.given("index_topk_pattern"))
    k.refuse("index_topk_pattern", "layers that read the tokens chosen in a layer before follow a period",
             "null, with indexer_types, or index_topk_freq and index_skip_topk_offset");
  const std::vector<bool> chooses = k.which_are("indexer_types", "full", "shared");
  if (const auto shared = std::find(chooses.begin(), chooses.end(), false); shared != chooses.end()) {
    i.first = shared - chooses.begin();
    i.every = std::find(shared, chooses.end(), true) - shared + 1;
  } else if (listed) {
    i.every = 1;
  }
  for (std::size_t at = 0; at < chooses.size(); ++at)
    if (i.chooses(static_cast<std::int64_t>(at)) != chooses[at])
      return k.refuse("indexer_types", "layers that choose follow no period",
                      "all of some first layers, then the last of every n");
  if (i.every == 1) i.first = 0;
  if (i.every > 1) k.remark("carrying a choice of tokens to the layers that share it counts nothing");
}
void deepseek_v32_config(ConfigKeys& k, Model& m) {
  deepseek_config(k, m, true);
  indexer_keys(k, m, 64);
}

// GLM-5 Team 2026, "GLM-5": the same layers, without groups of experts.
void as_glm_moe_dsa(Model& m) {
  as_deepseek_v3(m);
  m.norm_epsilon = 1e-5;
}
void glm_moe_dsa_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false);
  rotation(k, m, 0);
  silu(k, m, "glm_moe_dsa");
  for (const char* key : {"attention_bias", "mlp_bias"}) no_biases(k, key);
  latent_keys(k, m, 2048);
  experts_keys(k, m, "n_routed_experts");
  routed_like_deepseek(k, m, {2.5, true, 1, 3});
  k.sparse_layers("mlp_layer_types", m);
  deepseek_routing(k, m, true);
  further_prediction(k, m);
  indexer_keys(k, m, 32);
}

WeightNames indexed_names() {
  WeightNames names = deepseek_names();
  for (const auto& pair : WeightNames::Pairs{{"attn.index.q", "self_attn.indexer.wq_b"},
                                             {"attn.index.k", "self_attn.indexer.wk"},
                                             {"attn.index.k_norm", "self_attn.indexer.k_norm"},
                                             {"attn.index.weights", "self_attn.indexer.weights_proj"}})
    names.parts.push_back(pair);
  return names;
}

// -- GLM 4.5 ----------------------------------------------------------------------------------------------------------

// GLM Team 2025, "GLM-4.5", section 2.1: DeepSeek-V3's routing without groups, around grouped-query attention.
void as_glm4_moe(Model& m) {
  as_deepseek_v3(m);
  m.norm_epsilon = 1e-5;
  m.qkv_bias = true;
  m.rotary_share = 0.5;
}

void glm4_moe_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);
  rotation(k, m, 0.5);
  silu(k, m, "glm4_moe");
  k.flag({"attention_bias"}, m.qkv_bias, false);
  k.flag({"use_qk_norm"}, m.qk_norm, false);
  experts_keys(k, m, "n_routed_experts");
  routed_like_deepseek(k, m, {1, true, 1, 1});
  deepseek_groups(k, m);
  further_prediction(k, m);
}

// GLM-4.7-Flash (Z.ai 2026): the same routing around DeepSeek-V3's latent attention.
void as_glm4_moe_lite(Model& m) {
  as_deepseek_v3(m);
  m.norm_epsilon = 1e-5;
}

void glm4_moe_lite_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false);
  rotation(k, m, 0);
  silu(k, m, "glm4_moe_lite");
  no_biases(k, "attention_bias");
  latent_keys(k, m, 768);
  experts_keys(k, m, "n_routed_experts");
  routed_like_deepseek(k, m, {1.8, true, 1, 1});
  k.sparse_layers("mlp_layer_types", m);
  deepseek_groups(k, m);
  k.fixed("topk_method", "noaux_tc", "experts are chosen in a way that its class does not have");
  further_prediction(k, m);
}

// Upstage 2026, "Solar Open": the same routing in every layer, around a Llama's attention.
void as_solar_open(Model& m) {
  as_deepseek_v3(m);
  m.norm_epsilon = 1e-5;
  m.rope_theta = 1e6;
}

void solar_open_config(ConfigKeys& k, Model& m) {
  sizes(k, m);
  k.count({"num_key_value_heads"}, m.kv_heads, 1, kMostWidth, m.heads);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 128);
  positions_up_to(k, m);
  k.real({"rms_norm_eps"}, m.norm_epsilon, 0, 1, 1e-5);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, false);
  rate(k, "attention_dropout", m.dropout.attention);
  rotation(k, m, 1, 1e6);
  silu(k, m, "solar_open");
  no_biases(k, "attention_bias");
  k.only("use_qk_norm", false, "heads of q and k have no norms here");
  experts_keys(k, m, "n_routed_experts");
  routed_like_deepseek(k, m, {1, true, 1, 0});
  k.count({"intermediate_size"}, m.ffn_hidden, 1, kMostWidth, m.experts.hidden);
  deepseek_groups(k, m);
}

// -- K-EXAONE ---------------------------------------------------------------------------------------------------------

// LG AI Research 2026, "K-EXAONE": EXAONE 4's windows and norms of heads, norms before attention and MLP, and
// DeepSeek-V3's routing.
void as_exaone_moe(Model& m) {
  as_deepseek_v3(m);
  m.norm_epsilon = 1e-5;
  m.qk_norm = true;
  m.window = 4096;
  m.window_period = m.unrotated_period = 4;
}

void exaone_moe_config(ConfigKeys& k, Model& m) {
  Experts& e = m.experts;
  llama_keys(k, m, 1e-5, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);
  rotation(k, m, 0);
  silu(k, m, "exaone_moe");
  exaone_windows(k, m);
  experts_keys(k, m, "num_experts");
  k.count({"moe_intermediate_size"}, e.hidden, 1, kMostWidth, 1024);
  std::int64_t shared = e.hidden > 0 ? e.shared / e.hidden : 0;
  k.count({"num_shared_experts"}, shared, 0, kMostExperts, 1);
  if (k.reads()) e.shared = shared * e.hidden;
  k.count({"first_k_dense_replace"}, e.first_dense, 0, kMostLayers, 1);
  k.sparse_layers("is_moe_layer", m);
  k.sparse_layers("mlp_layer_types", m);
  k.real({"routed_scaling_factor"}, e.weight_scale, 0, kMostCoefficient, 2.5);
  k.flag({"norm_topk_prob"}, e.normalised, true);
  deepseek_groups(k, m);
  further_left_out(k, "num_nextn_predict_layers",
                   "the module that predicts a token further is left out, as its class has none");
}

// -- Trinity ----------------------------------------------------------------------------------------------------------

// Arcee AI 2025, "Trinity": norms before and after attention and MLP, and of heads; a gate of attention's output;
// layers that see all do not rotate; experts by sigmoids with a balancing bias.
void as_afmoe(Model& m) {
  as_deepseek_v3(m);
  m.norm_epsilon = 1e-5;
  m.qk_norm = m.output_norm = m.attention_gate = true;
  m.window = 1024;
  m.window_period = m.unrotated_period = 4;
}

void afmoe_config(ConfigKeys& k, Model& m) {
  Experts& e = m.experts;
  llama_keys(k, m, 1e-5, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 128);
  rotation(k, m, 0);
  silu(k, m, "afmoe");
  k.flag({"mup_enabled"}, m.scaled_embedding, false);
  k.count({"sliding_window"}, m.window, 1, kMostSequence, 1024);
  k.count({"global_attn_every_n_layers"}, m.window_period, 2, kMostLayers, 4);
  k.layer_types(m);
  unrotated_where_full(k, m, true);
  window_within(k, m);
  experts_keys(k, m, "num_experts");
  k.count({"moe_intermediate_size"}, e.hidden, 1, kMostWidth, 1408);
  std::int64_t shared = e.hidden > 0 ? e.shared / e.hidden : 0;
  k.count({"num_shared_experts"}, shared, 0, kMostExperts, 2);
  if (k.reads()) e.shared = shared * e.hidden;
  k.count({"num_dense_layers"}, e.first_dense, 0, kMostLayers, 1);
  k.real({"route_scale"}, e.weight_scale, 0, kMostCoefficient, 1);
  k.only("route_norm", true, "the class divides weights by their sum");
  std::string scores = "sigmoid";
  k.text({"score_func"}, scores, "sigmoid");
  if (k.reads() && scores != "sigmoid")
    k.refuse("score_func", "scores are computed in a way that its class does not have", "sigmoid");
}

WeightNames afmoe_names() {
  WeightNames names = with_experts("mlp.router.gate", "mlp.experts", kProjections);
  for (auto& [logical, file] : names.parts)
    if (std::string_view(logical) == "ln_2") file = "pre_mlp_layernorm";
  for (const auto& pair : WeightNames::Pairs{{"ln_1_out", "post_attention_layernorm"},
                                             {"ln_2_out", "post_mlp_layernorm"},
                                             {"attn.gate", "self_attn.gate_proj"},
                                             {"mlp.router.balance", "mlp.expert_bias"},
                                             {"mlp.shared.gate", "mlp.shared_experts.gate_proj"},
                                             {"mlp.shared.up", "mlp.shared_experts.up_proj"},
                                             {"mlp.shared.proj", "mlp.shared_experts.down_proj"}})
    names.parts.push_back(pair);
  return names;
}

// -- Ling -------------------------------------------------------------------------------------------------------------

// Ling Team 2025, "Every FLOP Counts", section 2: fine experts and shared ones around a Llama's attention; names and
// keys as in modeling_bailing_moe.py beside the weights. Only attention's products may have biases.
void bailing_keys(ConfigKeys& k, Model& m, bool biased) {
  Experts& e = m.experts;
  llama_keys(k, m, m.norm_epsilon, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);
  silu(k, m, "bailing_moe");
  k.flag({"use_qkv_bias"}, m.qkv_bias, false);
  k.flag({"use_bias"}, m.out_bias, biased);
  rate(k, "embedding_dropout", m.dropout.embedding);
  rate(k, "output_dropout", m.dropout.residual);
  experts_keys(k, m, "num_experts");
  k.count({"moe_intermediate_size"}, e.hidden, 1, kMostWidth);
  std::int64_t shared = e.hidden > 0 ? e.shared / e.hidden : 0;
  k.count({"num_shared_experts"}, shared, 0, kMostExperts, 0);
  if (k.reads()) e.shared = shared * e.hidden;
  k.count({"first_k_dense_replace"}, e.first_dense, 0, kMostLayers, 0);
  k.flag({"norm_topk_prob"}, e.normalised, true);
  bool unit = false;
  k.flag({"norm_head"}, unit, false);
  if (k.reads() && unit) k.differs("its head's rows are not scaled to length 1 (norm_head)");
}

void as_bailing_moe(Model& m) {
  as_llama(m);
  m.experts.normalised = true;
}
void bailing_moe_config(ConfigKeys& k, Model& m) {
  bailing_keys(k, m, true);
  rotation(k, m, 0);
}

// Ling Team 2025, "Every Activation Boosted", section 2: DeepSeek-V3's routing, norms of q and k, and rotation of half
// of a head.
void as_bailing_moe_v2(Model& m) {
  as_deepseek_v3(m);
  m.qk_norm = true;
  m.rotary_share = 0.5;
}
void bailing_moe_v2_config(ConfigKeys& k, Model& m) {
  bailing_keys(k, m, false);
  rotation(k, m, 1);
  k.flag({"use_qk_norm"}, m.qk_norm, true);
  std::string scores = "sigmoid";
  k.text({"score_function"}, scores, "sigmoid");
  if (k.reads() && scores != "sigmoid")
    k.refuse("score_function", "scores are computed in a way that its class does not have", "sigmoid");
  k.flag({"moe_router_enable_expert_bias"}, m.experts.balance_bias, true);
  if (k.reads() && !m.experts.balance_bias) m.experts.bias_rate = 0;
  deepseek_groups(k, m);
  k.real({"routed_scaling_factor"}, m.experts.weight_scale, 0, kMostCoefficient, 1);
  std::int64_t further = 0;
  k.count({"num_nextn_predict_layers"}, further, 0, kMostLayers, 0);
  if (k.reads() && further > 0) k.remark("the module that predicts a token further is left out");
}

WeightNames bailing_moe_names() {
  WeightNames names = deepseek_names();
  names.whole[0] = {"wte", "word_embeddings"};
  for (auto& [logical, file] : names.parts) {
    const std::string one = logical;
    if (one == "attn.q" || one == "attn.k" || one == "attn.v") file = "attention.query_key_value";
    if (one == "attn.proj") file = "attention.dense";
    if (one == "attn.q_norm") file = "attention.query_layernorm";
    if (one == "attn.k_norm") file = "attention.key_layernorm";
    if (one == "mlp.router.balance") file = "mlp.gate.expert_bias";
  }
  names.qkv = WeightNames::Qkv::in_turn;
  return names;
}

// -- DeepSeekMoE, dots.llm1 and ERNIE 4.5 -----------------------------------------------------------------------------

// Dai et al. 2024, "DeepSeekMoE", section 4.1: fine experts and shared ones around ordinary attention.
void deepseek_moe_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, false);
  rotation(k, m, 0);
  silu(k, m, "deepseek");
  no_biases(k, "attention_bias");
  experts_keys(k, m, "n_routed_experts");
  routed_like_deepseek(k, m, {1, false, 0, 0});
  deepseek_routing(k, m, false);
  if (k.given("aux_loss_alpha"))
    k.remark("aux_loss_alpha is left out: it weights a balance over each sequence, not over the step");
  k.unused({"seq_aux"});
}

// rednote-hilab 2025, "dots.llm1", section 2: DeepSeek-V3's routing, and norms of q and k.
void as_dots1(Model& m) {
  as_deepseek_v3(m);
  m.qk_norm = true;
}

void dots1_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);
  rotation(k, m, 0);
  silu(k, m, "dots1");
  no_biases(k, "attention_bias");
  qwen_window(k, m);
  experts_keys(k, m, "n_routed_experts");
  routed_like_deepseek(k, m, {1, false, 0, 0});
  deepseek_groups(k, m);
  k.fixed("moe_layer_freq", "1", "all layers behind the first have experts in its class");
  k.unused({"scoring_func", "topk_method"});  // its class has sigmoids and a balancing bias, whatever they say
}

// Baidu 2025, "ERNIE 4.5 Technical Report", section 2: experts are chosen by softmax scores with a balancing bias.
void as_ernie_moe(Model& m) {
  as_llama(m);
  m.tied_embeddings = true;
  m.rope_theta = 500000;
  m.experts.normalised = true;
  m.experts.balance_bias = true;
  m.experts.bias_rate = 0.001;
}

void ernie_moe_config(ConfigKeys& k, Model& m) {
  Experts& e = m.experts;
  llama_keys(k, m, 1e-5, true);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);
  rotation(k, m, 0, 500000);
  silu(k, m, "ernie4_5_moe");
  no_biases(k, "use_bias");
  k.count({"moe_num_experts", "num_experts"}, e.count, 1, kMostExperts);
  k.count({"moe_k", "num_experts_per_tok"}, e.chosen, 1, kMostExperts);
  k.count({"moe_intermediate_size"}, e.hidden, 1, kMostWidth);
  std::int64_t shared = e.hidden > 0 ? e.shared / e.hidden : 0;
  k.count({"moe_num_shared_experts"}, shared, 0, kMostExperts, 0);
  if (k.reads()) e.shared = shared * e.hidden;
  k.count({"moe_layer_start_index"}, e.first_dense, 0, kMostLayers, 1);
  k.count({"moe_layer_interval"}, e.period, 1, kMostLayers, 1);
  auxiliary_loss(k, m, 0.001);
  further_left_out(k, "num_nextn_predict_layers", "the module that predicts a token further is left out");
  k.fixed("moe_use_aux_free", "true", "routers have a balancing bias in its class");
  k.fixed("moe_gate", "topk", "experts are chosen in a way that its class does not have");
  k.unused({"moe_capacity"});
  std::int64_t last = m.layers - 1;
  if (k.reads()) k.count({"moe_layer_end_index"}, last, -1, kMostLayers, last);
  if (last >= 0 && last < m.layers - 1)
    k.refuse("moe_layer_end_index", "layers without experts are the first ones here", "the last layer, or -1");
}

WeightNames ernie_moe_names() {
  WeightNames names = with_experts("mlp.gate", "mlp.experts", kProjections);
  for (const auto& pair : WeightNames::Pairs{{"mlp.router.balance", "mlp.moe_statics.e_score_correction_bias"},
                                             {"mlp.shared.gate", "mlp.shared_experts.gate_proj"},
                                             {"mlp.shared.up", "mlp.shared_experts.up_proj"},
                                             {"mlp.shared.proj", "mlp.shared_experts.down_proj"}})
    names.parts.push_back(pair);
  names.adjacent_pairs = true;
  return names;
}

}  // namespace

std::vector<FamilyTraits> deepseek_families() {
  std::vector<FamilyTraits> all = {
      entry(Family::deepseek_v2, "deepseek_v2", "DeepSeek-V2", "DeepseekV2ForCausalLM", "DeepseekV2", as_deepseek_v2,
            deepseek_v2_config, deepseek_names()),
      entry(Family::deepseek_v3, "deepseek_v3", "DeepSeek-V3", "DeepseekV3ForCausalLM", "DeepseekV3", as_deepseek_v3,
            deepseek_v3_config, deepseek_names()),
      entry(Family::minicpm3, "minicpm3", "MiniCPM 3", "MiniCPM3ForCausalLM", "MiniCPM3For", as_minicpm3,
            minicpm3_config, deepseek_names()),
      entry(Family::deepseek_v32, "deepseek_v32", "DeepSeek-V3.2", "DeepseekV32ForCausalLM", "DeepseekV32",
            as_deepseek_v3, deepseek_v32_config, indexed_names()),
      entry(Family::glm_moe_dsa, "glm_moe_dsa", "GLM-5", "GlmMoeDsaForCausalLM", "GlmMoeDsa", as_glm_moe_dsa,
            glm_moe_dsa_config, indexed_names()),
      entry(Family::glm4_moe, "glm4_moe", "GLM 4.5", "Glm4MoeForCausalLM", "Glm4Moe", as_glm4_moe, glm4_moe_config,
            deepseek_names()),
      entry(Family::glm4_moe_lite, "glm4_moe_lite", "GLM-4.7-Flash", "Glm4MoeLiteForCausalLM", "Glm4MoeLite",
            as_glm4_moe_lite, glm4_moe_lite_config, deepseek_names()),
      entry(Family::solar_open, "solar_open", "Solar Open", "SolarOpenForCausalLM", "SolarOpen", as_solar_open,
            solar_open_config, deepseek_names()),
      entry(Family::exaone_moe, "exaone_moe", "K-EXAONE", "ExaoneMoeForCausalLM", "ExaoneMoe", as_exaone_moe,
            exaone_moe_config, deepseek_names()),
      entry(Family::afmoe, "afmoe", "Trinity", "AfmoeForCausalLM", "Afmoe", as_afmoe, afmoe_config, afmoe_names()),
      entry(Family::deepseek, "deepseek", "DeepSeekMoE", "DeepseekForCausalLM", "DeepseekFor", as_deepseek_v2,
            deepseek_moe_config, deepseek_names()),
      entry(Family::dots1, "dots1", "dots.llm1", "Dots1ForCausalLM", "Dots1", as_dots1, dots1_config, deepseek_names()),
      entry(Family::ernie_moe, "ernie4_5_moe", "ERNIE 4.5 of experts", "Ernie4_5_MoeForCausalLM", "Ernie4_5_Moe",
            as_ernie_moe, ernie_moe_config, ernie_moe_names()),
      entry(Family::bailing_moe, "bailing_moe", "Ling", "BailingMoeForCausalLM", "BailingMoeFor", as_bailing_moe,
            bailing_moe_config, bailing_moe_names()),
      entry(Family::bailing_moe_v2, "bailing_moe_v2", "Ling 2", "BailingMoeV2ForCausalLM", "BailingMoeV2",
            as_bailing_moe_v2, bailing_moe_v2_config, bailing_moe_names()),
  };
  for (FamilyTraits& one : all) {
    one.mixture = one.family != Family::minicpm3;
    if (one.family == Family::minicpm3) one.computes_else = [](const Model&) { return kTurnsHalves; };
    if (one.family == Family::deepseek_v3) one.model_types.push_back("kimi_k2");
    if (one.family == Family::glm4_moe) one.model_types.push_back("glm4v_moe_text");
  }
  return all;
}

}  // namespace orrery::models

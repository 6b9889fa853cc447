// Families with mixtures of experts. Keys and their defaults come from the classes' configurations in Hugging Face's
// transformers 4 and 5 (DeepSeek's from the configuration_deepseek.py beside its weights), names from the classes'
// modules.
#include "models/read/family_parts.h"

namespace orrery::models {
namespace {

using namespace family_parts;

/// The number of experts, and how many a token takes. `count` is the class's own name for the number; transformers 5
/// takes the others as well (attribute_map of its configurations).
void experts_keys(ConfigKeys& k, Model& m, const char* count) {
  k.count({count, "num_local_experts", "num_experts", "n_routed_experts"}, m.experts.count, 1, kMostExperts);
  k.count({"num_experts_per_tok", "experts_per_token"}, m.experts.chosen, 1, kMostExperts);
}

/// For families where one key is the width of the experts and of dense MLPs, which do not exist.
void experts_as_wide_as_mlps(ConfigKeys& k, Model& m) {
  if (k.reads()) m.experts.hidden = m.ffn_hidden;
}

WeightNames with_experts(const char* router, const char* experts, WeightNames::Pairs parts) {
  WeightNames names = llama_names();
  names.parts.push_back({"mlp.router", router});
  names.experts = experts;
  names.expert_parts = std::move(parts);
  return names;
}
/// All experts of a layer in two tensors: gate and up together, and down.
const WeightNames::Pairs kStacked = {{"gate", "gate_up_proj"}, {"up", "gate_up_proj"}, {"proj", "down_proj"}};
void stack_experts(WeightNames& names, const Model& model) {
  names.stacked = model.experts.count;
}
const WeightNames::Pairs kProjections = {{"gate", "gate_proj"}, {"up", "up_proj"}, {"proj", "down_proj"}};

// -- Mixtral ----------------------------------------------------------------------------------------------------------

// Jiang et al. 2024, "Mixtral of Experts", section 2: a softmax over the chosen, which equals the softmax over all,
// divided by the sum of the chosen.
void as_mixtral(Model& m) {
  as_llama(m);
  m.experts.chosen = 2;
  m.experts.normalised = true;
}

void mixtral_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);
  k.real({"rope_theta", "rope_parameters.rope_theta"}, m.rope_theta, 1, 1e12, 1e6);
  silu(k, m, "mixtral");
  k.count({"sliding_window"}, m.window, 0, kMostSequence, 0);
  window_within(k, m);
  experts_keys(k, m, "num_local_experts");
  experts_as_wide_as_mlps(k, m);
  auxiliary_loss(k, m, 0.001);
}

WeightNames mixtral_names() {
  return with_experts("block_sparse_moe.gate", "block_sparse_moe.experts",
                      {{"gate", "w1"}, {"up", "w3"}, {"proj", "w2"}});
}

// -- Qwen 2 and 3 -----------------------------------------------------------------------------------------------------

// Layers without experts have an MLP of intermediate_size.
void qwen_experts(ConfigKeys& k, Model& m) {
  experts_keys(k, m, "num_experts");
  k.count({"moe_intermediate_size"}, m.experts.hidden, 1, kMostWidth);
  k.count({"decoder_sparse_step"}, m.experts.period, 1, kMostLayers, 1);
  k.flag({"norm_topk_prob"}, m.experts.normalised, false);
  k.expert_layers("mlp_only_layers", false, m);
  auxiliary_loss(k, m, 0.001);
}

void as_qwen2_moe(Model& m) {
  as_llama(m);
  m.qkv_bias = true;
  m.experts.shared_gate = true;
}

void qwen2_moe_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, false);
  rotation(k, m, 0);
  silu(k, m, "qwen2_moe");
  qwen_window(k, m);
  qwen_experts(k, m);
  k.count({"shared_expert_intermediate_size"}, m.experts.shared, 1, kMostWidth);
}

WeightNames qwen2_moe_names() {
  WeightNames names = with_experts("mlp.gate", "mlp.experts", kProjections);
  for (const auto& pair : WeightNames::Pairs{{"mlp.shared.gate", "mlp.shared_expert.gate_proj"},
                                             {"mlp.shared.up", "mlp.shared_expert.up_proj"},
                                             {"mlp.shared.proj", "mlp.shared_expert.down_proj"},
                                             {"mlp.shared_gate", "mlp.shared_expert_gate"}})
    names.parts.push_back(pair);
  return names;
}

void as_qwen3_moe(Model& m) {
  as_llama(m);
  m.qk_norm = true;
  m.experts.normalised = true;
}

void qwen3_moe_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);  // if missing, hidden / heads
  rotation(k, m, 0);
  silu(k, m, "qwen3_moe");
  no_biases(k, "attention_bias");
  qwen_window(k, m);
  qwen_experts(k, m);
}

// -- OLMoE ------------------------------------------------------------------------------------------------------------

// Muennighoff et al. 2024, "OLMoE": one norm over all heads of q, and one over k's.
void as_olmoe(Model& m) {
  as_llama(m);
  m.qk_norm = m.joint_qk_norm = true;
}

void olmoe_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false);
  rotation(k, m, 0);
  silu(k, m, "olmoe");
  no_biases(k, "attention_bias");
  experts_keys(k, m, "num_experts");
  experts_as_wide_as_mlps(k, m);
  k.flag({"norm_topk_prob"}, m.experts.normalised, false);
  auxiliary_loss(k, m, 0.01);
  double most = 0;
  k.real({"clip_qkv"}, most, 0, 1e6, 0);
  if (k.reads() && most > 0) k.differs("q, k and v are not clipped at clip_qkv");
}

// -- MiniMax-M2 -------------------------------------------------------------------------------------------------------

// MiniMax 2025: OLMoE's norms, half of a head rotates, and experts are chosen by sigmoids with a balancing bias.
void as_minimax_m2(Model& m) {
  as_olmoe(m);
  m.norm_epsilon = 1e-6;
  m.rope_theta = 5e6;
  m.rotary_share = 0.5;
  m.experts.scores = Scores::sigmoid;
  m.experts.normalised = true;
  m.experts.balance_bias = true;
}

void minimax_m2_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 128);
  k.real({"rope_theta", "rope_parameters.rope_theta"}, m.rope_theta, 1, 1e12, 5e6);
  rotated_columns(k, m, 64);
  k.rope_scaling(m);
  silu(k, m, "minimax_m2");
  k.flag({"use_qk_norm"}, m.qk_norm, true);
  if (k.reads()) m.joint_qk_norm = m.qk_norm;
  experts_keys(k, m, "num_local_experts");
  experts_as_wide_as_mlps(k, m);
  auxiliary_loss(k, m, 0.001);
  if (k.given("use_mtp")) k.remark("the modules that predict further tokens are left out, as its class has none");
}

WeightNames minimax_m2_names() {
  WeightNames names =
      with_experts("block_sparse_moe.gate", "block_sparse_moe.experts", {{"gate", "w1"}, {"up", "w3"}, {"proj", "w2"}});
  names.parts.push_back({"mlp.router.balance", "block_sparse_moe.e_score_correction_bias"});
  return names;
}

// -- DeepSeek-V2 and V3 -----------------------------------------------------------------------------------------------

// DeepSeek-AI 2024, "DeepSeek-V2", section 2.2: devices, and so groups of experts, are chosen by their best expert.
void as_deepseek_v2(Model& m) {
  as_llama(m);
  m.norm_epsilon = 1e-6;
  m.experts.groups_by_two = false;
}

// DeepSeek-AI 2024, "DeepSeek-V3", sections 2.1.2 and 4.2: weights from sigmoids, groups chosen by their two best
// experts, and a bias that moves by 0.001 a step.
void as_deepseek_v3(Model& m) {
  as_llama(m);
  m.norm_epsilon = 1e-6;
  m.experts.scores = Scores::sigmoid;
  m.experts.normalised = true;
  m.experts.balance_bias = true;
  m.experts.bias_rate = 0.001;
}

void latent_keys(ConfigKeys& k, Model& m) {
  k.count({"q_lora_rank"}, m.latent.q_rank, 1, kMostWidth, 0);
  k.count({"kv_lora_rank"}, m.latent.kv_rank, 1, kMostWidth);
  k.count({"qk_nope_head_dim"}, m.latent.nope, 1, kMostWidth);
  k.count({"qk_rope_head_dim"}, m.latent.rope, 1, kMostWidth);
  k.count({"v_head_dim"}, m.latent.value, 1, kMostWidth);
  if (k.reads()) m.head_dim = m.latent.nope + m.latent.rope;
}

void deepseek_groups(ConfigKeys& k, Model& m) {
  k.count({"n_group"}, m.experts.groups, 1, kMostExperts, 1);
  k.count({"topk_group"}, m.experts.groups_chosen, 1, kMostExperts, 1);
}

/// The experts' sizes, which layers have experts, and how their weights are scaled.
void routed_like_deepseek(ConfigKeys& k, Model& m, double scale, bool normalised) {
  Experts& e = m.experts;
  k.count({"moe_intermediate_size"}, e.hidden, 1, kMostWidth);
  std::int64_t shared = e.hidden > 0 ? e.shared / e.hidden : 0;
  k.count({"n_shared_experts"}, shared, 0, kMostExperts, 0);
  if (k.reads()) e.shared = shared * e.hidden;
  k.count({"first_k_dense_replace"}, e.first_dense, 0, kMostLayers, 0);
  k.real({"routed_scaling_factor"}, e.weight_scale, 0, kMostCoefficient, scale);
  k.flag({"norm_topk_prob"}, e.normalised, normalised);
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
  latent_keys(k, m);
  experts_keys(k, m, "n_routed_experts");
  routed_like_deepseek(k, m, third ? 2.5 : 1, third);
  deepseek_routing(k, m, third);
  // V2 either divides the weights by their sum or scales them, never both.
  if (!third && k.reads() && e.normalised && e.chosen > 1) e.weight_scale = 1;
  if (k.given("aux_loss_alpha"))
    k.remark("aux_loss_alpha is left out: it weights a balance over each sequence, not over the step");
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
  routed_like_deepseek(k, m, 1, true);
  deepseek_groups(k, m);
  further_prediction(k, m);
}

// -- DeepSeekMoE, dots.llm1 and ERNIE 4.5 -----------------------------------------------------------------------------

// Dai et al. 2024, "DeepSeekMoE", section 4.1: fine experts and shared ones around ordinary attention.
void deepseek_moe_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, false);
  rotation(k, m, 0);
  silu(k, m, "deepseek");
  no_biases(k, "attention_bias");
  experts_keys(k, m, "n_routed_experts");
  routed_like_deepseek(k, m, 1, false);
  deepseek_routing(k, m, false);
  if (k.given("aux_loss_alpha"))
    k.remark("aux_loss_alpha is left out: it weights a balance over each sequence, not over the step");
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
  routed_like_deepseek(k, m, 1, false);
  deepseek_groups(k, m);
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

// -- DBRX -------------------------------------------------------------------------------------------------------------

// Databricks 2024: LayerNorms without bias, q, k and v clipped, four of sixteen experts.
void as_dbrx(Model& m) {
  as_llama(m);
  m.normalisation = Normalisation::layer_norm;
  m.norm_bias = false;
  m.experts.normalised = true;
}

void dbrx_config(ConfigKeys& k, Model& m) {
  Experts& e = m.experts;
  k.count({"n_layers", "num_hidden_layers"}, m.layers, 1, kMostLayers);
  k.count({"d_model", "hidden_size"}, m.hidden, 1, kMostWidth);
  k.count({"n_heads", "num_attention_heads"}, m.heads, 1, kMostWidth);
  k.count({"max_seq_len", "max_position_embeddings"}, m.max_sequence, 1, kMostSequence, 2048);
  k.count({"attn_config.kv_n_heads"}, m.kv_heads, 1, kMostWidth, 1);
  k.real({"attn_config.rope_theta"}, m.rope_theta, 1, 1e12, 10000);
  rate(k, "attn_config.attn_pdrop", m.dropout.attention);
  rate(k, "resid_pdrop", m.dropout.residual);
  rate(k, "emb_pdrop", m.dropout.embedding);
  k.count({"ffn_config.moe_num_experts"}, e.count, 1, kMostExperts, 4);
  k.count({"ffn_config.moe_top_k"}, e.chosen, 1, kMostExperts, 1);
  k.count({"ffn_config.ffn_hidden_size"}, m.ffn_hidden, 1, kMostWidth, 3584);
  experts_as_wide_as_mlps(k, m);
  double power = e.normalised ? 1 : 0, most = 0, balance = e.aux_coefficient;
  k.real({"ffn_config.moe_normalize_expert_weights"}, power, 0, kMostCoefficient, 1);
  k.real({"ffn_config.moe_loss_weight"}, balance, 0, kMostCoefficient, 0.01);
  k.real({"attn_config.clip_qkv"}, most, 0, 1e6, 0);
  bool added = e.aux_coefficient > 0;
  k.flag({"output_router_logits"}, added, false);
  if (!k.reads()) return;
  if (power != 0 && power != 1)
    k.refuse("ffn_config", "weights of experts are only divided by their sum", "moe_normalize_expert_weights: 1");
  e.normalised = power == 1;
  e.aux_coefficient = added ? balance : 0;
  k.differs(most > 0 ? "q, k and v are not clipped at clip_qkv, and its files of weights are not read"
                     : "its files of weights, where a layer's experts are rows of one matrix, are not read");
}

WeightNames dbrx_names() {
  return {.prefix = "transformer.",
          .layer = "blocks.",
          .whole = {{"wte", "wte"}, {"ln_f", "norm_f"}},
          .parts = {{"ln_1", "norm_attn_norm.norm_1"},
                    {"ln_2", "norm_attn_norm.norm_2"},
                    {"attn.q", "norm_attn_norm.attn.Wqkv"},
                    {"attn.k", "norm_attn_norm.attn.Wqkv"},
                    {"attn.v", "norm_attn_norm.attn.Wqkv"},
                    {"attn.proj", "norm_attn_norm.attn.out_proj"},
                    {"mlp.router", "ffn.router.layer"}},
          .experts = "ffn.experts",
          .expert_parts = {{"gate", "w1"}, {"up", "v1"}, {"proj", "w2"}},
          .qkv = WeightNames::Qkv::in_turn};
}

// -- gpt-oss ----------------------------------------------------------------------------------------------------------

// OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", section 2.
void as_gpt_oss(Model& m) {
  as_llama(m);
  m.activation = Activation::clamped_swiglu;
  m.bias = true;
  m.attention_sinks = true;
  m.window = 128;
  m.window_period = 2;
  m.experts.chosen = 4;
  m.experts.scores = Scores::softmax_chosen;
  m.experts.router_bias = m.experts.expert_bias = true;
}

void gpt_oss_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 64);
  k.real({"rope_theta", "rope_parameters.rope_theta"}, m.rope_theta, 1, 1e12, 150000);
  k.rope_scaling(m);
  k.activation({"hidden_act"}, m, {{"silu", Activation::clamped_swiglu}}, "gpt_oss");
  double limit = 7;
  k.real({"swiglu_limit"}, limit, 0, 1e6, limit);
  if (k.reads() && limit != 7) k.refuse("swiglu_limit", "a SwiGLU that is not clamped at 7", "7, or none");
  k.only("attention_bias", true, "its attention carries biases here");
  k.count({"sliding_window"}, m.window, 0, kMostSequence, 128);
  if (k.reads()) m.window_period = m.window > 0 ? 2 : 0;
  k.layer_types(m);
  window_within(k, m);
  experts_keys(k, m, "num_local_experts");
  experts_as_wide_as_mlps(k, m);
}

// transformers, modeling_gpt_oss.py. Not read: OpenAI's own files, which have experts in 4 bits
// ("gate_up_proj_blocks"); transformers writes them in the form read here.
WeightNames gpt_oss_names() {
  WeightNames names = with_experts("mlp.router", "mlp.experts", kStacked);
  names.parts.push_back({"attn.sinks", "self_attn.sinks"});
  names.interleaved = true;
  return names;
}

// -- Llama 4 ----------------------------------------------------------------------------------------------------------

// transformers, modeling_llama4.py: a token takes one expert, whose input is the token times the sigmoid of its logit.
void as_llama4(Model& m) {
  as_llama(m);
  m.rope_theta = 500000;
  m.unrotated_period = 4;
  m.experts.scores = Scores::sigmoid;
  m.experts.scales_input = true;
}

void llama4_config(ConfigKeys& k, Model& m) {
  sizes(k, m);
  k.count({"num_key_value_heads"}, m.kv_heads, 1, kMostWidth, m.heads);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 128);
  k.count({"intermediate_size_mlp"}, m.ffn_hidden, 1, kMostWidth, 16384);
  positions_up_to(k, m);
  k.real({"rms_norm_eps"}, m.norm_epsilon, 0, 1, 1e-5);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, false);
  rate(k, "attention_dropout", m.dropout.attention);
  k.real({"rope_theta", "rope_parameters.rope_theta"}, m.rope_theta, 1, 1e12, 500000);
  k.rope_scaling(m);
  silu(k, m, "llama4");
  no_biases(k, "attention_bias");
  experts_keys(k, m, "num_local_experts");
  k.count({"intermediate_size"}, m.experts.hidden, 1, kMostWidth);
  if (k.reads()) m.experts.shared = m.experts.hidden;
  k.count({"interleave_moe_layer_step"}, m.experts.period, 1, kMostLayers, 1);
  k.expert_layers("moe_layers", true, m);
  auxiliary_loss(k, m, 0.001);
  k.unrotated_layers("no_rope_layers", "no_rope_layer_interval", m, 4);
  k.differs(
      "its attention is not limited to chunks, q and k have no norms without weights, scores do not grow with the "
      "position, and it sees no images");
}

WeightNames llama4_names() {
  WeightNames names = llama_names();
  for (auto& [logical, file] : names.parts) {
    const std::string one = logical;
    if (one == "mlp.gate") file = "feed_forward.gate_proj";
    if (one == "mlp.up" || one == "mlp.fc") file = "feed_forward.up_proj";
    if (one == "mlp.proj") file = "feed_forward.down_proj";
  }
  for (const auto& pair : WeightNames::Pairs{{"mlp.router", "feed_forward.router"},
                                             {"mlp.shared.gate", "feed_forward.shared_expert.gate_proj"},
                                             {"mlp.shared.up", "feed_forward.shared_expert.up_proj"},
                                             {"mlp.shared.proj", "feed_forward.shared_expert.down_proj"}})
    names.parts.push_back(pair);
  names.experts = "feed_forward.experts";
  names.expert_parts = kStacked;
  names.adjacent_pairs = true;
  return names;
}

}  // namespace

std::vector<FamilyTraits> expert_families() {
  std::vector<FamilyTraits> all = {
      entry(Family::mixtral, "mixtral", "Mixtral", "MixtralForCausalLM", "Mixtral", as_mixtral, mixtral_config,
            mixtral_names()),
      entry(Family::qwen2_moe, "qwen2_moe", "Qwen2 of experts", "Qwen2MoeForCausalLM", "Qwen2Moe", as_qwen2_moe,
            qwen2_moe_config, qwen2_moe_names()),
      entry(Family::qwen3_moe, "qwen3_moe", "Qwen3 of experts", "Qwen3MoeForCausalLM", "Qwen3Moe", as_qwen3_moe,
            qwen3_moe_config, with_experts("mlp.gate", "mlp.experts", kProjections)),
      entry(Family::deepseek_v2, "deepseek_v2", "DeepSeek-V2", "DeepseekV2ForCausalLM", "DeepseekV2", as_deepseek_v2,
            deepseek_v2_config, deepseek_names()),
      entry(Family::deepseek_v3, "deepseek_v3", "DeepSeek-V3", "DeepseekV3ForCausalLM", "DeepseekV3", as_deepseek_v3,
            deepseek_v3_config, deepseek_names()),
      entry(Family::gpt_oss, "gpt_oss", "gpt-oss", "GptOssForCausalLM", "GptOss", as_gpt_oss, gpt_oss_config,
            gpt_oss_names()),
      entry(Family::llama4, "llama4_text", "Llama 4", "Llama4ForCausalLM", "Llama4", as_llama4, llama4_config,
            llama4_names()),
      entry(Family::glm4_moe, "glm4_moe", "GLM 4.5", "Glm4MoeForCausalLM", "Glm4Moe", as_glm4_moe, glm4_moe_config,
            deepseek_names()),
      entry(Family::deepseek, "deepseek", "DeepSeekMoE", "DeepseekForCausalLM", "DeepseekFor", as_deepseek_v2,
            deepseek_moe_config, deepseek_names()),
      entry(Family::dots1, "dots1", "dots.llm1", "Dots1ForCausalLM", "Dots1", as_dots1, dots1_config, deepseek_names()),
      entry(Family::ernie_moe, "ernie4_5_moe", "ERNIE 4.5 of experts", "Ernie4_5_MoeForCausalLM", "Ernie4_5_Moe",
            as_ernie_moe, ernie_moe_config, ernie_moe_names()),
      entry(Family::dbrx, "dbrx", "DBRX", "DbrxForCausalLM", "Dbrx", as_dbrx, dbrx_config, dbrx_names()),
      entry(Family::minimax_m2, "minimax_m2", "MiniMax-M2", "MiniMaxM2ForCausalLM", "MiniMaxM2", as_minimax_m2,
            minimax_m2_config, minimax_m2_names()),
      entry(Family::olmoe, "olmoe", "OLMoE", "OlmoeForCausalLM", "Olmoe", as_olmoe, olmoe_config,
            with_experts("mlp.gate", "mlp.experts", kProjections)),
  };
  for (FamilyTraits& one : all) {
    one.mixture = true;
    if (one.family == Family::qwen3_moe) one.model_types.push_back("qwen3_vl_moe_text");
    if (one.family == Family::deepseek_v3) one.model_types.push_back("kimi_k2");
    if (one.family == Family::llama4) one.name = "llama4", one.model_types.push_back("llama4");
    if (one.family == Family::gpt_oss || one.family == Family::llama4) one.names = stack_experts;
  }
  return all;
}

}  // namespace orrery::models

// Families with mixtures of experts. Keys and their defaults come from the classes' configurations in Hugging Face's
// transformers 4 and 5 (DeepSeek's from the configuration_deepseek.py beside its weights), names from the classes'
// modules.
#include "models/read/experts_parts.h"

namespace orrery::models {
namespace {

using namespace family_parts;

// -- Mixtral ----------------------------------------------------------------------------------------------------------

// Jiang et al. 2024, "Mixtral of Experts", section 2: a softmax over the chosen, which equals the softmax over all,
// divided by the sum of the chosen.
void as_mixtral(Model& m) {
  as_llama(m);
  m.experts.chosen = 2;
  m.experts.normalised = true;
}

void mixtral_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false, "rms_norm_eps", 8);
  k.count({"head_dim"}, m.head_dim, 1, kMostWidth, 0);
  rotation(k, m, 0, 1e6);
  silu(k, m, "mixtral");
  k.count({"sliding_window"}, m.window, 0, kMostSequence, 0);
  window_within(k, m);
  experts_keys(k, m, "num_local_experts");
  experts_as_wide_as_mlps(k, m);
  auxiliary_loss(k, m, 0.001);
  jitter_left_out(k);
}

WeightNames mixtral_names() {
  return with_experts("block_sparse_moe.gate", "block_sparse_moe.experts",
                      {{"gate", "w1"}, {"up", "w3"}, {"proj", "w2"}});
}

// -- Granite 3 --------------------------------------------------------------------------------------------------------

// IBM 2024, "Granite 3.0 Language Models": Granite's factors, and a softmax over the chosen experts. All experts of a
// layer lie in two tensors, (experts, out, in).
void granite_moe_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-6, false);
  rotation(k, m, 0);
  silu(k, m, "granitemoe");
  no_biases(k, "attention_bias");
  granite_scales(k, m);
  experts_keys(k, m, "num_local_experts");
  experts_as_wide_as_mlps(k, m);
  auxiliary_loss(k, m, 0.001);
}

void granite_moe_shared_config(ConfigKeys& k, Model& m) {
  granite_moe_config(k, m);
  k.count({"shared_intermediate_size"}, m.experts.shared, 0, kMostWidth, 1024);
}

WeightNames granite_moe_names() {
  WeightNames names = llama_names();
  add_granite_experts(names);
  return names;
}

// -- MiniCPM ----------------------------------------------------------------------------------------------------------

// Hu et al. 2024, "MiniCPM", section 3.1: a Llama with factors on embeddings, residuals and logits; keys as in
// configuration_minicpm.py beside the weights. Section 6.4: or with Mixtral's experts in all layers.
void as_minicpm(Model& m) {
  as_llama(m);
  m.tied_embeddings = true;
  m.norm_epsilon = 1e-6;
}

void minicpm_config(ConfigKeys& k, Model& m) {
  Experts& e = m.experts;
  llama_keys(k, m, 1e-6, true);
  rotation(k, m, 0);
  silu(k, m, "minicpm");
  no_biases(k, "attention_bias");
  minicpm_scales(k, m, {1, 1, 1});
  k.count({"num_experts", "num_local_experts", "n_routed_experts"}, e.count, 0, kMostExperts, 0);
  if (e.any()) {
    k.count({"num_experts_per_tok"}, e.chosen, 1, kMostExperts, 2);
    experts_as_wide_as_mlps(k, m);
    if (k.reads()) e.normalised = true;
  }
  k.unused({"mup_denominator"});
  if (k.given("sparse_config"))
    k.refuse("sparse_config", "attention that reads only chosen blocks of tokens is not supported", "null");
}

// -- Phi-3.5-MoE ------------------------------------------------------------------------------------------------------

// Abdin et al. 2024, "Phi-3 Technical Report", section 2: LayerNorms, biases of attention and of the head, two of
// sixteen experts by a router that draws them.
void as_phimoe(Model& m) {
  as_llama(m);
  m.normalisation = Normalisation::layer_norm;
  m.qkv_bias = m.out_bias = m.head_bias = true;
  m.experts.chosen = 2;
  m.experts.scores = Scores::sparse_mixer;
}

void phimoe_config(ConfigKeys& k, Model& m) {
  llama_keys(k, m, 1e-5, false);
  rotation(k, m, 0, 1e6);
  k.unused({"original_max_position_embeddings"});  // of a scaled rotation, which asks for it
  silu(k, m, "phimoe");
  k.flag({"attention_bias"}, m.qkv_bias, false);
  if (k.reads()) m.out_bias = m.qkv_bias;
  k.flag({"lm_head_bias"}, m.head_bias, false);
  k.count({"sliding_window"}, m.window, 0, kMostSequence, 0);
  window_within(k, m);
  experts_keys(k, m, "num_local_experts");
  experts_as_wide_as_mlps(k, m);
  auxiliary_loss(k, m, 0.001);
  jitter_left_out(k);
  jitter_left_out(k, "input_jitter_noise");
}

WeightNames phimoe_names() {
  WeightNames names = mixtral_names();
  names.heads = {{"head.bias", "lm_head.bias"}};
  return names;
}

// -- HunYuan-A13B -----------------------------------------------------------------------------------------------------

void as_hunyuan_moe(Model& m) {
  as_hunyuan(m);
  m.experts.normalised = true;
}

// Files give some numbers for each layer. Without a width of their own, experts are as wide as the shared ones.
void hunyuan_moe_config(ConfigKeys& k, Model& m) {
  Experts& e = m.experts;
  hunyuan_keys(k, m, "hunyuan_v1_moe");
  experts_count(k, m, "num_experts");
  k.count({"moe_topk", "num_experts_per_tok"}, e.chosen, 1, kMostExperts, 1);
  k.count({"moe_intermediate_size"}, e.hidden, 1, kMostWidth, m.ffn_hidden);
  std::int64_t shared = e.hidden > 0 ? e.shared / e.hidden : 0;
  k.count({"num_shared_expert"}, shared, 0, kMostExperts, 1);
  if (k.reads()) e.shared = shared * e.hidden;
  k.count({"moe_layer_num_skipped"}, e.first_dense, 0, kMostLayers, 0);
  k.flag({"norm_topk_prob"}, e.normalised, true);
  k.only("moe_drop_tokens", false, "no token is dropped here");
}

WeightNames hunyuan_moe_names() {
  WeightNames names = hunyuan_names();
  for (const auto& pair : WeightNames::Pairs{{"mlp.router", "mlp.gate.wg"},
                                             {"mlp.shared.gate", "mlp.shared_mlp.gate_proj"},
                                             {"mlp.shared.up", "mlp.shared_mlp.up_proj"},
                                             {"mlp.shared.proj", "mlp.shared_mlp.down_proj"}})
    names.parts.push_back(pair);
  names.experts = "mlp.experts";
  names.expert_parts = kProjections;
  return names;
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
  k.fixed("qkv_bias", m.qkv_bias ? "true" : "false", "its class decides which products have biases");
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
  k.fixed("use_qk_norm", "true", "heads of q and k have norms in its class");
  k.unused({"shared_expert_intermediate_size"});  // it has no shared experts
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
  clipped(k, "clip_qkv");
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
  jitter_left_out(k);
  if (k.given("use_mtp")) k.remark("the modules that predict further tokens are left out, as its class has none");
  k.unused({"num_mtp_modules", "mtp_transformer_layers"});
  k.fixed("qk_norm_type", "per_layer", "one norm reads all heads in its class");
  k.fixed("scoring_func", "sigmoid", "experts are chosen in a way that its class does not have");
  k.fixed("use_routing_bias", "true", "routers have a balancing bias in its class");
  k.fixed("attn_type_list", "1", "all layers attend in its class");
  k.fixed("shared_intermediate_size", "0", "its class has no shared experts");
}

WeightNames minimax_m2_names() {
  WeightNames names =
      with_experts("block_sparse_moe.gate", "block_sparse_moe.experts", {{"gate", "w1"}, {"up", "w3"}, {"proj", "w2"}});
  names.parts.push_back({"mlp.router.balance", "block_sparse_moe.e_score_correction_bias"});
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
  k.unused({"attn_config.model_type", "ffn_config.model_type", "router_aux_loss_coef"});  // moe_loss_weight says it
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
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, false);
  if (!k.reads()) return;
  jitter_left_out(k, "ffn_config.moe_jitter_eps");
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
  auxiliary_loss(k, m, 0.9);
  k.unused({"initial_context_length"});  // rope_scaling's own, again
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
  jitter_left_out(k);
  k.unused({"attention_chunk_size", "use_qk_norm", "attn_temperature_tuning", "attn_scale", "floor_scale",
            "layer_types", "for_llm_compressor"});
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
      entry(Family::gpt_oss, "gpt_oss", "gpt-oss", "GptOssForCausalLM", "GptOss", as_gpt_oss, gpt_oss_config,
            gpt_oss_names()),
      entry(Family::llama4, "llama4_text", "Llama 4", "Llama4ForCausalLM", "Llama4", as_llama4, llama4_config,
            llama4_names()),
      entry(Family::dbrx, "dbrx", "DBRX", "DbrxForCausalLM", "Dbrx", as_dbrx, dbrx_config, dbrx_names()),
      entry(Family::minimax_m2, "minimax_m2", "MiniMax-M2", "MiniMaxM2ForCausalLM", "MiniMaxM2", as_minimax_m2,
            minimax_m2_config, minimax_m2_names()),
      entry(Family::granite_moe, "granitemoe", "Granite 3 of experts", "GraniteMoeForCausalLM", "GraniteMoeFor",
            as_mixtral, granite_moe_config, granite_moe_names()),
      entry(Family::granite_moe_shared, "granitemoeshared", "Granite 3 of experts, some of them shared",
            "GraniteMoeSharedForCausalLM", "GraniteMoeShared", as_mixtral, granite_moe_shared_config,
            granite_moe_names()),
      entry(Family::minicpm, "minicpm", "MiniCPM", "MiniCPMForCausalLM", "MiniCPMFor", as_minicpm, minicpm_config,
            with_experts("mlp.gate", "mlp.experts", {{"gate", "w1"}, {"up", "w3"}, {"proj", "w2"}})),
      entry(Family::phimoe, "phimoe", "Phi-3.5-MoE", "PhimoeForCausalLM", "Phimoe", as_phimoe, phimoe_config,
            phimoe_names()),
      entry(Family::hunyuan_moe, "hunyuan_v1_moe", "HunYuan of experts", "HunYuanMoEV1ForCausalLM", "HunYuanMoE",
            as_hunyuan_moe, hunyuan_moe_config, hunyuan_moe_names()),
      entry(Family::olmoe, "olmoe", "OLMoE", "OlmoeForCausalLM", "Olmoe", as_olmoe, olmoe_config,
            with_experts("mlp.gate", "mlp.experts", kProjections)),
  };
  for (FamilyTraits& one : all) {
    one.mixture = one.family != Family::minicpm;
    if (one.family == Family::qwen3_moe)
      for (const char* type : {"qwen3_vl_moe_text", "qwen3_omni_moe_text"}) one.model_types.push_back(type);
    if (one.family == Family::llama4) one.name = "llama4", one.model_types.push_back("llama4");
    if (one.weights.stacked_by_rows || one.family == Family::gpt_oss || one.family == Family::llama4)
      one.names = stack_experts;
  }
  return all;
}

}  // namespace orrery::models

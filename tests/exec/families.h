#pragma once
/// Other families of a golden model's size.
#include "models/model.h"
#include "models/read/families.h"

namespace orrery::exec::testing {

/// A Llama with grouped queries and an untied head.
inline void make_llama(models::Model& m) {
  m.family = models::Family::llama;
  m.kv_heads = 2;
  m.ffn_hidden = 96;
  m.normalisation = models::Normalisation::rms_norm;
  m.activation = models::Activation::swiglu;
  m.positions = models::Positions::rope;
  m.bias = m.tied_embeddings = false;
}

/// An encoder as BERT's, that predicts the next token all the same.
inline void make_encoder(models::Model& m) {
  m.family = models::Family::bert;
  m.causal = m.pre_norm = false;
  m.token_types = 2;
}

/// The model of tests/golden/pytorch/generate_gpt_oss.py.
inline void make_gpt_oss(models::Model& m) {
  m.family = models::Family::gpt_oss;
  models::traits_of(m.family).defaults(m);
  m.layers = 3;
  m.kv_heads = 2;
  m.norm_epsilon = 1e-5;
  m.rope_theta = 10000;
  m.window = 6;
  m.experts.count = 8;
  m.experts.hidden = m.ffn_hidden = 24;
}

/// A mixture of experts of that family.
inline void make_mixture(models::Model& m) {
  using models::Family;
  m.experts.count = 4;
  m.experts.hidden = 24;
  m.experts.chosen = m.family == Family::llama4 ? 1 : 2;
  if (m.family == Family::minimax || m.family == Family::mixtral || m.family == Family::granite_moe ||
      m.family == Family::granite_moe_shared)
    m.ffn_hidden = 24;
  if (m.family == Family::llama4 || m.family == Family::granite_moe_shared || m.family == Family::hunyuan_moe ||
      m.family == Family::bailing_moe || m.family == Family::solar_open || m.family == Family::exaone_moe ||
      m.family == Family::afmoe)
    m.experts.shared = 24;
}

/// State spaces, short convolutions, or gated delta networks whose chunks of 5 tokens do not divide a sequence of 16.
inline void make_hybrid(models::Model& m) {
  using models::Family;
  using models::Feed;
  using models::Mixer;
  m.ssm = {.heads = 8, .width = 8, .groups = 2, .state = 6, .taps = 4, .chunk = 5};
  const models::BlockParts mamba = {Mixer::mamba, Feed::none}, mlp = {Mixer::none, Feed::mlp};
  if (m.family == Family::nemotron_h) {
    m.layers = 4;
    m.pattern = {mamba, mlp, {Mixer::attention, Feed::none}, mlp};
  } else if (m.family == Family::mamba2) {
    m.pattern = {mamba};
  } else if (m.family == Family::qwen3_next || m.family == Family::qwen3_5 || m.family == Family::qwen3_5_moe) {
    m.ssm = {.heads = 4, .width = 8, .groups = 2, .state = 6, .taps = 4, .chunk = 5, .conv_bias = false};
    const Feed feed = m.family == Family::qwen3_5 ? Feed::mlp : Feed::experts;
    if (feed == Feed::experts) make_mixture(m), m.experts.shared = 16;
    m.pattern = {{Mixer::delta, feed}, {Mixer::attention, feed}};
  } else if (m.family == Family::falcon_h1) {
    m.pattern = {{Mixer::both, Feed::mlp}};
    m.ssm.normed = false;
    m.ssm.scales = {0.9, 1.1, 0.8, 1.2, 1.3}, m.ssm.out_scale = 0.6;
    m.embedding_scale = 2, m.logit_scale = 0.5;
    m.score_factor = 1.4, m.value_scale = 0.7, m.gate_scale = 1.5, m.mlp_scale = 0.4;
  } else if (m.family == Family::jamba) {
    m.ssm = {.heads = 48, .width = 1, .groups = 1, .state = 6, .taps = 4, .chunk = 5, .rank = 4};
    make_mixture(m);
    m.ffn_hidden = m.experts.hidden;
    m.pattern = {{Mixer::selective, Feed::mlp}, {Mixer::attention, Feed::experts}};
  } else if (m.family == Family::mamba || m.family == Family::falcon_mamba) {
    const bool falcon = m.family == Family::falcon_mamba;
    m.ssm = {.heads = 48,
             .width = 1,
             .groups = 1,
             .state = 6,
             .taps = 4,
             .chunk = 5,
             .rank = 4,
             .part_norms = falcon ? models::PartNorms::plain : models::PartNorms::none,
             .part_epsilon = falcon ? 1e-6 : 0};
    m.pattern = {{Mixer::selective, Feed::none}};
  } else if (m.family == Family::minimax) {
    m.ssm = {.heads = 8, .width = 6, .groups = 8, .state = 6, .chunk = 5, .conv_bias = false, .out_scale = 0.9};
    make_mixture(m);
    m.layers = 4;  // two of lightning attention, whose decays differ
    m.pattern = {{Mixer::lightning, Feed::experts}, {Mixer::attention, Feed::experts}};
    m.rotary_share = 0.5, m.value_scale = 0.8, m.experts.weight_scale = 0.7;
    m.skip_scales = {1.5, 1.2, 1.7};
  } else if (m.family == Family::lfm2 || m.family == Family::lfm2_moe) {
    m.ssm = {};
    m.conv_taps = 3;
    if (m.family == Family::lfm2_moe) make_mixture(m);
    m.pattern = {{Mixer::conv, Feed::mlp},
                 {Mixer::attention, m.family == Family::lfm2_moe ? Feed::experts : Feed::mlp}};
  } else {
    m.pattern = {{Mixer::mamba, Feed::mlp}, {Mixer::attention, Feed::mlp}};
  }
}

/// Any family at a golden model's size, with all that it has and others do not.
inline void make_family(models::Model& m, models::Family family) {
  using models::Family;
  m.family = family;
  models::traits_of(family).defaults(m);
  const bool grouped = family != Family::gpt && family != Family::bert && family != Family::gpt_neox &&
                       family != Family::opt && family != Family::bloom && family != Family::gpt_bigcode &&
                       family != Family::mpt && family != Family::qwen && family != Family::baichuan &&
                       family != Family::gptj && family != Family::phi && family != Family::gpt_neo &&
                       family != Family::codegen;
  if (grouped) m.kv_heads = 2;
  const bool four = family == Family::bloom || family == Family::falcon || family == Family::mpt;
  m.ffn_hidden = four ? 4 * m.hidden : 96;
  if (family == Family::gemma || family == Family::gemma2 || family == Family::gemma3 || family == Family::qwen3)
    m.head_dim = 16;
  if (family == Family::mistral || family == Family::phi3) m.window = 6;
  if (models::traits_of(family).mixture) make_mixture(m);
  if (family == Family::nemotron_h || family == Family::mamba2 || family == Family::bamba ||
      family == Family::granite_hybrid || family == Family::qwen3_next || family == Family::qwen3_5 ||
      family == Family::qwen3_5_moe || family == Family::lfm2 || family == Family::lfm2_moe ||
      family == Family::falcon_h1 || family == Family::minimax || family == Family::jamba || family == Family::mamba ||
      family == Family::falcon_mamba)
    make_hybrid(m);
  if (family == Family::smollm3) m.unrotated_period = 2;
  if (family == Family::gptj || family == Family::codegen) m.rotary_share = 0.5;
  if (family == Family::minicpm || family == Family::granite || family == Family::granite_hybrid ||
      family == Family::granite_moe || family == Family::granite_moe_shared)
    m.embedding_scale = 3, m.residual_scale = 0.4, m.logit_scale = 0.5;
  if (family == Family::cohere) m.logit_scale = 0.25;
  const bool exaone = family == Family::exaone4 || family == Family::exaone_moe || family == Family::afmoe;
  if (family == Family::olmo3 || exaone) m.window = 4, m.window_period = 2;
  if (family == Family::gpt_neo) m.window = 4;
  if (family == Family::mimo_v2)
    m.window = 4, m.window_period = 0, m.full_layers = {0}, m.window_kv_heads = 4, m.value_dim = 6;
  if (family == Family::step3p5)
    m.head_dim = 8, m.window = 4, m.window_period = 2, m.window_heads = 2 * m.heads, m.window_theta = 100,
    m.rotary_share = 0.5, m.window_rotary_share = 1, m.experts.shared = 24;
  if (exaone) m.unrotated_period = 2;
  if (family == Family::cohere2) m.window = 4, m.window_period = m.unrotated_period = 2;
  if (family == Family::gemma3) m.window_period = 2, m.window_theta = 100;
  if (family == Family::gemma4)
    m.head_dim = 16, m.window_head_dim = 8, m.window_kv_heads = 4, m.keys_as_values = true, m.window = 4,
    m.window_period = 2, m.window_theta = 100, m.logit_cap = 1.3;
  if (family != Family::gemma2 && family != Family::gemma3) return;
  m.window = 4;
  m.attention_cap = 0.7, m.logit_cap = 1.3, m.query_scale = 20;
}

}  // namespace orrery::exec::testing

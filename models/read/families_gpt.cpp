// GPT-2, BERT and the families closer to them than to Llama. For sources of keys and names see
// models/read/families_llama.cpp.
#include <fmt/format.h>

#include "models/read/family_parts.h"

namespace orrery::models {
namespace {

using namespace family_parts;
using Qkv = WeightNames::Qkv;

// Devlin et al. 2019, section 3.1, task 1.
constexpr double kMaskedFraction = 0.15;

void nothing(Model&) {}

const WeightNames::Pairs kGptParts = {{"ln_1", "ln_1"},          {"ln_2", "ln_2"},
                                      {"attn.q", "attn.c_attn"}, {"attn.k", "attn.c_attn"},
                                      {"attn.v", "attn.c_attn"}, {"attn.proj", "attn.c_proj"},
                                      {"mlp.fc", "mlp.c_fc"},    {"mlp.proj", "mlp.c_proj"}};

// -- GPT-2 ------------------------------------------------------------------------------------------------------------

void gpt_config(ConfigKeys& k, Model& m) {
  k.count({"n_layer", "num_hidden_layers"}, m.layers, 1, kMostLayers);
  k.count({"n_embd", "hidden_size"}, m.hidden, 1, kMostWidth);
  k.count({"n_head", "num_attention_heads"}, m.heads, 1, kMostWidth);
  m.kv_heads = m.heads;
  k.count({"n_inner", "intermediate_size"}, m.ffn_hidden, 1, kMostWidth, 4 * m.hidden);
  k.count({"n_positions", "n_ctx", "max_position_embeddings"}, m.max_sequence, 1, kMostSequence);
  k.real({"layer_norm_epsilon"}, m.norm_epsilon, 0, 1, 1e-5);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, true);
  k.activation({"activation_function", "hidden_act"}, m,
               {{"gelu_new", Activation::gelu},
                {"gelu", Activation::gelu, Gelu::erf},
                {"relu", Activation::relu},
                {"gelu_pytorch_tanh", Activation::gelu},
                {"gelu_fast", Activation::gelu}},
               "gpt2");
  rate(k, "embd_pdrop", m.dropout.embedding);
  rate(k, "attn_pdrop", m.dropout.attention);
  rate(k, "resid_pdrop", m.dropout.residual);
  k.only("add_cross_attention", false, "there is no encoder to attend to");
  k.fixed("scale_attn_weights", "true", "scores are divided by the root of a head's width here");
  k.fixed("scale_attn_by_inverse_layer_idx", "false", "scores are scaled alike in all layers here");
}

// -- BERT -------------------------------------------------------------------------------------------------------------

void as_bert(Model& m) {
  m.causal = false;
  m.pre_norm = false;
  m.token_types = 2;
  m.norm_epsilon = 1e-12;
  m.gelu = Gelu::erf;
  m.masked_fraction = kMaskedFraction;
  m.next_sentence = true;
}

const WeightNames::Pairs kBertWhole = {{"wte", "embeddings.word_embeddings"},
                                       {"wpe", "embeddings.position_embeddings"},
                                       {"wtt", "embeddings.token_type_embeddings"},
                                       {"ln_e", "embeddings.LayerNorm"},
                                       {"pooler", "pooler.dense"}};
const WeightNames::Pairs kBertParts = {{"attn.q", "attention.self.query"},     {"attn.k", "attention.self.key"},
                                       {"attn.v", "attention.self.value"},     {"attn.proj", "attention.output.dense"},
                                       {"ln_1", "attention.output.LayerNorm"}, {"mlp.fc", "intermediate.dense"},
                                       {"mlp.proj", "output.dense"},           {"ln_2", "output.LayerNorm"}};

void bert_config(ConfigKeys& k, Model& m) {
  // The class without the head of next sentences has no pooler either.
  bool masked_alone = m.family == Family::bert && !m.next_sentence;
  k.of_class("BertForMaskedLM", masked_alone);
  sizes(k, m);
  m.kv_heads = m.heads;
  k.count({"intermediate_size"}, m.ffn_hidden, 1, kMostWidth);
  positions_up_to(k, m);
  k.count({"type_vocab_size"}, m.token_types, 0, kMostWidth, 2);
  k.real({"layer_norm_eps"}, m.norm_epsilon, 0, 1, 1e-12);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, true);
  k.activation({"hidden_act"}, m,
               {{"gelu", Activation::gelu, Gelu::erf},
                {"gelu_new", Activation::gelu},
                {"gelu_pytorch_tanh", Activation::gelu},
                {"gelu_fast", Activation::gelu}},
               "bert");
  rate(k, "hidden_dropout_prob", m.dropout.residual);
  m.dropout.embedding = m.dropout.residual;
  rate(k, "attention_probs_dropout_prob", m.dropout.attention);
  // The values of BertForPreTraining; a config.json says nothing about pre-training data.
  m.masked_fraction = kMaskedFraction;
  m.next_sentence = m.token_types > 1 && !masked_alone;
  std::string positions = "absolute";
  k.text({"position_embedding_type"}, positions, "absolute");
  if (positions != "absolute")
    k.refuse("position_embedding_type", fmt::format("`{}` positions are not supported for bert", positions),
             "only absolute ones");
  k.only("is_decoder", false, "bert is supported as an encoder only");
}

// -- RoBERTa ----------------------------------------------------------------------------------------------------------

// Liu et al. 2019: masked tokens alone, and two rows of the position table that no token uses.
constexpr std::int64_t kRobertaOffset = 2;

void as_roberta(Model& m) {
  as_bert(m);
  m.next_sentence = false;
  m.token_types = 1;
  m.position_offset = kRobertaOffset;
}

void roberta_config(ConfigKeys& k, Model& m) {
  std::int64_t rows = m.max_sequence + kRobertaOffset;
  k.count({"max_position_embeddings"}, rows, kRobertaOffset + 1, kMostSequence);
  bert_config(k, m);
  if (!k.reads()) return;
  m.max_sequence = rows - kRobertaOffset;
  m.next_sentence = false;
}

WeightNames roberta_names() {
  return {.prefix = "roberta.",
          .layer = "encoder.layer.",
          .whole = kBertWhole,
          .parts = kBertParts,
          .heads = {{"head.dense.weight", "lm_head.dense.weight"},
                    {"head.dense.bias", "lm_head.dense.bias"},
                    {"ln_f.weight", "lm_head.layer_norm.weight"},
                    {"ln_f.bias", "lm_head.layer_norm.bias"},
                    {"head.bias", "lm_head.bias"},
                    {"lm_head.weight", "lm_head.decoder.weight"}}};
}

// -- GPT-NeoX, Pythia -------------------------------------------------------------------------------------------------

// Black et al. 2022; Biderman et al. 2023.
void as_gpt_neox(Model& m) {
  m.positions = Positions::rope;
  m.rotary_share = 0.25;
  m.parallel = true;
  m.tied_embeddings = false;
  m.gelu = Gelu::erf;
}

void gpt_neox_config(ConfigKeys& k, Model& m) {
  sizes(k, m);
  m.kv_heads = m.heads;
  k.count({"intermediate_size"}, m.ffn_hidden, 1, kMostWidth);
  positions_up_to(k, m);
  k.real({"layer_norm_eps"}, m.norm_epsilon, 0, 1, 1e-5);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, false);
  k.real({"rotary_emb_base", "rope_theta", "rope_parameters.rope_theta"}, m.rope_theta, 1, 1e12, 10000);
  k.real({"rotary_pct", "partial_rotary_factor", "rope_parameters.partial_rotary_factor"}, m.rotary_share, 0, 1, 0.25);
  k.rope_scaling(m);
  k.flag({"use_parallel_residual"}, m.parallel, true);
  k.activation({"hidden_act"}, m,
               {{"gelu", Activation::gelu, Gelu::erf},
                {"gelu_new", Activation::gelu},
                {"gelu_fast", Activation::gelu},
                {"relu", Activation::relu}},
               "gpt_neox");
  rate(k, "attention_dropout", m.dropout.attention);
  rate(k, "hidden_dropout", m.dropout.residual);
  m.dropout.embedding = m.dropout.residual;
  k.only("attention_bias", true, "its linear layers have biases here");
}

/// For GPT-NeoX, Falcon and BLOOM; norms are named by each.
WeightNames neox_names(const char* prefix, const char* layer, WeightNames::Pairs whole, const std::string& attention) {
  const bool own = attention == "attention";
  return {.prefix = prefix,
          .layer = layer,
          .whole = std::move(whole),
          .parts = {{"ln_1", "input_layernorm"},
                    {"ln_2", "post_attention_layernorm"},
                    {"attn.q", own ? "attention.query_key_value" : "self_attention.query_key_value"},
                    {"attn.k", own ? "attention.query_key_value" : "self_attention.query_key_value"},
                    {"attn.v", own ? "attention.query_key_value" : "self_attention.query_key_value"},
                    {"attn.proj", own ? "attention.dense" : "self_attention.dense"},
                    {"mlp.fc", "mlp.dense_h_to_4h"},
                    {"mlp.proj", "mlp.dense_4h_to_h"}},
          .qkv = Qkv::by_head};
}

WeightNames gpt_neox_names() {
  WeightNames names =
      neox_names("gpt_neox.", "layers.", {{"wte", "embed_in"}, {"ln_f", "final_layer_norm"}}, "attention");
  names.heads = {{"lm_head.weight", "embed_out.weight"}};
  return names;
}

// -- OPT --------------------------------------------------------------------------------------------------------------

// Zhang et al. 2022. Its position table begins with two rows that no token uses.
constexpr std::int64_t kOptOffset = 2;

void as_opt(Model& m) {
  m.activation = Activation::relu;
  m.position_offset = kOptOffset;
}

void opt_config(ConfigKeys& k, Model& m) {
  sizes(k, m);
  m.kv_heads = m.heads;
  k.count({"ffn_dim"}, m.ffn_hidden, 1, kMostWidth);
  positions_up_to(k, m);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, true);
  k.activation({"activation_function"}, m, {{"relu", Activation::relu}, {"gelu", Activation::gelu, Gelu::erf}}, "opt");
  rate(k, "attention_dropout", m.dropout.attention);
  rate(k, "dropout", m.dropout.residual);
  std::int64_t embedding = m.hidden;
  k.count({"word_embed_proj_dim"}, embedding, 1, kMostWidth, m.hidden);
  if (embedding != m.hidden)
    k.refuse("word_embed_proj_dim", fmt::format("embeddings of width {} in a model of {}", embedding, m.hidden),
             "embeddings must be as wide as the layers; OPT-350M's are not");
  k.only("do_layer_norm_before", true, "OPT-350M normalises after the residual, without a norm after its embeddings");
  k.only("enable_bias", true, "its linear layers have biases here");
  k.only("layer_norm_elementwise_affine", true, "norms have weights here");
  k.fixed("layerdrop", "0", "no layer is left out here");
  k.fixed("activation_dropout", "0", "nothing is dropped between an MLP's products here");
  k.only("_remove_final_layer_norm", false, "there is a norm before the head here");
  k.unused({"output_projection"});
}

// -- Falcon -----------------------------------------------------------------------------------------------------------

// Almazrouei et al. 2023. The 7B model has one norm for attention and MLP, and one key/value head; the larger ones have
// two norms, and as many key/value heads as a tensor group has ranks.
void as_falcon(Model& m) {
  m.positions = Positions::rope;
  m.parallel = true;
  m.bias = false;
  m.gelu = Gelu::erf;
}

void falcon_config(ConfigKeys& k, Model& m) {
  sizes(k, m);
  bool one_head = m.kv_heads == 1;
  bool grouped = m.parallel && (!m.shared_norm || (!one_head && m.kv_heads != m.heads));
  k.flag({"new_decoder_architecture"}, grouped, false);
  k.flag({"multi_query"}, one_head, true);
  if (grouped)
    k.count({"num_kv_heads", "n_head_kv"}, m.kv_heads, 1, kMostWidth, m.heads);
  else if (k.reads())
    m.kv_heads = one_head ? 1 : m.heads;
  k.flag({"parallel_attn"}, m.parallel, true);
  std::int64_t norms = m.shared_norm ? 1 : 2;
  if (grouped) k.count({"num_ln_in_parallel_attn"}, norms, 1, 2, 2);
  if (k.reads()) {
    m.parallel = m.parallel || grouped;
    m.shared_norm = m.parallel && (!grouped || norms == 1);
  }
  k.count({"ffn_hidden_size"}, m.ffn_hidden, 1, kMostWidth, 4 * m.hidden);
  k.count({"max_position_embeddings"}, m.max_sequence, 1, kMostSequence, 2048);
  k.real({"layer_norm_epsilon"}, m.norm_epsilon, 0, 1, 1e-5);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, true);
  k.flag({"bias"}, m.bias, false);
  rotation(k, m, 0);
  k.activation({"activation"}, m, {{"gelu", Activation::gelu, Gelu::erf}, {"relu", Activation::relu}}, "falcon");
  rate(k, "attention_dropout", m.dropout.attention);
  rate(k, "hidden_dropout", m.dropout.residual);
  k.only("alibi", false, "Falcon adds slopes to scores before scaling them");
  if (k.given("ffn_hidden_size"))
    k.unused({"ff_factor"});
  else
    k.fixed("ff_factor", "4", "MLPs whose width is not given are four times as wide as layers");
  k.only("apply_residual_connection_post_layernorm", false, "residuals here are taken before the norms");
}

/// In models with two norms, each is named after what reads it.
void falcon_norms(WeightNames& names, const Model& model) {
  if (!model.parallel || model.shared_norm) return;
  names.parts[0] = {"ln_1", "ln_attn"};
  names.parts[1] = {"ln_2", "ln_mlp"};
}

// -- BLOOM ------------------------------------------------------------------------------------------------------------

// BigScience 2022, section 3.2.
void as_bloom(Model& m) {
  m.positions = Positions::alibi;
  m.embedding_norm = true;
}

void bloom_config(ConfigKeys& k, Model& m) {
  k.count({"n_layer", "num_hidden_layers"}, m.layers, 1, kMostLayers);
  k.count({"hidden_size", "n_embed"}, m.hidden, 1, kMostWidth);
  k.count({"n_head", "num_attention_heads"}, m.heads, 1, kMostWidth);
  m.kv_heads = m.heads;
  if (k.reads()) m.ffn_hidden = 4 * m.hidden;
  k.count({"seq_length"}, m.max_sequence, 1, kMostSequence, 2048);
  k.real({"layer_norm_epsilon"}, m.norm_epsilon, 0, 1, 1e-5);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, true);
  rate(k, "attention_dropout", m.dropout.attention);
  rate(k, "hidden_dropout", m.dropout.residual);
  k.only("apply_residual_connection_post_layernorm", false, "residuals here are taken before the norms");
  k.unused({"offset_alibi", "skip_bias_add", "skip_bias_add_qkv"});
}

// -- StarCoder and SantaCoder -----------------------------------------------------------------------------------------

// Li et al. 2023, "StarCoder", section 5.2: GPT-2 with one key/value head.
void as_bigcode(Model& m) {
  m.kv_heads = 1;
}

void bigcode_config(ConfigKeys& k, Model& m) {
  bool one_head = m.kv_heads == 1;
  gpt_config(k, m);
  k.flag({"multi_query"}, one_head, true);
  if (k.reads()) m.kv_heads = one_head ? 1 : m.heads;
  k.unused({"inference_runner", "pad_key_length", "pre_allocate_kv_cache", "validate_runner_input"});
}

/// With as many key/value heads as heads, each head's q, k and v stand together.
void bigcode_layout(WeightNames& names, const Model& model) {
  if (model.kv_heads == model.heads) names.qkv = Qkv::by_head;
}

// -- MPT --------------------------------------------------------------------------------------------------------------

// MosaicML 2023: slopes, and neither products nor norms have biases.
void as_mpt(Model& m) {
  m.positions = Positions::alibi;
  m.bias = m.norm_bias = false;
  m.gelu = Gelu::erf;
}

void mpt_config(ConfigKeys& k, Model& m) {
  k.count({"n_layers", "num_hidden_layers"}, m.layers, 1, kMostLayers);
  k.count({"d_model", "hidden_size"}, m.hidden, 1, kMostWidth);
  k.count({"n_heads", "num_attention_heads"}, m.heads, 1, kMostWidth);
  if (k.reads()) m.kv_heads = m.heads;
  std::int64_t ratio = m.hidden > 0 ? m.ffn_hidden / m.hidden : 4;
  k.count({"expansion_ratio"}, ratio, 1, kMostWidth, 4);
  if (k.reads()) m.ffn_hidden = ratio * m.hidden;
  k.count({"max_seq_len"}, m.max_sequence, 1, kMostSequence, 2048);
  k.real({"layer_norm_epsilon"}, m.norm_epsilon, 0, 1, 1e-5);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, true);
  rate(k, "emb_pdrop", m.dropout.embedding);
  rate(k, "resid_pdrop", m.dropout.residual);
  rate(k, "attn_config.attn_pdrop", m.dropout.attention);
  k.only("no_bias", true, "its products and norms have no biases here");
  bool slopes = true, norms = false;
  k.flag({"attn_config.alibi"}, slopes, true);
  k.flag({"attn_config.qk_ln"}, norms, false);
  if (!slopes) k.refuse("attn_config", "MPT without ALiBi is not supported", "alibi: true");
  if (norms) k.refuse("attn_config", "LayerNorms of q and k are not supported", "qk_ln: false");
  clipped(k, "attn_config.clip_qkv");
  k.fixed("attn_config.attn_type", "multihead_attention", "all heads have keys and values of their own here");
  k.fixed("attn_config.alibi_bias_max", "8", "slopes end at 2^-8 here");
  k.fixed("attn_config.prefix_lm", "false", "tokens see those before them alone here");
  k.fixed("embedding_fraction", "1", "embeddings have their whole gradient here");
  k.unused({"init_config", "learned_pos_emb", "tokenizer_name", "verbose"});  // its slopes replace learned positions
}

// -- Qwen -------------------------------------------------------------------------------------------------------------

// Bai et al. 2023, section 2.3; names and keys as in modeling_qwen.py beside the weights, where intermediate_size is
// the width of gate and up together.
void as_qwen(Model& m) {
  m.normalisation = Normalisation::rms_norm;
  m.activation = Activation::swiglu;
  m.positions = Positions::rope;
  m.bias = m.tied_embeddings = false;
  m.qkv_bias = true;
  m.norm_epsilon = 1e-6;
}

void qwen_config(ConfigKeys& k, Model& m) {
  sizes(k, m);
  if (k.reads()) m.kv_heads = m.heads;
  std::int64_t both = 2 * m.ffn_hidden;
  k.count({"intermediate_size"}, both, 2, 2 * kMostWidth);
  if (k.reads()) m.ffn_hidden = both / 2;
  k.count({"kv_channels"}, m.head_dim, 1, kMostWidth, 0);
  k.count({"max_position_embeddings", "seq_length"}, m.max_sequence, 1, kMostSequence, 8192);
  k.real({"layer_norm_epsilon"}, m.norm_epsilon, 0, 1, 1e-6);
  k.real({"rotary_emb_base"}, m.rope_theta, 1, 1e12, 10000);
  k.real({"rotary_pct"}, m.rotary_share, 0, 1, 1);
  k.flag({"tie_word_embeddings"}, m.tied_embeddings, false);
  rate(k, "attn_dropout_prob", m.dropout.attention);
  rate(k, "emb_dropout_prob", m.dropout.embedding);
  k.only("no_bias", true, "only q, k and v have biases here");
  k.fixed("scale_attn_weights", "true", "scores are divided by the root of a head's width here");
  k.unused({"use_dynamic_ntk", "use_logn_attn"});  // of sequences longer than any that was trained
}

// -- the entries ------------------------------------------------------------------------------------------------------

}  // namespace

std::vector<FamilyTraits> gpt_families() {
  return {
      {Family::gpt,
       "gpt",
       "GPT-2",
       {"gpt2"},
       "GPT2LMHeadModel",
       "GPT2",
       nothing,
       gpt_config,
       {.prefix = "transformer.",
        .layer = "h.",
        .whole = {{"wte", "wte"}, {"wpe", "wpe"}, {"ln_f", "ln_f"}},
        .parts = kGptParts,
        .qkv = Qkv::in_turn,
        .transposed = true}},
      {Family::bert,
       "bert",
       "BERT",
       {"bert"},
       "BertForPreTraining",
       "Bert",
       as_bert,
       bert_config,
       {.prefix = "bert.",
        .layer = "encoder.layer.",
        .whole = kBertWhole,
        .parts = kBertParts,
        .heads = {{"head.dense.weight", "cls.predictions.transform.dense.weight"},
                  {"head.dense.bias", "cls.predictions.transform.dense.bias"},
                  {"ln_f.weight", "cls.predictions.transform.LayerNorm.weight"},
                  {"ln_f.bias", "cls.predictions.transform.LayerNorm.bias"},
                  {"head.bias", "cls.predictions.bias"},
                  {"lm_head.weight", "cls.predictions.decoder.weight"},  // not tied
                  {"next_sentence.weight", "cls.seq_relationship.weight"},
                  {"next_sentence.bias", "cls.seq_relationship.bias"}}}},
      {Family::roberta,
       "roberta",
       "RoBERTa",
       {"roberta", "xlm-roberta", "camembert"},
       "RobertaForMaskedLM",
       "Roberta",
       as_roberta,
       roberta_config,
       roberta_names()},
      {Family::gpt_neox,
       "gpt_neox",
       "GPT-NeoX",
       {"gpt_neox"},
       "GPTNeoXForCausalLM",
       "GPTNeoXFor",
       as_gpt_neox,
       gpt_neox_config,
       gpt_neox_names()},
      {Family::opt,
       "opt",
       "OPT",
       {"opt"},
       "OPTForCausalLM",
       "OPT",
       as_opt,
       opt_config,
       {.prefix = "model.decoder.",
        .layer = "layers.",
        .whole = {{"wte", "embed_tokens"}, {"wpe", "embed_positions"}, {"ln_f", "final_layer_norm"}},
        .parts = {{"ln_1", "self_attn_layer_norm"},
                  {"ln_2", "final_layer_norm"},
                  {"attn.q", "self_attn.q_proj"},
                  {"attn.k", "self_attn.k_proj"},
                  {"attn.v", "self_attn.v_proj"},
                  {"attn.proj", "self_attn.out_proj"},
                  {"mlp.fc", "fc1"},
                  {"mlp.proj", "fc2"}}}},
      {Family::falcon,
       "falcon",
       "Falcon",
       {"falcon", "RefinedWeb", "RefinedWebModel"},
       "FalconForCausalLM",
       "Falcon",
       as_falcon,
       falcon_config,
       neox_names("transformer.", "h.", {{"wte", "word_embeddings"}, {"ln_f", "ln_f"}}, "self_attention"),
       falcon_norms},
      {Family::bloom,
       "bloom",
       "BLOOM",
       {"bloom"},
       "BloomForCausalLM",
       "Bloom",
       as_bloom,
       bloom_config,
       neox_names("transformer.", "h.",
                  {{"wte", "word_embeddings"}, {"ln_e", "word_embeddings_layernorm"}, {"ln_f", "ln_f"}},
                  "self_attention")},
      {Family::gpt_bigcode,
       "gpt_bigcode",
       "StarCoder",
       {"gpt_bigcode"},
       "GPTBigCodeForCausalLM",
       "GPTBigCode",
       as_bigcode,
       bigcode_config,
       {.prefix = "transformer.",
        .layer = "h.",
        .whole = {{"wte", "wte"}, {"wpe", "wpe"}, {"ln_f", "ln_f"}},
        .parts = kGptParts,
        .qkv = Qkv::in_turn},
       bigcode_layout},
      entry(Family::mpt, "mpt", "MPT", "MptForCausalLM", "MPT", as_mpt, mpt_config,
            {.prefix = "transformer.",
             .layer = "blocks.",
             .whole = {{"wte", "wte"}, {"ln_f", "norm_f"}},
             .parts = {{"ln_1", "norm_1"},
                       {"ln_2", "norm_2"},
                       {"attn.q", "attn.Wqkv"},
                       {"attn.k", "attn.Wqkv"},
                       {"attn.v", "attn.Wqkv"},
                       {"attn.proj", "attn.out_proj"},
                       {"mlp.fc", "ffn.up_proj"},
                       {"mlp.proj", "ffn.down_proj"}},
             .qkv = Qkv::in_turn}),
      entry(Family::qwen, "qwen", "Qwen", "QWenLMHeadModel", "QWen", as_qwen, qwen_config,
            {.prefix = "transformer.",
             .layer = "h.",
             .whole = {{"wte", "wte"}, {"ln_f", "ln_f"}},
             .parts = {{"ln_1", "ln_1"},
                       {"ln_2", "ln_2"},
                       {"attn.q", "attn.c_attn"},
                       {"attn.k", "attn.c_attn"},
                       {"attn.v", "attn.c_attn"},
                       {"attn.proj", "attn.c_proj"},
                       {"mlp.gate", "mlp.w2"},
                       {"mlp.up", "mlp.w1"},
                       {"mlp.proj", "mlp.c_proj"}},
             .qkv = Qkv::in_turn}),
  };
}

}  // namespace orrery::models

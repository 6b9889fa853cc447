// Tables of words, and their lookup.
#include "models/synonyms.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/other_words.h"

namespace orrery::models {
namespace {

using base::Cursor;

constexpr base::OtherKey kKeys[] = {
    {"", "model_type", "family"},
    {"", "num_hidden_layers", "layers"},
    {"", "num_layers", "layers"},
    {"", "n_layer", "layers"},
    {"", "n_layers", "layers"},
    {"", "num_blocks", "layers"},
    {"", "num_decoder_layers", "layers"},
    {"", "base_num_decoder_layers", "layers"},
    {"", "depth", "layers"},
    {"", "hidden_size", "hidden"},
    {"", "n_embd", "hidden"},
    {"", "d_model", "hidden"},
    {"", "dim", "hidden"},
    {"", "emb_dim", "hidden"},
    {"", "embed_dim", "hidden"},
    {"", "base_emb_dim", "hidden"},
    {"", "model_dim", "hidden"},
    {"", "num_attention_heads", "heads"},
    {"", "n_head", "heads"},
    {"", "n_heads", "heads"},
    {"", "num_heads", "heads"},
    {"", "num_query_heads", "heads"},
    {"", "base_num_query_heads", "heads"},
    {"", "num_key_value_heads", "kv_heads"},
    {"", "num_kv_heads", "kv_heads"},
    {"", "n_kv_heads", "kv_heads"},
    {"", "n_kv_head", "kv_heads"},
    {"", "n_head_kv", "kv_heads"},
    {"", "num_query_groups", "kv_heads"},
    {"", "multi_query_group_num", "kv_heads"},
    {"", "base_num_kv_heads", "kv_heads"},
    {"", "kv_channels", "head_dim"},
    {"", "head_size", "head_dim"},
    {"", "attention_head_dim", "head_dim"},
    {"", "d_head", "head_dim"},
    {"", "d_kv", "head_dim"},
    {"", "intermediate_size", "ffn_hidden"},
    {"", "ffn_hidden_size", "ffn_hidden"},
    {"", "ffn_dim", "ffn_hidden"},
    {"", "n_inner", "ffn_hidden"},
    {"", "d_ff", "ffn_hidden"},
    {"", "mlp_dim", "ffn_hidden"},
    {"", "base_mlp_dim", "ffn_hidden"},
    {"", "hidden_dim", "ffn_hidden"},
    {"", "vocab_size", "vocab"},
    {"", "padded_vocab_size", "vocab"},
    {"", "n_vocab", "vocab"},
    {"", "max_position_embeddings", "max_sequence"},
    {"", "n_positions", "max_sequence"},
    {"", "n_ctx", "max_sequence"},
    {"", "seq_length", "max_sequence"},
    {"", "seq_len", "max_sequence"},
    {"", "sequence_length", "max_sequence"},
    {"", "max_seq_len", "max_sequence"},
    {"", "max_seq_length", "max_sequence"},
    {"", "max_sequence_length", "max_sequence"},
    {"", "max_target_length", "max_sequence"},
    {"", "context_length", "max_sequence"},
    {"", "block_size", "max_sequence"},
    {"", "normalization", "normalisation"},
    {"", "norm_type", "normalisation"},
    {"", "hidden_act", "activation"},
    {"", "hidden_activation", "activation"},
    {"", "activation_function", "activation"},
    {"", "activation_func", "activation"},
    {"", "swiglu", "activation: swiglu"},
    {"", "squared_relu", "activation: squared_relu"},
    {"", "position_embedding_type", "positions"},
    {"", "rms_norm_eps", "norm_epsilon"},
    {"", "layer_norm_eps", "norm_epsilon"},
    {"", "layer_norm_epsilon", "norm_epsilon"},
    {"", "layernorm_epsilon", "norm_epsilon"},
    {"", "norm_eps", "norm_epsilon"},
    {"", "rotary_base", "rope_theta"},
    {"", "rotary_percent", "rotary_share"},
    {"", "rotary_pct", "rotary_share"},
    {"", "partial_rotary_factor", "rotary_share"},
    {"", "initializer_range", "initial_stddev"},
    {"", "init_method_std", "initial_stddev"},
    {"", "tie_word_embeddings", "tied_embeddings"},
    {"", "tie_embeddings", "tied_embeddings"},
    {"", "untie_embeddings_and_output_weights", "tied_embeddings: false"},
    {"", "add_bias_linear", "bias"},
    {"", "use_bias", "bias"},
    {"", "add_qkv_bias", "qkv_bias"},
    {"", "qk_layernorm", "qk_norm"},
    {"", "sliding_window", "window"},
    {"", "attention_dropout", "dropout: {attention: …}"},
    {"", "attn_pdrop", "dropout: {attention: …}"},
    {"", "hidden_dropout", "dropout: {residual: …}"},
    {"", "resid_pdrop", "dropout: {residual: …}"},
    {"", "embd_pdrop", "dropout: {embedding: …}"},
    {"", "num_experts", "experts: {count: …}"},
    {"", "num_local_experts", "experts: {count: …}"},
    {"", "n_routed_experts", "experts: {count: …}"},
    {"", "moe_router_topk", "experts: {chosen: …}"},
    {"", "num_experts_per_tok", "experts: {chosen: …}"},
    {"", "moe_intermediate_size", "experts: {hidden: …}"},
    {"", "moe_ffn_hidden_size", "experts: {hidden: …}"},
    {"experts", "num_experts", "count"},
    {"experts", "num_local_experts", "count"},
    {"experts", "n_routed_experts", "count"},
    {"experts", "num_experts_per_tok", "chosen"},
    {"experts", "moe_router_topk", "chosen"},
    {"experts", "top_k", "chosen"},
    {"experts", "topk", "chosen"},
    {"experts", "moe_intermediate_size", "hidden"},
    {"experts", "moe_ffn_hidden_size", "hidden"},
    {"experts", "ffn_hidden", "hidden"},
    {"experts", "n_group", "groups"},
    {"experts", "topk_group", "groups_chosen"},
};

constexpr base::OtherValue kValues[] = {
    {"activation", "silu", "swiglu"},
    {"activation", "swish", "swiglu"},
    {"activation", "gelu_new", "gelu` with `gelu: tanh"},
    {"activation", "gelu_fast", "gelu` with `gelu: tanh"},
    {"activation", "gelu_pytorch_tanh", "gelu` with `gelu: tanh"},
    {"activation", "relu2", "squared_relu"},
    {"activation", "relu_squared", "squared_relu"},
    {"activation", "squared-relu", "squared_relu"},
    {"normalisation", "rmsnorm", "rms_norm"},
    {"normalisation", "rms", "rms_norm"},
    {"normalisation", "layernorm", "layer_norm"},
    {"normalisation", "ln", "layer_norm"},
    {"positions", "rotary", "rope"},
    {"positions", "absolute", "learned"},
    {"positions", "learned_absolute", "learned"},
    {"positions", "nope", "none"},
};

/// Where a config.json of several models may have its language model's.
constexpr const char* kLanguageParts[] = {"text_config", "llm_config", "language_config", "thinker_config"};

/// The first word of `key` that the map has; empty if none.
std::string word_in(const Cursor& map, const std::string& name, std::string_view key) {
  if (!map.is_map()) return {};
  for (const base::OtherKey& one : kKeys) {
    if (name != one.map || key != one.ours) continue;
    for (const std::string& word : base::spellings(one.other))
      if (map.has(word)) return word;
  }
  return {};
}

}  // namespace

void name_keys(const Cursor& map, const std::string& name) {
  base::refuse_other_keys(map, name, kKeys);
}

std::string our_key(const std::string& other) {
  return base::our_key(other, {}, kKeys);
}

bool is_other_word(const Cursor& value, const std::string& key) {
  return base::is_other_value(value, key, kValues);
}

Cursor needed(const Cursor& map, const std::string& name, const std::string& key) {
  return !map.has(key) && !word_in(map, name, key).empty() ? map.optional(key) : map.at(key);
}

Cursor place_of(const Cursor& model, const std::string& name, const std::string& key) {
  const Cursor own = name.empty() || !model.has(name) ? model : model.optional(name);
  if (own.is_map() && own.has(key)) return own.optional(key);
  if (!name.empty() && own.path() != model.path()) return own;
  // Language parts may lie in one another.
  for (Cursor map = model; map.is_map();) {
    if (name.empty() && map.has(key)) return map.optional(key);
    if (const std::string word = word_in(map, name, key); !word.empty()) return map.optional(word);
    const char* const* const part = std::ranges::find_if(kLanguageParts, [&](const char* one) { return map.has(one); });
    if (part == std::end(kLanguageParts)) break;
    map = map.optional(*part);
  }
  for (const char* maker : {"family", "model_type", "architectures"})
    if (model.has(maker)) return model.optional(maker);
  return model;
}

}  // namespace orrery::models

// Model to config.json, for weights that others are to read.
#include <fmt/format.h>

#include "base/json.h"
#include "models/hugging_face.h"

namespace orrery::models {
namespace {

/// What the family's class takes for granted.
struct Variant {
  const char* what;
  bool holds;
};

std::vector<Variant> variants(const Model& m) {
  const bool llama = m.family == Family::llama;
  return {{"its normalisation", m.normalisation == (llama ? Normalisation::rms_norm : Normalisation::layer_norm)},
          {"its activation", m.activation == (llama ? Activation::swiglu : Activation::gelu) ||
                                 (m.family == Family::gpt && m.activation == Activation::relu)},
          {"its positions", m.positions == (llama ? Positions::rope : Positions::learned)},
          {"its mask", m.causal == (m.family != Family::bert)},
          {"where it normalises", m.pre_norm == (m.family != Family::bert)},
          {"its biases", m.bias != llama},
          {"grouped queries", llama || m.kv_heads == m.heads},
          {"the width of its heads", llama || m.head_dim * m.heads == m.hidden},
          {"its GELU", m.family != Family::gpt || m.gelu == Gelu::tanh},
          {"its dropout", m.family == Family::gpt || (llama ? m.dropout.embedding == 0 && m.dropout.residual == 0
                                                            : m.dropout.embedding == m.dropout.residual)},
          {"its heads", m.next_sentence == (m.family == Family::bert) && (m.masked_fraction > 0) == m.next_sentence},
          {"its token types", (m.token_types > 0) == (m.family == Family::bert)}};
}

class Object {
 public:
  void number(const char* key, std::int64_t value) { put(key, fmt::format("{}", value)); }
  void real(const char* key, double value) { put(key, fmt::format("{}", value)); }
  void text(const char* key, const std::string& value) { put(key, base::json_quoted(value)); }
  void put(const char* key, const std::string& value) {
    out_ += fmt::format("{}  \"{}\": {}", out_.empty() ? "" : ",\n", key, value);
  }
  [[nodiscard]] std::string finish() const { return "{\n" + out_ + "\n}\n"; }

 private:
  std::string out_;
};

}  // namespace

base::Result<std::string> write_hugging_face(const Model& m) {
  const char* const kind = m.family == Family::gpt ? "gpt2" : m.family == Family::llama ? "llama" : "bert";
  const char* const type = m.family == Family::gpt     ? "GPT2LMHeadModel"
                           : m.family == Family::llama ? "LlamaForCausalLM"
                                                       : "BertForPreTraining";
  for (const Variant& variant : variants(m))
    if (!variant.holds)
      return base::fail("E0604", fmt::format("{} is not what {} has: {}", m.name, type, variant.what),
                        "models of the shape of GPT-2, Llama and BERT are exported");
  Object o;
  o.put("architectures", fmt::format("[\"{}\"]", type));
  o.text("model_type", kind);
  o.text("_name_or_path", m.name);
  o.number("vocab_size", m.vocab);
  if (m.family == Family::gpt) {
    o.number("n_layer", m.layers);
    o.number("n_embd", m.hidden);
    o.number("n_head", m.heads);
    o.number("n_inner", m.ffn_hidden);
    o.number("n_positions", m.max_sequence);
    o.text("activation_function", m.activation == Activation::relu ? "relu" : "gelu_new");
    o.real("embd_pdrop", m.dropout.embedding);
    o.real("attn_pdrop", m.dropout.attention);
    o.real("resid_pdrop", m.dropout.residual);
    o.real("layer_norm_epsilon", m.norm_epsilon);
  } else {
    o.number("num_hidden_layers", m.layers);
    o.number("hidden_size", m.hidden);
    o.number("num_attention_heads", m.heads);
    o.number("intermediate_size", m.ffn_hidden);
    o.number("max_position_embeddings", m.max_sequence);
  }
  if (m.family == Family::llama) {
    o.number("num_key_value_heads", m.kv_heads);
    o.number("head_dim", m.head_dim);
    o.text("hidden_act", "silu");
    o.real("attention_dropout", m.dropout.attention);
    o.real("rms_norm_eps", m.norm_epsilon);
    o.real("rope_theta", m.rope_theta);
  }
  if (m.family == Family::bert) {
    o.number("type_vocab_size", m.token_types);
    o.real("hidden_dropout_prob", m.dropout.residual);
    o.real("attention_probs_dropout_prob", m.dropout.attention);
    o.text("hidden_act", m.gelu == Gelu::erf ? "gelu" : "gelu_new");
    o.real("layer_norm_eps", m.norm_epsilon);
  }
  o.put("tie_word_embeddings", m.tied_embeddings ? "true" : "false");
  o.real("initializer_range", m.initial_stddev);
  o.text("torch_dtype", "float32");
  return o.finish();
}

}  // namespace orrery::models

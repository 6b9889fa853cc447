// Fields of Hugging Face's config.json. A field that decides a shape is never defaulted from memory: where the file is
// silent, the class's documented default is taken only for what the table below says (tying, epsilons, initialisation).
#include "models/hugging_face.h"

#include <fmt/format.h>

#include <initializer_list>
#include <optional>

#include "models/limits.h"

namespace orrery::models {
namespace {

using base::Cursor;

constexpr const char* kByHand =
    "known are gpt2, bert, llama and mistral; write other models in orrery's own form (docs/formats.md, model.yaml)";

// The first of several names that the file gives; reports the first name as missing when there is none.
Cursor one_of(const Cursor& at, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (at.has(name)) return at.at(name);
  }
  return at.at(*names.begin());
}

Cursor one_of_optional(const Cursor& at, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (at.has(name)) return at.optional(name);
  }
  return at.optional(*names.begin());
}

// A file that is silent trains without: rates are not shapes, but they are the recipe's, and not a class's.
double rate(const Cursor& at, const char* key) {
  constexpr double kMost = 0.99;
  return at.optional(key).number(0, kMost, 0);
}

// Reports a switch of the file that a Model cannot express, unless it has the one value that it can.
void only(const Cursor& at, const char* key, bool wanted, const char* why) {
  const Cursor value = at.optional(key);
  if (value.exists() && value.boolean(wanted) != wanted) {
    value.error("E0111", fmt::format("`{}: {}` is not supported: {}", key, !wanted, why));
  }
}

std::optional<Family> family_named(const std::string& type) {
  if (type == "gpt2") return Family::gpt;
  if (type == "bert") return Family::bert;
  if (type == "llama" || type == "mistral") return Family::llama;
  return std::nullopt;
}

std::optional<Family> family_of_architecture(const std::string& architecture) {
  if (architecture.rfind("GPT2", 0) == 0) return Family::gpt;
  if (architecture.rfind("Bert", 0) == 0) return Family::bert;
  if (architecture.rfind("Llama", 0) == 0 || architecture.rfind("Mistral", 0) == 0) return Family::llama;
  return std::nullopt;
}

std::optional<Family> family_of(const Cursor& root) {
  if (const Cursor type = root.optional("model_type"); type.exists()) {
    const std::string found = type.text("?");
    const auto family = family_named(found);
    if (!family)
      type.error("E0110", fmt::format("model_type {} is not a family that is read", base::quoted(found)), kByHand);
    return family;
  }
  const auto architectures = root.at("architectures").items();
  if (architectures.empty()) {
    root.error("E0110", "neither model_type nor architectures says which family this is", kByHand);
    return std::nullopt;
  }
  const std::string found = architectures.front().text("?");
  const auto family = family_of_architecture(found);
  if (!family) {
    architectures.front().error(
        "E0110", fmt::format("architecture {} is not a family that is read", base::quoted(found)), kByHand);
  }
  return family;
}

void read_gpt2(const Cursor& at, Model& m) {
  m.layers = one_of(at, {"n_layer", "num_hidden_layers"}).integer(1, kMostLayers, 1);
  m.hidden = one_of(at, {"n_embd", "hidden_size"}).integer(1, kMostWidth, 1);
  const Cursor heads = one_of(at, {"n_head", "num_attention_heads"});
  m.heads = heads.integer(1, kMostWidth, 1);
  m.kv_heads = m.heads;
  m.ffn_hidden = one_of_optional(at, {"n_inner", "intermediate_size"}).integer(1, kMostWidth, 4 * m.hidden);
  m.max_sequence = one_of(at, {"n_positions", "n_ctx", "max_position_embeddings"}).integer(1, kMostSequence, 1);
  m.norm_epsilon = at.optional("layer_norm_epsilon").number(0, 1, 1e-5);
  m.tied_embeddings = at.optional("tie_word_embeddings").boolean(true);
  const Cursor activation = one_of_optional(at, {"activation_function", "hidden_act"});
  const std::string name = activation.text("gelu_new");
  if (name == "relu") {
    m.activation = Activation::relu;
  } else if (name != "gelu_new" && name != "gelu_pytorch_tanh" && name != "gelu_fast") {
    activation.error("E0111", fmt::format("activation {} is not supported for gpt2", base::quoted(name)),
                     "gelu_new is, and relu");
  }
  m.dropout = {rate(at, "embd_pdrop"), rate(at, "attn_pdrop"), rate(at, "resid_pdrop")};
  only(at, "add_cross_attention", false, "there is no encoder to attend to");
}

void read_bert(const Cursor& at, Model& m) {
  m.causal = false;
  m.pre_norm = false;
  m.layers = at.at("num_hidden_layers").integer(1, kMostLayers, 1);
  m.hidden = at.at("hidden_size").integer(1, kMostWidth, 1);
  m.heads = at.at("num_attention_heads").integer(1, kMostWidth, 1);
  m.kv_heads = m.heads;
  m.ffn_hidden = at.at("intermediate_size").integer(1, kMostWidth, 1);
  m.max_sequence = at.at("max_position_embeddings").integer(1, kMostSequence, 1);
  m.token_types = at.optional("type_vocab_size").integer(0, kMostWidth, 2);
  m.norm_epsilon = at.optional("layer_norm_eps").number(0, 1, 1e-12);
  m.tied_embeddings = at.optional("tie_word_embeddings").boolean(true);
  const Cursor activation = at.optional("hidden_act");
  const std::string name = activation.text("gelu");
  if (name.rfind("gelu", 0) != 0) {
    activation.error("E0111", fmt::format("activation {} is not supported for bert", base::quoted(name)), "gelu is");
  }
  m.gelu = name == "gelu" ? Gelu::erf : Gelu::tanh;
  const double hidden = rate(at, "hidden_dropout_prob");
  m.dropout = {hidden, rate(at, "attention_probs_dropout_prob"), hidden};
  // What BertForPreTraining has; a config.json says nothing of pre-training's data.
  m.masked_fraction = 0.15;
  m.next_sentence = m.token_types > 1;
  const Cursor positions = at.optional("position_embedding_type");
  if (const std::string kind = positions.text("absolute"); kind != "absolute") {
    positions.error("E0111", fmt::format("positions of kind {} are not supported for bert", base::quoted(kind)),
                    "absolute ones are");
  }
  only(at, "is_decoder", false, "bert is read as an encoder");
}

// transformers 5 moved rope_theta into rope_parameters.
Cursor rope_theta_of(const Cursor& at) {
  const Cursor top = at.optional("rope_theta");
  const Cursor nested = at.optional("rope_parameters");
  return top.exists() || !nested.is_map() ? top : nested.optional("rope_theta");
}

void read_llama(const Cursor& at, Model& m) {
  m.normalisation = Normalisation::rms_norm;
  m.activation = Activation::swiglu;
  m.positions = Positions::rope;
  m.bias = false;
  m.layers = at.at("num_hidden_layers").integer(1, kMostLayers, 1);
  m.hidden = at.at("hidden_size").integer(1, kMostWidth, 1);
  m.heads = at.at("num_attention_heads").integer(1, kMostWidth, 1);
  m.kv_heads = at.optional("num_key_value_heads").integer(1, kMostWidth, m.heads);
  m.head_dim = at.optional("head_dim").integer(1, kMostWidth, 0);
  m.ffn_hidden = at.at("intermediate_size").integer(1, kMostWidth, 1);
  m.max_sequence = at.at("max_position_embeddings").integer(1, kMostSequence, 1);
  // Mistral's first models look so many tokens back: up to there attention is whole.
  const std::int64_t window = at.optional("sliding_window").integer(1, kMostSequence, m.max_sequence);
  if (window < m.max_sequence) {
    m.sources.push_back(
        fmt::format("max_sequence is sliding_window, of {}: beyond it attention would not be whole", m.max_sequence));
    m.max_sequence = window;
  }
  m.norm_epsilon = at.optional("rms_norm_eps").number(0, 1, 1e-6);
  m.rope_theta = rope_theta_of(at).number(1, 1e12, 10000);
  m.tied_embeddings = at.optional("tie_word_embeddings").boolean(false);
  const Cursor activation = at.optional("hidden_act");
  if (const std::string name = activation.text("silu"); name != "silu") {
    activation.error("E0111", fmt::format("activation {} is not supported for llama", base::quoted(name)), "silu is");
  }
  m.dropout.attention = rate(at, "attention_dropout");
  only(at, "attention_bias", false, "a llama's linear layers carry no biases here");
  only(at, "mlp_bias", false, "a llama's linear layers carry no biases here");
  if (at.optional("rope_scaling").exists()) {
    m.sources.push_back("rope_scaling is left out: it changes the values of the rotation, not its shape or cost");
  }
}

// Multimodal files nest the language model.
Cursor language_part(const Cursor& root) {
  if (root.has("num_hidden_layers") || root.has("n_layer")) return root;
  for (const char* key : {"text_config", "llm_config", "language_config"}) {
    if (const Cursor nested = root.optional(key); nested.is_map()) return nested;
  }
  return root;
}

}  // namespace

bool is_hugging_face(const Cursor& root) {
  return root.is_map() && !root.has("family") &&
         (root.has("model_type") || root.has("architectures") || root.has("text_config"));
}

Model read_hugging_face(const Cursor& root, const std::string& name) {
  Model m;
  root.ignore();  // a config.json has many keys that do not concern a Model
  const Cursor at = language_part(root);
  const auto family = family_of(at);
  if (!family) return m;
  m.family = *family;
  m.name = name;
  if (const Cursor given = root.optional("_name_or_path"); given.is_scalar()) {
    // An id such as "openai-community/gpt2", not the path of somebody's disk; an empty one says nothing.
    const std::string id = given.scalar_text().empty() ? std::string() : given.text();
    if (!id.empty() && id.front() != '/' && id.front() != '.' && id.front() != '~') m.name = id;
  }
  m.vocab = at.at("vocab_size").integer(1, kMostVocab, 1);
  m.initial_stddev = at.optional("initializer_range").number(0, 10, 0.02);
  switch (m.family) {
    case Family::gpt: read_gpt2(at, m); break;
    case Family::bert: read_bert(at, m); break;
    case Family::llama: read_llama(at, m); break;
  }
  m.sources.insert(m.sources.begin(), fmt::format("Hugging Face config.json of {}", m.name));
  return m;
}

}  // namespace orrery::models

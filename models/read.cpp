// Our own form of a model, with defaults that belong to the family, and what every form is checked for.
#include "models/read.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/printable.h"
#include "models/hugging_face.h"
#include "models/limits.h"

namespace orrery::models {
namespace {

using base::Cursor;

// Orders follow the enumerations.
const std::vector<std::string> kFamilies = {"gpt", "bert", "llama"};
const std::vector<std::string> kNormalisations = {"layer_norm", "rms_norm"};
const std::vector<std::string> kActivations = {"gelu", "swiglu", "relu"};
const std::vector<std::string> kGelus = {"tanh", "erf"};
const std::vector<std::string> kPositions = {"learned", "rope"};

// Devlin et al. 2019, section 3.1, task 1.
constexpr double kMaskedFraction = 0.15;

const std::string& word(const std::vector<std::string>& words, int index) {
  return words[static_cast<std::size_t>(index)];
}

template <class Enum>
Enum choose(const Cursor& at, const std::vector<std::string>& words, Enum fallback) {
  return static_cast<Enum>(at.choice(words, static_cast<int>(fallback)));
}

// What distinguishes the families where a file says nothing.
Model defaults_of(Family family) {
  Model m;
  m.family = family;
  switch (family) {
    case Family::gpt: break;
    case Family::bert:
      m.causal = false;
      m.pre_norm = false;
      m.token_types = 2;
      m.norm_epsilon = 1e-12;
      m.gelu = Gelu::erf;
      m.masked_fraction = kMaskedFraction;
      m.next_sentence = true;
      break;
    case Family::llama:
      m.normalisation = Normalisation::rms_norm;
      m.activation = Activation::swiglu;
      m.positions = Positions::rope;
      m.bias = false;
      m.tied_embeddings = false;
      break;
  }
  return m;
}

// Relations between numbers that each alone are fine. Files with other errors are not checked for these.
void check(const Cursor& root, const Cursor& heads, const Cursor& kv_heads, Model& m) {
  const auto report = [&](const Cursor& at, std::string message, std::string help) {
    (at.exists() ? at : root).error("E0112", std::move(message), std::move(help));
  };
  if (m.head_dim == 0 && m.hidden % m.heads != 0) {
    report(heads, fmt::format("hidden {} does not divide by {} heads", m.hidden, m.heads),
           "give head_dim, or other heads");
  } else if (m.head_dim == 0) {
    m.head_dim = m.hidden / m.heads;
  }
  if (m.heads % m.kv_heads != 0) {
    report(kv_heads, fmt::format("{} heads do not divide by {} key/value heads", m.heads, m.kv_heads), "");
  }
  if (m.heads * m.head_dim > kMostWidth) {
    report(heads, fmt::format("{} heads of width {} are wider than {}", m.heads, m.head_dim, kMostWidth), "");
  }
  const Cursor masked = root.optional("masked_fraction"), next = root.optional("next_sentence");
  if (m.masked_fraction > 0 && (m.causal || m.pre_norm)) {
    report(masked,
           "masked tokens are predicted from both sides, by BERT's head: of a model that is causal, or normalises "
           "ahead, there is none",
           "causal: false and pre_norm: false, or masked_fraction: 0");
  }
  if (m.next_sentence && m.masked_fraction <= 0) {
    report(next, "whether a segment is the next is told beside masked tokens, of which there are none",
           "masked_fraction: 0.15, or next_sentence: false");
  }
  if (m.positions == Positions::rope && m.head_dim % 2 != 0) {
    report(heads, fmt::format("rotary positions need an even head width, found {}", m.head_dim), "");
  }
}

// Beyond it hardly a value is left.
constexpr double kMostDropout = 0.99;

// A word far from every known one is another kind of model, not a misspelt one: the rest of its file is in other words.
bool is_foreign(const Cursor& family) {
  const std::string word = family.scalar_text();
  return !word.empty() && std::find(kFamilies.begin(), kFamilies.end(), word) == kFamilies.end() &&
         base::did_you_mean(word, kFamilies).empty();
}

Model read_own(const Cursor& at, const std::string& name) {
  const Cursor family = at.at("family");
  if (is_foreign(family)) {
    family.error("E0106", fmt::format("models of the family {} are not built yet", base::quoted(family.scalar_text())),
                 fmt::format("families are {}: dense transformers of one stack; mixtures of experts, encoders with "
                             "decoders and recommendation models are not among them",
                             fmt::join(kFamilies, ", ")));
    at.ignore();
    return {};
  }
  Model m = defaults_of(choose(family, kFamilies, Family::gpt));
  m.name = (name.empty() ? at.at("name") : at.optional("name")).text(name);
  m.layers = at.at("layers").integer(1, kMostLayers, 1);
  m.hidden = at.at("hidden").integer(1, kMostWidth, 1);
  m.heads = at.at("heads").integer(1, kMostWidth, 1);
  m.kv_heads = at.optional("kv_heads").integer(1, kMostWidth, m.heads);
  m.head_dim = at.optional("head_dim").integer(1, kMostWidth, 0);
  // A llama's width is no multiple of hidden that could be defaulted.
  const Cursor ffn = m.family == Family::llama ? at.at("ffn_hidden") : at.optional("ffn_hidden");
  m.ffn_hidden = ffn.integer(1, kMostWidth, 4 * m.hidden);
  m.vocab = at.at("vocab").integer(1, kMostVocab, 1);
  m.max_sequence = at.at("max_sequence").integer(1, kMostSequence, 1);
  m.token_types = at.optional("token_types").integer(0, kMostWidth, m.token_types);
  m.normalisation = choose(at.optional("normalisation"), kNormalisations, m.normalisation);
  m.activation = choose(at.optional("activation"), kActivations, m.activation);
  m.gelu = choose(at.optional("gelu"), kGelus, m.gelu);
  m.positions = choose(at.optional("positions"), kPositions, m.positions);
  m.causal = at.optional("causal").boolean(m.causal);
  m.pre_norm = at.optional("pre_norm").boolean(m.pre_norm);
  m.bias = at.optional("bias").boolean(m.bias);
  m.tied_embeddings = at.optional("tied_embeddings").boolean(m.tied_embeddings);
  m.norm_epsilon = at.optional("norm_epsilon").number(0, 1, m.norm_epsilon);
  m.rope_theta = at.optional("rope_theta").number(1, 1e12, m.rope_theta);
  m.initial_stddev = at.optional("initial_stddev").number(0, 10, m.initial_stddev);
  // A decoder, or an encoder that normalises ahead, has no head of BERT's unless one is asked for.
  const bool encoder = !m.causal && !m.pre_norm;
  m.masked_fraction = at.optional("masked_fraction").number(0, 1, encoder ? m.masked_fraction : 0);
  m.next_sentence = at.optional("next_sentence").boolean(m.masked_fraction > 0 && m.next_sentence);
  m.dropout = read_dropout(at.optional("dropout"));
  for (const Cursor& source : at.optional("sources").one_or_many()) m.sources.push_back(source.text());
  return m;
}

Model read_any(const Cursor& at, const std::string& name) {
  const bool failed_before = at.findings().failed();
  const bool theirs = is_hugging_face(at);
  Model m = theirs ? read_hugging_face(at, name) : read_own(at, name);
  // Relations of numbers that were not read would be about our fallbacks.
  if (at.findings().failed() || failed_before) return m;
  const Cursor heads = theirs ? at : at.optional("heads");
  const Cursor kv_heads = theirs ? at : at.optional("kv_heads");
  check(at, heads, kv_heads, m);
  return m;
}

// "…/gpt2-124m.yaml" -> "gpt2-124m"; a config.json is named by its folder.
std::string stem(const std::string& file) {
  const auto last_part = [](const std::string& path) {
    const std::size_t slash = path.find_last_of('/');
    return slash == std::string::npos ? path : path.substr(slash + 1);
  };
  std::string name = last_part(file);
  if (name == "config.json" && file.size() > name.size() + 1) {
    const std::string folder = last_part(file.substr(0, file.size() - name.size() - 1));
    if (!folder.empty() && folder != "." && folder != "..") return base::printable(folder);
  }
  const std::size_t dot = name.find_last_of('.');
  if (dot != std::string::npos && dot > 0) name.resize(dot);
  return name.empty() ? "model" : base::printable(name);  // of a file's name nobody has seen to it
}

}  // namespace

Dropout read_dropout(const Cursor& at) {
  Dropout d;
  if (at.is_scalar()) {
    d.embedding = d.attention = d.residual = at.number(0, kMostDropout, 0);
    return d;
  }
  d.embedding = at.optional("embedding").number(0, kMostDropout, 0);
  d.attention = at.optional("attention").number(0, kMostDropout, 0);
  d.residual = at.optional("residual").number(0, kMostDropout, 0);
  return d;
}

std::string dropout_text(const Dropout& d) {
  return fmt::format("{{embedding: {}, attention: {}, residual: {}}}", d.embedding, d.attention, d.residual);
}

base::Result<Model> parse_model(std::string_view text, std::string file) {
  const std::string name = stem(file);
  return base::read_document<Model>(text, std::move(file), [&](const Cursor& root) { return read_any(root, name); });
}

Model read_model(const Cursor& at) {
  return read_any(at, "");
}

std::string write_model(const Model& m, int indent) {
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  std::string out;
  const auto line = [&](const char* key, const auto& value) { out += fmt::format("{}{}: {}\n", margin, key, value); };
  line("name", base::yaml_text(m.name));
  line("family", word(kFamilies, static_cast<int>(m.family)));
  line("layers", m.layers);
  line("hidden", m.hidden);
  line("heads", m.heads);
  line("kv_heads", m.kv_heads);
  line("head_dim", m.head_dim);
  line("ffn_hidden", m.ffn_hidden);
  line("vocab", m.vocab);
  line("max_sequence", m.max_sequence);
  line("token_types", m.token_types);
  line("normalisation", word(kNormalisations, static_cast<int>(m.normalisation)));
  line("activation", word(kActivations, static_cast<int>(m.activation)));
  line("gelu", word(kGelus, static_cast<int>(m.gelu)));
  line("positions", word(kPositions, static_cast<int>(m.positions)));
  line("causal", m.causal);
  line("pre_norm", m.pre_norm);
  line("bias", m.bias);
  line("tied_embeddings", m.tied_embeddings);
  line("norm_epsilon", m.norm_epsilon);
  line("rope_theta", m.rope_theta);
  line("initial_stddev", m.initial_stddev);
  line("masked_fraction", m.masked_fraction);
  line("next_sentence", m.next_sentence);
  if (m.dropout.any()) line("dropout", dropout_text(m.dropout));
  if (!m.sources.empty()) out += margin + "sources:\n";
  for (const std::string& source : m.sources) out += fmt::format("{}  - {}\n", margin, base::yaml_text(source));
  return out;
}

}  // namespace orrery::models

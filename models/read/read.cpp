// Our own form of a model: reads it with its family's defaults, and checks models of every form.
#include "models/read/read.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "models/experts_text.h"
#include "models/limits.h"
#include "models/lora.h"
#include "models/read/check_heads.h"
#include "models/read/families.h"
#include "models/read/hugging_face.h"
#include "models/read/mixers_text.h"
#include "models/read/recommender_read.h"
#include "models/synonyms.h"

namespace orrery::models {
namespace {

using base::Cursor;

// In the enumerations' order.
const std::vector<std::string> kNormalisations = {"layer_norm", "rms_norm"};
const std::vector<std::string> kGelus = {"tanh", "erf"};
const std::vector<std::string> kPositions = {"learned", "rope", "alibi", "none"};

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const FamilyTraits& one : families()) names.emplace_back(one.name);
  names.emplace_back(name_of(Family::dlrm));
  return names;
}
std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const ActivationTraits& one : kActivations) names.emplace_back(one.name);
  return names;
}

const std::string& word(const std::vector<std::string>& words, int index) {
  return words[static_cast<std::size_t>(index)];
}

template <class Enum>
Enum choose(const Cursor& at, const std::vector<std::string>& words, Enum fallback) {
  return static_cast<Enum>(at.choice(words, static_cast<int>(fallback)));
}

template <class Enum>
Enum choose_by_word(const Cursor& at, const char* key, const std::vector<std::string>& words, Enum fallback) {
  const Cursor value = at.optional(key);
  return is_other_word(value, key) ? fallback : choose(value, words, fallback);
}

// What distinguishes families where a file is silent.
Model defaults_of(Family family) {
  Model m;
  m.family = family;
  traits_of(family).defaults(m);
  return m;
}

// Relations between numbers that are each fine alone. Not checked for files with other errors.
void check(const Cursor& root, Model& m) {
  const auto report = [&](const char* key, std::string message, std::string help) {
    place_of(root, "", key).error("E0112", std::move(message), std::move(help));
  };
  if (m.head_dim == 0 && m.latent.any()) m.head_dim = m.latent.nope + m.latent.rope;
  if (m.head_dim == 0 && m.hidden % m.heads != 0) {
    report("heads", fmt::format("hidden {} does not divide by {} heads", m.hidden, m.heads),
           "give head_dim, or another number of heads");
  } else if (m.head_dim == 0) {
    m.head_dim = m.hidden / m.heads;
  }
  if (m.heads % m.kv_heads != 0) {
    report("kv_heads", fmt::format("{} heads do not divide by {} key/value heads", m.heads, m.kv_heads), "");
  }
  if (std::max(m.heads, m.window_heads) * std::max(m.head_dim, m.window_head_dim) > kMostWidth) {
    report("heads", fmt::format("{} heads of width {} are wider than {}", m.heads, m.head_dim, kMostWidth), "");
  }
  if (m.masked_fraction > 0 && (m.causal || m.pre_norm)) {
    report("masked_fraction",
           "masked tokens are predicted from both sides by BERT's head, which a causal model, or one that normalises "
           "first, does not have",
           "use causal: false and pre_norm: false, or masked_fraction: 0");
  }
  if (m.next_sentence && m.masked_fraction <= 0) {
    report("next_sentence", "next_sentence needs masked tokens, but there are none",
           "use masked_fraction: 0.15, or next_sentence: false");
  }
  const auto pairs = [](std::int64_t columns) { return columns % 2 == 0 && columns >= 2; };
  if (m.positions == Positions::rope && m.head_dim > 0 &&
      !(pairs(m.rotary_columns()) && pairs(m.rotary_columns(true)))) {
    const Cursor width = place_of(root, "", "head_dim");
    const bool said = width.is_scalar() && width.scalar_text() == fmt::format("{}", m.head_dim);
    report(said ? "head_dim" : "heads",
           m.rotary_share < 1 ? fmt::format("rotary positions rotate pairs, but {} of {} columns of a head are {}",
                                            m.rotary_share, m.head_dim, m.rotary_columns())
                              : fmt::format("rotary positions need an even head width, found {}", m.head_dim),
           "");
  }
  const auto needs = [&](const char* key, bool holds, const std::string& message, const std::string& help) {
    if (!holds) report(key, message, help);
  };
  needs("further_prediction", !m.further.any() || (m.causal && m.pre_norm && !m.lora.any()),
        "a module that predicts further needs a causal model whose norms come first, without adapters",
        "further_prediction: {modules: 0}");
  needs("shared_norm", !m.shared_norm || m.parallel, "attention and MLP can only share a norm if they are parallel",
        "parallel: true, or shared_norm: false");
  needs("parallel", !m.parallel || m.pre_norm, "attention and MLP can only be parallel if norms come first",
        "pre_norm: true, or parallel: false");
  needs("output_norm", !m.output_norm || (m.pre_norm && !m.bias),
        "output norms need pre_norm, and projections without biases",
        "pre_norm: true and bias: false, or output_norm: false");
  needs("input_norm", m.input_norm || (m.output_norm && !m.parallel),
        "without norms before attention and MLP there must be some after them, and the two are not parallel",
        "output_norm: true, or input_norm: true");
  const bool skips = std::any_of(m.skip_scales.begin(), m.skip_scales.end(), [](double one) { return one != 1; });
  needs("normed_skip",
        m.normed_skip ? m.pre_norm && m.input_norm && !m.parallel && !m.output_norm && !m.further.any() : !skips,
        "what norms make is added to only behind norms that come first, and alone may be scaled",
        "normed_skip: false, without skip_scales");
  needs("joint_qk_norm", !m.joint_qk_norm || (m.qk_norm && !m.latent.any()),
        "one norm over all heads of q and one over k's needs qk_norm, and q and k made from the token",
        "qk_norm: true, or joint_qk_norm: false");
  needs("activation", m.activation != Activation::xielu || (m.pre_norm && !m.experts.any() && m.pattern.empty()),
        "an activation with parameters needs norms that come first, and MLPs in all layers", "another activation");
  needs("late_qk_norm", !m.late_qk_norm || (m.qk_norm && m.positions == Positions::rope && !m.latent.any()),
        "norms of q and k can only follow a rotation if there are both", "qk_norm: true, or late_qk_norm: false");
  needs("norm_weight", m.norm_weight || !m.norm_bias || m.normalisation == Normalisation::rms_norm,
        "norms without weights have no biases either", "norm_bias: false, or norm_weight: true");
  needs("norm_weight", m.norm_weight || (m.pre_norm && !m.latent.any() && !m.ssm.any()),
        "norms without weights need norms that come first, and neither latent attention nor state spaces",
        "norm_weight: true");
  needs("out_bias", !m.out_bias || (m.pre_norm && !m.output_norm && m.residual_scale == 1),
        "a bias of attention's last product needs norms that come first, and nothing between it and the residual",
        "out_bias: false");
  needs("full_first", !m.full_first || m.window_period > 0, "only of layers with a period the first can see all",
        "give window and window_period, or full_first: false");
  const bool listed = std::is_sorted(m.full_layers.begin(), m.full_layers.end(), std::less_equal<>()) &&
                      (m.full_layers.empty() || m.full_layers.back() < m.layers);
  needs("full_layers", m.full_layers.empty() || (m.window > 0 && m.window_period == 0 && listed),
        "a list of the layers that see everything needs a window for the others, and names each once, in order",
        "give a window and no window_period, and numbers of layers from 0");
  needs("window_kv_heads",
        m.window_kv_heads == 0 || (m.window > 0 && !m.latent.any() &&
                                   (m.window_heads > 0 ? m.window_heads : m.heads) % m.window_kv_heads == 0),
        "key/value heads of layers with a window divide the heads, and there is a window",
        "give a window, or leave window_kv_heads out");
  needs("value_dim", m.value_dim == 0 || (m.pre_norm && !m.attention_gate && !m.latent.any() && !m.bias),
        "values of a width of their own are of plain attention without biases, behind norms that come first",
        "leave value_dim out; latent_attention has a key for it");
  needs("value_scale", m.value_scale == 1 || (m.pre_norm && !m.bias && !m.out_bias),
        "values can only be scaled where norms come first and attention's last product has no bias", "value_scale: 1");
  needs("score_factor", m.score_factor == 1 || !m.latent.any(), "latent attention has no factor of its scores",
        "score_factor: 1");
  needs("gate_scale",
        (m.gate_scale == 1 && m.mlp_scale == 1) ||
            (traits_of(m.activation).gated && m.pre_norm && !m.bias && !m.experts.any()),
        "a gated MLP alone is scaled, whose norm comes first, without biases and experts",
        "gate_scale: 1 and mlp_scale: 1");
  needs("sinks_in_windows", !m.sinks_in_windows || (m.attention_sinks && m.window > 0),
        "sinks can only be in layers with a window alone if there are both", "sinks_in_windows: false");
  needs("attention_gate", !m.attention_gate || !m.latent.any(),
        "a gate of attention's output is made with q, k and v from the token", "attention_gate: false");
  needs("attention_bias", m.attention_bias || m.pre_norm, "attention without biases needs norms that come first",
        "pre_norm: true, or attention_bias: true");
  needs("head_bias", !m.head_bias || (m.pre_norm && !m.lora.any()),
        "a bias of the head needs norms that come first, and trains: BERT's head has one, and adapters leave it frozen",
        "head_bias: false");
  needs(
      "residual_scale", m.residual_scale == 1 || (m.pre_norm && !m.output_norm && !m.bias && !m.experts.scales_input),
      "what is added to the residual can only be scaled where norms come first and do not follow, projections have no "
      "biases, and experts' weights multiply their outputs",
      "residual_scale: 1");
  needs("logit_scale", m.logit_scale == 1 || (m.pre_norm && !m.head_bias),
        "logits can only be scaled where norms come first and the head has no bias", "logit_scale: 1");
  needs("window", m.window == 0 || m.causal, "a window covers the tokens before one", "causal: true, or window: 0");
  needs("window_period", m.window_period == 0 || (m.window > 0 && m.window_period >= 2),
        "every window_period-th layer has no window, so it must be 2 or more", "give a window, or window_period: 0");
  needs("window_theta", m.window_theta == 0 || (m.window > 0 && m.positions == Positions::rope),
        "layers with a window can only rotate at rates of their own if there are such layers, and they rotate",
        "give a window and positions: rope, or window_theta: 0");
  needs("unrotated_period",
        m.unrotated_period == 0 || (m.unrotated_period >= 2 && m.positions == Positions::rope && !m.latent.any()),
        "every unrotated_period-th layer does not rotate, so the others have to: it must be 2 or more, with rope",
        "positions: rope, or unrotated_period: 0");
  needs("positions", m.positions != Positions::alibi || m.causal, "ALiBi's slopes apply to the tokens before one",
        "causal: true, or other positions");
  needs("position_offset", m.position_offset == 0 || m.positions == Positions::learned,
        "rows before the first position need a position table", "positions: learned, or position_offset: 0");
  const std::int64_t turned = m.latent.any() ? m.latent.rope : m.rotary_columns();
  const auto of_each_pair = [&](const std::vector<double>& all) { return std::ssize(all) == turned / 2; };
  const RopeScaling& s = m.rope_scaling;
  if (s.kind == RopeKind::longrope && !(of_each_pair(s.divisors) && of_each_pair(s.long_divisors)))
    report("rope_scaling",
           fmt::format("{} and {} divisors for the {} pairs of a head that rotate", s.divisors.size(),
                       s.long_divisors.size(), turned / 2),
           "one for each pair, in both lists");
  check_heads(needs, m);
  check_pattern(root, m);
  check_experts(root, m);
  check_latent(root, m);
}

constexpr std::int64_t kMostOffset = 1024;
// At higher rates hardly any value is left.
constexpr double kMostDropout = 0.99;

// A word far from every known one is another kind of model, not a misspelling; the rest of its file then uses other
// keys.
bool is_foreign(const Cursor& family) {
  const std::string word = family.scalar_text();
  const std::vector<std::string> names = family_names();
  return !word.empty() && std::find(names.begin(), names.end(), word) == names.end() &&
         base::did_you_mean(word, names).empty();
}

// A kind of layer that many families have.
bool is_mixture(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* one : {"moe", "mixture", "expert", "switch", "gshard"})
    if (word.find(one) != std::string::npos) return true;
  return false;
}

Model read_own(const Cursor& at, const std::string& name) {
  const Cursor family = at.at("family");
  if (is_foreign(family)) {
    if (is_mixture(family.scalar_text())) {
      family.error("E0106",
                   fmt::format("{} is not a family: any model may have experts", base::quoted(family.scalar_text())),
                   "name the family of the layers around them, such as gpt or mixtral, and give experts: {count: 8, "
                   "chosen: 2}");
      at.ignore();
      return {};
    }
    family.error(
        "E0106", fmt::format("models of the family {} are not supported yet", base::quoted(family.scalar_text())),
        fmt::format(
            "families are {}: transformers with one stack, and recommendation models; not encoders with decoders",
            fmt::join(family_names(), ", ")));
    at.ignore();
    return {};
  }
  const Family which = choose(family, family_names(), Family::gpt);
  Model m = which == Family::dlrm ? Model{} : defaults_of(which);
  m.family = which;
  m.name = (name.empty() ? at.at("name") : at.optional("name")).text(name);
  if (which == Family::dlrm) {
    read_recommender(at, m);
    return m;
  }
  name_keys(at, "");
  m.layers = needed(at, "", "layers").integer(1, kMostLayers, 1);
  m.hidden = needed(at, "", "hidden").integer(1, kMostWidth, 1);
  if (const Cursor ssm = at.optional("state_space"); ssm.exists()) m.ssm = read_state_space(ssm);
  m.conv_taps = at.optional("conv_taps").integer(0, kMostWidth, 0);
  if (const Cursor pattern = at.optional("pattern"); pattern.exists()) m.pattern = read_pattern(pattern);
  // Without attention, heads are the state spaces'.
  const auto of_heads = [](const BlockParts& one) { return attends(one); };
  const bool none = m.blocks_with(m.layers, of_heads) == 0 && m.ssm.any();
  m.heads = (none ? at.optional("heads") : needed(at, "", "heads")).integer(1, kMostWidth, none ? m.ssm.heads : 1);
  m.kv_heads = at.optional("kv_heads").integer(1, kMostWidth, m.heads);
  m.head_dim = at.optional("head_dim").integer(1, kMostWidth, none ? m.ssm.width : 0);
  m.value_dim = at.optional("value_dim").integer(1, kMostWidth, 0);
  // A gated MLP's width has no usual multiple of hidden to default to.
  const bool feeds = m.blocks_with(m.layers, [](const BlockParts& one) { return one.feed == Feed::mlp; }) > 0;
  const bool gated = traits_of(m.activation).gated && feeds;
  const Cursor ffn = gated ? needed(at, "", "ffn_hidden") : at.optional("ffn_hidden");
  m.ffn_hidden = ffn.integer(1, kMostWidth, 4 * m.hidden);
  m.vocab = needed(at, "", "vocab").integer(1, kMostVocab, 1);
  m.max_sequence = needed(at, "", "max_sequence").integer(1, kMostSequence, 1);
  m.token_types = at.optional("token_types").integer(0, kMostWidth, m.token_types);
  m.normalisation = choose_by_word(at, "normalisation", kNormalisations, m.normalisation);
  m.activation = choose_by_word(at, "activation", activation_names(), m.activation);
  m.gelu = choose(at.optional("gelu"), kGelus, m.gelu);
  m.positions = choose_by_word(at, "positions", kPositions, m.positions);
  m.causal = at.optional("causal").boolean(m.causal);
  m.pre_norm = at.optional("pre_norm").boolean(m.pre_norm);
  m.bias = at.optional("bias").boolean(m.bias);
  m.tied_embeddings = at.optional("tied_embeddings").boolean(m.tied_embeddings);
  m.norm_epsilon = at.optional("norm_epsilon").number(0, 1, m.norm_epsilon);
  m.rope_theta = at.optional("rope_theta").number(1, 1e12, m.rope_theta);
  if (const Cursor scaling = at.optional("rope_scaling"); scaling.exists()) m.rope_scaling = read_rope_scaling(scaling);
  m.initial_stddev = at.optional("initial_stddev").number(0, 10, m.initial_stddev);
  // Unless the file asks for it, neither a decoder nor an encoder with norms first has BERT's head.
  const bool encoder = !m.causal && !m.pre_norm;
  m.masked_fraction = at.optional("masked_fraction").number(0, 1, encoder ? m.masked_fraction : 0);
  m.next_sentence = at.optional("next_sentence").boolean(m.masked_fraction > 0 && m.next_sentence);
  m.dropout = read_dropout(at.optional("dropout"));
  if (const Cursor lora = at.optional("lora"); lora.exists()) m.lora = read_lora(lora);
  m.norm_bias = at.optional("norm_bias").boolean(m.norm_bias);
  m.norm_weight = at.optional("norm_weight").boolean(m.norm_weight);
  m.qkv_bias = at.optional("qkv_bias").boolean(m.qkv_bias);
  m.attention_bias = at.optional("attention_bias").boolean(m.attention_bias);
  m.out_bias = at.optional("out_bias").boolean(m.out_bias);
  m.head_bias = at.optional("head_bias").boolean(m.head_bias);
  m.qk_norm = at.optional("qk_norm").boolean(m.qk_norm);
  m.joint_qk_norm = at.optional("joint_qk_norm").boolean(m.qk_norm && m.joint_qk_norm);
  m.late_qk_norm = at.optional("late_qk_norm").boolean(m.qk_norm && m.late_qk_norm);
  m.value_norm = at.optional("value_norm").boolean(m.qk_norm && m.value_norm);
  m.keys_as_values = at.optional("keys_as_values").boolean(m.value_norm && m.keys_as_values);
  m.parallel = at.optional("parallel").boolean(m.parallel);
  m.shared_norm = at.optional("shared_norm").boolean(m.shared_norm);
  m.output_norm = at.optional("output_norm").boolean(m.output_norm);
  m.input_norm = at.optional("input_norm").boolean(m.input_norm);
  m.normed_skip = at.optional("normed_skip").boolean(m.normed_skip);
  if (const Cursor scales = at.optional("skip_scales"); scales.exists()) {
    const std::vector<Cursor> all = scales.one_or_many();
    if (all.size() != m.skip_scales.size())
      scales.error("E0105", "`skip_scales` are beside attention, other mixers, and what follows them",
                   "skip_scales: [1, 1, 1]");
    for (std::size_t i = 0; i < all.size() && i < m.skip_scales.size(); ++i)
      m.skip_scales[i] = all[i].number(kLeastScale, kMostCap, 1);
  }
  m.embedding_norm = at.optional("embedding_norm").boolean(m.embedding_norm);
  m.scaled_embedding = at.optional("scaled_embedding").boolean(m.scaled_embedding);
  m.embedding_scale = at.optional("embedding_scale").number(kLeastScale, kMostCap, m.embedding_scale);
  m.residual_scale = at.optional("residual_scale").number(kLeastScale, kMostCap, m.residual_scale);
  m.logit_scale = at.optional("logit_scale").number(kLeastScale, kMostCap, m.logit_scale);
  m.rotary_share = at.optional("rotary_share").number(0, 1, m.rotary_share);
  m.window_rotary_share = at.optional("window_rotary_share").number(0, 1, 0);
  m.position_offset = at.optional("position_offset").integer(0, kMostOffset, m.position_offset);
  m.attention_cap = at.optional("attention_cap").number(0, kMostCap, m.attention_cap);
  m.logit_cap = at.optional("logit_cap").number(0, kMostCap, m.logit_cap);
  m.query_scale = at.optional("query_scale").number(0, kMostCap, m.query_scale);
  m.window = at.optional("window").integer(0, kMostSequence, m.window);
  for (const Cursor& one : at.optional("full_layers").one_or_many())
    if (one.exists()) m.full_layers.push_back(one.integer(0, kMostLayers, 0));
  const bool periodic = m.window > 0 && m.full_layers.empty();
  m.window_period = at.optional("window_period").integer(0, kMostLayers, periodic ? m.window_period : 0);
  m.window_kv_heads = at.optional("window_kv_heads").integer(0, kMostWidth, 0);
  m.window_heads = at.optional("window_heads").integer(0, kMostWidth, 0);
  m.window_head_dim = at.optional("window_head_dim").integer(0, kMostWidth, 0);
  m.full_first = at.optional("full_first").boolean(m.window_period > 0 && m.full_first);
  m.window_theta = at.optional("window_theta").number(0, 1e12, m.window > 0 ? m.window_theta : 0);
  m.unrotated_period = at.optional("unrotated_period").integer(0, kMostLayers, m.unrotated_period);
  m.attention_gate = at.optional("attention_gate").boolean(m.attention_gate);
  m.head_gate = at.optional("head_gate").boolean(m.head_gate);
  m.value_scale = at.optional("value_scale").number(kLeastScale, kMostCap, m.value_scale);
  m.score_factor = at.optional("score_factor").number(kLeastScale, kMostCap, m.score_factor);
  m.gate_scale = at.optional("gate_scale").number(kLeastScale, kMostCap, m.gate_scale);
  m.mlp_scale = at.optional("mlp_scale").number(kLeastScale, kMostCap, m.mlp_scale);
  m.attention_sinks = at.optional("attention_sinks").boolean(m.attention_sinks);
  m.sinks_in_windows = at.optional("sinks_in_windows").boolean(m.attention_sinks && m.window > 0 && m.sinks_in_windows);
  if (const Cursor latent = at.optional("latent_attention"); latent.exists()) m.latent = read_latent(latent);
  if (const Cursor indexer = at.optional("indexer"); indexer.exists()) m.indexer = read_indexer(indexer);
  if (const Cursor streams = at.optional("streams"); streams.exists()) {
    m.streams.count = streams.at("count").integer(2, kMostStreams, 2);
    m.streams.steps = streams.optional("steps").integer(0, kMostSequence, m.streams.steps);
  }
  if (const Cursor compressed = at.optional("compressed_attention"); compressed.exists())
    m.compressed = read_compressed(compressed);
  if (const Cursor inputs = at.optional("layer_inputs"); inputs.exists()) {
    m.layer_inputs.width = inputs.at("width").integer(1, kMostWidth, 1);
    m.layer_inputs.vocab = inputs.optional("vocab").integer(1, kMostVocab, m.vocab);
  }
  if (const Cursor shared = at.optional("shared_keys"); shared.exists()) {
    m.shared_keys.layers = shared.at("layers").integer(1, kMostLayers, 1);
    m.shared_keys.widens = shared.optional("widens").boolean(false);
  }
  const Cursor experts = traits_of(m.family).mixture ? needed(at, "", "experts") : at.optional("experts");
  if (experts.exists()) m.experts = read_experts(experts, m);
  if (const Cursor further = at.optional("further_prediction"); further.exists()) {
    m.further.modules = further.at("modules").integer(0, 1, 1);
    m.further.weight = further.optional("weight").number(0, 1, m.further.weight);
  }
  for (const Cursor& source : at.optional("sources").one_or_many())
    if (source.exists()) m.sources.push_back(source.text());
  return m;
}

Model read_any(const Cursor& at, const std::string& name) {
  const bool failed_before = at.findings().failed();
  const bool theirs = is_hugging_face(at);
  Model m = theirs ? read_hugging_face(at, name) : read_own(at, name);
  // Relations between numbers that could not be read would be about our fallbacks.
  if (at.findings().failed() || failed_before || m.recommender) return m;
  check(at, m);
  return m;
}

// "…/gpt2-124m.yaml" -> "gpt2-124m"; a config.json gets the name of its folder.
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
  return name.empty() ? "model" : base::printable(name);  // a file's name is unchecked input
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

base::Result<Model> parse_model(std::string_view text, std::string file, base::Diagnostics* warnings) {
  const std::string name = stem(file);
  return base::read_document<Model>(
      text, std::move(file), [&](const Cursor& root) { return read_any(root, name); }, warnings);
}

Model read_model(const Cursor& at) {
  return read_any(at, "");
}

namespace {

void write_sources(std::string& out, const Model& m, const std::string& margin) {
  if (!m.sources.empty()) out += margin + "sources:\n";
  for (const std::string& source : m.sources) out += fmt::format("{}  - {}\n", margin, base::yaml_text(source));
}

}  // namespace

std::string write_model(const Model& m, int indent) {
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  std::string out;
  const auto line = [&](const char* key, const auto& value) { out += fmt::format("{}{}: {}\n", margin, key, value); };
  line("name", base::yaml_text(m.name));
  line("family", name_of(m.family));
  if (m.recommender) {
    out += recommender_text(*m.recommender, margin);
    write_sources(out, m, margin);
    return out;
  }
  line("layers", m.layers);
  line("hidden", m.hidden);
  line("heads", m.heads);
  line("kv_heads", m.kv_heads);
  line("head_dim", m.head_dim);
  if (m.value_dim > 0) line("value_dim", m.value_dim);
  line("ffn_hidden", m.ffn_hidden);
  line("vocab", m.vocab);
  line("max_sequence", m.max_sequence);
  line("token_types", m.token_types);
  line("normalisation", word(kNormalisations, static_cast<int>(m.normalisation)));
  line("activation", traits_of(m.activation).name);
  line("gelu", word(kGelus, static_cast<int>(m.gelu)));
  line("positions", word(kPositions, static_cast<int>(m.positions)));
  line("causal", m.causal);
  line("pre_norm", m.pre_norm);
  line("bias", m.bias);
  line("tied_embeddings", m.tied_embeddings);
  line("norm_epsilon", m.norm_epsilon);
  line("rope_theta", m.rope_theta);
  if (m.rope_scaling.kind != RopeKind::none) line("rope_scaling", rope_scaling_text(m.rope_scaling));
  line("initial_stddev", m.initial_stddev);
  line("masked_fraction", m.masked_fraction);
  line("next_sentence", m.next_sentence);
  // Rare features, if they are not the family's own.
  const Model usual = defaults_of(m.family);
  const auto feature = [&](const char* key, auto Model::*of) {
    if (m.*of != usual.*of) line(key, m.*of);
  };
  feature("norm_bias", &Model::norm_bias);
  feature("norm_weight", &Model::norm_weight);
  feature("qkv_bias", &Model::qkv_bias);
  feature("attention_bias", &Model::attention_bias);
  feature("out_bias", &Model::out_bias);
  feature("head_bias", &Model::head_bias);
  feature("qk_norm", &Model::qk_norm);
  feature("joint_qk_norm", &Model::joint_qk_norm);
  if (m.qk_norm) feature("late_qk_norm", &Model::late_qk_norm);
  if (m.qk_norm) feature("value_norm", &Model::value_norm);
  if (m.value_norm) feature("keys_as_values", &Model::keys_as_values);
  feature("parallel", &Model::parallel);
  feature("shared_norm", &Model::shared_norm);
  feature("output_norm", &Model::output_norm);
  feature("input_norm", &Model::input_norm);
  feature("normed_skip", &Model::normed_skip);
  if (m.skip_scales != usual.skip_scales) line("skip_scales", fmt::format("[{}]", fmt::join(m.skip_scales, ", ")));
  feature("embedding_norm", &Model::embedding_norm);
  feature("scaled_embedding", &Model::scaled_embedding);
  feature("embedding_scale", &Model::embedding_scale);
  feature("residual_scale", &Model::residual_scale);
  feature("logit_scale", &Model::logit_scale);
  feature("rotary_share", &Model::rotary_share);
  feature("window_rotary_share", &Model::window_rotary_share);
  feature("position_offset", &Model::position_offset);
  feature("attention_cap", &Model::attention_cap);
  feature("logit_cap", &Model::logit_cap);
  feature("query_scale", &Model::query_scale);
  feature("window", &Model::window);
  if (m.window > 0 && m.full_layers.empty()) feature("window_period", &Model::window_period);
  if (!m.full_layers.empty()) line("full_layers", fmt::format("[{}]", fmt::join(m.full_layers, ", ")));
  feature("window_kv_heads", &Model::window_kv_heads);
  feature("window_heads", &Model::window_heads);
  feature("window_head_dim", &Model::window_head_dim);
  if (m.window_period > 0) feature("full_first", &Model::full_first);
  if (m.window > 0) feature("window_theta", &Model::window_theta);
  feature("unrotated_period", &Model::unrotated_period);
  feature("attention_gate", &Model::attention_gate);
  feature("head_gate", &Model::head_gate);
  feature("value_scale", &Model::value_scale);
  feature("score_factor", &Model::score_factor);
  feature("gate_scale", &Model::gate_scale);
  feature("mlp_scale", &Model::mlp_scale);
  feature("attention_sinks", &Model::attention_sinks);
  if (m.attention_sinks && m.window > 0) feature("sinks_in_windows", &Model::sinks_in_windows);
  if (m.further.any())
    line("further_prediction", fmt::format("{{modules: {}, weight: {}}}", m.further.modules, m.further.weight));
  if (m.streams.any()) line("streams", fmt::format("{{count: {}, steps: {}}}", m.streams.count, m.streams.steps));
  out += compressed_text(m.compressed, margin);
  if (m.layer_inputs.any())
    line("layer_inputs", fmt::format("{{width: {}, vocab: {}}}", m.layer_inputs.width, m.layer_inputs.vocab));
  if (m.shared_keys.any())
    line("shared_keys", fmt::format("{{layers: {}, widens: {}}}", m.shared_keys.layers, m.shared_keys.widens));
  if (m.conv_taps > 0) line("conv_taps", m.conv_taps);
  out += state_space_text(m.ssm, margin) + pattern_text(m.pattern, margin);
  out +=
      latent_text(m.latent, margin) + indexer_text(m.indexer, margin) + experts_text(m.experts, usual.experts, margin);
  if (m.dropout.any()) line("dropout", dropout_text(m.dropout));
  if (m.lora.any()) line("lora", lora_text(m.lora));
  write_sources(out, m, margin);
  return out;
}

namespace {

/// The values of a model's text under their keys ("experts.count"), in order.
std::vector<std::pair<std::string, std::string>> values_of(const Model& model) {
  std::vector<std::pair<std::string, std::string>> out;
  std::vector<std::pair<std::size_t, std::string>> within;  // indentation and key
  const std::string text = write_model(model);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const std::size_t indent = line.find_first_not_of(' '), colon = line.find(':');
    if (indent == std::string::npos || colon == std::string::npos || line[indent] == '-') continue;
    while (!within.empty() && within.back().first >= indent) within.pop_back();
    std::string key;
    for (const auto& [_, outer] : within) key += outer + ".";
    within.emplace_back(indent, line.substr(indent, colon - indent));
    if (colon + 2 < line.size()) out.emplace_back(key + within.back().second, line.substr(colon + 2));
  }
  return out;
}

}  // namespace

std::string first_difference(const Model& model, const Model& other) {
  const auto mine = values_of(model), theirs = values_of(other);
  const auto value = [](const auto& values, const std::string& key) -> std::string {
    const auto found = std::find_if(values.begin(), values.end(), [&](const auto& one) { return one.first == key; });
    return found == values.end() ? "unset" : found->second;
  };
  for (const auto* all : {&mine, &theirs})
    for (const auto& [key, _] : *all)
      if (value(mine, key) != value(theirs, key))
        return fmt::format("{} {}, not {}", key, value(mine, key), value(theirs, key));
  return {};
}

}  // namespace orrery::models

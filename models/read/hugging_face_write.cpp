// Model to config.json, for weights that other programs will read.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "models/layers/mixers.h"
#include "models/read/families.h"
#include "models/read/hugging_face.h"
#include "models/read/read.h"

namespace orrery::models {
namespace {

/// In transformers, in the order of RopeKind.
constexpr std::array kRopeWords = {"default", "linear", "llama3", "yarn", "longrope", "proportional"};

class ConfigWriter : public ConfigKeys {
 public:
  void put(const std::string& key, const std::string& value) {
    if (!written_.insert(key).second) return;
    const std::size_t dot = key.rfind('.');
    std::string& out = dot == std::string::npos ? out_ : maps_[key.substr(0, dot)];
    out += fmt::format("{}  \"{}\": {}", out.empty() ? "" : ",\n", key.substr(dot + 1), value);
  }
  void quote(const char* key, const std::string& value) { put(key, base::json_quoted(value)); }
  [[nodiscard]] std::string finish() {
    while (!maps_.empty()) {  // the last key is within no map that is left
      const auto last = maps_.extract(std::prev(maps_.end()));
      put(last.key(), "{\n" + last.mapped() + "\n}");
    }
    return "{\n" + out_ + "\n}\n";
  }

  [[nodiscard]] bool reads() const override { return false; }
  void count(Names names, std::int64_t& value, std::int64_t, std::int64_t) override {
    put(*names.begin(), fmt::format("{}", value));
  }
  void count(Names names, std::int64_t& value, std::int64_t least, std::int64_t, std::int64_t) override {
    // A value below the key's least means that there is none.
    put(*names.begin(),
        value < least || (value == 0 && least == 0 && of_window(names)) ? "null" : fmt::format("{}", value));
  }
  void real(Names names, double& value, double, double, double) override {
    put(*names.begin(), fmt::format("{}", value));
  }
  void real_or_none(const char* name, double& value, double, double) override {
    put(name, value > 0 ? fmt::format("{}", value) : "null");
  }
  void reals(const char* key, std::vector<double>& values, double) override {
    put(key, fmt::format("[{}]", fmt::join(values, ", ")));
  }
  void flag(Names names, bool& value, bool) override { put(*names.begin(), value ? "true" : "false"); }
  void text(Names names, std::string& value, const char*) override { quote(*names.begin(), value); }
  void activation(Names names, Model& model, std::initializer_list<Word> words, const char*) override {
    for (const Word& one : words)
      if (one.activation == model.activation && (model.activation != Activation::gelu || one.gelu == model.gelu))
        return quote(*names.begin(), one.word);
  }
  void only(const char* key, bool wanted, const char*) override { put(key, wanted ? "true" : "false"); }
  void fixed(const char*, const char*, const char*) override {}
  void unused(Names) override {}
  void expert_layers(const char* key, bool only, Model& model) override {
    const Experts& e = model.experts;
    if (only && e.first_dense == 0) return;  // the period says it
    std::string all;
    for (std::int64_t i = 0; i < (only ? model.layers : e.first_dense); ++i)
      if (!only || e.in_layer(i)) all += fmt::format("{}{}", all.empty() ? "" : ", ", i);
    put(key, "[" + all + "]");
  }
  void expert_layers(const char*, const std::vector<bool>&, Model&) override {}
  void sparse_layers(const char* key, Model& model) override {
    if (std::string_view(key) == "mlp_layer_types")
      each_layer(key, model, [&](std::int64_t i) { return model.has_experts(i) ? "sparse" : "dense"; });
  }
  void layer_types(Model& model, std::int64_t) override {
    each_layer("layer_types", model,
               [&](std::int64_t i) { return model.windowed(i) ? "sliding_attention" : "full_attention"; });
  }
  void window_flags(const char*, Model&) override {}
  void attention_types(const char* runs, const char*, Model& model) override {
    std::string all;
    for (std::int64_t i = 0; i < model.layers; ++i)
      all += fmt::format("{}\"{}\"", all.empty() ? "" : ", ", model.windowed(i) ? "local" : "global");
    put(runs, fmt::format("[[[{}], 1]]", all));
  }
  void unrotated_layers(const char* list, const char* period, Model& model, std::int64_t) override {
    if (model.unrotated_period > 0) return put(period, fmt::format("{}", model.unrotated_period));
    std::string all;
    for (std::int64_t i = 0; i < model.layers; ++i) all += all.empty() ? "1" : ", 1";
    put(list, "[" + all + "]");
  }
  void pattern(const char* letters, const char* words, Feed feed, Model& model) override {
    std::string text, list;
    for (std::int64_t i = 0; i < model.layers; ++i) {
      BlockParts parts = model.parts(i);
      if (parts.mixer != Mixer::none && parts.feed == feed) parts.feed = Feed::none;
      text += letter_of(parts).value_or('?');
      list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", word_of(parts));
    }
    letters != nullptr ? quote(letters, text) : put(words, "[" + list + "]");
  }
  void layer_words(const char* key, Names known, std::vector<std::size_t>& which) override {
    std::string all;
    for (const std::size_t one : which) all += fmt::format("{}\"{}\"", all.empty() ? "" : ", ", known.begin()[one]);
    put(key, "[" + all + "]");
  }
  bool layer_numbers(const char* key, std::vector<std::int64_t>& layers, const Model&) override {
    put(key, fmt::format("[{}]", fmt::join(layers, ", ")));
    return true;
  }
  void blocks(const char*, std::vector<BlockParts>, Model&) override {}
  void rope_scaling_at(const std::string& at, Model& model) override {
    const RopeScaling& s = model.rope_scaling;
    if (s.kind == RopeKind::proportional) return;  // keys of its family (models/read/families_gemma4.cpp)
    const bool within = at.find('.') != std::string::npos;
    if (s.kind == RopeKind::none) return within ? put(at + ".rope_type", "\"default\"") : put(at, "null");
    const auto number = [&](const char* key, double value) { put(at + "." + key, fmt::format("{}", value)); };
    const auto numbers = [&](const char* key, const std::vector<double>& values) {
      put(at + "." + key, fmt::format("[{}]", fmt::join(values, ", ")));
    };
    put(at + ".rope_type", fmt::format("\"{}\"", kRopeWords[static_cast<std::size_t>(s.kind)]));
    if (s.kind != RopeKind::linear) put(at + ".original_max_position_embeddings", fmt::format("{}", s.original));
    if (s.kind == RopeKind::longrope) {
      put("original_max_position_embeddings", fmt::format("{}", s.original));
      numbers("short_factor", s.divisors), numbers("long_factor", s.long_divisors);
      if (s.attention == s.long_attention) return number("attention_factor", s.attention);
      return number("short_mscale", s.attention), number("long_mscale", s.long_attention);
    }
    number("factor", s.factor);
    if (s.kind == RopeKind::llama3) number("low_freq_factor", s.low), number("high_freq_factor", s.high);
    if (s.kind != RopeKind::yarn) return;
    number("beta_slow", s.low), number("beta_fast", s.high), number("attention_factor", s.attention);
    put(at + ".truncate", s.whole_pairs ? "true" : "false");
    if (s.score_weight > 0) number("mscale_all_dim", s.score_weight);
  }
  void of_class(const char* architecture, bool& is) override {
    if (is) put("architectures", fmt::format("[\"{}\"]", architecture));
  }
  void unlimited(const char*, const char*) override {}
  std::vector<double> each_layers(const char*, const Model&, std::int64_t, double, double) override { return {}; }
  std::vector<bool> which_are(const char*, const char*, const char*) override { return {}; }
  void any_length(Model&, std::int64_t, const std::string&) override { any_length_ = true; }
  [[nodiscard]] bool any_length() const { return any_length_; }
  void refuse(const char*, const std::string&, const std::string&) override {}
  void remark(const std::string&) override {}
  [[nodiscard]] bool given(const char*) const override { return false; }
  [[nodiscard]] bool written(const char*) const override { return false; }

 private:
  template <class WordOf>
  void each_layer(const char* key, const Model& model, const WordOf& word_of) {
    std::string all;
    for (std::int64_t i = 0; i < model.layers; ++i) all += fmt::format("{}\"{}\"", all.empty() ? "" : ", ", word_of(i));
    put(key, "[" + all + "]");
  }
  static bool of_window(Names names) { return std::string(*names.begin()) == "sliding_window"; }
  bool any_length_ = false;
  std::string out_;
  std::map<std::string, std::string> maps_;  ///< keys a.b.c of the map a.b
  std::set<std::string> written_;
};

/// The model without what makes no difference to what is trained.
Model essence(Model m) {
  m.name.clear();
  m.sources.clear();
  if (m.positions != Positions::rope) m.rope_theta = 10000, m.rotary_share = 1, m.window_theta = 0, m.rope_scaling = {};
  if (m.activation != Activation::gelu) m.gelu = Gelu::tanh;
  if (m.masked_fraction > 0) m.masked_fraction = 1;  // part of the training recipe
  m.experts.bias_rate = m.experts.aux_coefficient = m.experts.z_coefficient = 0;
  if (m.bias && m.attention_bias) m.qkv_bias = m.out_bias = true;
  constexpr StateSpace kUsual{};
  m.ssm.chunk = kUsual.chunk;  // how it is computed, not what
  const std::vector<const MixerTraits*> mixers = mixers_of(m);
  if (std::none_of(mixers.begin(), mixers.end(), [](const MixerTraits* one) { return one->convolves; }))
    m.ssm.taps = kUsual.taps, m.ssm.conv_bias = kUsual.conv_bias;
  if (std::none_of(mixers.begin(), mixers.end(), [](const MixerTraits* one) { return one->has_rank; })) m.ssm.rank = 0;
  if (m.window >= m.max_sequence && !window_is_more(m)) m.drop_window();
  std::vector<bool> sliding;
  for (std::int64_t i = 0; i < m.layers; ++i) sliding.push_back(m.windowed(i));
  place_windows(sliding, m);
  if (m.unrotated_period > m.layers) m.unrotated_period = 0;
  return m;
}

/// The first thing that differs from what the class can express; null if nothing does.
const char* difference(const Model& given, const Model& again) {
  const Model a = essence(given), b = essence(again);
  if (a == b) return nullptr;
  if (a.positions != b.positions || a.position_offset != b.position_offset || a.window_theta != b.window_theta ||
      a.unrotated_period != b.unrotated_period || a.window_rotary_share != b.window_rotary_share)
    return "its positions";
  if (a.activation != b.activation || a.gelu != b.gelu) return "its activation";
  if (a.normalisation != b.normalisation || a.norm_epsilon != b.norm_epsilon) return "its normalisation";
  if (a.pre_norm != b.pre_norm || a.output_norm != b.output_norm || a.embedding_norm != b.embedding_norm ||
      a.input_norm != b.input_norm || a.shared_norm != b.shared_norm || a.qk_norm != b.qk_norm ||
      a.joint_qk_norm != b.joint_qk_norm || a.late_qk_norm != b.late_qk_norm || a.norm_weight != b.norm_weight ||
      a.value_norm != b.value_norm)
    return "where it normalises";
  if (a.bias != b.bias || a.qkv_bias != b.qkv_bias || a.norm_bias != b.norm_bias ||
      a.attention_bias != b.attention_bias || a.out_bias != b.out_bias || a.head_bias != b.head_bias)
    return "its biases";
  if (a.kv_heads != b.kv_heads) return "grouped queries";
  if (a.head_dim != b.head_dim || a.value_dim != b.value_dim || a.window_head_dim != b.window_head_dim ||
      a.window_heads != b.window_heads || a.head_gate != b.head_gate)
    return "the width of its heads";
  if (a.causal != b.causal || a.window != b.window || a.window_period != b.window_period ||
      a.full_first != b.full_first || a.full_layers != b.full_layers || a.window_kv_heads != b.window_kv_heads ||
      a.sinks_in_windows != b.sinks_in_windows)
    return "its mask";
  if (!(a.dropout == b.dropout)) return "its dropout";
  if (a.token_types != b.token_types) return "its token types";
  if (a.next_sentence != b.next_sentence || a.masked_fraction != b.masked_fraction) return "its heads";
  if (!(a.experts == b.experts)) return "its experts";
  if (!(a.indexer == b.indexer)) return "which tokens its attention reads";
  if (!(a.latent == b.latent)) return "its latent attention";
  if (a.keys_as_values != b.keys_as_values || !(a.shared_keys == b.shared_keys))
    return "where its keys and values are from";
  if (!(a.compressed == b.compressed) || !(a.streams == b.streams)) return "its streams, or runs of tokens";
  if (!(a.layer_inputs == b.layer_inputs)) return "inputs of its layers";
  if (a.pattern != b.pattern || !(a.ssm == b.ssm) || a.conv_taps != b.conv_taps)
    return "its pattern of layers, or its state spaces";
  if (a.embedding_scale != b.embedding_scale || a.residual_scale != b.residual_scale || a.logit_scale != b.logit_scale)
    return "its scales of embeddings, residuals or logits";
  if (a.ffn_hidden != b.ffn_hidden) return "the width of its MLP";
  return "its attention, caps or embeddings";
}

}  // namespace

base::Result<std::string> write_hugging_face(const Model& model) {
  if (model.recommender)
    return base::fail("E0604", "Hugging Face has no class of recommendation models",
                      "checkpoints use the public DLRM's tensor names");
  const FamilyTraits& family = traits_of(model.family);
  if (const char* const why = family.computes_else != nullptr ? family.computes_else(model) : nullptr)
    return base::fail("E0604", fmt::format("{} would be another model in {}: {}", model.name, family.architecture, why),
                      "checkpoints keep such a model; no file of its class does");
  bool any_length = false;
  const auto written = [&](const std::string& name) {
    Model m = model;
    ConfigWriter out;
    out.quote("model_type", family.model_types.front());
    out.quote("_name_or_path", name);
    out.put("vocab_size", fmt::format("{}", m.vocab));
    family.config(out, m);
    out.put("architectures", fmt::format("[\"{}\"]", family.architecture));  // unless it is another of its classes
    out.put(model.family == Family::opt ? "init_std" : "initializer_range", fmt::format("{}", m.initial_stddev));
    out.quote("torch_dtype", "float32");
    any_length = out.any_length();
    return out.finish();
  };
  // Under a neutral name: whether a file may hold the model's own name says nothing about its shape.
  auto again = parse_model(written("model"), "config.json");
  if (again && any_length) again->max_sequence = model.max_sequence;  // no file of its class loses one
  const char* const other = again ? difference(model, *again) : "its sizes";
  if (other)
    return base::fail(
        "E0604", fmt::format("{} differs from {}: {}", model.name, family.architecture, other),
        fmt::format("only models that their family's class ({}) can express can be exported", family.title));
  return written(model.name);
}

}  // namespace orrery::models

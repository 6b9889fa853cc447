// Reads Hugging Face's config.json by its family's keys. A missing field that decides a shape gets the class's
// documented default only where the table of families states it (models/read/families.h), never one from memory.
#include "models/read/hugging_face.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "base/printable.h"
#include "base/units.h"
#include "models/limits.h"
#include "models/read/config_layers.h"
#include "models/read/families.h"
#include "models/read/idle_keys.h"
#include "models/read/original.h"
#include "models/read/unread.h"
#include "models/read/which_family.h"

namespace orrery::models {

void ConfigKeys::differs(const std::string& text) {
  remark(std::string(kDiffers) + text);
}

void place_windows(const std::vector<bool>& sliding, Model& model) {
  std::vector<std::int64_t> whole;
  for (std::size_t i = 0; i < sliding.size(); ++i)
    if (!sliding[i]) whole.push_back(static_cast<std::int64_t>(i));
  if (model.window == 0 || whole.size() == sliding.size()) return model.drop_window();
  model.full_layers.clear();
  model.full_first = !whole.empty() && whole.front() == 0;
  if (model.full_first)
    model.window_period = whole.size() > 1 ? whole[1] : std::ssize(sliding);
  else
    model.window_period = whole.empty() ? 0 : whole.front() + 1;
  for (std::size_t i = 0; i < sliding.size(); ++i)
    if (model.windowed(static_cast<std::int64_t>(i)) != sliding[i]) {
      model.window_period = 0, model.full_first = false;
      model.full_layers = std::move(whole);
      return;
    }
}

namespace {

using base::Cursor;

class ConfigReader final : public ConfigLayers {
 public:
  using ConfigLayers::ConfigLayers;

  void rope_scaling_at(const std::string&, Model& model) override {
    Cursor at = file().optional("rope_scaling");
    if (!at.exists()) at = file().optional("rope_parameters");
    if (at.exists() || file().has("rope_scaling")) model.rope_scaling = {};  // else the class's own
    if (!at.exists()) return;
    // Of a kind of layer: where others have their own, theirs are never scaled.
    for (const char* kind : {"full_attention", "compress"})
      if (const Cursor own = at.optional(kind); own.exists()) {
        at = own;
        break;
      }
    if (at.optional("llama_4_scaling_beta").number(0, 1e3, 0) > 0)
      differs("queries are not scaled with their positions beyond the first length (llama_4_scaling_beta)");
    const Cursor first = at.optional("rope_type"), second = at.optional("type");
    const std::string kind = (first.exists() ? first : second).text("default");
    constexpr double kMost = 1e6;
    RopeScaling s;
    const auto number = [&](const char* key, double fallback) { return at.optional(key).number(0, kMost, fallback); };
    if (kind == "linear") {
      s.kind = RopeKind::linear;
    } else if (kind == "llama3") {
      s.kind = RopeKind::llama3;
      s.low = number("low_freq_factor", 1), s.high = number("high_freq_factor", 4);
    } else if (kind == "yarn") {
      s.kind = RopeKind::yarn;
      s.low = number("beta_slow", 1), s.high = number("beta_fast", 32);
      s.whole_pairs = at.optional("truncate").boolean(true);
    } else if (kind == "proportional" && model.family == Family::gemma4) {
      s.kind = RopeKind::proportional;
      s.share = at.optional("partial_rotary_factor").number(0, 1, 1);
      s.factor = at.optional("factor").number(1, kMost, 1);
      model.rope_scaling = s;
      return;
    } else if (kind == "longrope" || kind == "su") {
      return longrope(at, model);
    } else {
      const double alpha = number("alpha", 0);
      if (kind == "dynamic" && alpha > 0) {  // HunYuan's: a larger base, whatever the sequence
        const std::int64_t width =
            model.head_dim > 0 ? model.head_dim : model.hidden / std::max<std::int64_t>(1, model.heads);
        const auto columns = static_cast<double>(width);
        if (width > 2) model.rope_theta *= std::pow(alpha, columns / (columns - 2));
      } else if (kind == "dynamic")  // its rates change with the sequence, but only beyond the longest that was trained
        remark("rope_scaling of type dynamic is left out: within max_position_embeddings it changes nothing");
      else if (kind == "mrope")
        remark("rope_scaling of type mrope is left out: tokens of text have one position in all its sections");
      else if (kind != "default")
        differs(fmt::format("rope_scaling of type {} is left out: positions rotate as without it", kind));
      if (kind != "default") at.ignore();
      return;
    }
    s.factor = at.at("factor").number(1, kMost, 1);
    if (s.kind != RopeKind::linear)
      s.original = at.optional("original_max_position_embeddings").integer(1, kMostSequence, model.max_sequence);
    if (s.kind != RopeKind::linear && s.high < s.low)
      return at.error("E0112", fmt::format("the fast pairs' bound ({}) is below the slow ones' ({})", s.high, s.low));
    if (s.kind == RopeKind::yarn) {
      const double mscale = number("mscale", 0), all = number("mscale_all_dim", 0);
      const bool both = mscale > 0 && all > 0;
      s.attention = number("attention_factor", both ? yarn_attention(s.factor, mscale) / yarn_attention(s.factor, all)
                                                    : yarn_attention(s.factor));
      // DeepSeek's attention multiplies scores by it, and so do the classes that have theirs from there.
      constexpr Family kWeigh[] = {Family::deepseek_v2, Family::deepseek_v3, Family::deepseek_v32,
                                   Family::glm4_moe_lite, Family::glm_moe_dsa};
      if (std::ranges::find(kWeigh, model.family) != std::end(kWeigh)) s.score_weight = all;
    }
    model.rope_scaling = s;
  }

  void of_class(const char* architecture, bool& is) override {
    const Cursor classes = file().optional("architectures");
    is = false;
    if (classes.exists())
      for (const Cursor& one : classes.items()) is = is || one.text() == architecture;
  }

  void unlimited(const char* key, const char* why) override {
    const Cursor list = file().optional(key);
    if (!list.exists()) return;
    const std::vector<Cursor> bounds = list.is_sequence() ? list.items() : std::vector<Cursor>{};
    constexpr double kNone = 1e30;  // files have Infinity, or the largest number there is
    const auto number = [](const Cursor& at) { return std::strtod(at.scalar_text().c_str(), nullptr); };
    if (bounds.size() != 2 || !(number(bounds[0]) <= 0) || !(number(bounds[1]) >= kNone))
      list.error("E0111", fmt::format("a finite `{}` is not supported: {}", key, why), "[0.0, Infinity]");
  }

  void any_length(Model& model, std::int64_t usual, const std::string& whose) override {
    model.max_sequence = usual;
    remark("the class has no longest sequence; " + whose);
  }

 private:
  /// Phi-3's, in whose first files it is called su. The lengths before and after decide attention's factor, unless the
  /// file says it (phimoe: one for short sequences, and one for long ones).
  void longrope(const Cursor& at, Model& model) {
    constexpr double kLeast = 1e-6, kMost = 1e6;
    constexpr const char* kBefore = "original_max_position_embeddings";
    RopeScaling s;
    s.kind = RopeKind::longrope;
    const Cursor before = at.optional(kBefore).exists() ? at.optional(kBefore) : file().optional(kBefore);
    s.original = before.integer(1, kMostSequence, model.max_sequence);
    const double longer = static_cast<double>(model.max_sequence) / static_cast<double>(s.original);
    const double factor = before.exists() ? longer : at.optional("factor").number(0, kMost, 1);
    s.divisors = read_divisors(at.at("short_factor"));
    s.long_divisors = read_divisors(at.at("long_factor"));
    const double usual = at.optional("attention_factor").number(kLeast, kMost, longrope_attention(factor, s.original));
    s.attention = at.optional("short_mscale").number(kLeast, kMost, usual);
    s.long_attention = at.optional("long_mscale").number(kLeast, kMost, usual);
    model.rope_scaling = std::move(s);
  }
};

/// Sizes that a class has where a nested part is silent, as published files of text and images leave out what equals
/// them. kv_heads 0: as many as heads. Source: the classes' configurations in Hugging Face's transformers.
struct ClassSizes {
  Family family;
  std::int64_t layers, hidden, heads, kv_heads, ffn_hidden, max_sequence, vocab;
};
constexpr ClassSizes kClassSizes[] = {{Family::llama, 32, 4096, 32, 0, 11008, 2048, 32000},
                                      {Family::mistral, 32, 4096, 32, 8, 14336, 131072, 32000},
                                      {Family::qwen2, 32, 4096, 32, 32, 22016, 32768, 151936},
                                      {Family::gemma, 28, 3072, 16, 16, 24576, 8192, 256000},
                                      {Family::gemma2, 26, 2304, 8, 4, 9216, 8192, 256000}};
const ClassSizes* class_sizes(Family family) {
  for (const ClassSizes& one : kClassSizes)
    if (one.family == family) return &one;
  return nullptr;
}

/// Weights in fewer bits are a matter of the file; here they are as wide as the job says.
void remark_on_quantization(const Cursor& at, Model& m) {
  const Cursor fewer = at.optional("quantization_config");
  if (!fewer.exists()) return;
  const std::string method = fewer.is_map() ? fewer.optional("quant_method").scalar_text() : "";
  fewer.ignore();
  m.sources.push_back(
      fmt::format("its files of weights hold numbers in fewer bits (quantization_config{}), which nothing here goes by",
                  method.empty() ? "" : ": " + base::printable(method)));
}

}  // namespace

bool is_hugging_face(const Cursor& root) {
  // Old files, and those of other libraries in its form, say no class: their words for a width tell them.
  constexpr const char* kWords[] = {"model_type", "architectures", "text_config", "hidden_size", "n_embd", "d_model"};
  const auto has = [&](const char* key) { return root.has(key); };
  const bool says = has("model_type") || has("architectures") || has("text_config");
  // One in our own form that lacks its family, and has one word of theirs.
  if (!says && (has("layers") || has("heads"))) return false;
  return root.is_map() && !root.has("family") && std::ranges::any_of(kWords, has);
}

Model read_hugging_face(const Cursor& root, const std::string& name) {
  Model m;
  root.ignore();  // a key that nothing asks for is no error
  const LanguagePart part = language_part(root);
  const Cursor& at = part.at;
  const FamilyTraits* family = family_of(root, part);
  if (!family) return m;
  m.family = family->family;
  family->defaults(m);
  m.name = name;
  if (const Cursor given = root.optional("_name_or_path"); given.is_scalar()) {
    // An id such as "openai-community/gpt2", but not a path on somebody's disk. An empty one counts as missing.
    const std::string id = given.scalar_text().empty() ? std::string() : given.text();
    if (!id.empty() && id.front() != '/' && id.front() != '.' && id.front() != '~') m.name = id;
  }
  const char* const words = at.has("vocab_size") || !at.has("padded_vocab_size") ? "vocab_size" : "padded_vocab_size";
  const ClassSizes* const sizes = part.path.empty() ? nullptr : class_sizes(m.family);
  const std::int64_t usual = sizes != nullptr ? sizes->vocab : family->vocab;
  m.vocab = usual > 0 ? at.optional(words).integer(1, kMostVocab, usual) : at.at(words).integer(1, kMostVocab, 1);
  m.initial_stddev = at.optional(at.has("init_std") ? "init_std" : "initializer_range").number(0, 10, m.initial_stddev);
  if (sizes != nullptr) {
    m.layers = sizes->layers, m.hidden = sizes->hidden, m.heads = sizes->heads;
    m.ffn_hidden = sizes->ffn_hidden, m.max_sequence = sizes->max_sequence;
  }
  ConfigReader keys(at, m, sizes != nullptr);
  family->config(keys, m);
  if (sizes != nullptr && sizes->kv_heads > 0 && !at.has("num_key_value_heads")) m.kv_heads = sizes->kv_heads;
  if (!part.path.empty() && !at.has("tie_word_embeddings"))
    m.tied_embeddings = root.optional("tie_word_embeddings").boolean(m.tied_embeddings);
  if (!keys.assumed().empty())
    m.sources.push_back(fmt::format("the file leaves out {}: the class's own", fmt::join(keys.assumed(), ", ")));
  const bool whole = part.path.empty();
  if (!whole || root.has("vision_config") || root.has("audio_config") || root.has("img_processor") ||
      root.has("audio_processor"))
    m.sources.insert(m.sources.begin(),
                     fmt::format("its language model alone{}: what reads images or sound is left out",
                                 whole ? "" : " (" + part.path + ")"));
  m.sources.insert(m.sources.begin(), fmt::format("Hugging Face config.json of {}", m.name));
  remark_on_quantization(root, m);
  if (!whole) remark_on_quantization(at, m);
  if (!root.findings().failed()) warn_of_unread(root, part);
  return m;
}

}  // namespace orrery::models

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

class ConfigReader : public ConfigKeys {
 public:
  /// `has_sizes`: the model already has the sizes of its class, for keys that the file leaves out.
  ConfigReader(const Cursor& at, Model& model, bool has_sizes) : at_(at), model_(model), has_sizes_(has_sizes) {}
  [[nodiscard]] const std::vector<std::string>& assumed() const { return assumed_; }
  [[nodiscard]] bool reads() const override { return true; }

  void count(Names names, std::int64_t& value, std::int64_t least, std::int64_t most) override {
    const Cursor found = find(names);
    if (!found.exists() && has_sizes_ && value >= least) return assumed_.emplace_back(*names.begin()), void();
    value = (found.exists() ? one_for_all(found) : at_.at(*names.begin())).integer(least, most, 1);
  }
  void count(Names names, std::int64_t& value, std::int64_t least, std::int64_t most, std::int64_t fallback) override {
    value = one_for_all(find(names)).integer(least, most, fallback);
  }
  void real(Names names, double& value, double least, double most, double fallback) override {
    value = find(names).number(least, most, fallback);
  }
  void real_or_none(const char* name, double& value, double most, double fallback) override {
    value = at_.optional(name).number(0, most, at_.has(name) ? 0 : fallback);
  }
  void reals(const char* key, std::vector<double>& values, double most) override {
    const Cursor list = at_.optional(key);
    if (!list.exists()) return;
    const std::vector<Cursor> items = list.one_or_many();
    if (items.size() != values.size())
      return list.error("E0111", fmt::format("{} numbers, where its class has {}", items.size(), values.size()), "");
    for (std::size_t i = 0; i < items.size(); ++i) values[i] = items[i].number(-most, most, values[i]);
  }
  void flag(Names names, bool& value, bool fallback) override { value = find(names).boolean(fallback); }
  void text(Names names, std::string& value, const char* fallback) override { value = find(names).text(fallback); }

  void activation(Names names, Model& model, std::initializer_list<Word> words, const char* title) override {
    const Cursor found = find(names);
    const std::string name = found.text(words.begin()->word);
    std::string others;
    for (const Word& one : words) {
      if (name == one.word) {
        model.activation = one.activation;
        model.gelu = one.gelu;
        return;
      }
      others += others.empty() ? fmt::format("{} is", one.word) : fmt::format(", and {}", one.word);
    }
    found.error("E0111", fmt::format("activation {} is not supported for {}", base::quoted(name), title), others);
  }

  void only(const char* key, bool wanted, const char* why) override {
    const Cursor value = at_.optional(key);
    if (value.exists() && value.boolean(wanted) != wanted)
      value.error("E0111", fmt::format("`{}: {}` is not supported: {}", key, !wanted, why),
                  fmt::format("`{}: {}`, or write what is near {}", key, wanted, kOwnForm));
  }

  void fixed(const char* key, const char* value, const char* why) override {
    const Cursor at = find({key});
    if (!at.exists()) return;
    for (const Cursor& one : at.one_or_many()) {
      const std::string found = one.is_scalar() ? one.scalar_text() : "...";
      double number = 0, wanted = 0;
      const bool same =
          base::parse_number(found, number) && base::parse_number(value, wanted) ? number == wanted : found == value;
      if (!same)
        return one.error("E0111", fmt::format("`{}: {}` is not supported: {}", key, base::printable(found), why),
                         fmt::format("`{}: {}`, or write what is near {}", key, value, kOwnForm));
    }
  }

  void unused(Names names) override {
    for (const char* name : names) find({name}).ignore();
  }

  void expert_layers(const char* key, bool only, Model& model) override {
    const Cursor list = at_.optional(key);
    if (!list.exists() || model.layers < 1) return;
    std::vector<bool> listed(static_cast<std::size_t>(model.layers));
    const auto items = list.items();
    if (items.empty()) return;
    for (const Cursor& one : items) listed[static_cast<std::size_t>(one.integer(0, model.layers - 1, 0))] = true;
    for (std::size_t i = 0; i < listed.size(); ++i)
      if (!only) listed[i] = !listed[i] && model.experts.in_layer(static_cast<std::int64_t>(i));
    expert_layers(key, listed, model);
  }

  void expert_layers(const char* key, const std::vector<bool>& with, Model& model) override {
    if (model.experts.place(with)) return;
    std::string which;
    std::size_t named = 0;
    constexpr std::size_t kNamed = 8;
    for (std::size_t i = 0; i < with.size(); ++i)
      if (with[i] && ++named <= kNamed) which += fmt::format("{}{}", which.empty() ? "" : ", ", i);
    refuse(key,
           named == 0 ? "no layer would have experts"
                      : fmt::format("experts in layers {}{} of {} (from 0) follow no period", which,
                                    named > kNamed ? " ..." : "", with.size()),
           "a model's experts are in the last of every `period` layers, except in the first `first_dense`");
  }

  void sparse_layers(const char* key, Model& model) override {
    const Cursor list = at_.optional(key);
    if (!list.exists() || model.layers < 1) return;
    if (!is_list(list, key)) return;
    std::vector<bool> with;
    for (const Cursor& one : list.items()) {
      const std::string word = one.is_scalar() ? one.scalar_text() : "";
      const bool experts = word == "sparse" || word == "true" || word == "1";
      if (!experts && word != "dense" && word != "false" && word != "0")
        return one.error("E0111", "a layer is sparse or dense", "sparse, dense, true, false, 1 or 0");
      with.push_back(experts);
    }
    if (std::ssize(with) != model.layers)
      return list.error("E0111", fmt::format("{} entries for a model of {} layers", with.size(), model.layers),
                        "one for each layer");
    expert_layers(key, with, model);
  }

  void layer_types(Model& model, std::int64_t more) override {
    const Cursor list = at_.optional("layer_types");
    if (!list.exists() || !is_list(list, "layer_types")) return;
    std::vector<bool> sliding;
    for (const Cursor& one : list.items()) {
      const std::string word = one.text();
      sliding.push_back(word == "sliding_attention");
      if (!sliding.back() && word != "full_attention")
        return one.error("E0111", fmt::format("a layer of kind {} is not supported", base::quoted(word)),
                         "known are full_attention and sliding_attention");
    }
    if (std::ssize(sliding) == model.layers + more) sliding.resize(static_cast<std::size_t>(model.layers));
    place_listed(list, sliding, model);
  }
  void window_flags(const char* key, Model& model) override {
    const Cursor list = at_.optional(key);
    if (!list.exists() || !is_list(list, key)) return;
    std::vector<bool> sliding;
    for (const Cursor& one : list.items()) sliding.push_back(one.integer(0, 1, 0) == 1);
    place_listed(list, sliding, model);
  }

  void attention_types(const char* runs, const char* flat, Model& model) override {
    std::vector<bool> local;
    Cursor list = at_.optional(flat);
    const Cursor in_runs = at_.optional(runs);
    const auto add = [&](const Cursor& one) { local.push_back(one.choice({"global", "local"}, 0) == 1); };
    if (list.exists()) {
      for (const Cursor& one : list.items()) add(one);
    } else {
      list = in_runs;
      if (!list.exists()) local = usual_attention();
      for (const Cursor& run : list.items()) {
        const std::vector<Cursor> parts = run.items();
        if (parts.size() != 2) return list.error("E0111", "a run of layers is their attention and a number", "");
        const std::int64_t times = parts[1].integer(1, kMostLayers, 1);
        for (std::int64_t i = 0; i < times && std::ssize(local) <= kMostLayers; ++i)
          for (const Cursor& one : parts[0].items()) add(one);
      }
    }
    if (at_.findings().failed()) return;
    if (std::ssize(local) != model.layers)
      return (list.exists() ? list : at_)
          .error("E0111", fmt::format("attention of {} layers for a model of {}", local.size(), model.layers),
                 fmt::format("`{}` that repeat to as many layers as the model has", runs));
    place_listed(list, local, model);
  }

  void unrotated_layers(const char* list, const char* period, Model& model, std::int64_t fallback) override {
    const Cursor layers = at_.optional(list);
    const std::int64_t every = at_.optional(period).integer(0, kMostLayers, fallback);
    if (layers.items().empty()) return void(model.unrotated_period = every);
    std::vector<bool> rotates;
    for (const Cursor& one : layers.items()) rotates.push_back(one.integer(0, 1, 1) == 1);
    rotates.resize(static_cast<std::size_t>(model.layers), true);
    const auto first = std::find(rotates.begin(), rotates.end(), false);
    model.unrotated_period = first == rotates.end() ? 0 : first - rotates.begin() + 1;
    for (std::size_t i = 0; i < rotates.size(); ++i)
      if (model.rotates(static_cast<std::int64_t>(i)) != rotates[i])
        return layers.error("E0111", "layers with and without rotation follow no period",
                            "only every n-th layer may be without rotation");
  }

  void pattern(const char* letters, const char* words, Feed feed, Model& model) override {
    std::vector<BlockParts> blocks;
    const Cursor text = letters != nullptr ? at_.optional(letters) : Cursor();
    const Cursor list = text.exists() ? text : at_.at(words);
    const auto take = [&](const Cursor& at, const std::string& word, std::optional<BlockParts> parts) {
      if (!parts || (parts->mixer != Mixer::none && parts->feed != Feed::none))
        return at.error("E0111", fmt::format("a layer of kind {} is not supported", base::quoted(word)),
                        "known are mamba (M), attention (*), mlp (-) and experts (E)");
      if (parts->mixer != Mixer::none) parts->feed = feed;
      blocks.push_back(*parts);
    };
    if (text.exists()) {
      for (const char letter : text.text()) take(text, std::string(1, letter), parts_of_letter(letter));
    } else {
      for (const Cursor& one : list.items()) {
        const std::string word = one.text();
        take(one, word, parts_of(word == "moe" ? "experts" : word));
      }
    }
    place_blocks(list, std::move(blocks), model);
  }

  void layer_words(const char* key, Names known, std::vector<std::size_t>& which) override {
    which.clear();
    const Cursor list = at_.optional(key);
    if (!list.exists() || !is_list(list, key)) return;
    if (list.items().empty()) return list.error("E0111", fmt::format("`{}` has no entries", key), "one for each layer");
    for (const Cursor& one : list.items()) {
      const std::string word = one.is_scalar() ? one.scalar_text() : one.text();
      const auto* const found = std::find(known.begin(), known.end(), word);
      if (found == known.end())
        one.error("E0111", fmt::format("a layer of kind {} is not supported", base::quoted(word)),
                  fmt::format("known are {}", fmt::join(known, " and ")));
      which.push_back(found == known.end() ? 0 : static_cast<std::size_t>(found - known.begin()));
    }
  }

  bool layer_numbers(const char* key, std::vector<std::int64_t>& layers, const Model& model) override {
    layers.clear();
    const Cursor list = at_.optional(key);
    if (list.is_scalar()) return numbers_of_text(list, layers, model);
    if (!list.exists() || !is_list(list, key)) return false;
    for (const Cursor& one : list.items()) layers.push_back(one.integer(0, model.layers - 1, 0));
    return true;
  }

  void blocks(const char* key, std::vector<BlockParts> blocks, Model& model) override {
    place_blocks(at_.optional(key), std::move(blocks), model);
  }

  void rope_scaling_at(const std::string&, Model& model) override {
    Cursor at = at_.optional("rope_scaling");
    if (!at.exists()) at = at_.optional("rope_parameters");
    if (at.exists() || at_.has("rope_scaling")) model.rope_scaling = {};  // else the class's own
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
    const Cursor classes = at_.optional("architectures");
    is = false;
    if (classes.exists())
      for (const Cursor& one : classes.items()) is = is || one.text() == architecture;
  }

  void unlimited(const char* key, const char* why) override {
    const Cursor list = at_.optional(key);
    if (!list.exists()) return;
    const std::vector<Cursor> bounds = list.is_sequence() ? list.items() : std::vector<Cursor>{};
    constexpr double kNone = 1e30;  // files have Infinity, or the largest number there is
    const auto number = [](const Cursor& at) { return std::strtod(at.scalar_text().c_str(), nullptr); };
    if (bounds.size() != 2 || !(number(bounds[0]) <= 0) || !(number(bounds[1]) >= kNone))
      list.error("E0111", fmt::format("a finite `{}` is not supported: {}", key, why), "[0.0, Infinity]");
  }

  std::vector<double> each_layers(const char* key, const Model& model, std::int64_t more, double low,
                                  double high) override {
    const Cursor at = at_.optional(key);
    std::vector<double> out;
    if (!at.exists()) return out;
    for (const Cursor& one : at.one_or_many()) out.push_back(one.number(low, high, low));
    if (std::ssize(out) == model.layers + more || !at.is_sequence())
      out.resize(static_cast<std::size_t>(model.layers), out.empty() ? 0 : out.front());
    if (std::ssize(out) != model.layers)
      at.error("E0111", fmt::format("{} entries for a model of {} layers", out.size(), model.layers),
               "one for each layer");
    return out;
  }
  std::vector<bool> which_are(const char* key, const char* yes, const char* no) override {
    const Cursor list = find({key});
    std::vector<bool> out;
    if (!list.exists() || !is_list(list, key)) return out;
    for (const Cursor& one : list.items()) out.push_back(one.choice({no, yes}, 1) == 1);
    if (std::ssize(out) != model_.layers)
      list.error("E0111", fmt::format("{} entries for a model of {} layers", out.size(), model_.layers),
                 "one for each layer");
    return out;
  }

  void any_length(Model& model, std::int64_t usual, const std::string& whose) override {
    model.max_sequence = usual;
    remark("the class has no longest sequence; " + whose);
  }
  void refuse(const char* key, const std::string& message, const std::string& help) override {
    const Cursor value = at_.optional(key);
    (value.exists() ? value : at_).error("E0111", message, help);
  }
  void remark(const std::string& text) override { model_.sources.push_back(text); }
  [[nodiscard]] bool given(const char* key) const override { return at_.optional(key).exists(); }
  [[nodiscard]] bool written(const char* key) const override { return at_.has(key); }

 private:
  static bool numbers_of_text(const Cursor& at, std::vector<std::int64_t>& layers, const Model& model) {
    const std::string text = at.scalar_text();
    for (std::size_t first = 0; first < text.size();) {
      const std::size_t end = std::min(text.find(',', first), text.size());
      const std::string one = text.substr(first, end - first);
      char* rest = nullptr;
      const long long number = std::strtoll(one.c_str(), &rest, 10);
      if (one.empty() || *rest != '\0' || number < 0 || number >= model.layers) {
        at.error("E0111", fmt::format("{} is not a layer of {}", base::quoted(one), model.layers), "3,4,5");
        return false;
      }
      layers.push_back(number);
      first = end + 1;
    }
    return true;
  }
  /// GPT-Neo's class: 24 layers, every second one local.
  [[nodiscard]] static std::vector<bool> usual_attention() {
    constexpr std::size_t kLayers = 24;
    std::vector<bool> local(kLayers);
    for (std::size_t i = 0; i < kLayers; ++i) local[i] = i % 2 == 1;
    return local;
  }
  /// Of a list with a number for each layer (HunYuan) the first. E0111 unless all are the same.
  [[nodiscard]] static Cursor one_for_all(const Cursor& at) {
    if (!at.is_sequence()) return at;
    const std::vector<Cursor> items = at.items();
    for (const Cursor& one : items)
      if (one.scalar_text() != items.front().scalar_text()) {
        one.error("E0111", "layers with different numbers are not supported", "the same for all");
        break;
      }
    return items.empty() ? at : items.front();
  }
  /// Phi-3's, in whose first files it is called su. The lengths before and after decide attention's factor, unless the
  /// file says it (phimoe: one for short sequences, and one for long ones).
  void longrope(const Cursor& at, Model& model) {
    constexpr double kLeast = 1e-6, kMost = 1e6;
    constexpr const char* kBefore = "original_max_position_embeddings";
    RopeScaling s;
    s.kind = RopeKind::longrope;
    const Cursor before = at.optional(kBefore).exists() ? at.optional(kBefore) : at_.optional(kBefore);
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
  /// E0111 unless it is one.
  [[nodiscard]] static bool is_list(const Cursor& at, const char* key) {
    if (!at.is_sequence()) at.error("E0111", fmt::format("`{}` is a list here", key), "one entry for each layer");
    return at.is_sequence();
  }
  void place_listed(const Cursor& list, const std::vector<bool>& sliding, Model& model) {
    if (std::ssize(sliding) != model.layers)
      return (list.exists() ? list : at_)
          .error("E0111", fmt::format("attention of {} layers for a model of {}", sliding.size(), model.layers),
                 "one entry for each layer");
    place_windows(sliding, model);
  }
  void place_blocks(const Cursor& at, std::vector<BlockParts> blocks, Model& model) {
    if (std::ssize(blocks) > kMostLayers)
      return (at.exists() ? at : at_)
          .error("E0111", fmt::format("a pattern of {} layers; at most {}", blocks.size(), kMostLayers),
                 "a shorter pattern");
    if (model.layers == 0) model.layers = std::ssize(blocks);
    if (std::ssize(blocks) != model.layers && !at_.findings().failed())
      return (at.exists() ? at : at_)
          .error("E0111", fmt::format("a pattern of {} layers for a model of {}", blocks.size(), model.layers),
                 "one entry for each of `num_hidden_layers`");
    model.pattern = shortest_period(std::move(blocks));
  }
  /// The first of several names that the file has; an empty cursor if it has none. E0104 where a map is something else.
  [[nodiscard]] Cursor find(Names names) const {
    Cursor found;
    for (std::string_view name : names) {
      Cursor map = at_;
      for (std::size_t dot = name.find('.'); dot != std::string_view::npos && map.exists(); dot = name.find('.')) {
        map = map.optional(std::string(name.substr(0, dot)));
        name.remove_prefix(dot + 1);
      }
      if (!map.exists()) continue;
      const Cursor here = map.optional(std::string(name));
      if (!found.exists()) found = here;  // the others count as read: the class goes by one name
    }
    return found.exists() ? found : at_.optional(*names.begin());
  }

  const Cursor& at_;
  Model& model_;
  bool has_sizes_;
  std::vector<std::string> assumed_;
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

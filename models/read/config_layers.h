#pragma once
/// Reads those keys of a config.json that say something of each layer. For models/read/hugging_face.cpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/limits.h"
#include "models/read/config_values.h"

namespace orrery::models {

class ConfigLayers : public ConfigValues {
 public:
  using ConfigValues::ConfigValues;

  void expert_layers(const char* key, bool only, Model& model) override {
    const Cursor list = file().optional(key);
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
    const Cursor list = file().optional(key);
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
    const Cursor list = file().optional("layer_types");
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
    const Cursor list = file().optional(key);
    if (!list.exists() || !is_list(list, key)) return;
    std::vector<bool> sliding;
    for (const Cursor& one : list.items()) sliding.push_back(one.integer(0, 1, 0) == 1);
    place_listed(list, sliding, model);
  }

  void attention_types(const char* runs, const char* flat, Model& model) override {
    std::vector<bool> local;
    Cursor list = file().optional(flat);
    const Cursor in_runs = file().optional(runs);
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
    if (file().findings().failed()) return;
    if (std::ssize(local) != model.layers)
      return (list.exists() ? list : file())
          .error("E0111", fmt::format("attention of {} layers for a model of {}", local.size(), model.layers),
                 fmt::format("`{}` that repeat to as many layers as the model has", runs));
    place_listed(list, local, model);
  }

  void unrotated_layers(const char* list, const char* period, Model& model, std::int64_t fallback) override {
    const Cursor layers = file().optional(list);
    const std::int64_t every = file().optional(period).integer(0, kMostLayers, fallback);
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
    const Cursor text = letters != nullptr ? file().optional(letters) : Cursor();
    const Cursor list = text.exists() ? text : file().at(words);
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
    const Cursor list = file().optional(key);
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
    const Cursor list = file().optional(key);
    if (list.is_scalar()) return numbers_of_text(list, layers, model);
    if (!list.exists() || !is_list(list, key)) return false;
    for (const Cursor& one : list.items()) layers.push_back(one.integer(0, model.layers - 1, 0));
    return true;
  }

  void blocks(const char* key, std::vector<BlockParts> blocks, Model& model) override {
    place_blocks(file().optional(key), std::move(blocks), model);
  }

  std::vector<double> each_layers(const char* key, const Model& model, std::int64_t more, double low,
                                  double high) override {
    const Cursor at = file().optional(key);
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
    if (std::ssize(out) != into().layers)
      list.error("E0111", fmt::format("{} entries for a model of {} layers", out.size(), into().layers),
                 "one for each layer");
    return out;
  }

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
  void place_listed(const Cursor& list, const std::vector<bool>& sliding, Model& model) {
    if (std::ssize(sliding) != model.layers)
      return (list.exists() ? list : file())
          .error("E0111", fmt::format("attention of {} layers for a model of {}", sliding.size(), model.layers),
                 "one entry for each layer");
    place_windows(sliding, model);
  }
  void place_blocks(const Cursor& at, std::vector<BlockParts> blocks, Model& model) {
    if (std::ssize(blocks) > kMostLayers)
      return (at.exists() ? at : file())
          .error("E0111", fmt::format("a pattern of {} layers; at most {}", blocks.size(), kMostLayers),
                 "a shorter pattern");
    if (model.layers == 0) model.layers = std::ssize(blocks);
    if (std::ssize(blocks) != model.layers && !file().findings().failed())
      return (at.exists() ? at : file())
          .error("E0111", fmt::format("a pattern of {} layers for a model of {}", blocks.size(), model.layers),
                 "one entry for each of `num_hidden_layers`");
    model.pattern = shortest_period(std::move(blocks));
  }
};

}  // namespace orrery::models

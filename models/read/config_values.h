#pragma once
/// Reads those keys of a config.json that have one value each. For models/read/hugging_face.cpp.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "base/yaml.h"
#include "models/read/config_keys.h"
#include "models/read/unread.h"

namespace orrery::models {

class ConfigValues : public ConfigKeys {
 public:
  using Cursor = base::Cursor;

  /// `has_sizes`: the model already has the sizes of its class, for keys that the file leaves out.
  ConfigValues(const Cursor& at, Model& model, bool has_sizes) : at_(at), model_(model), has_sizes_(has_sizes) {}
  /// Keys that were left out, for which the class's sizes stand.
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

  void refuse(const char* key, const std::string& message, const std::string& help) override {
    const Cursor value = at_.optional(key);
    (value.exists() ? value : at_).error("E0111", message, help);
  }
  void remark(const std::string& text) override { model_.sources.push_back(text); }
  [[nodiscard]] bool given(const char* key) const override { return at_.optional(key).exists(); }
  [[nodiscard]] bool written(const char* key) const override { return at_.has(key); }

 protected:
  [[nodiscard]] const Cursor& file() const { return at_; }  ///< the map that is read
  [[nodiscard]] Model& into() { return model_; }            ///< what it is read into
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
  /// E0111 unless it is one.
  [[nodiscard]] static bool is_list(const Cursor& at, const char* key) {
    if (!at.is_sequence()) at.error("E0111", fmt::format("`{}` is a list here", key), "one entry for each layer");
    return at.is_sequence();
  }

 private:
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

  const Cursor& at_;
  Model& model_;
  bool has_sizes_;
  std::vector<std::string> assumed_;
};

}  // namespace orrery::models

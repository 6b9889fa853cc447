#pragma once
/// Frameworks whose own keys become Megatron-LM's flags, by a table of theirs: NeMo's and GPT-NeoX'.
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/frameworks/settings.h"

namespace orrery::plan {

/// How a key becomes a flag: with its value, or as a flag alone where it is true, or where it is false.
enum class KeyAs : std::uint8_t { value, where_true, where_false };
struct NamedKey {
  const char *key, *flag;
  KeyAs as = KeyAs::value;
};
/// A word of a key that stands for flags of its own: `flags` are "name" or "name value", apart by commas.
struct WordedKey {
  const char *key, *word, *flags;
};
/// Keys that are not carried over; one that ends in `.` or `_` stands for all that begin so. `matters`: they may move
/// time or memory.
struct PassedKeys {
  const char* because;
  bool matters;
  std::vector<const char*> keys;
};
/// A framework's keys. Those within `section`, if there is one, whose flag has the same name (num_layers, --num-layers)
/// are not listed.
struct KeyTable {
  std::span<const NamedKey> named;
  std::span<const WordedKey> worded;
  std::span<const PassedKeys> passed;
  std::optional<std::string_view> section = {};
};

/// Settings as flags.
struct AsFlags {
  std::vector<Given> given;    ///< of megatron_settings_table(), each with its own name
  std::vector<Given> unknown;  ///< what neither the framework's table nor that one has
  /// With the reason: what moves neither time nor memory, and what may.
  std::vector<std::pair<Given, std::string>> passed, left;
};

[[nodiscard]] bool is_true(const Given& at);   ///< true, yes, on
[[nodiscard]] bool is_false(const Given& at);  ///< false, no, off

class KeysAsFlags {
 public:
  KeysAsFlags(const KeyTable& table, AsFlags& into) : table_(table), into_(into) {}
  /// Takes a setting, whose own name is `said`, by its row; false if there is none.
  [[nodiscard]] bool take(const Given& at);
  void add(const Given& at, const std::string& flag, std::vector<GivenValue> values);

 private:
  bool named(const Given& at);
  bool worded(const Given& at);
  bool passed(const Given& at);
  bool same_name(const Given& at);

  const KeyTable& table_;
  AsFlags& into_;
  std::set<std::string> sections_;  ///< that are passed over, each named once
};

}  // namespace orrery::plan

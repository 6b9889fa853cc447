// Looks other tools' words up.
#include "base/other_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace orrery::base {

std::vector<std::string> spellings(std::string_view other) {
  const std::string key(other);
  std::string upper = key, hyphens = key;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  std::replace(hyphens.begin(), hyphens.end(), '_', '-');
  std::vector<std::string> all{key};
  for (std::string& one : std::vector<std::string>{upper, hyphens})
    if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
  return all;
}

std::string our_key(std::string_view other, std::string_view name, std::span<const OtherKey> table) {
  for (const OtherKey& one : table) {
    if (name != one.map) continue;
    for (const std::string& word : spellings(one.other))
      if (word == other) return one.ours;
  }
  return {};
}

void refuse_other_keys(const Cursor& map, std::string_view name, std::span<const OtherKey> table) {
  if (!map.is_map()) return;
  for (const OtherKey& one : table) {
    if (name != one.map) continue;
    for (const std::string& key : spellings(one.other))
      map.refuse(key, fmt::format("here it is called `{}`", one.ours));
  }
}

bool is_other_value(const Cursor& value, std::string_view key, std::span<const OtherValue> table) {
  if (!value.is_scalar()) return false;
  const std::string said = value.scalar_text();
  std::string lower = said;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const OtherValue& one : table) {
    if (key != one.key || lower != one.other) continue;
    value.error("E0106", fmt::format("`{}` has no value {}", value.path(), quoted(said)),
                fmt::format("here it is called `{}`", one.ours));
    return true;
  }
  return false;
}

}  // namespace orrery::base

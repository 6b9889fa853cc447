#pragma once
/// Words that other tools have for the keys and values of a file, one table for each kind of file. They are not
/// accepted: the message names ours.
#include <span>
#include <string>
#include <vector>

#include "base/yaml.h"

namespace orrery::base {

/// `other` in the map `map` ("": the file itself) is called `ours`: a key, or more of a file ("zero_stage: 3").
struct OtherKey {
  const char *map, *other, *ours;
};
/// The value `other`, in small letters, of `key` is called `ours`.
struct OtherValue {
  const char *key, *other, *ours;
};

/// How a key of another tool may be spelt: hidden_size, HIDDEN_SIZE, hidden-size.
[[nodiscard]] std::vector<std::string> spellings(std::string_view other);
/// Ours for the key `other` of the map `name`, however it is spelt; empty if the table has none.
[[nodiscard]] std::string our_key(std::string_view other, std::string_view name, std::span<const OtherKey> table);
/// Reports, with E0103, each key of `map` that is another tool's word for one of ours.
void refuse_other_keys(const Cursor& map, std::string_view name, std::span<const OtherKey> table);
/// Whether the value of `key` is another tool's word for one of ours; if so, reports E0106.
[[nodiscard]] bool is_other_value(const Cursor& value, std::string_view key, std::span<const OtherValue> table);

}  // namespace orrery::base

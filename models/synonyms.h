#pragma once
/// Other tools' words for the keys and values of a model's file: those of Hugging Face, Megatron-LM, nanoGPT, nanotron,
/// Llama's params.json and MaxText. In orrery's own form they are not accepted, and the message names ours; in
/// config.json they show where a number stands.
#include <string>

#include "base/yaml.h"

namespace orrery::models {

/// Reports, with E0103, each key of the map `name` ("" the model itself, "experts") that is another tool's word.
void name_keys(const base::Cursor& map, const std::string& name);
/// Ours for another tool's word for a key of the model itself, such as "layers"; empty if it is none.
[[nodiscard]] std::string our_key(const std::string& other);
/// Whether the value of `key` is another tool's word for one of ours; if so, reports E0106.
[[nodiscard]] bool is_other_word(const base::Cursor& value, const std::string& key);
/// A key that the model must have; one that stands there in another tool's word, which name_keys has reported, is not
/// reported as missing.
[[nodiscard]] base::Cursor needed(const base::Cursor& map, const std::string& name, const std::string& key);
/// What made the number `key` of the map `name`: the key, its word in config.json, also within its text_config or the
/// like, else what names the family, whose default it is.
[[nodiscard]] base::Cursor place_of(const base::Cursor& model, const std::string& name, const std::string& key);

}  // namespace orrery::models

#pragma once
/// Hugging Face's config.json to Model and back, for the families of models/read/families.h. Uses the field names of
/// transformers 4 and 5.
#include "base/yaml.h"
#include "models/model.h"

namespace orrery::models {

/// True when the keys of this map are those of a Hugging Face configuration.
[[nodiscard]] bool is_hugging_face(const base::Cursor& root);

/// Reads such a configuration. Errors: E0110 for an unknown family, E0111 for a variant of a known family that the
/// Model cannot express (relative positions, biases in a llama …). `name` is used if there is no `_name_or_path`.
[[nodiscard]] Model read_hugging_face(const base::Cursor& root, const std::string& name);

/// The config.json of the family's class with a language-modelling head. Reading it again gives the same model; E0604
/// if it would not, because the class cannot express a variant.
[[nodiscard]] base::Result<std::string> write_hugging_face(const Model& model);

}  // namespace orrery::models

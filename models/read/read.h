#pragma once
/// Text to Model: our own YAML form, and Hugging Face's config.json (models/read/families.h). An unknown family is an
/// error that names what was found; nothing is guessed. Opens no file.
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/yaml.h"
#include "models/model.h"

namespace orrery::models {

/// The model's name comes from the text, else from `file`'s stem. Warnings (E0113) go to `warnings` if given.
[[nodiscard]] base::Result<Model> parse_model(std::string_view text, std::string file,
                                              base::Diagnostics* warnings = nullptr);
/// The same from a place inside another document, such as a plan file, which contains its model.
[[nodiscard]] Model read_model(const base::Cursor& at);
/// Dropout rates: one number for all three places, or a map.
[[nodiscard]] Dropout read_dropout(const base::Cursor& at);
[[nodiscard]] std::string dropout_text(const Dropout& dropout);
/// The YAML form; read_model(write_model(m)) == m.
[[nodiscard]] std::string write_model(const Model& model, int indent = 0);
/// The first key of that form in which two models differ, with both values: "experts.count 16, not 8". "unset": one has
/// not the key. Empty if they do not differ.
[[nodiscard]] std::string first_difference(const Model& model, const Model& other);

}  // namespace orrery::models

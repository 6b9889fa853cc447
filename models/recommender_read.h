#pragma once
/// The YAML form of recommendation models. Private to models/.
#include "base/yaml.h"
#include "models/model.h"

namespace orrery::models {

/// `family: dlrm`: the keys behind `name` and `family`, and what numbers must be of each other (E0112).
void read_recommender(const base::Cursor& at, Model& m);
/// The lines behind `name` and `family`.
[[nodiscard]] std::string recommender_text(const Recommender& r, const std::string& margin);

}  // namespace orrery::models

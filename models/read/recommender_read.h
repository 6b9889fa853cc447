#pragma once
/// The YAML form of recommendation models. Private to models/.
#include "base/yaml.h"
#include "models/model.h"

namespace orrery::models {

/// `family: dlrm`: reads the keys other than `name` and `family`, and checks relations between the numbers (E0112).
void read_recommender(const base::Cursor& at, Model& m);
/// The lines after `name` and `family`.
[[nodiscard]] std::string recommender_text(const Recommender& r, const std::string& margin);

}  // namespace orrery::models

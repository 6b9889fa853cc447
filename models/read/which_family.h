#pragma once
/// Of a config.json: the part that has the language model's sizes, and the family that it is read as.
#include <string>

#include "base/yaml.h"
#include "models/read/families.h"

namespace orrery::models {

/// Files of models that also read images or sound nest their language model.
struct LanguagePart {
  base::Cursor at;
  std::string path = {};  ///< the keys that lead to it, "thinker_config.text_config"; empty: it is the whole file
};
/// E0104 where a part is no map.
[[nodiscard]] LanguagePart language_part(const base::Cursor& root);

/// As the whole file says, where a class reads it; else as its language part says. Null after E0110.
[[nodiscard]] const FamilyTraits* family_of(const base::Cursor& root, const LanguagePart& part);

}  // namespace orrery::models

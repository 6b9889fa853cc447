#pragma once
/// config.json of families that are not read: what of one is not known here, and the nearest class that reads it.
#include <string>

#include "base/yaml.h"

namespace orrery::models {

/// Where to go with a model that no class describes, for hints.
inline constexpr const char* kOwnForm = "in orrery's own form (docs/formats.md, model.yaml)";

struct Unread {
  std::string why;   ///< empty: nothing in the file says so
  std::string help;  ///< what works instead
};

/// `at` has the sizes of a language model, `name` is its model_type or architecture; empty: it says neither.
[[nodiscard]] Unread unread(const base::Cursor& at, const std::string& name);

}  // namespace orrery::models

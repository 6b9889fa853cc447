#pragma once
/// What other tools call the keys and values of a job. They are not read: the message names ours.
#include <string>

#include "base/yaml.h"

namespace orrery::plan {

/// Reports, with E0103, each key of the map `name` ("" the job itself, "plan", "training", "optimizer") that is another
/// tool's word for one of ours.
void name_keys(const base::Cursor& map, const std::string& name);
/// Whether the value of `key` is another word for one of ours; then it has reported so, with E0106.
[[nodiscard]] bool is_other_word(const base::Cursor& value, const std::string& key);

}  // namespace orrery::plan

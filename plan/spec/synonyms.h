#pragma once
/// Other tools' words for the keys and values of a job. They are not accepted: the message names ours.
#include <string>
#include <vector>

#include "base/yaml.h"

namespace orrery::plan {

/// Reports, with E0103, each key of the map `name` ("" the job itself, "plan", "training", "optimizer") that is another
/// tool's word for one of ours.
void name_keys(const base::Cursor& map, const std::string& name);
/// Reports, with E0103, each key of the map that nobody has read and that readers ask for elsewhere in a job. `known`:
/// recording documents of whole jobs.
void name_misplaced(const base::Cursor& map, const std::vector<base::Document>& known);
/// Whether the value of `key` is another tool's word for one of ours; if so, reports E0106.
[[nodiscard]] bool is_other_word(const base::Cursor& value, const std::string& key);

}  // namespace orrery::plan

#pragma once
/// A whole plan as JSON. JSON is YAML: written to a file, the object is a plan file again.
#include <nlohmann/json_fwd.hpp>

#include "plan/spec/plan_file.h"

namespace orrery::apps {

[[nodiscard]] nlohmann::json plan_file_json(const plan::PlanFile& file);

}  // namespace orrery::apps

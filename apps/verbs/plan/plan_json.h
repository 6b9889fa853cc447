#pragma once
/// A whole plan as JSON. Since JSON is YAML, the object written to a file is a plan file.
#include <nlohmann/json_fwd.hpp>

#include "plan/spec/plan_file.h"

namespace orrery::apps {

[[nodiscard]] nlohmann::json plan_file_json(const plan::PlanFile& file);

}  // namespace orrery::apps

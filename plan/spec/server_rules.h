#pragma once
/// What a parameter server (plan/lower/parameter_server.h) does not go together with.
#include "base/result.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

/// P80 to P84.
[[nodiscard]] base::Diagnostics refused_by_server(const PlanSpec& spec);

}  // namespace orrery::plan

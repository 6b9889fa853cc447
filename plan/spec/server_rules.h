#pragma once
/// What a parameter server (plan/lower/parameter_server.h) cannot be combined with.
#include "base/result.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

/// Rules P80 to P84.
[[nodiscard]] base::Diagnostics refused_by_server(const PlanSpec& spec);

}  // namespace orrery::plan

#pragma once
/// What plans of a mixture of experts must obey.
#include "base/result.h"
#include "models/model.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

/// Rules P118 to P129 and P142; without experts in the model, that the plan does not divide any.
[[nodiscard]] base::Diagnostics refused_experts(const models::Model& model, const PlanSpec& spec);

}  // namespace orrery::plan

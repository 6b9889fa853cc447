#pragma once
/// What plans of a mixture of experts must obey.
#include "base/result.h"
#include "models/model.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

/// Rules P21, P118 to P123, P125 to P129 and P142; of a model without experts, P21 and P142 alone.
[[nodiscard]] base::Diagnostics refused_experts(const models::Model& model, const PlanSpec& spec);

/// Whether training a model adds a loss that evens out how often its experts are chosen.
[[nodiscard]] bool has_balancing_loss(const models::Model& model);
/// Whether a mixture's balancing loss can only be taken of each micro-batch by itself, as Megatron-LM and others do:
/// some of a step's backward passes begin before its last forward pass.
[[nodiscard]] bool balances_by_micro_batch(const models::Model& model, const PlanSpec& spec);
/// Whether the loss covers all tokens of a step, which are counted between its last forward and first backward pass.
[[nodiscard]] bool balances_by_step(const models::Model& model, const PlanSpec& spec);
/// P124 where it is by micro-batch. Not a rule of make_plan: Orrery's own executors take the loss over all tokens of a
/// step, and only what they run is refused; such plans of other software are predicted.
[[nodiscard]] base::Diagnostics refused_balancing(const models::Model& model, const PlanSpec& spec);

}  // namespace orrery::plan

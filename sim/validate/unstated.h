#pragma once
/// What a row leaves open is unknown, not off: users' usual choice with that software is assumed. Each assumption is
/// noted.
#include <string>
#include <vector>

#include "cost/parameters/stack.h"
#include "plan/spec/plan.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

/// Fills sequence parallelism and chunks of stages from the stack's usual practice.
void take_practice(const Setup& setup, const cost::Stack& stack, plan::PlanSpec& spec, std::vector<std::string>& notes);

}  // namespace orrery::sim

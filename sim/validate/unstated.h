#pragma once
/// What a row leaves open is unknown, not off: it is taken as whoever ran such software usually had it. Each thing
/// taken is noted.
#include <string>
#include <vector>

#include "cost/parameters/stack.h"
#include "plan/spec/plan.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

/// Fills sequence parallelism and chunks of stages, of which the stack's practice tells.
void take_practice(const Setup& setup, const cost::Stack& stack, plan::PlanSpec& spec, std::vector<std::string>& notes);

}  // namespace orrery::sim

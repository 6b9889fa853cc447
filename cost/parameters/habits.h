#pragma once
/// Properties of a stack that determine how a plan is lowered.
#include <string_view>

#include "cost/parameters/stack.h"
#include "plan/lower/lower.h"
#include "plan/lower/recommender_habits.h"

namespace orrery::cost {

/// A number from the stack's own file, ignoring calibrations; `otherwise` if the file does not set it.
[[nodiscard]] double number_of(const Stack& stack, std::string_view parameter, double otherwise);

/// How this software runs any plan.
[[nodiscard]] plan::LowerOptions lower_options(const Stack& stack);

/// The plan's schedule as this software runs it.
[[nodiscard]] plan::Schedule lower_for(const plan::Plan& plan, const Stack& stack);

/// The plan's schedule as Orrery's own executors run it under this stack, with what they do differently for it.
[[nodiscard]] plan::Schedule lower_executed(const plan::Plan& plan, const Stack& stack);

}  // namespace orrery::cost

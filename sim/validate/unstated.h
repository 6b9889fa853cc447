#pragma once
/// What a row leaves open is unknown, not off: the usual choice of that software's users is assumed. Each assumption is
/// noted.
#include <string>
#include <vector>

#include "cost/parameters/stack.h"
#include "models/model.h"
#include "plan/spec/plan.h"
#include "sim/validate/rows.h"

namespace orrery::sim {

/// Fills sequence parallelism and chunks of stages from the stack's usual practice.
void take_practice(const Setup& setup, const cost::Stack& stack, plan::PlanSpec& spec, std::vector<std::string>& notes);

/// Fills in the recomputation of its source's own recipe where a row leaves it open.
void take_recomputation(Setup& setup, std::vector<std::string>& notes);

/// Changes the model to what a source's own script trains, where that differs from the model that it names: a script
/// that leaves out a flag gets its software's default.
[[nodiscard]] models::Model as_script_runs(models::Model model, const Setup& setup, std::vector<std::string>& notes);

}  // namespace orrery::sim

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

/// Fills what follows from the rest of the row: a degree of the split from the devices and the others, the micro-batch
/// from the batch of a replica (`local_batch`) or its accumulation (`grad_accum`), the batch from these. A replica's
/// batch that nobody says to be divided is one micro-batch of up to eight sequences, in a pipeline of one.
void take_arithmetic(Setup& setup);

/// Fills layers, width and heads from the catalogue's model that the row names, if it leaves any of them open; then
/// heads of 128 columns, or of 64.
void take_shape(Setup& setup, const std::vector<models::Model>& catalogue);

/// Fills sequence parallelism, checkpoints and chunks of stages from the stack's usual practice, which also says what
/// ZeRO is in a pipeline.
void take_practice(const Setup& setup, const cost::Stack& stack, plan::PlanSpec& spec, std::vector<std::string>& notes);

/// Fills in the recomputation of its source's own recipe where a row leaves it open.
void take_recomputation(Setup& setup, std::vector<std::string>& notes);

/// Changes the model to what a source's own script trains, where that differs from the model that it names: a script
/// that leaves out a flag gets its software's default.
[[nodiscard]] models::Model as_script_runs(models::Model model, const Setup& setup, std::vector<std::string>& notes);

}  // namespace orrery::sim

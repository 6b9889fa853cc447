#pragma once
/// Which parts of a layer full recomputation repeats: lowering runs them again, the closed form prices them.
#include <vector>

#include "models/layers/expand.h"

namespace orrery::plan {

/// Those that backward needs (needed_parts, plan/lower/lower.h); `whole_layer`: all, as frameworks run the layer again.
/// Each token's choice of experts counts once, so what counts them is not repeated.
[[nodiscard]] std::vector<models::Part> recomputed_parts(const models::LayerProgram& program, bool whole_layer);

}  // namespace orrery::plan

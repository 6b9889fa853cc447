#pragma once
/// What a framework keeps of a layer beyond what the schedule does, as its stack's file says (MemoryRecipe). Private to
/// cost/estimate/layer_costs.cpp.
#include <vector>

#include "base/id.h"
#include "cost/estimate/layer_costs.h"
#include "cost/parameters/memory_recipe.h"
#include "models/layers/expand.h"

namespace orrery::cost {

/// Adds the lives of what is kept besides the program's tensors, and changes those of what is kept in another form or
/// not at all. `life_of`: each tensor's life, or none. `backward`: with what it recomputes.
void add_framework_lives(LayerCosts& costs, const models::LayerProgram& program,
                         const base::ById<models::TensorId, LifeId>& life_of, const std::vector<models::Part>& backward,
                         const MemoryRecipe& recipe);

}  // namespace orrery::cost

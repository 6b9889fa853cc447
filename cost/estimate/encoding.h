#pragma once
/// The cost of activations stored in fewer bits, without lowering (plan/lower/encode.h).
#include <vector>

#include "cost/estimate/layer_costs.h"
#include "cost/prices/pricing.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// Marks the tensors of a block that wait encoded, and adds the time of encoding and decoding to its passes.
void add_encoding(LayerCosts& costs, const models::LayerProgram& program, const std::vector<int>& life_of,
                  const plan::Compression& compression, const Pricing& pricing);

}  // namespace orrery::cost

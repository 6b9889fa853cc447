#pragma once
/// The cost of activations stored in fewer bits, or in parts on the ranks of the tensor group, without lowering
/// (plan/lower/encode.h, plan/lower/partition_checkpoints.h).
#include <vector>

#include "cost/estimate/layer_costs.h"
#include "cost/prices/pricing.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// Marks the tensors of a block that wait encoded, and adds the time of encoding and decoding to its passes.
void add_encoding(LayerCosts& costs, const models::LayerProgram& program,
                  const base::ById<models::TensorId, LifeId>& life_of, const plan::Compression& compression,
                  const Pricing& pricing);

/// The same for a recomputed block's input that is partitioned: each rank of the tensor group keeps a part of it, which
/// costs a copy at the end of forward and a message before recomputation.
void add_partition(LayerCosts& costs, const models::LayerProgram& program, const LayerGroups& groups,
                   const Pricing& pricing);

}  // namespace orrery::cost

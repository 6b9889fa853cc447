#pragma once
/// Gradient reductions within the backward pass (plan/lower/reduce_early.h), in closed form.
#include <functional>
#include <vector>

#include "cost/estimate/memory.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// Seconds by which a stage's reductions outlast its last backward passes. Each reduction waits for its layer and for
/// the previous reduction. `chunks`: the stage's layers in forward order, by virtual stage; their passes are assumed to
/// follow each other. `reduction`: seconds to reduce one bucket.
[[nodiscard]] double late_reductions(const std::vector<std::vector<LayerRun>>& chunks, const plan::PlanSpec& spec,
                                     const std::function<double(const BucketSize&)>& reduction);

}  // namespace orrery::cost

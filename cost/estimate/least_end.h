#pragma once
/// The least time that a pipeline takes. Private to cost/.
#include <cstdint>
#include <vector>

#include "cost/estimate/pipeline.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// A lower bound of PipelineResult::end, in seconds, by stage, without running the pipeline: the first activations
/// travel to a stage, it runs its passes one after the other, and gradients travel back. The host is assumed never to
/// be late.
[[nodiscard]] std::vector<double> least_end(const PipelineTimes& times, const plan::PlanSpec& spec,
                                            std::int64_t micro_batches);

}  // namespace orrery::cost

#pragma once
/// The least time that a pipeline takes. Private to cost/.
#include <cstdint>
#include <vector>

#include "cost/estimate/pipeline.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// A lower bound of PipelineResult::end, in seconds, by stage, without running the pipeline: a stage runs its passes
/// one after the other behind the first activations' way to it, and gradients' way back follows. No host is ever late.
[[nodiscard]] std::vector<double> least_end(const PipelineTimes& times, const plan::PlanSpec& spec,
                                            std::int64_t micro_batches);

}  // namespace orrery::cost

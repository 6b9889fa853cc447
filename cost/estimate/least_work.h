#pragma once
/// The least time of a pipeline, from its layers alone. Private to cost/.
#include <cstdint>
#include <vector>

#include "cost/estimate/memory.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// Seconds of one micro-batch on a chunk of a stage: what its layers compute, and their messages over the tensor group,
/// for which compute waits; `beside`: not these, which another pass may hide (plan::runs_beside).
struct ChunkWork {
  double all = 0;       ///< of all its passes
  double forward = 0;   ///< from where it reads what another stage sends
  double backward = 0;  ///< likewise
};
[[nodiscard]] ChunkWork work_of(const std::vector<LayerRun>& chunk, bool beside);

/// A lower bound, in seconds, of the largest PipelineResult::end: messages between stages take no time, and nothing
/// waits for messages of the data group or for all-to-alls. `stages`: by stage, the work of its chunks. Only for
/// pipelines that drain.
[[nodiscard]] double least_work(const std::vector<std::vector<ChunkWork>>& stages, const plan::PlanSpec& spec,
                                std::int64_t micro_batches);

}  // namespace orrery::cost

#pragma once
/// What the streams of a stage's ranks send, as far as they slow each other down. Private to cost/.
#include <deque>
#include <memory>
#include <vector>

#include "cost/estimate/memory.h"
#include "cost/estimate/pipeline.h"
#include "cost/estimate/shared_streams.h"
#include "cost/estimate/stage_groups.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// From the largest message of each lane in any block, and one copy between memories. Null where no links are known,
/// and where nothing is copied between memories, no tokens travel beside gradients or parameters and no gathers of ZeRO
/// 3 beside messages of tensor or context groups.
[[nodiscard]] std::shared_ptr<const StreamRates::Lanes> stream_lanes(const plan::PlanSpec& spec,
                                                                     const StageGroups& groups,
                                                                     const std::vector<LayerRun>& layers);
/// Rates of messages that cross the same links, found once: many plans of a search send the same ones.
class RatesMemo {
 public:
  [[nodiscard]] std::shared_ptr<StreamRates> of(std::vector<StreamRates::Lanes> ranks);

 private:
  std::deque<std::shared_ptr<StreamRates>> known_;  ///< the latest last
};

/// Null where all that is sent fits on the links.
[[nodiscard]] std::shared_ptr<StreamRates> stream_rates(const std::shared_ptr<const StreamRates::Lanes>& lanes,
                                                        RatesMemo& memo);

/// Stages of one node whose messages share links; `stages`: all of the plan's.
[[nodiscard]] std::vector<PipelineTimes::Neighbours> neighbours_of(const plan::Plan& plan,
                                                                   const std::vector<StageProgram>& stages,
                                                                   int devices_per_node, RatesMemo& memo);

}  // namespace orrery::cost

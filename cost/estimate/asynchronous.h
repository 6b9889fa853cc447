#pragma once
/// Step time of a pipeline that never drains (plan/schedule/asynchronous.h), computed from the times of its passes:
/// replays a run and excludes the time to fill the pipeline.
#include <cstdint>
#include <vector>

#include "cost/estimate/pipeline.h"

namespace orrery::cost {

struct AsynchronousTimes {
  std::vector<double> forward, backward;  ///< seconds of one micro-batch's pass, by stage
  std::vector<double> prelude = {};       ///< part of a backward pass before its received gradient is read; empty: none
  std::vector<double> update;             ///< rest of a step: zeroing, reduction, clipping, versions, update
  std::vector<double> hop;                ///< seconds of a transfer between stages s and s + 1
  bool overlaps = true;                   ///< transfers run in the background; false: only while the receiver waits
  bool tied = false;                      ///< both ends of the pipeline wait for each other before they update
};

struct SteadyStep {
  double period = 0;             ///< seconds from update to update
  std::vector<double> transfer;  ///< by stage: the part of it in which compute waits for transfers
};

/// If only passes take time and the ends are not tied, the period is that of the stage with the most work, and equal
/// stages never wait (Narayanan et al. 2019, section 3.2). A transfer is exposed to the extent that the p - s
/// micro-batches in flight do not cover it.
[[nodiscard]] SteadyStep asynchronous_pipeline(const AsynchronousTimes& times, std::int64_t micro_batches);

}  // namespace orrery::cost

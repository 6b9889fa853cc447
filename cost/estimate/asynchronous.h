#pragma once
/// How long a training step takes in a pipeline that never drains (plan/schedule/asynchronous.h), from the times of its
/// passes: a replay of a run, of which the filling is left out.
#include <cstdint>
#include <vector>

#include "cost/estimate/pipeline.h"

namespace orrery::cost {

struct AsynchronousTimes {
  std::vector<double> forward, backward;  ///< seconds of one micro-batch's pass, by stage
  std::vector<double> prelude = {};       ///< of a backward pass, before its received gradient is read; empty: none
  std::vector<double> update;             ///< of the rest of a step: zeroing, reduction, clipping, versions, update
  std::vector<double> hop;                ///< of a transfer between stage s and s + 1
  bool overlaps = true;  ///< a transfer needs no attention; else it makes progress while its receiver waits
  bool tied = false;     ///< both ends wait for each other before they update
};

struct SteadyStep {
  double period = 0;             ///< seconds from update to update
  std::vector<double> transfer;  ///< of it, by stage, spent in transfers that compute waited for
};

/// Where nothing but passes takes time and no end is tied, the period is that of the stage with the most to do, and
/// none of equal stages ever waits (Narayanan et al. 2019, section 3.2). A transfer is exposed as far as the p - s
/// micro-batches in flight do not cover it.
[[nodiscard]] SteadyStep asynchronous_pipeline(const AsynchronousTimes& times, std::int64_t micro_batches);

}  // namespace orrery::cost

#pragma once
/// Lowers a Plan to a Schedule. Everything that the simulator predicts and the executor runs is decided here.
#include "plan/plan.h"
#include "plan/schedule.h"

namespace orrery::plan {

struct LowerOptions {
  bool optimizer = true;              ///< false: forward and backward only
  double clip_norm = 0;               ///< 0: norm is computed for reporting, nothing is clipped
  bool recompute_whole_layer = true;  ///< false: recomputation skips operators whose output backward does not read
};

[[nodiscard]] Schedule lower(const Plan& plan, const LowerOptions& options = {});

}  // namespace orrery::plan

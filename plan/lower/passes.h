#pragma once
/// Passes over a lowered class: each changes what the ones before have made. Private to plan/.
#include <functional>
#include <vector>

#include "plan/lower/class_builder.h"
#include "plan/lower/groups.h"
#include "plan/lower/lower.h"

namespace orrery::plan {

struct LoweringPass {
  const char* name = "";
  bool applies = false;
  std::function<void()> run;
  bool of_ends = false;    ///< changes the blocks before and behind the passes over layers, too
  bool needs_end = false;  ///< asks for the block behind them
};

/// The passes over a class of a transformer's stage, in their order. All arguments must outlive them. The class already
/// has its births, its deaths and its program. `pairs`: as run_beside() has them.
[[nodiscard]] std::vector<LoweringPass> passes_of(const Plan& plan, const LowerOptions& options, const Groups& groups,
                                                  ClassBuilder& build, const std::vector<std::size_t>& pairs);

/// Runs the passes that apply. With `checks`, the class must be sound (plan/schedule/check.h) before the first one and
/// after each; a fault ends the program and names the pass. `schedule` has the plan and the groups.
void run_passes(const std::vector<LoweringPass>& passes, const Schedule& schedule, const RankClass& rank_class,
                bool checks);

}  // namespace orrery::plan

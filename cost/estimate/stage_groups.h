#pragma once
/// The ranks over which a stage's messages run, as the closed form prices them: the groups (plan/lower/groups.h) of the
/// stage's lowest rank. Private to cost/.
#include <vector>

#include "cost/prices/lockstep.h"
#include "plan/outline/outline.h"
#include "plan/spec/plan.h"

namespace orrery::cost {

/// Ranks; fewer than two: no message goes over them.
using PartMembers = plan::ByOver<std::vector<int>>;

/// Those of most parameters, and others.
struct StageGroups : PartMembers {
  PartMembers of_experts;                         ///< where experts are folded
  std::vector<int> experts;                       ///< ranks that divide a layer's experts
  Lockstep lockstep = {};                         ///< the stage's ranks, whose messages are in flight at the same time
  models::DType precision = models::DType::fp32;  ///< the plan's
  [[nodiscard]] const PartMembers& of(bool folded_experts) const { return folded_experts ? of_experts : *this; }
};

[[nodiscard]] StageGroups stage_groups(const plan::Plan& plan, plan::StageId stage);
/// The ranks that agree on the gradient norm; and those that agree on the loss.
[[nodiscard]] std::vector<int> norm_members(const plan::PlanSpec& spec);
[[nodiscard]] std::vector<int> loss_members(const plan::PlanSpec& spec);

/// Whether ZeRO shards anything.
[[nodiscard]] inline bool partitions(const plan::PlanSpec& spec) {
  return spec.mesh.replicas() > 1 && spec.states.zero_stage > 0;
}
/// `size` ranks at distance `stride`, beginning with `first`.
[[nodiscard]] std::vector<int> strided(int first, int stride, int size);

}  // namespace orrery::cost

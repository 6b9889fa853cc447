#pragma once
/// Ranks that the messages of a stage run over, as the closed form prices them: of the stage's lowest rank, in the
/// groups of plan/lower/groups.h. Private to cost/.
#include <vector>

#include "plan/spec/plan.h"

namespace orrery::cost {

struct StageGroups {
  std::vector<int> tensor;
  std::vector<int> experts, expert_data;  ///< that divide a layer's experts, and that hold the same of them
  std::vector<int> data;    ///< over which gradients are reduced: all that hold the parameters, or ZeRO's sub-group
  std::vector<int> copies;  ///< under ZeRO: the ranks that hold the same shard; of fewer than two, nobody else
  std::vector<int> parts;   ///< the ranks that have parts of one parameter
  [[nodiscard]] const std::vector<int>& data_of(bool of_experts) const { return of_experts ? expert_data : data; }
};

[[nodiscard]] StageGroups stage_groups(const plan::Plan& plan, int stage);
/// Ranks that agree on the gradient's norm, and on the loss.
[[nodiscard]] std::vector<int> norm_members(const plan::PlanSpec& spec);
[[nodiscard]] std::vector<int> loss_members(const plan::PlanSpec& spec);

/// Whether ZeRO partitions anything.
[[nodiscard]] inline bool partitions(const plan::PlanSpec& spec) {
  return spec.replicas() > 1 && spec.zero_stage > 0;
}
/// `size` ranks from `first`.
[[nodiscard]] std::vector<int> strided(int first, int stride, int size);

}  // namespace orrery::cost

#pragma once
/// Whose experts a rank has: classes are of ranks that do the same, and which experts they do it with is a rank's own.
#include <string>
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// The name that a parameter of a bucket has on rank `rank`: "h.3.mlp.experts.1.up", on the second of ranks with 4
/// experts each "h.3.mlp.experts.5.up". Names of what is no expert's are the same on all ranks.
[[nodiscard]] std::string name_on_rank(const ParameterRange& range, const Bucket& bucket, const PlanSpec& spec,
                                       int rank);
/// Those on all ranks.
[[nodiscard]] std::vector<std::string> names_on_ranks(const ParameterRange& range, const Bucket& bucket,
                                                      const PlanSpec& spec);

/// What the class's expert_biases hold, a range for each layer: "h.3.mlp.router.balance".
[[nodiscard]] std::vector<ParameterRange> expert_bias_ranges(const RankClass& rank_class);

/// Parameters of rank `rank`'s class get the names that they have on it. As lowered they have those of the first rank.
void name_experts(Schedule& schedule, int rank);

}  // namespace orrery::plan

#pragma once
/// Which experts a rank has. Ranks of a class do the same, but each with experts of its own.
#include <string>
#include <vector>

#include "plan/schedule/schedule.h"

namespace orrery::plan {

/// The name of a bucket's parameter on rank `rank`: "h.3.mlp.experts.1.up" becomes "h.3.mlp.experts.5.up" on the second
/// of ranks with 4 experts each. A parameter of no expert has the same name on all ranks.
[[nodiscard]] std::string name_on_rank(const ParameterRange& range, const Bucket& bucket, const PlanSpec& spec,
                                       int rank);
/// The same parameter's names on all ranks.
[[nodiscard]] std::vector<std::string> names_on_ranks(const ParameterRange& range, const Bucket& bucket,
                                                      const PlanSpec& spec);

/// What the class's expert_biases hold: one range per layer, such as "h.3.mlp.router.balance".
[[nodiscard]] std::vector<ParameterRange> expert_bias_ranges(const RankClass& rank_class);

/// Gives the parameters of rank `rank`'s class the names that they have on that rank. After lowering they have the
/// names of the class's first rank.
void name_experts(Schedule& schedule, int rank);

}  // namespace orrery::plan

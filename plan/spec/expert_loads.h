#pragma once
/// How evenly tokens choose among experts: what of a job's expert_loads a plan's predictions take, and what a run's log
/// says of them.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/yaml.h"
#include "models/experts.h"
#include "plan/spec/plan.h"

namespace orrery::plan {

/// `balanced`, `{zipf: 0.7}` or `{from: RUN}`, and the way back; empty where it is balanced.
[[nodiscard]] ExpertLoads read_loads(const base::Cursor& at);
[[nodiscard]] std::string loads_text(const ExpertLoads& loads);

/// The fullest of `ranks` that divide a layer's experts over their mean.
struct Fullest {
  double mean = 1;  ///< over layers and steps: what a step's time takes, as ranks meet in each layer
  double most = 1;  ///< where it is largest: what has to have room
  bool operator==(const Fullest&) const = default;
};
[[nodiscard]] Fullest fullest_of(const ExpertLoads& loads, const models::Experts& experts, int ranks);

/// expert_imbalance and expert_bound as the job bounds them; of what it leaves open by its expert_loads. There has to
/// be room for the fullest rank.
void take_loads(PlanSpec& spec, const Job& job, const models::Experts& experts);

/// Tokens of each expert, of each layer in each of the last 64 steps of a run's metrics.jsonl that say them. `name`: of
/// the file, for diagnostics (E0128): a line that does not read, no step that says its loads, or other numbers of
/// experts or layers than the model's.
[[nodiscard]] base::Result<std::vector<std::vector<double>>> loads_of_log(std::string_view text, std::string name,
                                                                          const models::Experts& experts,
                                                                          std::int64_t layers);

}  // namespace orrery::plan

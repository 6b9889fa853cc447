#pragma once
/// How evenly tokens choose among experts: what a plan's predictions take from a job's expert_loads, and what a run's
/// log says about them.
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

/// The load of the fullest of `ranks` that divide a layer's experts, divided by the mean rank's.
struct Fullest {
  double mean = 1;  ///< over layers and steps: it decides a step's time, as ranks wait for each other in each layer
  double most = 1;  ///< the largest of all: buffers must have room for it
  bool operator==(const Fullest&) const = default;
};
[[nodiscard]] Fullest fullest_of(const ExpertLoads& loads, const models::Experts& experts, int ranks);

/// Sets expert_imbalance and expert_bound: from the job's bounds; where these leave one open, from its expert_loads.
/// The bound must have room for the fullest rank.
void take_loads(PlanSpec& spec, const Job& job, const models::Experts& experts);

/// The most passes of chunks whose activations a rank holds at once (plan/schedule/orders.h).
[[nodiscard]] std::int64_t most_passes_held(const PlanSpec& spec);
/// Bytes of a rank's slots, at most, if none of them can overflow: those of the layers of all passes that it holds, and
/// one layer's backward pass.
[[nodiscard]] double slot_bytes_that_hold(const PlanSpec& spec, const models::Model& model);
/// The share of a device's memory that they may take. Chosen, not measured: it leaves the rest to the model, and no
/// tiny model on CPU ranks comes near it.
inline constexpr double kSlotShare = 1.0 / 8;
/// Raises expert_bound to the one that always holds where a rank's slots then take at most kSlotShare of `device`'s
/// memory; not if the job bounds it. The spec is otherwise complete.
void take_room(PlanSpec& spec, const Job& job, const models::Model& model, const clusters::Device& device);

/// The number of tokens of each expert in each layer, for the last 64 steps that have them in a run's metrics.jsonl.
/// `name`: the file's, for diagnostics. E0128: a line that cannot be read, no step with loads, or another number of
/// experts or layers than the model has (`expert_layers`: its layers with experts).
[[nodiscard]] base::Result<std::vector<std::vector<double>>> loads_of_log(std::string_view text, std::string name,
                                                                          const models::Experts& experts,
                                                                          std::int64_t expert_layers);

}  // namespace orrery::plan

#pragma once
/// The step time of a plan with one change: in its split, or in the machine. Each variant is replayed as by `simulate`,
/// so that it compares with the plan's own numbers.
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/yaml.h"
#include "cost/explanation.h"
#include "cost/prices/stacks.h"
#include "plan/spec/job.h"

namespace orrery::sim {

/// A plan, and all inputs of its prediction.
struct Question {
  std::shared_ptr<const models::Model> model;
  std::shared_ptr<const clusters::Cluster> cluster;
  plan::Job job;
  plan::PlanSpec spec;
  cost::Stacks stacks;
  std::vector<cost::Calibration> calibrations;
  cost::Intervals intervals = {};           ///< of these stacks
  const std::atomic<bool>* stop = nullptr;  ///< stops searches
  int threads = 1;                          ///< of searches; they do not affect results
};

/// Called before each replay with a description of it; false ends the list there.
using GoOn = std::function<bool(const std::string&)>;

/// The plan's split on other machines: one more node (as the search would use it), devices with 10 GB more memory, NICs
/// twice as fast. Variants that the cluster's description cannot express are omitted.
[[nodiscard]] std::vector<cost::Variation> with_other_machines(const Question& question, const GoOn& go_on);

/// Splits that differ from the plan's in one step: recomputation, micro-batch, ZeRO, virtual stages, and pairs of the
/// mesh's degrees.
[[nodiscard]] std::vector<cost::Variation> neighbours(const Question& question, const GoOn& go_on);

/// The machine with values of its description replaced; none if the description lacks such a key, or if there is none.
[[nodiscard]] std::optional<clusters::Cluster> machine_with(const clusters::Cluster& cluster,
                                                            const std::vector<base::Override>& overrides);

}  // namespace orrery::sim

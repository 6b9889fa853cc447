#pragma once
/// What a plan would take with one thing changed: its split, or the machine under it. Each is replayed as `simulate`
/// replays, so that it stands beside the plan's own numbers.
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

/// A plan, and all that its prediction takes.
struct Question {
  std::shared_ptr<const models::Model> model;
  std::shared_ptr<const clusters::Cluster> cluster;
  plan::Job job;
  plan::PlanSpec spec;
  cost::Stacks stacks;
  std::vector<cost::Calibration> calibrations;
  const std::atomic<bool>* stop = nullptr;  ///< of searches
  int threads = 1;                          ///< of searches; results are the same with any number
};

/// Asked before each replay, with what comes next; false ends the list there.
using GoOn = std::function<bool(const std::string&)>;

/// The plan's split on other machines: one node more (as the search would use it), devices with 10 GB more memory,
/// NICs twice as fast. What the cluster's description cannot express is left out.
[[nodiscard]] std::vector<cost::Variation> with_other_machines(const Question& question);

/// Splits that differ in one step from the plan's: recomputation, micro-batch, ZeRO, virtual stages, and the degrees of
/// the mesh two by two.
[[nodiscard]] std::vector<cost::Variation> neighbours(const Question& question, const GoOn& go_on);

/// The machine with other values in its description; none where that has no such key, or none at all.
[[nodiscard]] std::optional<clusters::Cluster> machine_with(const clusters::Cluster& cluster,
                                                            const std::vector<base::Override>& overrides);

}  // namespace orrery::sim

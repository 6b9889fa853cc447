#pragma once
/// Scaling studies: a job on more and more devices, with the best plan of each size or with one plan held, strong or
/// weak; what each size loses and why, where growth stops paying, and what a run on a budget of tokens costs. The
/// caller provides the planner, so that a point equals what `plan` reports for that size.
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cost/prices/stacks.h"
#include "cost/scaling.h"
#include "plan/spec/job.h"
#include "plan/spec/plan.h"

namespace orrery::sim {

/// The subject of a series: everything but the size.
struct StudyJob {
  plan::Job job;
  std::shared_ptr<const models::Model> model;
  std::shared_ptr<const clusters::Cluster> cluster;  ///< of any size; each point resizes it
  cost::Stacks stacks;
};

/// The basis of a plan's prediction.
struct StudyEvidence {
  std::string stack, word, text;
  std::optional<cost::Interval> factors;  ///< measured over predicted step times
};

struct StudyOptions {
  std::vector<int> sizes = {};  ///< devices, ascending; empty: each cluster's size and its halves
  bool strong = true, weak = false;
  bool hold_plan = false;
  std::vector<cost::Calibration> calibrations = {};
  cost::Intervals intervals = {};
  /// Returns a job's plans on its cluster, best first. Default: sim::search.
  std::function<cost::SearchResult(const StudyJob&, const cost::Prices&)> plans = {};
  /// Default: predictions have no evidence and no intervals.
  std::function<StudyEvidence(const StudyJob&, const plan::PlanSpec&)> evidence = {};
  std::optional<double> tokens = {}, deadline_s = {};
  double co2_grams_per_kwh = 0;
  std::string co2_source = {};
  const std::atomic<bool>* stop = nullptr;
  /// Called before each point is planned, with its description, its number from 0, and the number of points.
  std::function<void(const std::string&, std::size_t, std::size_t)> progress = {};
};

/// One series per job, strong and weak. A point without a plan is kept, with its reason. Fails if no job's cluster is
/// available in any of the sizes.
[[nodiscard]] base::Result<cost::ScalingStudy> scaling_study(const std::vector<StudyJob>& jobs,
                                                             const StudyOptions& options);

/// Sizes of a cluster: its repeated halves, down to one device or an odd number, ascending.
[[nodiscard]] std::vector<int> halves_of(int devices);

/// `spec` on this number of devices and with this batch, unchanged except for `data` (and ZeRO if only one replica is
/// left); nothing if the number of devices is not divisible by the rest of the mesh.
[[nodiscard]] std::optional<plan::PlanSpec> held_at(plan::PlanSpec spec, int devices, std::int64_t batch);

}  // namespace orrery::sim

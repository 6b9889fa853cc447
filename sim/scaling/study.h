#pragma once
/// Scaling studies: a job on more and more devices, with the best plan of each size or with one plan held, strong or
/// weak; what each size loses to what, where growth stops paying, and what a run on a budget of tokens takes. The
/// folder plans no point by itself: the caller says how, so that a point is what `plan` tells of that size.
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

/// What a series is of: everything but the size.
struct StudyJob {
  plan::Job job;
  std::shared_ptr<const models::Model> model;
  std::shared_ptr<const clusters::Cluster> cluster;  ///< of any size: each point has it in its own
  cost::Stacks stacks;
};

/// What predictions of a plan rest on.
struct StudyEvidence {
  std::string stack, word, text;
  std::optional<cost::Interval> factors;  ///< measured over predicted step times
};

struct StudyOptions {
  std::vector<int> sizes = {};  ///< devices, ascending; empty: each cluster and halves of it
  bool strong = true, weak = false;
  bool hold_plan = false;
  std::vector<cost::Calibration> calibrations = {};
  /// The plans of a job on its cluster, best first. Absent: sim::search.
  std::function<cost::SearchResult(const StudyJob&, const cost::Prices&)> plans = {};
  /// Absent: predictions have no evidence and no intervals.
  std::function<StudyEvidence(const StudyJob&, const plan::PlanSpec&)> evidence = {};
  std::optional<double> tokens = {}, deadline_s = {};
  double co2_grams_per_kwh = 0;
  std::string co2_source = {};
  const std::atomic<bool>* stop = nullptr;
  /// Told of each point before it is planned: what, its number from 0, how many there are.
  std::function<void(const std::string&, std::size_t, std::size_t)> progress = {};
};

/// A series for each job, strong and weak. A point without a plan stays, with its reason. Fails where no job's cluster
/// comes in any of the sizes.
[[nodiscard]] base::Result<cost::ScalingStudy> scaling_study(const std::vector<StudyJob>& jobs,
                                                             const StudyOptions& options);

/// Sizes of a cluster: halves of it down to one device or an odd number, ascending.
[[nodiscard]] std::vector<int> halves_of(int devices);

/// `spec` on so many devices and with this batch, all else held but `data` (and ZeRO, where a replica is alone);
/// nothing where they do not divide.
[[nodiscard]] std::optional<plan::PlanSpec> held_at(plan::PlanSpec spec, int devices, std::int64_t batch);

}  // namespace orrery::sim

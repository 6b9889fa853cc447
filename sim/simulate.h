#pragma once
/// Replays Schedules: one representative of each class of equal ranks runs its program under the rules of
/// plan/schedule/schedule.h; classes meet in sends, receives and collectives; cost::Pricing gives the time of every
/// compute step; messages share the cluster's links max-min fairly with all others in flight. Alone on the network, a
/// message takes the time of cost/network/messages.h. The clock is an integer count of picoseconds: equal inputs give
/// equal bytes.
///
/// For a pipeline that never drains, the step is one of many: it includes neither filling nor draining.
///
/// Ranks are equal when they do the same and see the same network, which colour refinement over the mesh and the
/// cluster's links determines (sim/links/symmetry.h). The links carry the load of all ranks, so the result equals a
/// replay of every rank. Ranks without symmetry are not folded.
#include <memory>
#include <span>
#include <vector>

#include "cost/prices/pricing.h"
#include "cost/results.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/timeline.h"
#include "plan/spec/plan.h"

namespace orrery::sim {

class Fabric;

/// The cluster's links for simulate(); none on CPU ranks, whose measured prices include sharing. Not thread-safe: it
/// caches the routes that it finds.
[[nodiscard]] std::shared_ptr<const Fabric> fabric_of(const clusters::Cluster& cluster);

struct SimulateOptions {
  bool spans = true;        ///< record a span per executed step (one rank per stage); false saves memory in a search
  bool every_rank = false;  ///< replay each rank by itself, without folding: slow; a test checks equality
  /// Walk every micro-batch, even those that repeat earlier ones: slow if there are many; a test checks equality.
  bool every_micro_batch = false;
  /// If a step has more spans, those of repeating micro-batches are omitted, then the last ones.
  std::int64_t most_spans = 1'000'000;
  std::shared_ptr<const Fabric> fabric = nullptr;  ///< fabric_of(pricing.cluster()); created if absent
  /// Number of the step in a run, which matters if the first steps differ from later ones (PlanSpec::plain_steps).
  std::int64_t training_step = plan::kLateStep;
};

struct Simulation {
  cost::Prediction prediction;  ///< the caller, which has a clock, sets simulation_seconds
  plan::Timeline timeline;      ///< spans of the lowest rank of each stage
  int classes = 0;              ///< of equal ranks
  std::int64_t spans_left_out = 0;
};

/// `schedule` must have passed plan::check. A rank's waits for another stage (until the last partner of a message has
/// arrived, and from its own end until the slowest rank's) are bubble; its waits during a transfer are exposed
/// communication. Streams that the stack cannot overlap progress only while the compute stream waits.
[[nodiscard]] Simulation simulate(const plan::Plan& plan, const plan::Schedule& schedule, const cost::Pricing& pricing,
                                  const SimulateOptions& options = {});

/// Lowers with the stack's options, checks and replays. A failed check is a bug and aborts.
[[nodiscard]] Simulation simulate(const plan::Plan& plan, const cost::Pricing& pricing,
                                  const SimulateOptions& options = {});

/// One of several jobs on one cluster.
struct JobInCompany {
  const plan::Plan* plan = nullptr;          ///< made for a cluster of the job's size
  const plan::Schedule* schedule = nullptr;  ///< of that plan
  const cost::Pricing* pricing = nullptr;    ///< of the whole cluster; the same for all jobs
  std::vector<int> devices;                  ///< of the whole cluster, one per rank; no device runs two ranks
};
/// One step of each job, started together (so no pipeline may be one that never drains); each result has the times and
/// bytes of its own job.
[[nodiscard]] std::vector<Simulation> simulate(std::span<const JobInCompany> jobs, const SimulateOptions& options = {});

}  // namespace orrery::sim

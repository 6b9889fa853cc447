#pragma once
/// Replays Schedules: one representative of each class of equal ranks runs its program under the rules of
/// plan/schedule/schedule.h, classes meet in sends, receives and collectives, every compute step gets its time from
/// cost::Pricing, and messages share the cluster's links max-min fairly with all others under way at that moment. Alone
/// on the network a message takes what cost/network/messages.h says. The clock is an integer count of picoseconds:
/// equal inputs, equal bytes.
///
/// Of a pipeline that never drains the step is one of many: neither filling nor draining is in it.
///
/// Ranks are equal when they do the same and see the same network, found by colour refinement over the mesh and the
/// cluster's links (sim/symmetry.h): the loads of all of them are on the links, and the result is that of replaying
/// every rank. What has no symmetry is not folded.
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

/// The cluster's links for simulate(); none on CPU ranks, whose prices are measured where they share. For one thread at
/// a time: it keeps the routes that it finds.
[[nodiscard]] std::shared_ptr<const Fabric> fabric_of(const clusters::Cluster& cluster);

struct SimulateOptions {
  bool spans = true;        ///< note a span per executed step (one rank per stage); false saves memory in a search
  bool every_rank = false;  ///< replay each rank by itself, folding nothing: slow, and equal by test
  /// Walk every micro-batch, also those that do as others before them: slow where they are many, and equal by test.
  bool every_micro_batch = false;
  /// Of a step with more spans those of micro-batches that do as others before them are left out, then the last ones.
  std::int64_t most_spans = 1'000'000;
  std::shared_ptr<const Fabric> fabric = nullptr;  ///< fabric_of(pricing.cluster()); made when absent
  /// Which step of a run, by its number, where the first ones are others than those behind them
  /// (PlanSpec::plain_steps).
  std::int64_t training_step = plan::kLateStep;
};

struct Simulation {
  cost::Prediction prediction;  ///< simulation_seconds is left to the caller, who owns a clock
  plan::Timeline timeline;      ///< spans of the lowest rank of each stage
  int classes = 0;              ///< of equal ranks
  std::int64_t spans_left_out = 0;
};

/// `schedule` must have passed plan::check. What a rank waits for another stage (before the last partner of a message
/// has arrived, and after its own end until the slowest rank's) is bubble; what it waits while a transfer runs is
/// exposed communication. Streams that the stack cannot overlap make progress only while the compute stream waits.
[[nodiscard]] Simulation simulate(const plan::Plan& plan, const plan::Schedule& schedule, const cost::Pricing& pricing,
                                  const SimulateOptions& options = {});

/// Lowers with the stack's habits, checks and replays. A failed check is a bug and aborts.
[[nodiscard]] Simulation simulate(const plan::Plan& plan, const cost::Pricing& pricing,
                                  const SimulateOptions& options = {});

/// A job among others on one cluster.
struct JobInCompany {
  const plan::Plan* plan = nullptr;          ///< made for a cluster of the job's own size
  const plan::Schedule* schedule = nullptr;  ///< of that plan
  const cost::Pricing* pricing = nullptr;    ///< of the whole cluster: the same one for all jobs
  std::vector<int> devices;                  ///< of the whole cluster, one for each rank; no device runs two
};
/// One step of each job, begun together (so none is of a pipeline that never drains); each result has its own job's
/// times and bytes.
[[nodiscard]] std::vector<Simulation> simulate(std::span<const JobInCompany> jobs, const SimulateOptions& options = {});

}  // namespace orrery::sim

#pragma once
/// How long a training step takes with a parameter server (plan/lower/parameter_server.h), whose shards lie on the
/// workers.
#include <cstdint>
#include <vector>

#include "cost/estimate/asynchronous.h"
#include "cost/estimate/stage_times.h"
#include "cost/prices/pricing.h"

namespace orrery::cost {

/// Seconds of one bucket, and how many like it follow each other.
struct ServedBucket {
  std::int64_t count = 0;
  double push = 0, update = 0, pull = 0;  ///< all-to-all of gradients; all workers' updates of a shard; all-gather
};

/// What of the messages computing waits for, if they move while it goes on: pushes one after another, each bucket
/// updated once it has come, pulled once it is updated and all pushes have passed. The first update stands behind
/// `forward` seconds of a pass.
struct ServedMessages {
  double push = 0;  ///< that updates wait for
  double pull = 0;  ///< end of the last pull behind the last update
};
[[nodiscard]] ServedMessages served_messages(const std::vector<ServedBucket>& buckets, double forward,
                                             double coefficients);

/// The stage's messages put right: `reduce` and `gather` are what served_messages says, or, without overlap, all.
void serve(StageTimes& stage, const std::vector<ServedBucket>& buckets, const plan::PlanSpec& spec,
           const Pricing& pricing);

/// A step of the plan from its only stage's times, after serve(). With a staleness pulls and the sum of the loss are
/// hidden behind the rest of the step's passes, as far as these are long enough.
[[nodiscard]] SteadyStep served_step(const plan::Plan& plan, const Pricing& pricing, StageTimes& stage,
                                     Agreements& agree);

}  // namespace orrery::cost

#pragma once
/// Step time with a parameter server (plan/lower/parameter_server.h) whose shards reside on the workers.
#include <cstdint>
#include <vector>

#include "cost/estimate/stage_times.h"
#include "cost/prices/pricing.h"

namespace orrery::cost {

/// Seconds of one bucket, and the number of equal buckets in a row.
struct ServedBucket {
  std::int64_t count = 0;
  double push = 0, update = 0, pull = 0;  ///< all-to-all of gradients; all workers' updates of a shard; all-gather
};

/// Messages that compute waits for when they overlap with it. Pushes run one after another; a bucket is updated once
/// its push has arrived, and pulled once it is updated and all pushes are done. The first update starts after `forward`
/// seconds of a pass.
struct ServedMessages {
  double push = 0;  ///< seconds that updates wait for pushes
  double pull = 0;  ///< seconds from the last update to the end of the last pull
};
[[nodiscard]] ServedMessages served_messages(const std::vector<ServedBucket>& buckets, double forward,
                                             double coefficients);

/// Sets the stage's `reduce` and `gather` to the result of served_messages or, without overlap, to all messages.
void serve(StageTimes& stage, const std::vector<ServedBucket>& buckets, const plan::PlanSpec& spec,
           const Pricing& pricing);

/// Seconds of a step of the plan from the times of its only stage, after serve(). With a staleness, the pulls and the
/// sum of the loss overlap with the rest of the step's passes, as far as these are long enough.
[[nodiscard]] double served_step(const plan::Plan& plan, const Pricing& pricing, StageTimes& stage, Agreements& agree);

}  // namespace orrery::cost

/// The period of pipelines that never drain, drawn by hand.
#include "cost/estimate/asynchronous.h"

#include <gtest/gtest.h>

namespace orrery::cost {
namespace {

AsynchronousTimes equal_stages(std::size_t stages, double forward, double backward, double update, double hop) {
  AsynchronousTimes t;
  t.forward.assign(stages, forward);
  t.backward.assign(stages, backward);
  t.update.assign(stages, update);
  t.hop.assign(stages - 1, hop);
  return t;
}

TEST(AsynchronousPipeline, OfEqualStagesHasNoBubble) {
  for (const std::size_t stages : {2, 3, 4, 8})
    for (const std::int64_t m : {1, 8, 16, 100}) {
      const SteadyStep step = asynchronous_pipeline(equal_stages(stages, 1, 2, 0, 0), m);
      EXPECT_NEAR(step.period, 3.0 * static_cast<double>(m), 1e-9) << stages << " stages, " << m << " micro-batches";
      for (const double transfer : step.transfer) EXPECT_NEAR(transfer, 0, 1e-9);
    }
}

TEST(AsynchronousPipeline, RunsAtItsSlowestStage) {
  AsynchronousTimes t = equal_stages(3, 1, 2, 0.5, 0);
  t.forward[1] = 1.5;
  t.backward[1] = 2.5;
  EXPECT_NEAR(asynchronous_pipeline(t, 1).period, 4.5, 1e-9);
}

// Of two stages each half of the way there and back belongs to one of the two micro-batches under way:
// (2 (f + b) + 2 h) / 2. What is issued and taken early hides the rest.
TEST(AsynchronousPipeline, HidesTransfersAsFarAsMicroBatchesInFlightAllow) {
  EXPECT_NEAR(asynchronous_pipeline(equal_stages(2, 1, 2, 0, 0.5), 1).period, 3.5, 1e-9);
  EXPECT_NEAR(asynchronous_pipeline(equal_stages(4, 1, 2, 0, 0.5), 1).period, (4 * 3 + 2 * 3 * 0.5) / 4, 1e-9);
}

// The last stage runs forward and backward, then waits for the first's backward: f + b + b + u.
TEST(AsynchronousPipeline, OfTiedEndsWaitsForTheFirstStageInEveryStep) {
  AsynchronousTimes t = equal_stages(2, 1, 2, 0.25, 0);
  t.tied = true;
  EXPECT_NEAR(asynchronous_pipeline(t, 1).period, 5.25, 1e-9);
}

TEST(AsynchronousPipeline, OfManyMicroBatchesIsExtrapolatedAsItGoesOn) {
  AsynchronousTimes t = equal_stages(2, 1, 2, 0.25, 0.125);
  t.tied = true;
  t.forward[0] = 1.5;
  const double period = asynchronous_pipeline(t, 8).period - asynchronous_pipeline(t, 6).period;
  EXPECT_NEAR(asynchronous_pipeline(t, 100).period, asynchronous_pipeline(t, 8).period + 46 * period, 1e-9);
}

}  // namespace
}  // namespace orrery::cost

/// The period of pipelines that never drain, drawn by hand.
#include <gtest/gtest.h>

#include "tests/cost/plain_passes.h"

namespace orrery::cost {
namespace asynchronous_test {

using testing::equal_stages;
using testing::PassTimes;
using testing::PlainPipeline;

/// Forward 1, backward 2.
PlainPipeline endless(int stages, double update = 0, double hop = 0) {
  return {.stages = equal_stages(stages, {.forward = 1, .backward = 2, .update = update}),
          .hop = hop,
          .overlaps = true,
          .order = plan::Order::pipedream_2bw};
}

TEST(AsynchronousPipeline, OfEqualStagesHasNoBubble) {
  for (const int stages : {2, 3, 4, 8})
    for (const std::int64_t m : {1, 8, 16, 100}) {
      const PipelineResult step = endless(stages).run(m);
      for (const double end : step.end)
        EXPECT_NEAR(end, 3.0 * static_cast<double>(m), 1e-9) << stages << " stages, " << m << " micro-batches";
      for (const double transfer : step.transfer) EXPECT_NEAR(transfer, 0, 1e-9);
    }
}

TEST(AsynchronousPipeline, RunsAtItsSlowestStage) {
  PlainPipeline p = endless(3, 0.5);
  p.stages[1].forward = 1.5;
  p.stages[1].backward = 2.5;
  EXPECT_NEAR(p.makespan(1), 4.5, 1e-9);
}

// Of two stages each half of the way there and back belongs to one of the two micro-batches under way:
// (2 (f + b) + 2 h) / 2. What is issued and taken early hides the rest.
TEST(AsynchronousPipeline, HidesTransfersAsFarAsMicroBatchesInFlightAllow) {
  EXPECT_NEAR(endless(2, 0, 0.5).makespan(1), 3.5, 1e-9);
  EXPECT_NEAR(endless(4, 0, 0.5).makespan(1), (4 * 3 + 2 * 3 * 0.5) / 4, 1e-9);
}

// The last stage runs forward and backward, then waits for the first's backward: f + b + b + u.
TEST(AsynchronousPipeline, OfTiedEndsWaitsForTheFirstStageInEveryStep) {
  PlainPipeline p = endless(2, 0.25);
  p.tied = true;
  EXPECT_NEAR(p.makespan(1), 5.25, 1e-9);
}

TEST(AsynchronousPipeline, OfManyMicroBatchesIsExtrapolatedAsItGoesOn) {
  PlainPipeline p = endless(2, 0.25, 0.125);
  p.tied = true;
  p.stages[0].forward = 1.5;
  const double period = p.makespan(8) - p.makespan(6);
  EXPECT_NEAR(p.makespan(100), p.makespan(8) + 46 * period, 1e-9);
}

}  // namespace asynchronous_test
}  // namespace orrery::cost

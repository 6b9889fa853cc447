/// Pipelines of passes against those drawn by hand.
#include "cost/estimate/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/cost/plain_passes.h"

namespace orrery::cost {
namespace pipeline_test {

using plan::Order;
using testing::equal_stages;
using testing::PlainPipeline;

TEST(Pipeline, OfEqualStagesTakesMPlusPMinusOneTurns) {
  for (const Order order : {Order::gpipe, Order::one_f_one_b})
    for (const int stages : {1, 2, 4, 8})
      for (const std::int64_t m : {1, 3, 8, 100}) {
        const PlainPipeline p{.stages = equal_stages(stages, {1, 2}), .order = order};
        EXPECT_NEAR(p.makespan(m), 3.0 * static_cast<double>(m + stages - 1), 1e-9) << stages << " stages, " << m;
      }
}

TEST(Pipeline, OfOneMicroBatchIsAChain) {
  const PlainPipeline p{.stages = {{1, 2}, {3, 6}}, .hop = 0.5};
  EXPECT_DOUBLE_EQ(p.makespan(1), 1 + 0.5 + 3 + 6 + 0.5 + 2);
  EXPECT_DOUBLE_EQ(p.run(1).transfer[1], 0.5);
}

TEST(Pipeline, OfUnevenStagesRunsAtTheSlowest) {
  const PlainPipeline p{.stages = {{1, 2}, {3, 6}}};
  // Stage 1: forward 1-4, backward 4-10, forward 10-13, backward 13-19. Stage 0 ends with its backward 19-21.
  EXPECT_DOUBLE_EQ(p.makespan(2), 21);
  // Long after: 9 a micro-batch.
  EXPECT_NEAR(p.makespan(1000) - p.makespan(900), 900, 1e-6);
}

TEST(Pipeline, ExtrapolatesAsLongReplaysGo) {
  // 3p micro-batches are run, more are extrapolated: the seam shows in no difference.
  const PlainPipeline p{.stages = {{1, 2}, {1.5, 2.5}, {1.25, 2.75}}, .hop = 0.25};
  const double period = (p.makespan(12) - p.makespan(9)) / 3;
  for (std::int64_t m = 12; m < 30; m += 3) EXPECT_NEAR(p.makespan(m + 3) - p.makespan(m), 3 * period, 1e-9);
}

TEST(Pipeline, RecomputesWhileTheGradientIsOnItsWay) {
  PlainPipeline p{.stages = equal_stages(2, {1, 4}), .hop = 1, .overlaps = true};
  p.stages[0].prelude = 2;
  // Forward 0-1, hop to 2, forward 2-3, backward 3-7, hop to 8. Stage 0 has recomputed by then: 2 of its 4 are left.
  EXPECT_DOUBLE_EQ(p.makespan(1), 10);
  p.stages[0].prelude = 0;
  EXPECT_DOUBLE_EQ(p.makespan(1), 12);
}

TEST(Pipeline, GoesThroughAStateOnceAndThroughItsRepetitionsAlike) {
  // Where passes differ, each is another state; where they repeat, what one did is taken for all: both are the same.
  const PlainPipeline equal{.stages = equal_stages(4, {1, 2}), .hop = 0.125, .overlaps = true};
  PlainPipeline nearly = equal;
  nearly.stages[3].forward += 1e-12;
  EXPECT_NEAR(equal.makespan(64), nearly.makespan(64), 1e-9);
}

TEST(LeastEnd, IsThePipelinesWhereNothingIsInTheWay) {
  for (const Order order : {Order::gpipe, Order::one_f_one_b})
    for (const int stages : {1, 2, 8}) {
      const PlainPipeline p{.stages = equal_stages(stages, {1, 2}), .order = order};
      EXPECT_NEAR(p.least(64), p.makespan(64), 1e-9) << stages << " stages";
    }
  PlainPipeline slow{.stages = equal_stages(4, {1, 2}), .hop = 0.5};
  EXPECT_LT(slow.least(64), slow.makespan(64) - 1) << "each message delays its sender";
}

// Narayanan et al. 2021, section 2.2.2: the bubble is (p - 1)(f + b)/v, where f and b are of a whole stage.
TEST(InterleavedPipeline, HasTheBubbleOfThePaper) {
  for (const int stages : {2, 4, 8})
    for (const int chunks : {1, 2, 4})
      for (const int rounds : {1, 2, 3, 10}) {
        const PlainPipeline p{.stages = equal_stages(stages, {1, 2}), .chunks = chunks, .overlaps = true};
        EXPECT_NEAR(p.makespan(stages * rounds), 3.0 * (stages * rounds * chunks + stages - 1), 1e-9)
            << stages << " stages of " << chunks << " chunks, " << rounds << " rounds";
      }
}

double zero_bubble_makespan(Order order, int stages, std::int64_t micro_batches, double forward, double backward,
                            double weights, double hop = 0) {
  const int chunks = order == Order::zb_v || order == Order::dualpipe_v ? 2 : 1;
  const PlainPipeline p{.stages = equal_stages(stages, {forward / chunks, backward / chunks, weights / chunks}),
                        .hop = hop,
                        .chunks = chunks,
                        .overlaps = true,
                        .order = order};
  return p.makespan(micro_batches);
}

// Qi et al. 2023, section 2.3 and table 1: the bubble of H1 is (p - 1)(f + b - w). H2 has none, and ends a
// parallelogram: the last stage begins (p - 1) f later. The V of 2024 begins the last stage (p - 1) f/2 later.
TEST(ZeroBubble, HasTheBubblesOfThePapers) {
  for (const int stages : {2, 3, 4, 8})
    for (const std::int64_t m : {2 * stages, 3 * stages, 10 * stages}) {
      const double work = 3.0 * static_cast<double>(m), others = stages - 1;
      EXPECT_NEAR(zero_bubble_makespan(Order::zb_h1, stages, m, 1, 1, 1), work + others, 1e-9) << stages << " " << m;
      EXPECT_NEAR(zero_bubble_makespan(Order::zb_h2, stages, m, 1, 1, 1), work + others, 1e-9) << stages << " " << m;
      EXPECT_NEAR(zero_bubble_makespan(Order::zb_v, stages, m, 1, 1, 1), work + others / 2, 1e-9) << stages << " " << m;
      EXPECT_NEAR(zero_bubble_makespan(Order::zb_h1, stages, m, 1, 1.2, 0.9),
                  3.1 * static_cast<double>(m) + 1.3 * others, 1e-9)
          << stages << " " << m;
      // DualPipeV, whose chunks are half a stage: half of (p - 1)(f + b - w). Messages are posted as if all passes took
      // equally long: where they do not, one may be waited for once more.
      EXPECT_NEAR(zero_bubble_makespan(Order::dualpipe_v, stages, m, 1, 1, 1), work + others / 2, 1e-9);
      EXPECT_NEAR(zero_bubble_makespan(Order::dualpipe_v, stages, m, 1.1, 1, 1),
                  3.1 * static_cast<double>(m) + 1.1 / 2 * others, 0.3)
          << stages << " " << m;
    }
}

TEST(ZeroBubble, MessagesThatAreFastHideBehindThePasses) {
  for (const Order order : {Order::zb_h1, Order::zb_h2, Order::zb_v, Order::dualpipe_v})
    EXPECT_NEAR(zero_bubble_makespan(order, 4, 40, 1, 1, 1, 0.01), zero_bubble_makespan(order, 4, 40, 1, 1, 1), 1.0);
}

TEST(InterleavedPipeline, ExtrapolatesAsLongReplaysGo) {
  const PlainPipeline p{.stages = equal_stages(4, {1, 2}), .hop = 0.1, .chunks = 2, .overlaps = true};
  const double period = p.makespan(16) - p.makespan(12);
  for (const std::int64_t m : {16, 20, 40}) EXPECT_NEAR(p.makespan(m + 4) - p.makespan(m), period, 1e-9);
  // A period takes 4 x 2 turns of 3, each with its exchange.
  EXPECT_GT(period, 24);
}

}  // namespace pipeline_test
}  // namespace orrery::cost

/// The replay of turns against pipelines drawn by hand.
#include "cost/estimate/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace orrery::cost {
namespace {

using plan::Order;

PipelineTimes equal_stages(std::size_t stages, double forward, double backward, double hop) {
  PipelineTimes t;
  t.forward.assign(stages, forward);
  t.backward.assign(stages, backward);
  t.prelude.assign(stages, 0);
  t.hop.assign(stages - 1, hop);
  return t;
}

double makespan(const PipelineTimes& times, Order order, std::int64_t micro_batches) {
  const std::vector<double> end = pipeline(times, order, micro_batches).end;
  return *std::max_element(end.begin(), end.end());
}

TEST(Pipeline, OfEqualStagesTakesMPlusPMinusOneTurns) {
  for (const Order order : {Order::gpipe, Order::one_f_one_b})
    for (const std::size_t stages : {1, 2, 4, 8})
      for (const std::int64_t m : {1, 3, 8, 100})
        EXPECT_NEAR(makespan(equal_stages(stages, 1, 2, 0), order, m),
                    3.0 * static_cast<double>(m + static_cast<std::int64_t>(stages) - 1), 1e-9)
            << stages << " stages, " << m << " micro-batches";
}

TEST(Pipeline, OfOneMicroBatchIsAChain) {
  PipelineTimes t = equal_stages(2, 1, 2, 0.5);
  t.forward = {1, 3};
  t.backward = {2, 6};
  EXPECT_DOUBLE_EQ(makespan(t, Order::one_f_one_b, 1), 1 + 0.5 + 3 + 6 + 0.5 + 2);
  EXPECT_DOUBLE_EQ(pipeline(t, Order::one_f_one_b, 1).transfer[1], 0.5);
}

TEST(Pipeline, OfUnevenStagesRunsAtTheSlowest) {
  PipelineTimes t = equal_stages(2, 1, 2, 0);
  t.forward = {1, 3};
  t.backward = {2, 6};
  // Stage 1: forward 1-4, backward 4-10, forward 10-13, backward 13-19. Stage 0 ends with its backward 19-21.
  EXPECT_DOUBLE_EQ(makespan(t, Order::one_f_one_b, 2), 21);
  // Long after: 9 a micro-batch.
  EXPECT_NEAR(makespan(t, Order::one_f_one_b, 1000) - makespan(t, Order::one_f_one_b, 900), 900, 1e-6);
}

TEST(Pipeline, ExtrapolatesAsLongReplaysGo) {
  // 4p micro-batches are replayed, more are extrapolated: the seam shows in no difference.
  PipelineTimes t = equal_stages(3, 1, 2, 0.25);
  t.forward = {1, 1.5, 1.25};
  t.backward = {2, 2.5, 2.75};
  const double period = (makespan(t, Order::one_f_one_b, 12) - makespan(t, Order::one_f_one_b, 9)) / 3;
  for (std::int64_t m = 12; m < 30; m += 3)
    EXPECT_NEAR(makespan(t, Order::one_f_one_b, m + 3) - makespan(t, Order::one_f_one_b, m), 3 * period, 1e-9);
}

TEST(Pipeline, RecomputesWhileTheGradientIsOnItsWay) {
  PipelineTimes t = equal_stages(2, 1, 4, 1);
  t.prelude = {2, 0};
  t.overlaps = true;
  // Forward 0-1, hop to 2, forward 2-3, backward 3-7, hop to 8. Stage 0 has recomputed by then: 2 of its 4 are left.
  EXPECT_DOUBLE_EQ(makespan(t, Order::one_f_one_b, 1), 10);
  t.prelude = {0, 0};
  EXPECT_DOUBLE_EQ(makespan(t, Order::one_f_one_b, 1), 12);
}

double interleaved_makespan(int stages, int chunks, std::int64_t micro_batches, double hop = 0) {
  InterleavedTimes t;
  const auto p = static_cast<std::size_t>(stages), v = static_cast<std::size_t>(chunks);
  t.forward.assign(p, std::vector<double>(v, 1));
  t.backward.assign(p, std::vector<double>(v, 2));
  t.hop.assign(p, hop);
  const std::vector<double> end = interleaved_pipeline(t, micro_batches).end;
  return *std::max_element(end.begin(), end.end());
}

// Narayanan et al. 2021, section 2.2.2: the bubble is (p - 1)(f + b)/v, where f and b are of a whole stage.
TEST(InterleavedPipeline, HasTheBubbleOfThePaper) {
  for (const int stages : {2, 4, 8})
    for (const int chunks : {1, 2, 4})
      for (const int rounds : {1, 2, 3, 10})
        EXPECT_NEAR(interleaved_makespan(stages, chunks, stages * rounds),
                    3.0 * (stages * rounds * chunks + stages - 1), 1e-9)
            << stages << " stages of " << chunks << " chunks, " << rounds << " rounds";
}

double zero_bubble_makespan(Order order, int stages, std::int64_t micro_batches, double forward, double backward,
                            double weights, double hop = 0) {
  InterleavedTimes t;
  const auto p = static_cast<std::size_t>(stages),
             v = static_cast<std::size_t>(order == Order::zb_v || order == Order::dualpipe_v ? 2 : 1);
  const auto chunks = static_cast<double>(v);
  t.forward.assign(p, std::vector<double>(v, forward / chunks));
  t.backward.assign(p, std::vector<double>(v, backward / chunks));
  t.weights.assign(p, std::vector<double>(v, weights / chunks));
  t.hop.assign(p, hop);
  const std::vector<double> end = zero_bubble_pipeline(t, order, micro_batches).end;
  return *std::max_element(end.begin(), end.end());
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
  const double period = interleaved_makespan(4, 2, 16, 0.1) - interleaved_makespan(4, 2, 12, 0.1);
  for (const std::int64_t m : {16, 20, 40})
    EXPECT_NEAR(interleaved_makespan(4, 2, m + 4, 0.1) - interleaved_makespan(4, 2, m, 0.1), period, 1e-9);
  // A period takes 4 x 2 turns of 3, each with its exchange.
  EXPECT_GT(period, 24);
}

}  // namespace
}  // namespace orrery::cost

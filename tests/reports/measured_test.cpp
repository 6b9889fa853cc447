// The accounts of a measured step: every moment is booked once, and on the right part.
#include "reports/measured.h"

#include <gtest/gtest.h>

#include "reports/spans.h"
#include "tests/reports/sample.h"

namespace orrery::reports {
namespace measured_test {

double sum_of(const cost::Breakdown& b) {
  return b.forward + b.backward + b.recompute + b.optimizer + b.tensor_communication + b.data_communication +
         b.pipeline_communication + b.bubble + b.imbalance + b.overhead;
}

plan::Step step_of_kind(plan::StepKind kind, plan::Stream stream, plan::Phase phase) {
  plan::Step step;
  step.kind = kind;
  step.stream = stream;
  step.phase = phase;
  return step;
}

/// One class of one rank: forward, all-reduce over tensor, backward, receive, optimizer.
plan::Schedule one_rank() {
  plan::Schedule schedule;
  plan::RankClass only;
  only.count = 1;
  plan::Block block;
  using plan::Phase, plan::StepKind, plan::Stream;
  block.steps = {step_of_kind(StepKind::compute, Stream::compute, Phase::forward),
                 step_of_kind(StepKind::collective, Stream::tensor, Phase::forward),
                 step_of_kind(StepKind::compute, Stream::compute, Phase::backward),
                 step_of_kind(StepKind::recv, Stream::pipeline_recv, Phase::backward),
                 step_of_kind(StepKind::compute, Stream::compute, Phase::optimizer)};
  only.blocks = {block};
  only.program = {{0, -1}};
  schedule.classes = {only};
  return schedule;
}

plan::Span span(int step, double ready, double start, double end) {
  plan::Span one;
  one.at = {0, step};
  one.ready = ready;
  one.start = start;
  one.end = end;
  return one;
}

TEST(MeasuredBreakdown, BooksWaitingTransferAndIdleTimeByHand) {
  plan::Timeline timeline;
  timeline.origin = plan::Origin::measured;
  // 1 of overhead, 2 of forward, an all-reduce that waits 1 for its member and moves bytes for 2, 3 of backward, a
  // receive that waits 2 for its sender and moves bytes for 1, 1 of overhead, 1 of optimizer: 14 in all.
  timeline.spans = {span(0, 1, 1, 3), span(1, 3, 4, 6), span(2, 6, 6, 9), span(3, 9, 11, 12), span(4, 12, 13, 14)};
  const cost::Breakdown b = measured_breakdown(timeline, one_rank());
  EXPECT_DOUBLE_EQ(b.forward, 2);
  EXPECT_DOUBLE_EQ(b.tensor_communication, 3);
  EXPECT_DOUBLE_EQ(b.backward, 3);
  EXPECT_DOUBLE_EQ(b.bubble, 2);
  EXPECT_DOUBLE_EQ(b.pipeline_communication, 1);
  EXPECT_DOUBLE_EQ(b.optimizer, 1);
  EXPECT_DOUBLE_EQ(b.overhead, 2);
}

TEST(MeasuredBreakdown, CommunicationUnderComputeIsNotExposed) {
  plan::Timeline timeline;
  timeline.spans = {span(0, 0, 0, 3), span(1, 0, 0, 3), span(2, 3, 3, 9), span(3, 4, 5, 8), span(4, 9, 9, 10)};
  const cost::Breakdown b = measured_breakdown(timeline, one_rank());
  EXPECT_DOUBLE_EQ(b.tensor_communication, 0);
  EXPECT_DOUBLE_EQ(b.pipeline_communication, 0);
  EXPECT_DOUBLE_EQ(b.bubble, 0);
  EXPECT_DOUBLE_EQ(sum_of(b), 10);
}

TEST(MeasuredBreakdown, TheSumIsTheLengthOfTheTypicalIteration) {
  const plan::Schedule schedule = sample::schedule();
  const plan::Timeline timeline = sample::timeline(schedule, plan::Origin::measured);
  const int iteration = typical_iteration(timeline);
  double end = 0;
  for (const plan::Span& one : timeline.spans)
    if (one.iteration == iteration) end = std::max(end, one.end);
  const cost::Breakdown b = measured_breakdown(timeline, schedule);
  EXPECT_NEAR(sum_of(b), end, 1e-12);
  EXPECT_GT(b.bubble, 0);
  EXPECT_GT(b.forward, 0);
}

}  // namespace measured_test
}  // namespace orrery::reports

// Measured timelines: clocks brought together, steps begun at zero, waiting told from transfer.
#include "exec/run/measured.h"

#include <gtest/gtest.h>

#include <thread>

#include "exec/engine/thread_transport.h"
#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace measured_test {

/// Two data-parallel ranks with one compute step and one all-reduce.
plan::Schedule schedule() {
  plan::Schedule s;
  s.spec.mesh.data = 2;
  plan::Group group;
  group.name = "data";
  group.dimensions = {{1, 2}};
  s.groups = {group};
  plan::RankClass c;
  c.count = 2;
  c.buffers = {{"g", plan::Purpose::gradients, models::DType::fp32, 1, true, false}};
  plan::Step compute, reduce;
  reduce.kind = plan::StepKind::collective;
  reduce.stream = plan::Stream::data;
  reduce.group = plan::GroupId(0);
  reduce.source = reduce.target = {plan::BufferId(0), 0, 1};
  c.blocks = {{"all", {compute, reduce}}};
  c.program = {{0, -1}};
  s.classes = {c};
  return s;
}

TEST(MeasuredTimeline, ACollectiveStartsWhenItsLastMemberHasCome) {
  const plan::Schedule s = schedule();
  // Rank 1's clock is 1 ms behind; it computes 5 us, rank 0 computes 2 us.
  const ClockLine even{{0, 0, 0}, {10000000, 0, 0}}, behind{{0, 1000000, 0}, {10000000, 1000000, 0}};
  const Nanoseconds b = -1000000;
  const std::vector<RankRecord> records = {
      {even, {{0, 100, 10100}}, {{0, {0, 0}, -1, 200, 2200}, {0, {0, 1}, -1, 2300, 8000}}, {{0, 0, 0, 3, 1e-6}}},
      {behind,
       {{0, b + 300, b + 10300}},
       {{0, {0, 0}, -1, b + 400, b + 5400}, {0, {0, 1}, -1, b + 5500, b + 9000}},
       {{0, 0, 0, 1, 5e-6}}}};
  const plan::Timeline t = measured_timeline(s, records, false);
  ASSERT_EQ(t.spans.size(), 4U);
  EXPECT_NEAR(t.spans[0].ready, 100e-9, 1e-12) << "the first begin of any rank is zero";
  EXPECT_NEAR(t.spans[0].end, 2100e-9, 1e-12);
  EXPECT_NEAR(t.spans[1].ready, 2200e-9, 1e-12);
  EXPECT_NEAR(t.spans[1].start, 5400e-9, 1e-12) << "rank 0 waited for rank 1";
  EXPECT_NEAR(t.spans[3].start, t.spans[3].ready, 1e-12);
  EXPECT_NEAR(t.spans[1].end, 7900e-9, 1e-12);
  EXPECT_NEAR(t.step_time, 10200e-9, 1e-12);
  ASSERT_EQ(t.operators.size(), 1U) << "one class of ranks, one operator";
  EXPECT_EQ(t.operators[0].count, 4);
  EXPECT_NEAR(t.operators[0].seconds, 2e-6, 1e-12) << "three executions of 1 us and one of 5 us";
}

TEST(MeasuredTimeline, SurvivesPackingBitForBit) {
  const RankRecord record{
      {{1, 2, 3}, {4, 5, 6}}, {{7, 8, 9}}, {{1, {2, 3}, 4, 5, 6}, {7, {8, 9}, 10, 11, 12}}, {{1, 2, 3, 4, 5}}};
  EXPECT_EQ(pack(unpack(pack(record))), pack(record));
  EXPECT_EQ(unpack(pack(record)).spans.size(), 2U);
  EXPECT_EQ(unpack(pack(record)).operators.size(), 1U);
}

TEST(MeasuredTimeline, OfARealRunHasEverySpanInOrder) {
  testing::Trial trial = testing::golden_trial("constant");
  trial.spec.mesh.pipeline = 2;
  trial.steps = 3;
  trial.gradients_at.clear();
  const testing::Outcome outcome = testing::train(trial);
  const plan::Schedule s = plan::lower(testing::plan_of(trial));
  std::size_t spans = 0;
  for (const auto& rank : outcome.spans) spans += rank.size();
  EXPECT_EQ(spans, static_cast<std::size_t>(3 * s.steps()));
}

TEST(Clock, OfThreadsDiffersByLessThanItsStatedError) {
  ThreadWorld world(3);
  const Waiter waiter(wait_policy(8, 1, std::chrono::seconds(60)));
  testing::in_threads(
      3,
      [&](int rank) {
        const auto transport = world.transport(rank);
        const ClockReading reading = read_clock(*transport, waiter);
        EXPECT_LE(std::abs(reading.offset), reading.error + 1) << "threads share one clock";
        EXPECT_TRUE(rank != 0 || reading.offset == 0);
      },
      [&](const std::string& why) { world.abort(why); });
}

TEST(Median, IsTheMiddle) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({}), 0);
}

}  // namespace measured_test
}  // namespace orrery::exec

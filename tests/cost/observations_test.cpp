/// What a fit reads from a timeline, on one small enough to work out by hand.
#include "cost/fit/observations.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cost/support.h"

namespace orrery::cost {
namespace observations_test {

/// Two replicas: compute, all-reduce, compute; times in seconds.
FitRun two_replicas() {
  FitRun run;
  run.name = "by hand";
  run.schedule.spec.mesh.data = 2;
  run.schedule.groups.push_back({"data", {{1, 2}}, 0});
  plan::RankClass c;
  c.count = 2;
  c.buffers.push_back({.name = "gradients", .elements = 1000, .persistent = true});
  plan::Step first, reduce, second;
  first.part = "first";
  second.part = "second";
  first.ops.resize(1);
  first.ops[0].kind = models::OpKind::fill_zero;
  first.ops[0].m = 1000;
  second.ops = first.ops;
  reduce.kind = plan::StepKind::collective;
  reduce.stream = plan::Stream::data;
  reduce.group = plan::GroupId(0);
  reduce.source = reduce.target = {plan::BufferId(0), 0, 1000};
  c.blocks.push_back({"all", {first, reduce, second}});
  c.program.push_back({0, -1});
  run.schedule.classes.push_back(c);
  for (int iteration = 0; iteration < 5; ++iteration) {
    const double late = iteration == 4 ? 100 : 0;  // one training step that something else disturbed
    run.timeline.spans.push_back({0, iteration, {0, 0}, -1, 0, 0, 2 + late});
    run.timeline.spans.push_back({1, iteration, {0, 0}, -1, 0, 0, 4 + late});
    // The all-reduce begins when rank 1 comes, and seems to last until each rank looks again, after it has computed.
    run.timeline.spans.push_back({0, iteration, {0, 1}, -1, 2 + late, 4 + late, 10 + late});
    run.timeline.spans.push_back({1, iteration, {0, 1}, -1, 4 + late, 4 + late, 10 + late});
    run.timeline.spans.push_back({0, iteration, {0, 2}, -1, 5 + late, 5 + late, 8 + late});
    run.timeline.spans.push_back({1, iteration, {0, 2}, -1, 5 + late, 5 + late, 8 + late});
  }
  run.timeline.step_time = 10.5;
  return run;
}

const Observation& of(const std::vector<Observation>& all, const std::string& what) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Observation& o) { return o.what == what; });
  if (found == all.end()) throw std::runtime_error("no observation of " + what);
  return *found;
}

TEST(Observations, AverageTheUndisturbedTrainingSteps) {
  const FitRun run = two_replicas();
  const auto all = observations_of(run, 0, 1, testing::cpu_stack());
  EXPECT_DOUBLE_EQ(of(all, "first forward").seconds, 3);
  EXPECT_DOUBLE_EQ(of(all, "first forward").count, 1);
}

TEST(Observations, SplitAStepIntoItsOperatorsWithoutLosingTime) {
  FitRun run = two_replicas();
  plan::RankClass& c = run.schedule.classes.front();
  plan::Step& first = c.blocks.front().steps.front();
  first.ops.resize(2);
  first.ops[0].kind = models::OpKind::gelu;
  first.ops[1].kind = models::OpKind::matmul;
  for (models::Op& op : first.ops) op.m = 4, op.n = 8, op.k = 2;
  // A second of gelu for five of the product, measured over all training steps; the span typical of the kept ones is 3
  // s.
  run.timeline.operators = {{0, 0, 0, 0, 10, 1.0}, {0, 0, 0, 1, 10, 5.0}};
  const auto all = observations_of(run, 0, 1, testing::cpu_stack());
  EXPECT_TRUE(of(all, "first forward").in_parts);
  const Observation& gelu = of(all, "gelu 8x4");
  EXPECT_DOUBLE_EQ(gelu.seconds, 0.5);
  EXPECT_EQ(gelu.op, &run.schedule.classes.front().blocks.front().steps.front().ops.front());
  EXPECT_DOUBLE_EQ(of(all, "matmul 4x8x2").seconds, 2.5);
  EXPECT_FALSE(of(all, "second forward").in_parts) << "its operators were not measured";
}

TEST(Observations, OfOneRankAreNotSlowedByNeighbours) {
  FitRun run = two_replicas();
  const Pricing pair(testing::cpu_cluster(2), testing::cpu_stack());
  ASSERT_GT(pair.neighbour_slowdown(), 0);
  Observation o;
  models::Op op;
  op.kind = models::OpKind::gelu;
  op.n = op.m = 64;
  o.op = &op;
  const double together = predicted(o, pair);
  o.alone = true;
  EXPECT_DOUBLE_EQ(predicted(o, pair), together / (1 + pair.neighbour_slowdown()));
  EXPECT_DOUBLE_EQ(Pricing(testing::cpu_cluster(1), testing::cpu_stack()).neighbour_slowdown(), 0);
}

TEST(Observations, LeaveOutWaitingAndTheTimeThatAMessageStoodStill) {
  const FitRun run = two_replicas();
  Stack stack = testing::cpu_stack();
  // From 4, when the last came, to 10, less 3 of computing.
  EXPECT_DOUBLE_EQ(of(observations_of(run, 0, 1, stack), "all_reduce data").seconds, 3);
  stack.overlap_data = true;
  EXPECT_DOUBLE_EQ(of(observations_of(run, 0, 1, stack), "all_reduce data").seconds, 6);
}

TEST(Observations, CountWhatEqualRanksWaitedAsJitter) {
  const FitRun run = two_replicas();
  const auto all = observations_of(run, 0, 1, testing::cpu_stack());
  const Observation& waiting = of(all, "waiting for the slowest");
  EXPECT_DOUBLE_EQ(waiting.seconds, 1);   // rank 0 waited 2, rank 1 nothing
  EXPECT_DOUBLE_EQ(waiting.computed, 6);  // 5 and 7
}

TEST(Observations, GiveTheRestOfAStepToTheHost) {
  const FitRun run = two_replicas();
  const Observation rest = of(observations_of(run, 0, 1, testing::cpu_stack()), "between steps");
  EXPECT_DOUBLE_EQ(rest.seconds, 0.5);  // everything from 0 to 10 is covered
  EXPECT_DOUBLE_EQ(rest.steps, 3);
  const Pricing pricing(testing::cpu_cluster(2), testing::cpu_stack());
  EXPECT_DOUBLE_EQ(predicted(rest, pricing), 3 * 2e-6 + 1e-4);
}

}  // namespace observations_test
}  // namespace orrery::cost

// A parameter server: how old the weights are that workers read, in which order their gradients are applied, what is
// refused, and that the checker sees what is not so.
#include "plan/lower/parameter_server.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/lower/lower.h"
#include "plan/schedule/asynchronous.h"
#include "plan/schedule/check.h"
#include "plan/spec/plan_file.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace parameter_server_test {

PlanSpec served(int workers, int staleness) {
  PlanSpec spec;
  spec.mesh.data = workers;
  spec.states.staleness = staleness;
  return spec;
}

std::string codes(const base::Diagnostics& found) {
  std::string all;
  for (const base::Diagnostic& one : found) all += (all.empty() ? "" : " ") + one.code;
  return all;
}

std::string refusal(PlanSpec spec) {
  const auto made = samples::try_make(std::move(spec));
  return made ? "" : codes(made.error());
}

TEST(ParameterServer, WorkersReadWeightsAsOldAsThePlanSays) {
  for (const int staleness : {0, 1, 3})
    for (const int workers : {2, 4}) {
      SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(staleness));
      const Schedule schedule = lower(samples::make(served(workers, staleness)));
      EXPECT_EQ(codes(check(schedule)), "");
      const auto ages = plan::staleness(schedule, 10);
      for (int t = 0; t < 10; ++t) EXPECT_EQ(ages.front()[static_cast<std::size_t>(t)], std::min(t, staleness));
    }
}

TEST(ParameterServer, AnEvaluationIsSound) {
  EXPECT_EQ(codes(check(lower(samples::make(served(4, 2)), {.forward_only = true}))), "");
}

TEST(ParameterServer, EveryKindOfPlanIsSound) {
  for (const int micro_batch : {1, 4})
    for (const Recompute recompute : {Recompute::none, Recompute::full})
      for (const OptimizerKind optimizer : {OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::adamw_8bit})
        for (const models::DType precision : {models::DType::fp32, models::DType::bf16}) {
          PlanSpec spec = served(2, 2);
          spec.mesh.tensor = 2;
          spec.mesh.sequence_parallel = true;
          spec.shape.micro_batch = micro_batch;
          spec.recomputation.what = recompute;
          spec.states.optimizer = optimizer;
          spec.numerics.precision = precision;
          EXPECT_EQ(codes(check(lower(samples::make(spec)))), "") << describe(spec);
        }
}

TEST(ParameterServer, TheServerTakesWorkersInTurn) {
  Schedule schedule = lower(samples::make(served(4, 1)));
  RankClass& c = schedule.classes.front();
  const auto finish = std::find_if(c.blocks.begin(), c.blocks.end(), [](const Block& b) { return b.name == "finish"; });
  const auto update =
      std::find_if(finish->steps.begin(), finish->steps.end(), [](const Step& step) { return step.part == "adamw"; });
  ASSERT_EQ(update->ops.size(), 4U);
  for (int w = 0; w < 4; ++w) EXPECT_EQ(update->ops[static_cast<std::size_t>(w)].turn, w);
  std::swap(update->ops[1], update->ops[2]);
  EXPECT_EQ(codes(check(schedule)), "S14");
}

TEST(ParameterServer, ReadingAYoungerVersionIsFound) {
  Schedule schedule = lower(samples::make(served(2, 1)));
  RankClass& c = schedule.classes.front();
  for (Block& block : c.blocks) {
    if (block.name != "push") continue;
    // Without its copy the ring has the initial weights for ever.
    std::erase_if(block.steps, [](const Step& step) { return step.part == "stash"; });
  }
  EXPECT_NE(codes(check(schedule)).find("S13"), std::string::npos);
}

TEST(ParameterServer, StatesAreShardsAndVersionsAreCounted) {
  const Plan plan = samples::make(served(4, 3));
  EXPECT_EQ(plan.spec().states.zero_stage, 1);
  const Schedule schedule = lower(plan);
  const RankClass& c = schedule.classes.front();
  for (const Bucket& b : c.buckets) {
    const auto buffer = [&](BufferId index) { return c.buffers[index]; };
    EXPECT_EQ(buffer(b.first_moment).elements * 4, b.elements);
    EXPECT_EQ(buffer(b.stashed).versions, 3);
    EXPECT_EQ(buffer(b.gradients).versions, 3);
    EXPECT_EQ(buffer(b.received).elements, b.elements);
  }
}

TEST(ParameterServer, WhatItDoesNotGoTogetherWithIsRefusedByCode) {
  EXPECT_EQ(refusal(served(1, 1)), "P80");
  const auto with = [](const std::function<void(PlanSpec&)>& change) {
    PlanSpec spec = served(2, 1);
    change(spec);
    return refusal(spec);
  };
  EXPECT_EQ(with([](PlanSpec&) {}), "");
  EXPECT_EQ(with([](PlanSpec& s) { s.mesh.pipeline = 2; }), "P81");
  EXPECT_EQ(with([](PlanSpec& s) { s.mesh.context = 2; }), "P81");
  EXPECT_EQ(with([](PlanSpec& s) { s.states.zero_stage = 2; }), "P82");
  EXPECT_EQ(with([](PlanSpec& s) { s.offload.activations = Space::host; }), "P83");
  EXPECT_EQ(with([](PlanSpec& s) { s.numerics.precision = models::DType::fp16; }), "P84");
  EXPECT_EQ(with([](PlanSpec& s) { s.states.optimizer = OptimizerKind::lamb; }), "P84");
}

}  // namespace parameter_server_test
}  // namespace orrery::plan

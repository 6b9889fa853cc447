// Pipelines that never drain: how old the weights are that each mini-batch reads, what is held, that a run is sound,
// and that the checker sees what is not.
#include "plan/schedule/asynchronous.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "plan/schedule/place.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace asynchronous_test {

PlanSpec spec_of(Order order, int stages) {
  PlanSpec spec;
  spec.stages.order = order;
  spec.mesh.pipeline = stages;
  spec.shape.batch = 16;
  spec.shape.sequence = 16;
  spec.shape.micro_batch = order == Order::pipedream_2bw ? 16 / std::max(4, stages) : 16;
  return spec;
}

Schedule lowered(const PlanSpec& spec, bool tied = true) {
  models::Model model = samples::tiny_gpt(8);
  model.tied_embeddings = tied;
  return lower(samples::make(spec, model));
}

const Block* block_named(const RankClass& c, const std::string& name) {
  for (const Block& b : c.blocks)
    if (b.name == name) return &b;
  return nullptr;
}

TEST(Asynchronous, GradientsAreOfWeightsAsOldAsThePapersSay) {
  constexpr std::int64_t kSteps = 20;
  for (const int stages : {2, 3, 4, 8})
    for (const Order order : {Order::pipedream, Order::pipedream_vertical, Order::pipedream_2bw}) {
      if (order == Order::pipedream_2bw && stages == 3) continue;  // does not divide the batch
      SCOPED_TRACE(std::string(name_of(order)) + " of " + std::to_string(stages));
      const auto ages = staleness(lowered(spec_of(order, stages)), kSteps);
      for (int s = 0; s < stages; ++s)
        for (int t = 0; t < kSteps; ++t) {
          const int delay = order == Order::pipedream            ? stages - 1 - s
                            : order == Order::pipedream_vertical ? stages - 1
                                                                 : 1;
          EXPECT_EQ(ages[static_cast<std::size_t>(s)][static_cast<std::size_t>(t)], std::min(t, delay))
              << "stage " << s << " step " << t;
        }
    }
}

TEST(Asynchronous, EveryLoweredPlanIsSound) {
  for (const int stages : {2, 4})
    for (const Order order : {Order::pipedream, Order::pipedream_vertical, Order::pipedream_2bw})
      for (const bool tied : {true, false})
        for (const auto& change : std::vector<void (*)(PlanSpec&)>{
                 [](PlanSpec&) {},
                 [](PlanSpec& s) {
                   s.mesh.data = 2, s.shape.micro_batch = std::max<std::int64_t>(1, s.shape.micro_batch / 2);
                 },
                 [](PlanSpec& s) {
                   s.mesh.data = 2, s.states.zero_stage = 1,
                   s.shape.micro_batch = std::max<std::int64_t>(1, s.shape.micro_batch / 2);
                 },
                 [](PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; },
                 [](PlanSpec& s) { s.recomputation.what = Recompute::full; }, [](PlanSpec& s) { s.mesh.context = 2; },
                 [](PlanSpec& s) { s.numerics.precision = models::DType::bf16; }}) {
          PlanSpec spec = spec_of(order, stages);
          change(spec);
          SCOPED_TRACE(describe(spec));
          const base::Diagnostics faults = check(lowered(spec, tied));
          EXPECT_TRUE(faults.empty()) << base::render(faults, false);
        }
}

// PipeDream, section 3.3, and figure 4: stage s has p - s mini-batches in flight, and as many versions of its weights.
TEST(Asynchronous, AStageHoldsAsManyVersionsAndMicroBatchesAsStagesFollowIt) {
  constexpr int kStages = 4;
  const Schedule schedule = lowered(spec_of(Order::pipedream, kStages));
  for (int s = 0; s < kStages; ++s) {
    const RankClass& c = schedule.classes[static_cast<std::size_t>(s)];
    const Placement placement = place(c);
    for (const Bucket& b : c.buckets) {
      const int kept = !b.stashed ? 0 : c.buffers[b.stashed].versions;
      EXPECT_EQ(1 + kept, kStages - s) << b.name;
    }
    int in_flight = 0;
    for (const Placed& p : placement.births)
      if (c.buffers[p.buffer].name.rfind("h.", 0) == 0) in_flight = std::max(in_flight, p.ring);
    EXPECT_EQ(in_flight, kStages - s);
  }
}

TEST(Asynchronous, TwoBufferedWeightsAreTwoVersionsOnEveryStage) {
  const Schedule schedule = lowered(spec_of(Order::pipedream_2bw, 4));
  for (const RankClass& c : schedule.classes)
    for (const Bucket& b : c.buckets) {
      ASSERT_TRUE(b.stashed.exists());
      EXPECT_EQ(c.buffers[b.stashed].versions, 1);
      EXPECT_EQ(c.buffers[b.stashed].bytes(), c.buffers[b.parameters].bytes());
    }
}

TEST(Asynchronous, TheFullPipelineIsOneForwardOneBackward) {
  const Schedule schedule = lowered(spec_of(Order::pipedream_2bw, 4));
  const RankClass& c = schedule.classes[1];
  std::string text;
  for (const Entry& e : c.program) {
    const std::string& name = c.blocks[static_cast<std::size_t>(e.block)].name;
    if (name.rfind("forward", 0) == 0)
      text += (e.opening ? "(F" : "F") + std::to_string(e.micro_batch) + (e.ahead > 0 ? "+" : "") +
              (name.find("stashed") != std::string::npos ? "old" : "new") + (e.opening ? ") " : " ");
    if (name.rfind("backward", 0) == 0) text += "B" + std::to_string(e.micro_batch) + " ";
  }
  EXPECT_EQ(text, "(F0old) (F1old) F2old B0 F3old B1 F0+new B2 F1+new B3 ");
}

TEST(Asynchronous, TheWeightsAreCopiedJustBeforeTheirUpdate) {
  const Schedule schedule = lowered(spec_of(Order::pipedream, 2));
  const Block* finish = block_named(schedule.classes[0], "finish");
  ASSERT_NE(finish, nullptr);
  const auto stash =
      std::find_if(finish->steps.begin(), finish->steps.end(), [](const Step& step) { return step.part == "stash"; });
  ASSERT_NE(stash, finish->steps.end());
  EXPECT_EQ((stash + 1)->part, "adamw");
  EXPECT_EQ(block_named(schedule.classes[1], "finish")->steps.size() + 1, finish->steps.size())
      << "the last stage keeps no version";
}

TEST(Asynchronous, TheCheckerSeesABackwardPassOfOtherWeightsThanItsForwardPass) {
  Schedule schedule = lowered(spec_of(Order::pipedream, 2));
  RankClass& c = schedule.classes[0];
  for (Block& block : c.blocks)
    if (block.name == "finish") std::erase_if(block.steps, [](const Step& step) { return step.part == "stash"; });
  const base::Diagnostics faults = check(schedule);
  ASSERT_FALSE(faults.empty());
  EXPECT_EQ(faults.front().code, "S13");
}

TEST(Asynchronous, TheCheckerSeesAMessageThatIsReceivedAStepLater) {
  Schedule schedule = lowered(spec_of(Order::pipedream, 2));
  schedule.classes[1].program.change_all([&](Entry& e) {
    if (schedule.classes[1].blocks[static_cast<std::size_t>(e.block)].name.rfind("receive", 0) == 0 && !e.opening)
      e.ahead += 1;
  });
  EXPECT_FALSE(check(schedule).empty());
}

TEST(Asynchronous, StepsUnrollIntoOneProgramThatDrains) {
  const Schedule schedule = lowered(spec_of(Order::pipedream, 4));
  const Unrolled run = unrolled(schedule, 6, true);
  for (const RankClass& c : run.schedule.classes) {
    int forwards = 0, backwards = 0;
    for (const Entry& e : c.program) {
      const std::string& name = c.blocks[static_cast<std::size_t>(e.block)].name;
      forwards += name.rfind("forward", 0) == 0;
      backwards += name.rfind("backward", 0) == 0;
    }
    EXPECT_EQ(forwards, 6);
    EXPECT_EQ(backwards, 6);
  }
}

TEST(Asynchronous, WhatMakesNoSenseIsRefusedByName) {
  const auto code = [](const PlanSpec& spec) {
    const auto made = samples::try_make(spec, samples::tiny_gpt(8));
    return made ? std::string() : made.error().front().code;
  };
  PlanSpec spec = spec_of(Order::pipedream, 2);
  EXPECT_EQ(code(spec), "");
  spec.shape.micro_batch = 8;
  EXPECT_EQ(code(spec), "P31");
  spec = spec_of(Order::pipedream_2bw, 4);
  spec.shape.micro_batch = 8;
  EXPECT_EQ(code(spec), "P31");
  EXPECT_EQ(code(spec_of(Order::pipedream, 1)), "P30");
  spec = spec_of(Order::pipedream_2bw, 2);
  spec.mesh.data = 2;
  spec.states.zero_stage = 2;
  spec.shape.micro_batch = 2;
  EXPECT_EQ(code(spec), "P32");
  spec = spec_of(Order::pipedream, 2);
  spec.numerics.precision = models::DType::fp16;
  EXPECT_EQ(code(spec), "P35");
  spec = spec_of(Order::pipedream, 2);
  spec.stages.virtual_stages = 2;
  EXPECT_EQ(code(spec), "P17");
}

}  // namespace asynchronous_test
}  // namespace orrery::plan

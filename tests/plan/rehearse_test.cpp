// Schedules rehearsed in their memory: every kind of plan comes to its end, and two planted ways of waiting for
// oneself, which the checker does not see, do not.
#include "plan/schedule/rehearse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace rehearse_test {

using ::testing::HasSubstr;

std::string text_of(const base::Diagnostics& found) {
  return base::render(found, false);
}

PlanSpec pipeline_of(int stages, std::int64_t micro_batch) {
  PlanSpec spec;
  spec.mesh.pipeline = stages;
  spec.shape.micro_batch = micro_batch;
  return spec;
}

TEST(Rehearsal, EverySplitComesToItsEnd) {
  for (const auto& [name, spec] : samples::splits())
    EXPECT_EQ(text_of(rehearse(lower(samples::make(spec)))), "") << name;
}

TEST(Rehearsal, EveryOrderOfAPipelineDoesWithEveryWayOfSavingMemory) {
  struct Way {
    Order order;
    int stages, chunks;
  };
  std::vector<std::string> refused;
  for (const Way& way :
       {Way{Order::gpipe, 2, 1}, Way{Order::one_f_one_b, 2, 1}, Way{Order::one_f_one_b, 4, 1},
        Way{Order::one_f_one_b, 2, 2}, Way{Order::zb_h1, 4, 1}, Way{Order::zb_h2, 2, 1}, Way{Order::zb_v, 2, 2},
        Way{Order::dualpipe_v, 2, 2}, Way{Order::dualpipe, 2, 2}, Way{Order::dualpipe, 4, 2},
        Way{Order::pipedream, 4, 1}, Way{Order::pipedream_vertical, 2, 1}, Way{Order::pipedream_2bw, 4, 1}})
    for (const int tensor : {1, 2, 4})
      for (const std::int64_t micro_batch : {1, 2, 8})
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
          for (int memory = 0; memory < 4; ++memory) {
            PlanSpec spec = pipeline_of(way.stages, micro_batch);
            spec.stages.order = way.order;
            spec.stages.virtual_stages = way.chunks;
            spec.mesh.tensor = tensor;
            spec.recomputation.what = recompute;
            spec.numerics.flash = recompute != Recompute::selective;
            if (memory == 1) spec.offload.activations = Space::host;
            if (memory == 2) spec.compression.activations = ActivationEncoding::fp8;
            if (memory == 3) spec.offload.optimizer = spec.offload.parameters = Space::host;
            const auto plan = samples::try_make(spec);
            if (!plan) continue;
            EXPECT_EQ(text_of(rehearse(lower(*plan))), "") << describe(spec) << ", memory " << memory;
          }
}

// Offloaded, what a stage received no longer has a slab of its own: it lies where other passes have what they send.
TEST(Rehearsal, OffloadedActivationsDoAtOtherSizes) {
  for (const std::int64_t hidden : {32, 64})
    for (const std::int64_t vocab : {64, 4096})
      for (const std::int64_t ffn : {32, 512})
        for (const int stages : {2, 4})
          for (const int chunks : {1, 2})
            for (const int tensor : {1, 4})
              for (const std::int64_t micro_batch : {1, 2})
                for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
                  models::Model model = samples::tiny_gpt(8, hidden, vocab);
                  model.ffn_hidden = ffn;
                  PlanSpec spec = pipeline_of(stages, micro_batch);
                  spec.stages.virtual_stages = chunks;
                  spec.mesh.tensor = tensor;
                  spec.mesh.sequence_parallel = tensor > 1;
                  spec.recomputation.what = recompute;
                  spec.numerics.flash = recompute != Recompute::selective;
                  spec.offload.activations = Space::host;
                  const auto plan = samples::try_make(spec, model);
                  if (!plan) continue;
                  EXPECT_EQ(text_of(rehearse(lower(*plan))), "")
                      << describe(spec) << ", " << hidden << " wide, " << vocab << " words, " << ffn;
                }
}

TEST(Rehearsal, WorkersOfAParameterServerDo) {
  for (const int staleness : {0, 1, 3}) {
    PlanSpec spec;
    spec.mesh.data = 4;
    spec.states.staleness = staleness;
    EXPECT_EQ(text_of(rehearse(lower(samples::make(spec)))), "");
  }
}

// What a stage receives, put where it has what it sends first.
void put_together(const RankClass& c, Placement& placement) {
  BufferId sent, received;
  for (const Block& block : c.blocks)
    for (const Step& step : block.steps) {
      if (step.kind == StepKind::send && !sent) sent = step.source.buffer;
      if (step.kind == StepKind::recv) received = step.target.buffer;
    }
  std::int64_t offset = -1;
  for (const Placed& p : placement.births)
    if (p.buffer == sent) offset = p.offset;
  ASSERT_GE(offset, 0);
  placement.births.change_all([&](Placed& p) {
    if (p.buffer == received) p.offset = offset;
  });
}

// 1F1B whose last stage loads targets ahead of posting its receive: loading is computing, which waits for the gradient
// on its way back; the stage before cannot take it, as it is to come where an activation waits to leave.
TEST(Rehearsal, SeesAComputeStepThatWaitsForItsOwnReceive) {
  for (const std::int64_t micro_batch : {1, 2})
    for (const int tensor : {1, 2, 4}) {
      PlanSpec spec = pipeline_of(2, micro_batch);
      spec.mesh.tensor = tensor;
      Schedule schedule = lower(samples::make(spec));
      std::vector<Placement> placements = {place(schedule.classes[0]), place(schedule.classes[1])};
      put_together(schedule.classes[0], placements[0]);
      EXPECT_EQ(text_of(rehearse(schedule, placements)), "") << "late, but it comes";
      Block& forward = schedule.classes.back().blocks.at(1);
      ASSERT_EQ(forward.name, "forward");
      ASSERT_EQ(forward.steps.at(0).kind, StepKind::recv);
      ASSERT_EQ(forward.steps.at(1).part, "load_tokens");
      std::swap(forward.steps[0], forward.steps[1]);
      ASSERT_EQ(text_of(check(schedule)), "") << "the checker would see it";
      placements[1] = place(schedule.classes[1]);
      const std::string found = text_of(rehearse(schedule, placements));
      EXPECT_THAT(found, HasSubstr("S21"));
      EXPECT_THAT(found, HasSubstr("stops at forward step 0 (load_tokens"));
      EXPECT_THAT(found, HasSubstr("it waits for send of"));
    }
}

// Two stages that each send and receive at a time, where what arrives has the place of what leaves.
TEST(Rehearsal, SeesMessagesThatWaitForEachOthersMemory) {
  const Schedule schedule = lower(samples::make(pipeline_of(2, 1)));
  std::vector<Placement> placements = {place(schedule.classes[0]), place(schedule.classes[1])};
  EXPECT_EQ(text_of(rehearse(schedule, placements)), "");
  for (const std::size_t stage : {0U, 1U}) put_together(schedule.classes[stage], placements[stage]);
  ASSERT_EQ(text_of(check(schedule)), "");
  const std::string found = text_of(rehearse(schedule, placements));
  EXPECT_THAT(found, HasSubstr("rank 0 (stage 0) stops"));
  EXPECT_THAT(found, HasSubstr("rank 1 (stage 1) stops"));
  EXPECT_THAT(found, HasSubstr("which cannot start before"));
}

}  // namespace rehearse_test
}  // namespace orrery::plan

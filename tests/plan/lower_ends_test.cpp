// The ends of a step alone are those of the whole step.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/lower/lower.h"
#include "plan/schedule/waits.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace lower_ends_test {

/// What a step does, how much of it, and on which earlier steps of its block it depends.
std::string told(const RankClass& c, const std::vector<Step>& steps, std::size_t i) {
  const Step& step = steps[i];
  std::string text = std::string(name_of(step.kind)) + " " + step.part + " " + name_of(step.phase) + " " +
                     std::to_string(static_cast<int>(step.stream)) + " " + std::to_string(step.on_host);
  if (step.kind != StepKind::compute) text += " " + std::to_string(step.message_bytes(c.buffers));
  for (const models::Op& op : step.ops)
    text += " " + std::to_string(static_cast<int>(op.kind)) + ":" + std::to_string(op.m) + "," + std::to_string(op.n);
  text += " after";
  const auto uses = [&](std::size_t of) { return BufferUses{&c, &steps[of], -1}; };
  for (std::size_t j = 0; j < i; ++j)
    if (steps[j].kind != StepKind::compute && conflict_between(uses(i), uses(j))) text += " " + std::to_string(j);
  return text + (step.deaths.empty() ? "" : " frees");
}

std::vector<std::string> finish(const RankClass& c) {
  std::vector<std::string> out;
  for (const Block& block : c.blocks)
    for (std::size_t i = 0; block.name == "finish" && i < block.steps.size(); ++i)
      out.push_back(told(c, block.steps, i));
  return out;
}

TEST(LowerEnds, GivesTheLastBlockOfTheWholeStep) {
  int plans = 0;
  for (const Space states : {Space::device, Space::host})
    for (const Space parameters : {Space::device, Space::host})
      for (const int zero : {0, 1, 2, 3})
        for (const OptimizerKind optimizer : {OptimizerKind::adamw, OptimizerKind::lamb, OptimizerKind::sgd}) {
          PlanSpec spec;
          spec.mesh.data = 2, spec.mesh.pipeline = 2;
          spec.states.zero_stage = zero, spec.states.optimizer = optimizer;
          spec.offload.optimizer = states, spec.offload.parameters = parameters;
          spec.shape.batch = 8;
          const auto plan = samples::try_make(spec);
          if (!plan) continue;  // a combination that is refused
          ++plans;
          SCOPED_TRACE(describe(spec));
          const Schedule whole = lower(*plan);
          for (int stage = 0; stage < 2; ++stage) {
            const Schedule ends = lower_ends(*plan, StageId(stage));
            ASSERT_EQ(ends.classes.size(), 1U);
            EXPECT_EQ(finish(ends.classes.front()), finish(whole.classes[static_cast<std::size_t>(stage)]));
          }
        }
  EXPECT_GT(plans, 20);
}

TEST(LowerEnds, LeavesReductionsWithinThePassesToThem) {
  PlanSpec spec;
  spec.mesh.data = 2, spec.states.overlap_gradients = true;
  const Schedule end = lower_ends(samples::make(spec), kFirstStage);
  ASSERT_FALSE(end.classes.front().blocks.back().steps.empty());
  for (const Step& step : end.classes.front().blocks.back().steps)
    EXPECT_NE(step.phase, Phase::gradient_reduce) << step.part;
}

}  // namespace lower_ends_test
}  // namespace orrery::plan

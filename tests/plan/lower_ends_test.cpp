// The ends of a step alone are those of the whole step.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plan/lower/lower.h"
#include "tests/plan/samples.h"
#include "tests/plan/told.h"

namespace orrery::plan {
namespace lower_ends_test {

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

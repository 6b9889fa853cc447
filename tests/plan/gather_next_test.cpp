// Parameters gathered where the next step reads them.
#include "plan/lower/gather_next.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace gather_next_test {

std::vector<BucketId> gathered(const RankClass& ranks, const std::string& block) {
  std::vector<BucketId> buckets;
  for (const Block& b : ranks.blocks)
    for (const Step& step : b.steps)
      if (b.name == block && step.phase == Phase::parameter_gather) buckets.push_back(step.bucket);
  return buckets;
}

// Megatron-Core, --overlap-param-gather.
TEST(GatherNext, MovesGathersFromTheEndToTheBeginningInTheOrderOfForward) {
  PlanSpec spec;
  spec.mesh.data = 2, spec.states.zero_stage = 1;
  const Plan plan = samples::make(spec);
  const Schedule end = lower(plan), next = lower(plan, {.gather_next = true});
  EXPECT_EQ(base::render(check(next), false), "");
  const RankClass &at_end = end.classes.front(), &at_begin = next.classes.front();
  const std::vector<BucketId> before = gathered(at_end, "finish"), after = gathered(at_begin, "begin");
  ASSERT_GT(before.size(), 2U);
  EXPECT_TRUE(gathered(at_end, "begin").empty());
  EXPECT_TRUE(gathered(at_begin, "finish").empty());
  EXPECT_TRUE(std::is_permutation(before.begin(), before.end(), after.begin(), after.end()));
  EXPECT_EQ(at_begin.buckets[after.front()].name, "wte") << "what forward reads first";
}

TEST(GatherNext, IsSoundOnEverySplit) {
  for (const auto& [name, spec] : samples::splits())
    EXPECT_EQ(base::render(check(lower(samples::make(spec), {.gather_next = true})), false), "") << name;
}

}  // namespace gather_next_test
}  // namespace orrery::plan

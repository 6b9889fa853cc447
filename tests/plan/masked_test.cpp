// Masked-language models, planned and lowered: what is read, what is refused, and that every split is sound.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "plan/schedule/place.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace masked_test {

using samples::tiny_bert;

base::Result<Plan> made(PlanSpec spec) {
  return make_plan(std::make_shared<const models::Model>(tiny_bert()),
                   std::make_shared<const clusters::Cluster>(samples::cpu_cluster(spec.mesh.ranks())), spec);
}

std::int64_t elements_of(const RankClass& c, const std::string& name) {
  const auto found = std::find_if(c.buffers.begin(), c.buffers.end(), [&](const Buffer& b) { return b.name == name; });
  return found == c.buffers.end() ? 0 : found->elements;
}

TEST(Masked, AStageReadsWhatItsEndOfTheModelNeeds) {
  PlanSpec spec;
  spec.mesh.pipeline = 2;
  spec.shape.batch = 8;
  spec.shape.micro_batch = 2;
  spec.shape.sequence = 16;
  const Schedule schedule = lower(*made(spec));
  const RankClass &first = schedule.classes[0], &last = schedule.classes[1];
  EXPECT_EQ(elements_of(first, "tokens"), 32);
  EXPECT_EQ(elements_of(first, "token_types"), 32);
  EXPECT_EQ(elements_of(first, "targets"), 0);
  EXPECT_EQ(elements_of(first, "masked_rows"), 0);
  EXPECT_EQ(elements_of(last, "tokens"), 0);
  EXPECT_EQ(elements_of(last, "targets"), 4) << "two of sixteen tokens of two sequences";
  EXPECT_EQ(elements_of(last, "masked_rows"), 4);
  EXPECT_EQ(elements_of(last, "next_sentence"), 2);
  EXPECT_EQ(elements_of(last, "head.logits"), 4 * 128) << "of the rows that are predicted alone";
}

TEST(Masked, EverySplitIsSoundButThoseOfASequence) {
  int lowered = 0;
  for (const auto& [name, spec] : samples::splits()) {
    SCOPED_TRACE(name);
    const auto plan = made(spec);
    if (spec.mesh.context > 1) {
      ASSERT_FALSE(plan);
      EXPECT_EQ(plan.error().front().code, "P60");
      continue;
    }
    ASSERT_TRUE(plan) << base::render(plan.error(), false);
    const Schedule schedule = lower(*plan);
    const base::Diagnostics faults = check(schedule);
    EXPECT_TRUE(faults.empty()) << base::render(faults, false);
    for (const RankClass& c : schedule.classes) EXPECT_GE(place(c).arena_bytes, place(c).peak_live_bytes);
    ++lowered;
  }
  EXPECT_GT(lowered, 10);
}

TEST(Masked, ASequenceWithoutRoomForItsSegmentsIsRefused) {
  PlanSpec spec;
  spec.shape.batch = 8;
  spec.shape.sequence = 4;
  const auto plan = made(spec);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().front().code, "P61");
}

}  // namespace masked_test
}  // namespace orrery::plan

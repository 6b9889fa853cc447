// What messages are called where a run says what a rank waits for.
#include "exec/engine/message_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/lower/lower.h"
#include "tests/plan/samples.h"

namespace orrery::exec {
namespace message_names_test {

using ::testing::HasSubstr;

plan::Schedule schedule() {
  plan::PlanSpec spec;
  spec.mesh.data = spec.mesh.pipeline = 2;
  return plan::lower(samples::make(spec));
}

const plan::Step& first(const plan::RankClass& of, plan::StepKind kind) {
  for (const plan::Block& block : of.blocks)
    for (const plan::Step& step : block.steps)
      if (step.kind == kind) return step;
  throw std::runtime_error("no such step");
}

TEST(MessageNames, ASendNamesTheRankThatGetsItAndItsBuffer) {
  const plan::Schedule s = schedule();
  const MessageNames names(s, s.classes[0], 1);
  const plan::Step& send = first(s.classes[0], plan::StepKind::send);
  EXPECT_THAT(names.what(send), HasSubstr("send to rank 3 (tag 0), buffer \""));
  EXPECT_EQ(names.summary(send, 4, 1), "send to rank 3, training step 4, micro-batch 1");
}

TEST(MessageNames, TheReceiverNamesTheSameMessageFromItsEnd) {
  const plan::Schedule s = schedule();
  const MessageNames names(s, s.classes[1], 3);
  EXPECT_THAT(names.what(first(s.classes[1], plan::StepKind::recv)), HasSubstr("recv from rank 1 (tag 0)"));
}

TEST(MessageNames, ACollectiveNamesItsGroup) {
  const plan::Schedule s = schedule();
  const MessageNames names(s, s.classes[0], 0);
  const plan::Step& reduce = first(s.classes[0], plan::StepKind::collective);
  const std::string group = s.groups[reduce.group].name;
  EXPECT_THAT(names.what(reduce), HasSubstr("over group \"" + group + "\", buffer"));
  EXPECT_THAT(names.summary(reduce, 2, -1), HasSubstr("over group \"" + group + "\", training step 2"));
}

TEST(MessageNames, AReportCountsTrainingStepsFromOneAndSaysWhereInTheProgramTheRankIs) {
  const plan::Schedule s = schedule();
  const MessageNames names(s, s.classes[0], 1);
  EXPECT_THAT(
      names.describe(first(s.classes[0], plan::StepKind::send), 4, {1, 3}, 0),
      ::testing::AllOf(HasSubstr("rank 1: send to rank 3"), HasSubstr("training step 5, entry 1 (forward), step 3")));
}

}  // namespace message_names_test
}  // namespace orrery::exec

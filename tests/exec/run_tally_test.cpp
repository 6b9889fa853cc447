// What a run's record says of its steps, and when checkpoints are due.
#include "exec/run/run_tally.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exec/run/run_checkpoints.h"

namespace orrery::exec {
namespace run_tally_test {

StepMetrics a_step(std::int64_t number, double loss, double seconds) {
  StepMetrics step;
  step.step = number;
  step.loss = loss;
  step.seconds = seconds;
  return step;
}

Completion record_of(const RunTally& tally, double tokens = 100) {
  Completion record;
  tally.write(record, tokens);
  return record;
}

TEST(RunTally, HasTheFirstAndTheLastLossAndTheMedianTimeWithoutTheFirstStep) {
  RunTally tally(0);
  tally.add(a_step(1, 4, 100));
  tally.add(a_step(2, 3, 2));
  tally.add(a_step(3, 2, 2));
  const Completion record = record_of(tally);
  EXPECT_EQ(record.first_loss, 4);
  EXPECT_EQ(record.final_loss, 2);
  EXPECT_EQ(record.step_time_s, 2);
  EXPECT_EQ(record.tokens_per_s, 50);
}

TEST(RunTally, StepsBeforePowerSgdCountOnlyIfThereAreNoOthers) {
  RunTally tally(2);
  tally.add(a_step(1, 4, 9));
  tally.add(a_step(2, 4, 9));
  EXPECT_EQ(record_of(tally).step_time_s, 9);
  tally.add(a_step(3, 4, 5));
  EXPECT_EQ(record_of(tally).step_time_s, 5);
}

TEST(RunTally, AResumedRunKeepsItsFirstLossAndNothingElseUnlessAllStepsAreDone) {
  MetricsFile::Kept kept;
  kept.first_loss = 7;
  kept.last_loss = 6;
  kept.memory_peak = 10;
  kept.seconds = {3, 3};
  RunTally going(0), done(0);
  going.resume(kept, false);
  going.add(a_step(3, 5, 1));
  EXPECT_EQ(record_of(going).first_loss, 7);
  EXPECT_EQ(record_of(going).final_loss, 5);
  EXPECT_EQ(record_of(going).step_time_s, 1);
  done.resume(kept, true);
  EXPECT_EQ(record_of(done).final_loss, 6);
  EXPECT_EQ(record_of(done).memory_peak_bytes, 10);
  EXPECT_EQ(record_of(done).step_time_s, 3);
}

TEST(RunTally, WarnsOfValuesThatHadNoRoomAndSaysHowMuchWouldDo) {
  RunTally tally(0);
  StepMetrics step = a_step(1, 4, 1);
  step.lossless = {.tensors = 8, .again = 0, .densest = 0.4};
  tally.add(step);
  EXPECT_FALSE(tally.little_room(0.5));
  step.lossless = {.tensors = 8, .again = 2, .densest = 0.612};
  tally.add(step);
  const auto warning = tally.little_room(0.5);
  ASSERT_TRUE(warning);
  EXPECT_THAT(warning->message, ::testing::HasSubstr("2 of 16 tensors"));
  EXPECT_THAT(warning->help, ::testing::HasSubstr("capacity: 0.62"));
}

using std::chrono::seconds;

TEST(CheckpointTimes, BySteps) {
  const CheckpointTimes times{.every = 10, .interval = seconds(1)};
  EXPECT_TRUE(times.due(20, seconds(0), seconds(0)));
  EXPECT_FALSE(times.due(21, seconds(1000), seconds(0)));
}

TEST(CheckpointTimes, ByTimeAndSavingTakesATenthOfItAtMost) {
  const CheckpointTimes times{.every = 0, .interval = seconds(60)};
  EXPECT_FALSE(times.due(20, seconds(59), seconds(1)));
  EXPECT_TRUE(times.due(20, seconds(60), seconds(6)));
  EXPECT_FALSE(times.due(20, seconds(60), seconds(7)));
  EXPECT_TRUE(times.due(20, seconds(70), seconds(7)));
}

}  // namespace run_tally_test
}  // namespace orrery::exec

// PowerSGD that starts late: which steps a training step has, in one arena; and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "plan/schedule/place.h"
#include "plan/schedule/rehearse.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace late_powersgd_test {

using ::testing::HasSubstr;

bool is_sound(const Schedule& schedule) {
  const base::Diagnostics faults = check(schedule);
  EXPECT_TRUE(faults.empty()) << base::render(faults, false);
  return faults.empty();
}

std::string codes(const base::Diagnostics& found) {
  std::string text;
  for (const base::Diagnostic& d : found) text += d.code + " ";
  return text;
}

PlanSpec starting_late(std::int64_t start) {
  PlanSpec spec;
  spec.mesh.data = 2, spec.shape.batch = 4;
  spec.compression = {GradientCompression::powersgd, ActivationEncoding::none, 2, 1.5};
  spec.compression.start = start;
  return spec;
}

std::int64_t lasting_bytes(const RankClass& c) {
  std::int64_t bytes = 0;
  for (const Buffer& b : c.buffers)
    if (b.persistent) bytes += (b.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  return bytes;
}

std::string steps_in(const RankClass& c, std::int64_t training_step) {
  std::string text;
  for (const Entry& entry : c.program)
    for (const Step& step : c.blocks[static_cast<std::size_t>(entry.block)].steps)
      if (step.runs_in(training_step))
        text += std::string(name_of(step.kind)) + " " + name_of(step.phase) + " " + step.part + " " +
                std::to_string(step.message_bytes(c.buffers)) + "\n";
  return text;
}

TEST(PowerSgd, ThatStartsLateRunsThePlainStepsAndThenItsOwn) {
  for (const int zero : {0, 1})
    for (const bool early : {false, true}) {
      PlanSpec spec = starting_late(7), plain = spec, at_once = spec;
      spec.states.zero_stage = plain.states.zero_stage = at_once.states.zero_stage = zero;
      spec.states.overlap_gradients = plain.states.overlap_gradients = at_once.states.overlap_gradients = early;
      plain.compression = {};
      at_once.compression.start = 0;
      SCOPED_TRACE(describe(spec));
      const Schedule late = lower(samples::make(spec));
      ASSERT_TRUE(is_sound(late));
      EXPECT_TRUE(rehearse(late).empty());
      EXPECT_EQ(late.steady_from(), 7);
      const RankClass &c = late.classes.front(), p = lower(samples::make(plain)).classes.front(),
                      a = lower(samples::make(at_once)).classes.front();
      for (const std::int64_t step : {0, 6}) EXPECT_EQ(steps_in(c, step), steps_in(p, step));
      for (const std::int64_t step : {std::int64_t{7}, kLateStep}) EXPECT_EQ(steps_in(c, step), steps_in(a, step));
      EXPECT_EQ(a.blocks.size(), c.blocks.size());
      // An arena for both: errors wait from the start, and what the steps send is not there at one time.
      const Placement both = place(c), one = place(p), other = place(a);
      EXPECT_EQ(both.arena_bytes, std::max(other.arena_bytes, one.arena_bytes + lasting_bytes(a) - lasting_bytes(p)));
    }
  EXPECT_EQ(lower(samples::make(starting_late(0))).steady_from(), 0);
}

TEST(PowerSgd, ThatStartsLateIsSoundOnEverySplitThatItAllows) {
  int seen = 0;
  for (auto [name, spec] : samples::splits()) {
    if (spec.mesh.replicas() == 1 || spec.states.zero_stage > 1) continue;
    SCOPED_TRACE(name);
    spec.compression = starting_late(3).compression;
    EXPECT_TRUE(is_sound(lower(samples::make(spec))));
    ++seen;
  }
  EXPECT_GT(seen, 10);
}

TEST(PowerSgd, StepsOfOtherTrainingStepsThanTheirPartnersOrTheirBuffersAreRefused) {
  PlanSpec spec = starting_late(7);
  spec.mesh.pipeline = 2;
  const Schedule sound = lower(samples::make(spec));
  EXPECT_EQ(codes(check(sound)), "");
  Schedule wrong = sound;  // the first stage adds up the tied table in some training steps alone
  for (Block& block : wrong.classes.front().blocks)
    for (Step& step : block.steps)
      if (step.kind == StepKind::collective && wrong.groups[step.group].name == "embedding") step.from_step = 7;
  EXPECT_EQ(codes(check(wrong)), "S22 ");
  wrong = sound;  // what is born from step 7 on is used before
  for (Block& block : wrong.classes.front().blocks)
    for (Step& step : block.steps)
      if (step.part == "factor") step.from_step = 0;
  EXPECT_THAT(codes(check(wrong)), HasSubstr("S23"));
}

TEST(PowerSgd, AStartOfNothingIsRefused) {
  const auto refusal = [](GradientCompression how) {
    PlanSpec spec = starting_late(7);
    spec.compression.gradients = how;
    const auto made = samples::try_make(spec);
    return made ? std::string() : codes(made.error());
  };
  EXPECT_EQ(refusal(GradientCompression::powersgd), "");
  EXPECT_EQ(refusal(GradientCompression::bf16), "P102 ");
  EXPECT_EQ(refusal(GradientCompression::none), "P102 ");
}

}  // namespace late_powersgd_test
}  // namespace orrery::plan

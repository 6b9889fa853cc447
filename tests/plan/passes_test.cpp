/// Passes over a lowered class: the class is sound after each of them, and a pass that breaks it is named.
#include "plan/lower/passes.h"

#include <gtest/gtest.h>

#include "tests/plan/samples.h"

namespace orrery::plan {
namespace passes_test {

PlanSpec split() {
  PlanSpec spec;
  spec.mesh.data = 2, spec.mesh.tensor = 2, spec.mesh.pipeline = 2;
  spec.shape.batch = 8, spec.shape.sequence = 16;
  return spec;
}

TEST(Passes, LeaveASoundClassBehind) {
  const LowerOptions checked{.zero_gradients = false, .check_passes = true};
  int lowered = 0;
  const auto lowers = [&](const auto& change) {
    PlanSpec spec = split();
    change(spec);
    const auto plan = samples::try_make(spec);
    if (!plan) return;  // ZeRO 1 and 2 keep whole parameters on the device
    EXPECT_FALSE(lower(*plan, checked).classes.empty());
    ++lowered;
  };
  for (int zero = 0; zero <= 3; ++zero)
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      const auto with = [&](const auto& change) {
        lowers([&](PlanSpec& s) {
          s.states.zero_stage = zero, s.recomputation.what = recompute;
          change(s);
        });
      };
      with([](PlanSpec&) {});
      with([](PlanSpec& s) { s.offload.activations = Space::host; });
      with([](PlanSpec& s) { s.offload.optimizer = Space::host; });
      with([](PlanSpec& s) { s.offload.optimizer = s.offload.parameters = Space::nvme; });
      with([](PlanSpec& s) { s.compression.activations = ActivationEncoding::fp16; });
      with([](PlanSpec& s) { s.stages.order = Order::zb_h1; });
      with([&](PlanSpec& s) { s.states.overlap_gradients = zero <= 1; });
      with([&](PlanSpec& s) { s.recomputation.partition_checkpoints = recompute == Recompute::full; });
    }
  EXPECT_GT(lowered, 50);
}

TEST(PassesDeathTest, ThatBreakAClassAreNamed) {
  const Schedule schedule = lower(samples::make(split()));
  RankClass broken = schedule.classes.front();
  const std::vector<LoweringPass> passes = {{"does_nothing", true, [] {}}, {"forgets_a_birth", true, [&broken] {
                                                                              for (Block& block : broken.blocks)
                                                                                for (Step& step : block.steps)
                                                                                  step.births.clear();
                                                                            }}};
  EXPECT_DEATH(run_passes(passes, schedule, broken, true),
               "after forgets_a_birth: .*is (read|written) while it does "
               "not live");
  run_passes(passes, schedule, broken, false);
}

}  // namespace passes_test
}  // namespace orrery::plan

// Schedules of models whose adapters alone train: sound on every split, and nothing of what is frozen has a gradient.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "plan/schedule/rehearse.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace lora_test {

models::Model adapted(models::Model model = samples::tiny_gpt()) {
  model.lora = {.rank = 4, .alpha = 8};
  return model;
}

models::Model mixture() {
  models::Model model = adapted();
  model.experts = {.count = 4, .chosen = 2, .hidden = 32};
  return model;
}

TEST(LoweredAdapters, AreSoundOnEverySplit) {
  for (const auto& [name, split] : samples::splits()) {
    const auto plan = samples::try_make(split, adapted());
    if (!plan) {
      EXPECT_EQ(plan.error().front().code, "P165") << name;
      continue;
    }
    const Schedule schedule = lower(*plan);
    base::Diagnostics faults = check(schedule);
    if (faults.empty()) faults = rehearse(schedule);
    EXPECT_TRUE(faults.empty()) << name << "\n" << base::render(faults, false);
  }
}

TEST(LoweredAdapters, AreSoundWithEveryOptimizerAndOfOtherModels) {
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::lamb, OptimizerKind::adafactor,
                                   OptimizerKind::adamw_8bit, OptimizerKind::muon, OptimizerKind::lion})
    for (const int zero : {0, 1, 3}) {
      PlanSpec spec;
      spec.mesh.data = 2, spec.mesh.tensor = 2, spec.states.zero_stage = zero, spec.states.optimizer = kind;
      const base::Diagnostics faults = check(lower(samples::make(spec, adapted())));
      EXPECT_TRUE(faults.empty()) << name_of(kind) << ", ZeRO " << zero << "\n" << base::render(faults, false);
    }
  for (const models::Model& model : {mixture(), adapted(samples::tiny_bert())})
    for (const int zero : {0, 1, 3}) {
      PlanSpec spec;
      spec.mesh.data = 2, spec.mesh.tensor = 2, spec.states.zero_stage = zero,
      spec.mesh.expert = model.experts.any() ? 2 : 1;
      const base::Diagnostics faults = check(lower(samples::make(spec, model)));
      EXPECT_TRUE(faults.empty()) << model.name << ", ZeRO " << zero << "\n" << base::render(faults, false);
    }
}

// The last stage has the head alone, which is frozen.
TEST(LoweredAdapters, AreSoundWhereAStageHasNone) {
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::lamb, OptimizerKind::adafactor})
    for (const int zero : {0, 1}) {
      models::Model model = adapted();
      model.layers = 3;
      PlanSpec spec;
      spec.mesh.data = 2, spec.mesh.pipeline = 3, spec.states.zero_stage = zero, spec.states.optimizer = kind;
      spec.stages.ends_as_layers = true;
      const Schedule schedule = lower(samples::make(spec, model));
      EXPECT_EQ(std::ranges::count_if(schedule.classes.back().buckets, [](const Bucket& b) { return !b.frozen; }), 0);
      const base::Diagnostics faults = check(schedule);
      EXPECT_TRUE(faults.empty()) << name_of(kind) << ", ZeRO " << zero << "\n" << base::render(faults, false);
    }
}

std::int64_t bytes_of(const RankClass& c, Purpose purpose) {
  std::int64_t bytes = 0;
  for (const Buffer& b : c.buffers)
    if (b.persistent && b.purpose == purpose) bytes += b.elements * models::size_of(b.dtype);
  return bytes;
}

TEST(LoweredAdapters, LeaveWhatIsFrozenWithoutGradientsAndStates) {
  PlanSpec spec;
  spec.numerics.precision = models::DType::bf16;
  const RankClass all = lower(samples::make(spec)).classes.front();
  const RankClass adapters = lower(samples::make(spec, adapted())).classes.front();
  EXPECT_GT(bytes_of(adapters, Purpose::parameters), bytes_of(all, Purpose::parameters));
  for (const Purpose purpose : {Purpose::gradients, Purpose::optimizer_states})
    EXPECT_LT(5 * bytes_of(adapters, purpose), bytes_of(all, purpose));
  for (const Bucket& bucket : adapters.buckets)
    EXPECT_EQ(bucket.frozen, !bucket.gradients && !bucket.master && !bucket.first_moment) << bucket.name;
}

TEST(LoweredAdapters, AreRefusedByNameWhereAllParametersAreTreatedAlike) {
  const auto refused = [](const std::function<void(PlanSpec&)>& change) {
    PlanSpec spec;
    change(spec);
    const auto plan = samples::try_make(spec, adapted());
    return plan ? std::string() : plan.error().front().code;
  };
  EXPECT_EQ(refused([](PlanSpec&) {}), "");
  EXPECT_EQ(refused([](PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = Order::pipedream_2bw; }), "P165");
  EXPECT_EQ(refused([](PlanSpec& s) { s.mesh.data = 2, s.states.staleness = 0; }), "P165");
  EXPECT_EQ(refused([](PlanSpec& s) { s.mesh.data = 2, s.compression.gradients = GradientCompression::powersgd; }),
            "P165");
  EXPECT_EQ(refused([](PlanSpec& s) { s.offload.optimizer = Space::host; }), "P165");
  EXPECT_EQ(refused([](PlanSpec& s) { s.offload.activations = Space::host; }), "");
  models::Model all_experts = mixture();
  all_experts.lora.qkv = all_experts.lora.projection = false;
  const auto nothing = samples::try_make({}, all_experts);
  ASSERT_FALSE(nothing) << "no layer has a dense MLP";
  EXPECT_EQ(nothing.error().front().code, "P165");
}

}  // namespace lora_test
}  // namespace orrery::plan

// A tiny GPT trained by the CUDA backend and NCCL, both emulated, is the GPT that the CPU backend trains: in loss and
// in gradients, however it is split. This runs kernels, streams, groups and directions as a schedule uses them.
#include <gtest/gtest.h>

#include "tests/gpu/emulated_training.h"

namespace orrery::exec::gpu_test {
namespace emulated_training_test {

using testing::Outcome;
using testing::Trial;

struct Case {
  const char* name;
  bool nccl;
  void (*set)(plan::PlanSpec&);
};

class EmulatedTraining : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedTraining, EqualsTheCpuBackend) {
  static const Outcome serial_on_the_cpu = testing::train(short_trial(2));
  Trial trial = short_trial(2);
  GetParam().set(trial.spec);
  expect_near(on_devices(trial, GetParam().nccl), serial_on_the_cpu, {1e-5, 1e-5, 1e-5});
}

/// Whatever differs from one precision or optimizer to the next: beside the CPU backend on the same plan.
class EmulatedAlike : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedAlike, EqualsTheCpuBackendOnTheSamePlan) {
  Trial trial = short_trial(3);
  GetParam().set(trial.spec);
  trial.training.optimizer.kind = trial.spec.states.optimizer;
  Outcome theirs = testing::train(trial);
  Outcome ours = on_devices(trial, GetParam().nccl);
  if (trial.spec.states.optimizer == plan::OptimizerKind::lion)
    for (Outcome* one : {&ours, &theirs}) one->weights = testing::determined(std::move(one->weights));
  // In 16 bits gradients that are all noise (of the keys' biases) turn where AdamW goes, so weights are only near.
  // Before they are rounded to 8 bits operands differ by a last digit of bf16 (attention's), and of those between two
  // codes some take the other, an eighth away.
  const bool fp32 = trial.spec.numerics.precision == models::DType::fp32,
             fp8 = trial.spec.numerics.precision == models::DType::fp8;
  expect_near(ours, theirs,
              fp32  ? Bounds{1e-5, 5e-5, 5e-5}
              : fp8 ? Bounds{5e-3, 1.5e-1, 5e-2}
                    : Bounds{2e-3, 2e-2, 3e-2});
  for (std::size_t i = 0; i < ours.steps.size(); ++i) {
    EXPECT_EQ(ours.steps[i].loss_scale, theirs.steps[i].loss_scale);
    EXPECT_EQ(ours.steps[i].skipped, theirs.steps[i].skipped);
  }
  expect_memory_as_placed(ours);
}

using plan::PlanSpec;

INSTANTIATE_TEST_SUITE_P(
    Plans, EmulatedTraining,
    ::testing::Values(
        Case{"serial", true, [](PlanSpec&) {}}, Case{"tensor_2", true, [](PlanSpec& s) { s.mesh.tensor = 2; }},
        Case{"tensor_2_pipeline_2_staged", false, [](PlanSpec& s) { s.mesh.tensor = 2, s.mesh.pipeline = 2; }},
        Case{"pipeline_2_gpipe", true, [](PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = plan::Order::gpipe; }},
        Case{"pipeline_2_1f1b", true,
             [](PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = plan::Order::one_f_one_b; }},
        Case{"zero_1", true, [](PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }},
        Case{"zero_2_staged", false, [](PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }},
        Case{"zero_3", true, [](PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }},
        Case{"data_2_tensor_2_pipeline_2", true,
             [](PlanSpec& s) { s.mesh.data = 2, s.mesh.tensor = 2, s.mesh.pipeline = 2; }},
        Case{"recompute_unfused", true,
             [](PlanSpec& s) { s.recomputation.what = plan::Recompute::full, s.numerics.flash = false; }}),
    [](const auto& tested) { return std::string(tested.param.name); });

using models::DType;
using plan::OptimizerKind;

INSTANTIATE_TEST_SUITE_P(
    Plans, EmulatedAlike,
    ::testing::Values(
        Case{"bf16", true, [](PlanSpec& s) { s.numerics.precision = DType::bf16; }},
        Case{"fp16", true, [](PlanSpec& s) { s.numerics.precision = DType::fp16; }},
        Case{"bf16_stochastic_zero_1", true,
             [](PlanSpec& s) {
               s.numerics.precision = DType::bf16, s.numerics.rounding = plan::Rounding::stochastic, s.mesh.data = 2,
               s.states.zero_stage = 1;
             }},
        Case{"fp16_data_2_tensor_2", true,
             [](PlanSpec& s) { s.numerics.precision = DType::fp16, s.mesh.data = 2, s.mesh.tensor = 2; }},
        Case{"bf16_recompute_sequence_parallel", true,
             [](PlanSpec& s) {
               s.numerics.precision = DType::bf16, s.mesh.tensor = 2, s.mesh.sequence_parallel = true;
               s.recomputation.what = plan::Recompute::full;
             }},
        Case{"tf32", true, [](PlanSpec& s) { s.numerics.precision = DType::tf32; }},
        Case{"fp8", true, [](PlanSpec& s) { s.numerics.precision = DType::fp8; }},
        Case{"fp8_recompute_sequence_parallel", true,
             [](PlanSpec& s) {
               s.numerics.precision = DType::fp8, s.mesh.tensor = 2, s.mesh.sequence_parallel = true;
               s.recomputation.what = plan::Recompute::full;
             }},
        Case{"fp8_zero_3", true,
             [](PlanSpec& s) { s.numerics.precision = DType::fp8, s.mesh.data = 2, s.states.zero_stage = 3; }},
        Case{"context_2", true, [](PlanSpec& s) { s.mesh.context = 2; }},
        Case{"bf16_context_2_staged", false,
             [](PlanSpec& s) { s.mesh.context = 2, s.numerics.precision = DType::bf16; }},
        Case{"sgd", true, [](PlanSpec& s) { s.states.optimizer = OptimizerKind::sgd; }},
        Case{"lion", true, [](PlanSpec& s) { s.states.optimizer = OptimizerKind::lion; }},
        Case{"lamb_zero_2", true,
             [](PlanSpec& s) { s.states.optimizer = OptimizerKind::lamb, s.mesh.data = 2, s.states.zero_stage = 2; }},
        Case{"adafactor_tensor_2", true,
             [](PlanSpec& s) { s.states.optimizer = OptimizerKind::adafactor, s.mesh.tensor = 2; }},
        Case{"adafactor_zero_3", true,
             [](PlanSpec& s) {
               s.states.optimizer = OptimizerKind::adafactor, s.mesh.data = 2, s.states.zero_stage = 3;
             }},
        Case{"zero_bubble", true, [](PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = plan::Order::zb_h1; }},
        Case{"checkpoints_in_parts_bf16", true,
             [](PlanSpec& s) {
               s.numerics.precision = DType::bf16, s.mesh.tensor = 2, s.recomputation.what = plan::Recompute::full;
               s.recomputation.partition_checkpoints = true;
             }},
        Case{"activations_on_the_host", true, [](PlanSpec& s) { s.offload.activations = plan::Space::host; }},
        Case{"optimizer_on_the_host_bf16", true,
             [](PlanSpec& s) { s.offload.optimizer = plan::Space::host, s.numerics.precision = DType::bf16; }}),
    [](const auto& tested) { return std::string(tested.param.name); });

// Codes of moments lie next to each other: a moment between two may have either, so this is only near.
TEST(EmulatedTraining, With8BitMomentsIsNearTheCpuBackend) {
  Trial trial = short_trial(3);
  trial.training.optimizer.kind = trial.spec.states.optimizer = OptimizerKind::adamw_8bit;
  const Outcome theirs = testing::train(trial);
  const Outcome ours = on_devices(trial, true);
  EXPECT_LE(testing::loss_distance(ours, theirs), 1e-4);
  EXPECT_LE(testing::relative_distance(ours.weights, theirs.weights), 1e-3);
}

TEST(EmulatedDevice, WithoutTensorCoresForEightBitsRefusesFp8AndSaysWhich) {
  struct As {
    explicit As(int capability) { emulation::capability() = capability; }
    ~As() { emulation::capability() = 90; }
  };
  for (const int capability : {80, 86, 89, 90, 100}) {
    const As device(capability);
    const cuda::CudaBackend backend(0, nullptr, cuda::Products::Options{.plan_file = {}, .tune_above_flops = 1e12});
    const std::string why = backend.refusal(DType::fp8);
    EXPECT_EQ(why.empty(), capability >= 89) << why;
    if (capability == 80) {
      EXPECT_EQ(
          why,
          "the plan computes in fp8, which needs compute capability 8.9 (Ada, Hopper or later), but emulated has 8.0");
    }
    for (const DType other : {DType::fp32, DType::tf32, DType::bf16, DType::fp16})
      EXPECT_TRUE(backend.refusal(other).empty());
  }
}

}  // namespace emulated_training_test
}  // namespace orrery::exec::gpu_test

// States that are not the device's, and gradients that travel in ways of their own, trained on emulated devices beside
// the CPU backend on the same plan: by graphs and without, and however the streams share the device, bit for bit alike.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/gpu/emulated_training.h"

namespace orrery::exec::gpu_test {
namespace emulated_states_test {

using models::DType;
using plan::GradientCompression;
using plan::PlanSpec;
using plan::Space;
using testing::Outcome;
using testing::Trial;

struct Case {
  const char* name;
  bool nccl;
  void (*set)(PlanSpec&);
  std::int64_t steps = 4;
};

Trial trial_of(const Case& one) {
  Trial trial = short_trial(one.steps);
  trial.gradients_at = {};
  one.set(trial.spec);
  if (trial.spec.compression.gradients != GradientCompression::none) trial.training.clip_norm.reset();
  trial.training.loss_scaling = {std::ldexp(1.0, 26), 2, 64};  // the first step overflows, and a later one again
  return trial;
}

/// What is rounded on the way may fall to the other side of a tie, as in the other trainings.
Bounds bounds_of(const PlanSpec& spec) {
  return spec.numerics.precision == DType::fp32 && spec.compression == plan::Compression{} ? Bounds{1e-5, 5e-5, 5e-5}
                                                                                           : Bounds{2e-3, 2e-2, 3e-2};
}

class EmulatedStates : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedStates, TrainAsOnTheCpuBackendByGraphsAndWithoutInAnyOrderOfStreams) {
  Trial trial = trial_of(GetParam());
  const Outcome theirs = testing::train(trial);
  const Outcome by_graphs = on_devices(trial, GetParam().nccl);
  expect_near(by_graphs, theirs, bounds_of(trial.spec));
  for (std::size_t i = 0; i < theirs.steps.size(); ++i) {
    EXPECT_EQ(by_graphs.steps[i].loss_scale, theirs.steps[i].loss_scale) << "step " << i;
    EXPECT_EQ(by_graphs.steps[i].skipped, theirs.steps[i].skipped) << "step " << i;
  }
  const auto skipped = [](const StepResult& step) { return step.skipped; };
  EXPECT_EQ(skipped(theirs.steps.front()), trial.spec.numerics.precision == DType::fp16);
  EXPECT_EQ(std::any_of(theirs.steps.begin() + 3, theirs.steps.end(), skipped),
            trial.spec.numerics.precision == DType::fp16)
      << "and one in a step by graphs";
  expect_memory_as_placed(by_graphs);
  for (const Executor::GraphCounts& counts : by_graphs.graphs) {
    EXPECT_EQ(counts.failed, 0) << counts.reason;
    EXPECT_GT(counts.replayed, 0);
  }
  for (const unsigned order : {kOthersFirst, kByChance}) {
    const OrderOfStreams other(order);
    SCOPED_TRACE(order);
    trial.graphs = order != kOthersFirst;
    expect_same_bits(on_devices(trial, GetParam().nccl), by_graphs);
  }
}

void all_on_nvme(PlanSpec& s) {
  s.offload = {Space::host, Space::nvme, Space::nvme, 1};
}
void fp16_optimizer_on_host(PlanSpec& s) {
  s.numerics.precision = DType::fp16, s.offload.optimizer = Space::host;
}

INSTANTIATE_TEST_SUITE_P(
    Plans, EmulatedStates,
    ::testing::Values(
        Case{"optimizer_on_nvme", true, [](PlanSpec& s) { s.offload.optimizer = Space::nvme; }},
        Case{"parameters_on_nvme_bf16", true,
             [](PlanSpec& s) { s.offload.parameters = Space::nvme, s.numerics.precision = DType::bf16; }},
        Case{"parameters_on_the_host", true, [](PlanSpec& s) { s.offload.parameters = Space::host; }},
        Case{"all_on_nvme", true, all_on_nvme},
        Case{"optimizer_on_nvme_zero_2_staged", false,
             [](PlanSpec& s) { s.offload.optimizer = Space::nvme, s.mesh.data = 2, s.states.zero_stage = 2; }},
        Case{"all_on_nvme_zero_3_fp16", true,
             [](PlanSpec& s) {
               all_on_nvme(s), s.mesh.data = 2, s.states.zero_stage = 3, s.numerics.precision = DType::fp16;
             },
             6},
        Case{"optimizer_on_nvme_pipeline_2", true,
             [](PlanSpec& s) { s.offload.optimizer = Space::nvme, s.mesh.pipeline = 2; }},
        Case{"optimizer_on_the_host_zero_1", true,
             [](PlanSpec& s) { s.offload.optimizer = Space::host, s.mesh.data = 2, s.states.zero_stage = 1; }},
        Case{"fp16_optimizer_on_the_host", true, fp16_optimizer_on_host, 6},
        Case{"fp16_optimizer_on_the_host_data_2_staged", false,
             [](PlanSpec& s) { fp16_optimizer_on_host(s), s.mesh.data = 2; }, 6},
        Case{"fp16_optimizer_on_the_host_zero_1", true,
             [](PlanSpec& s) { fp16_optimizer_on_host(s), s.mesh.data = 2, s.states.zero_stage = 1; }, 6},
        Case{"fp16_optimizer_on_the_host_tensor_2_zero_2", true,
             [](PlanSpec& s) { fp16_optimizer_on_host(s), s.mesh.data = s.mesh.tensor = 2, s.states.zero_stage = 2; },
             6}),
    [](const auto& tested) { return std::string(tested.param.name); });

void late_powersgd(PlanSpec& s) {
  s.mesh.data = 2, s.compression.gradients = GradientCompression::powersgd;
  s.compression.rank = 2, s.compression.minimum_rate = 1.5, s.compression.start = 3;
}
void by_node(PlanSpec& s, GradientCompression how, int zero_stage) {
  s.mesh.data = 4, s.compression.gradients = how, s.compression.group = 2, s.states.zero_stage = zero_stage;
}

INSTANTIATE_TEST_SUITE_P(
    Gradients, EmulatedStates,
    ::testing::Values(
        Case{"late_powersgd", true, late_powersgd, 6},
        Case{"late_powersgd_overlapped_zero_1", true,
             [](PlanSpec& s) { late_powersgd(s), s.states.zero_stage = 1, s.states.overlap_gradients = true; }, 6},
        Case{"late_powersgd_pipeline_2_staged", false, [](PlanSpec& s) { late_powersgd(s), s.mesh.pipeline = 2; }, 6},
        Case{"by_node_bf16_zero_1", true, [](PlanSpec& s) { by_node(s, GradientCompression::bf16, 1); }},
        Case{"by_node_fp16_zero_1_overlapped", true,
             [](PlanSpec& s) { by_node(s, GradientCompression::fp16, 1), s.states.overlap_gradients = true; }},
        Case{"by_node_bf16_zero_2", true, [](PlanSpec& s) { by_node(s, GradientCompression::bf16, 2); }},
        Case{"by_node_fp16_zero_2_staged", false, [](PlanSpec& s) { by_node(s, GradientCompression::fp16, 2); }}),
    [](const auto& tested) { return std::string(tested.param.name); });

// Steps before the start and behind it are graphs of their own, which a step in between is not taken for.
TEST(GraphsOfATraining, AreOfEitherKindWherePowerSgdStartsLate) {
  Trial trial = trial_of({"", true, late_powersgd, 6});
  trial.sample_every = 100;
  const Outcome late = on_devices(trial);
  trial.spec.compression.start = 0;
  const Outcome at_once = on_devices(trial);
  for (std::size_t rank = 0; rank < late.graphs.size(); ++rank) {
    EXPECT_EQ(late.graphs[rank].captured, 2 * at_once.graphs[rank].captured);
    EXPECT_EQ(late.graphs[rank].replayed, 4 * at_once.graphs[rank].captured) << "of 6 steps two are traced";
  }
  EXPECT_EQ(late.steps[0].loss, at_once.steps[0].loss);
  EXPECT_NE(late.steps[2].loss, at_once.steps[2].loss);
}

}  // namespace emulated_states_test
}  // namespace orrery::exec::gpu_test

// A tiny GPT trained by the CUDA backend and NCCL, both emulated, is the GPT that the CPU backend trains: in loss and
// in gradients, however it is split. This runs kernels, streams, groups and directions as a schedule uses them.
#include <gtest/gtest.h>

#include "exec/cuda/nccl_transport.h"
#include "tests/exec/training.h"

namespace orrery::exec::gpu_test {
namespace {

using testing::Devices;
using testing::Outcome;
using testing::Trial;

Trial short_trial() {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.steps = 2;
  trial.gradients_at = {0, 1};
  trial.check = Arena::Check::overlaps;
  return trial;
}

const Outcome& on_the_cpu() {
  static const Outcome outcome = testing::train(short_trial());
  return outcome;
}

struct Case {
  const char* name;
  bool nccl;
  void (*set)(plan::PlanSpec&);
};

class EmulatedTraining : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedTraining, EqualsTheCpuBackend) {
  Trial trial = short_trial();
  GetParam().set(trial.spec);
  trial.devices = [nccl = GetParam().nccl](Transport& host) {
    Devices devices;
    auto backend = std::make_unique<cuda::CudaBackend>(0);
    devices.transport = cuda::make_cuda_transport(*backend, host, {.nccl = nccl, .start_timeout_s = 20});
    const bool really = devices.transport->name() == "nccl";
    EXPECT_EQ(really, nccl && host.size() > 1) << devices.transport->name();
    devices.backend = std::move(backend);
    return devices;
  };
  const Outcome ours = testing::train(trial);
  ASSERT_EQ(ours.steps.size(), 2U);
  EXPECT_LE(testing::loss_distance(ours, on_the_cpu()), 1e-5);
  for (const std::int64_t step : trial.gradients_at)
    EXPECT_LE(testing::relative_distance(ours.gradients.at(step), on_the_cpu().gradients.at(step)), 1e-5) << step;
  EXPECT_LE(testing::relative_distance(ours.weights, on_the_cpu().weights), 1e-5);
}

using plan::PlanSpec;

INSTANTIATE_TEST_SUITE_P(
    Plans, EmulatedTraining,
    ::testing::Values(
        Case{"serial", true, [](PlanSpec&) {}}, Case{"tensor_2", true, [](PlanSpec& s) { s.tensor = 2; }},
        Case{"tensor_2_pipeline_2_staged", false, [](PlanSpec& s) { s.tensor = 2, s.pipeline = 2; }},
        Case{"pipeline_2_gpipe", true, [](PlanSpec& s) { s.pipeline = 2, s.order = plan::Order::gpipe; }},
        Case{"pipeline_2_1f1b", true, [](PlanSpec& s) { s.pipeline = 2, s.order = plan::Order::one_f_one_b; }},
        Case{"zero_1", true, [](PlanSpec& s) { s.data = 2, s.zero_stage = 1; }},
        Case{"zero_2_staged", false, [](PlanSpec& s) { s.data = 2, s.zero_stage = 2; }},
        Case{"zero_3", true, [](PlanSpec& s) { s.data = 2, s.zero_stage = 3; }},
        Case{"data_2_tensor_2_pipeline_2", true, [](PlanSpec& s) { s.data = 2, s.tensor = 2, s.pipeline = 2; }},
        Case{"recompute_unfused", true, [](PlanSpec& s) { s.recompute = plan::Recompute::full, s.flash = false; }}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace orrery::exec::gpu_test

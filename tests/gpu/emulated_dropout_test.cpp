// Models with dropout and models with ReLU, trained on emulated devices beside the CPU backend on the same plan: the
// same masks, whatever the split; what a ReLU leaves comes back to the bit where it had room. Graphs draw new masks
// with each step.
#include <gtest/gtest.h>

#include "models/operators/dropout.h"
#include "tests/gpu/emulated_training.h"

namespace orrery::exec::gpu_test {
namespace emulated_dropout_test {

using models::DType;
using models::OpKind;
using plan::PlanSpec;
using testing::Outcome;
using testing::Trial;

constexpr Bounds kSingle{1e-5, 5e-5, 5e-5}, kHalf{2e-3, 2e-2, 3e-2};

struct Case {
  const char* name;
  void (*set)(Trial&);
};
std::string name_of(const ::testing::TestParamInfo<Case>& tested) {
  return tested.param.name;
}

// -- dropout ----------------------------------------------------------------------------------------------------------
constexpr models::Dropout kRates{0.1, 0.2, 0.15};

class EmulatedDropout : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedDropout, TrainsAsOnTheCpuBackend) {
  Trial trial = short_trial(3);
  trial.model.dropout = kRates;
  GetParam().set(trial);
  const Outcome theirs = testing::train(trial);
  const Outcome ours = on_devices(trial);
  expect_near(ours, theirs, trial.spec.numerics.precision == DType::fp32 ? kSingle : kHalf);
  expect_memory_as_placed(ours);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, EmulatedDropout,
    ::testing::Values(
        Case{"serial", [](Trial&) {}}, Case{"unfused", [](Trial& one) { one.spec.numerics.flash = false; }},
        Case{"bf16", [](Trial& one) { one.spec.numerics.precision = DType::bf16; }},
        Case{"fp16_recomputed",
             [](Trial& one) {
               one.spec.numerics.precision = DType::fp16, one.spec.recomputation.what = plan::Recompute::full;
             }},
        Case{"tensor_2_sequence_parallel",
             [](Trial& one) { one.spec.mesh.tensor = 2, one.spec.mesh.sequence_parallel = true; }},
        Case{"pipeline_2", [](Trial& one) { one.spec.mesh.pipeline = 2, one.spec.shape.micro_batch = 1; }},
        Case{"context_2", [](Trial& one) { one.spec.mesh.context = 2; }},
        Case{"bf16_data_2_context_2",
             [](Trial& one) {
               one.spec.mesh.data = one.spec.mesh.context = 2, one.spec.numerics.precision = DType::bf16;
             }}),
    name_of);

TEST(EmulatedDropoutOfBert, TrainsAsOnTheCpuBackend) {
  Trial trial = short_trial(2, testing::golden_bert());
  trial.model.dropout = kRates;
  const Outcome theirs = testing::train(trial);
  const Outcome ours = on_devices(trial);
  expect_near(ours, theirs, kSingle);
  expect_memory_as_placed(ours);
}

// The masks of a step are those of its number. Gradients that are looked at keep a step from being a graph; here none
// are.
TEST(GraphsWithDropout, DrawOfEachStepWhatTheCpuBackendDraws) {
  for (const auto& set : {+[](Trial&) {}, +[](Trial& one) { one.spec.mesh.pipeline = 2; },
                          +[](Trial& one) { one.spec.mesh.context = 2; }}) {
    Trial trial = short_trial(6);
    trial.model.dropout = kRates;
    trial.gradients_at = {};
    set(trial);
    const Outcome theirs = testing::train(trial);
    const Outcome ours = on_devices(trial);
    EXPECT_LE(testing::loss_distance(ours, theirs), 1e-5);
    EXPECT_LE(testing::relative_distance(ours.weights, theirs.weights), 5e-5);
    for (const Executor::GraphCounts& counts : ours.graphs) {
      EXPECT_EQ(counts.failed, 0) << counts.reason;
      EXPECT_GE(counts.replayed, 4);
    }
  }
}

TEST(GraphsWithDropout, DrawNewMasksWithEachReplay) {
  constexpr std::int64_t kRows = 4, kColumns = 64, kCount = kRows * kColumns;
  cuda::CudaBackend backend(0);
  std::byte* const arena = backend.allocate_arena(2 * kCount * static_cast<std::int64_t>(sizeof(float)));
  std::vector<float> ones(kCount, 1.0F), y(kCount);
  backend.copy_to_device(arena, std::as_bytes(std::span(ones)));
  models::Op op;
  op.kind = OpKind::dropout;
  op.n = kRows, op.m = kColumns, op.batch = 2, op.sequence = 2;
  op.dropout = 0.5, op.site = 3;
  const Operand in{arena, kCount}, out{arena + kCount * static_cast<std::int64_t>(sizeof(float)), kCount};
  StepContext context;
  context.seed = 17;
  const auto at_step = [&](std::int64_t step) {
    context.step = context.sample_step = step;
    backend.begin_step(context);
  };
  const auto factors = [&](std::int64_t step) {
    std::vector<float> wanted(kCount);
    for (std::int64_t i = 0; i < kCount; ++i) {
      const models::DropoutMask mask{models::dropout_key(context.seed, step), 3,
                                     static_cast<std::uint32_t>(i / kColumns / 2)};
      const auto element = static_cast<std::uint64_t>(i / kColumns % 2 * kColumns + i % kColumns);
      const bool dropped = models::dropout_bits(mask, element) < models::dropout_threshold(op.dropout);
      wanted[static_cast<std::size_t>(i)] = dropped ? 0.0F : static_cast<float>(models::dropout_scale(op.dropout));
    }
    return wanted;
  };
  at_step(4);
  backend.begin_capture();
  backend.run(op, {&in, 1}, {&out, 1}, {}, context);
  const auto graph = backend.end_capture();
  std::vector<float> before;
  for (const std::int64_t step : {4, 5, 6, 1000}) {
    at_step(step);
    backend.replay(*graph);
    backend.copy_to_host(std::as_writable_bytes(std::span(y)), out.data);
    EXPECT_EQ(y, factors(step)) << "step " << step;
    EXPECT_NE(y, before);
    before = y;
  }
  at_step(4);  // again, without the graph, of a sample that is one step ahead
  context.sample_step = 5;
  backend.run(op, {&in, 1}, {&out, 1}, {}, context);
  backend.copy_to_host(std::as_writable_bytes(std::span(y)), out.data);
  EXPECT_EQ(y, factors(5));
}

// -- ReLU and what it leaves ------------------------------------------------------------------------------------------
class EmulatedReLU : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedReLU, TrainsAsOnTheCpuBackendWithLosslessStorageAndWithout) {
  Trial trial = short_trial(3);
  trial.model.activation = models::Activation::relu;
  GetParam().set(trial);
  const Bounds bounds = trial.spec.numerics.precision == DType::fp32 ? kSingle : kHalf;
  const Outcome theirs = testing::train(trial);
  const Outcome plain = on_devices(trial);
  expect_near(plain, theirs, bounds);
  expect_memory_as_placed(plain);
  trial.spec.compression.activations = plan::ActivationEncoding::lossless;
  for (const double capacity : {0.6, 0.01}) {
    SCOPED_TRACE(capacity);
    trial.spec.compression.capacity = capacity;
    const Outcome sparse = on_devices(trial);
    expect_near(sparse, theirs, bounds);
    expect_memory_as_placed(sparse);
    if (capacity < 0.5) continue;  // computed again, in another order of the sums
    for (std::size_t i = 0; i < plain.steps.size(); ++i) EXPECT_EQ(sparse.steps[i].loss, plain.steps[i].loss);
    for (const auto& [name, tensor] : plain.weights) EXPECT_EQ(sparse.weights.at(name).values, tensor.values) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, EmulatedReLU,
    ::testing::Values(
        Case{"serial", [](Trial&) {}}, Case{"tensor_2", [](Trial& one) { one.spec.mesh.tensor = 2; }},
        Case{"pipeline_2", [](Trial& one) { one.spec.mesh.pipeline = 2, one.spec.shape.micro_batch = 1; }},
        Case{"context_2_dropout", [](Trial& one) { one.spec.mesh.context = 2, one.model.dropout = kRates; }},
        Case{"bf16_data_2_zero_2",
             [](Trial& one) {
               one.spec.mesh.data = 2, one.spec.states.zero_stage = 2, one.spec.numerics.precision = DType::bf16;
             }}),
    name_of);

}  // namespace emulated_dropout_test
}  // namespace orrery::exec::gpu_test

// What some models and plans alone have, trained on emulated devices beside the CPU backend on the same plan: BERT,
// compressed gradients, encoded activations, the loss in chunks.
#include <gtest/gtest.h>

#include "tests/gpu/emulated_training.h"

namespace orrery::exec::gpu_test {
namespace emulated_models_test {

using models::DType;
using plan::PlanSpec;
using testing::Outcome;
using testing::Trial;

struct Case {
  const char* name;
  bool bert;
  void (*set)(PlanSpec&);
};

class EmulatedFamilies : public ::testing::TestWithParam<Case> {};

TEST_P(EmulatedFamilies, TrainAsOnTheCpuBackend) {
  Trial trial = GetParam().bert ? short_trial(2, testing::golden_bert()) : short_trial(2);
  GetParam().set(trial.spec);
  const Outcome theirs = testing::train(trial);
  const Outcome ours = on_devices(trial);
  // What is rounded on the way, to 16 bits or fewer, may fall to the other side of a tie. Gradients that are all noise
  // (of the keys' biases) turn where AdamW goes, a whole step either way.
  const bool exact = trial.spec.numerics.precision == DType::fp32 && trial.spec.compression == plan::Compression{};
  expect_near(ours, theirs, exact ? Bounds{1e-5, 1e-5, 5e-5} : Bounds{2e-3, 2e-2, 3e-2});
  expect_memory_as_placed(ours);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, EmulatedFamilies,
    ::testing::Values(Case{"bert", true, [](PlanSpec&) {}},
                      Case{"bert_bf16_sequence_parallel", true,
                           [](PlanSpec& s) {
                             s.numerics.precision = DType::bf16, s.mesh.tensor = 2, s.mesh.sequence_parallel = true;
                           }},
                      Case{"bert_fp16", true, [](PlanSpec& s) { s.numerics.precision = DType::fp16; }},
                      Case{"bert_data_2_pipeline_2_zero_1", true,
                           [](PlanSpec& s) { s.mesh.data = s.mesh.pipeline = 2, s.states.zero_stage = 1; }},
                      Case{"powersgd", false,
                           [](PlanSpec& s) {
                             s.mesh.data = 2, s.compression.gradients = plan::GradientCompression::powersgd;
                             s.compression.rank = 2, s.compression.minimum_rate = 1.5;
                           }},
                      Case{"activations_in_16_bits", false,
                           [](PlanSpec& s) { s.compression.activations = plan::ActivationEncoding::fp16; }},
                      Case{"activations_in_10_bits", false,
                           [](PlanSpec& s) { s.compression.activations = plan::ActivationEncoding::fp10; }},
                      Case{"activations_in_8_bits_bf16", false,
                           [](PlanSpec& s) {
                             s.compression.activations = plan::ActivationEncoding::fp8,
                             s.numerics.precision = DType::bf16;
                           }},
                      Case{"loss_in_chunks", false, [](PlanSpec& s) { s.numerics.loss_chunks = 4; }},
                      Case{"loss_in_chunks_tensor_2_bf16", false,
                           [](PlanSpec& s) {
                             s.numerics.loss_chunks = 2, s.mesh.tensor = 2, s.numerics.precision = DType::bf16;
                           }},
                      Case{"bert_loss_in_chunks", true, [](PlanSpec& s) { s.numerics.loss_chunks = 2; }}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace emulated_models_test
}  // namespace orrery::exec::gpu_test

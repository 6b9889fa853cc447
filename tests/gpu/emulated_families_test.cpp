// Families with what GPT-2 and Llama have not, trained on emulated devices beside the CPU backend on the same plan.
#include <gtest/gtest.h>

#include "tests/exec/families.h"
#include "tests/gpu/emulated_training.h"

namespace orrery::exec::gpu_test {
namespace emulated_families_test {

using models::DType;
using models::Family;
using plan::PlanSpec;
using testing::Outcome;
using testing::Trial;

struct OfFamily {
  const char* name;
  Family family;
  void (*set)(PlanSpec&);
};

class EmulatedOfFamily : public ::testing::TestWithParam<OfFamily> {};

TEST_P(EmulatedOfFamily, TrainsAsOnTheCpuBackend) {
  Trial trial = short_trial(2);
  testing::make_family(trial.model, GetParam().family);
  trial.training.initial_weights.clear();
  GetParam().set(trial.spec);
  const Outcome theirs = testing::train(trial);
  const Outcome ours = on_devices(trial);
  const bool exact = trial.spec.numerics.precision == DType::fp32;
  expect_near(ours, theirs, exact ? Bounds{1e-5, 1e-5, 5e-5} : Bounds{2e-3, 2e-2, 3e-2});
  expect_memory_as_placed(ours);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, EmulatedOfFamily,
    ::testing::Values(
        OfFamily{"qwen2", Family::qwen2, [](PlanSpec&) {}}, OfFamily{"qwen3", Family::qwen3, [](PlanSpec&) {}},
        OfFamily{"qwen3_tensor_2_bf16", Family::qwen3,
                 [](PlanSpec& s) { s.mesh.tensor = 2, s.numerics.precision = DType::bf16; }},
        OfFamily{"gemma", Family::gemma, [](PlanSpec&) {}}, OfFamily{"gemma2", Family::gemma2, [](PlanSpec&) {}},
        OfFamily{"gemma2_bf16_loss_in_chunks", Family::gemma2,
                 [](PlanSpec& s) { s.numerics.precision = DType::bf16, s.numerics.loss_chunks = 2; }},
        OfFamily{"gemma2_tensor_2_sequence_parallel", Family::gemma2,
                 [](PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
        OfFamily{"gpt_neox", Family::gpt_neox, [](PlanSpec& s) { s.mesh.tensor = 2; }},
        OfFamily{"phi3", Family::phi3, [](PlanSpec&) {}}, OfFamily{"opt", Family::opt, [](PlanSpec&) {}},
        OfFamily{"falcon", Family::falcon, [](PlanSpec&) {}},
        OfFamily{"bloom_tensor_2", Family::bloom, [](PlanSpec& s) { s.mesh.tensor = 2; }},
        OfFamily{"cohere", Family::cohere, [](PlanSpec&) {}},
        OfFamily{"mpt_tensor_2_bf16", Family::mpt,
                 [](PlanSpec& s) { s.mesh.tensor = 2, s.numerics.precision = DType::bf16; }},
        OfFamily{"gptj_tensor_2", Family::gptj, [](PlanSpec& s) { s.mesh.tensor = 2; }},
        OfFamily{"phi_bf16", Family::phi, [](PlanSpec& s) { s.numerics.precision = DType::bf16; }},
        OfFamily{"olmo2_zero_3", Family::olmo2, [](PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }},
        OfFamily{"exaone4_tensor_2", Family::exaone4, [](PlanSpec& s) { s.mesh.tensor = 2; }},
        OfFamily{"nemotron_fp16", Family::nemotron, [](PlanSpec& s) { s.numerics.precision = DType::fp16; }},
        OfFamily{"nemotron_unfused", Family::nemotron, [](PlanSpec& s) { s.numerics.flash = false; }}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace emulated_families_test
}  // namespace orrery::exec::gpu_test

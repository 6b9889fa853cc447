// Latent attention, and the module that predicts a token further: the numbers of PyTorch, from weights as DeepSeek's
// files have them; and every way to split them gives the serial run's.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "exec/files/safetensors.h"
#include "tests/exec/mixtures.h"

namespace orrery::exec {
namespace latent_test {

using testing::Outcome;
using testing::Trial;

const std::string kLatentGolden = std::string(ORRERY_SOURCE_DIR) + "/tests/golden/pytorch/";

class GoldenLatent : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenLatent, AgreesWithPyTorchOverTwentySteps) {
  const std::string kind = GetParam();
  std::ifstream in(kLatentGolden + "latent_golden.json");
  const nlohmann::json steps = nlohmann::json::parse(in)[kind]["steps"];
  for (const bool flash : {true, false}) {
    Trial trial = testing::golden_latent(kind);
    trial.spec.shape.micro_batch = flash ? 8 : 2;
    trial.spec.numerics.flash = flash;
    const Outcome ours = testing::train(trial);
    ASSERT_EQ(ours.steps.size(), steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      for (const auto& [key, value] :
           {std::pair{"loss", ours.steps[i].loss}, {"gradient_norm", ours.steps[i].gradient_norm}}) {
        const double theirs = steps[i][key].get<double>();
        EXPECT_NEAR(value, theirs, 1e-5 * theirs) << key << " of step " << i + 1;
      }
    }
    const auto file = SafetensorsFile::open(kLatentGolden + "latent_" + kind + "_gradient_step_1.safetensors");
    ASSERT_TRUE(file);
    LogicalTensors theirs, trained = ours.gradients.at(0);
    std::erase_if(trained, [](const auto& one) { return one.first.ends_with("router.balance"); });
    ASSERT_EQ(trained.size(), file->header().tensors.size());
    for (const auto& [name, tensor] : trained) {
      const TensorEntry* entry = file->header().find(name);
      ASSERT_NE(entry, nullptr) << name;
      theirs[name].shape = tensor.shape;
      theirs[name].values.resize(tensor.values.size());
      file->read(*entry, 0, theirs[name].values);
      EXPECT_LE(testing::relative_distance({{name, tensor}}, {{name, theirs[name]}}), 3e-5) << name;
    }
    const double distance = testing::relative_distance(trained, theirs);
    std::printf("[ errors   ] %-5s flash %d: gradient at step 1 %.1e\n", kind.c_str(), flash ? 1 : 0, distance);
    EXPECT_LE(distance, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenLatent, ::testing::Values("v3", "lite", "further"));

struct LatentSplit {
  const char* name;
  void (*set)(plan::PlanSpec&);
};

void recompute(plan::PlanSpec& s, std::initializer_list<plan::Module> modules) {
  s.recomputation.what = plan::Recompute::selective;
  for (const plan::Module one : modules) s.recomputation.modules = s.recomputation.modules.with(one);
}

/// Two stages of two chunks. But in DualPipe, the last chunk has the head alone, and the module that predicts further.
void two_chunks(plan::PlanSpec& s, plan::Order order) {
  s.mesh.pipeline = s.stages.virtual_stages = 2, s.stages.order = order, s.shape.micro_batch = 1;
  s.stages.layers_per_stage = {1, 1, 1, 0};
  if (order == plan::Order::dualpipe) s.stages.layers_per_stage = {2, 1};
}

const LatentSplit kLatentSplits[] = {
    {"data_2", [](plan::PlanSpec& s) { s.mesh.data = 2; }},
    {"tensor_2", [](plan::PlanSpec& s) { s.mesh.tensor = 2; }},
    {"tensor_4", [](plan::PlanSpec& s) { s.mesh.tensor = 4; }},
    {"rows_over_tensor_2", [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
    {"context_2", [](plan::PlanSpec& s) { s.mesh.context = 2; }},
    {"context_2_rows_over_tensor_2",
     [](plan::PlanSpec& s) { s.mesh.context = s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
    {"pipeline_2", [](plan::PlanSpec& s) { s.mesh.pipeline = 2; }},
    {"zero_bubble_2",
     [](plan::PlanSpec& s) {
       s.mesh.pipeline = s.mesh.tensor = 2, s.mesh.sequence_parallel = true, s.stages.order = plan::Order::zb_h1;
     }},
    {"zero_bubble_h2_3", [](plan::PlanSpec& s) { s.mesh.pipeline = 3, s.stages.order = plan::Order::zb_h2; }},
    {"zero_bubble_v_2", [](plan::PlanSpec& s) { two_chunks(s, plan::Order::zb_v); }},
    {"dualpipe_v_2", [](plan::PlanSpec& s) { two_chunks(s, plan::Order::dualpipe_v); }},
    {"dualpipe_2", [](plan::PlanSpec& s) { two_chunks(s, plan::Order::dualpipe); }},
    {"dualpipe_2_expert_2_zero_1_reduced_early",
     [](plan::PlanSpec& s) {
       two_chunks(s, plan::Order::dualpipe), s.mesh.data = s.mesh.expert = 2;
       s.states.zero_stage = 1, s.states.overlap_gradients = true;
     }},
    {"interleaved_2", [](plan::PlanSpec& s) { two_chunks(s, plan::Order::one_f_one_b); }},
    {"zero_1_tensor_2", [](plan::PlanSpec& s) { s.mesh.data = s.mesh.tensor = 2, s.states.zero_stage = 1; }},
    {"zero_3", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }},
    {"zero_3_rows_over_tensor_2",
     [](plan::PlanSpec& s) {
       s.mesh.data = s.mesh.tensor = 2, s.states.zero_stage = 3, s.mesh.sequence_parallel = true;
     }},
    {"recomputed", [](plan::PlanSpec& s) { s.recomputation.what = plan::Recompute::full; }},
    {"core_recomputed_tensor_2",
     [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.recomputation.what = plan::Recompute::selective; }},
    {"norms_and_up_projections_recomputed",
     [](plan::PlanSpec& s) {
       recompute(s, {plan::Module::norms, plan::Module::up_projections});
     }},
    {"all_modules_recomputed_rows_over_tensor_2",
     [](plan::PlanSpec& s) {
       recompute(s, {plan::Module::core, plan::Module::norms, plan::Module::up_projections, plan::Module::activations,
                     plan::Module::mlp});
       s.mesh.tensor = 2, s.mesh.sequence_parallel = true;
     }},
    {"modules_recomputed_zero_bubble_2",
     [](plan::PlanSpec& s) {
       recompute(s, {plan::Module::norms, plan::Module::up_projections, plan::Module::activations});
       s.mesh.pipeline = 2, s.stages.order = plan::Order::zb_h1;
     }},
    {"modules_recomputed_zero_3",
     [](plan::PlanSpec& s) {
       recompute(s, {plan::Module::norms, plan::Module::up_projections, plan::Module::activations});
       s.mesh.data = 2, s.states.zero_stage = 3;
     }},
    {"expert_2_tensor_2", [](plan::PlanSpec& s) { s.mesh.data = s.mesh.expert = s.mesh.tensor = 2; }},
    {"pipeline_3_one_f_one_b",
     [](plan::PlanSpec& s) { s.mesh.pipeline = 3, s.stages.order = plan::Order::one_f_one_b; }},
    {"pipeline_2_zero_2",
     [](plan::PlanSpec& s) {
       s.mesh.data = s.mesh.pipeline = 2, s.states.zero_stage = 2, s.stages.order = plan::Order::one_f_one_b;
     }},
    {"loss_in_4_chunks_tensor_2_pipeline_2",
     [](plan::PlanSpec& s) { s.numerics.loss_chunks = 4, s.mesh.tensor = s.mesh.pipeline = 2; }},
    {"pipeline_2_expert_2_of_4",
     [](plan::PlanSpec& s) {
       s.mesh.pipeline = s.mesh.expert = 2, s.mesh.data = 4, s.stages.order = plan::Order::one_f_one_b;
     }},
};

class LatentEqualToSerial : public ::testing::TestWithParam<std::tuple<const char*, LatentSplit>> {
 protected:
  static Trial trial(const std::string& kind) {
    Trial trial = testing::golden_latent(kind);
    trial.spec.shape.batch = 8;
    trial.spec.shape.micro_batch = 2;
    return trial;
  }
};

TEST_P(LatentEqualToSerial, InLossGradientsAndWeights) {
  const std::string kind = std::get<0>(GetParam());
  const LatentSplit& split = std::get<1>(GetParam());
  static std::map<std::string, Outcome> known;
  if (!known.contains(kind)) known.emplace(kind, testing::train(trial(kind)));
  Trial here = trial(kind);
  split.set(here.spec);
  if (!here.model.experts.any()) here.spec.mesh.expert = 1;
  const Outcome ours = testing::train(here);
  const Outcome& alone = known.at(kind);
  ASSERT_EQ(ours.steps.size(), 20U);
  const double loss = testing::loss_distance(ours, alone);
  const double first = testing::relative_distance(ours.gradients.at(0), alone.gradients.at(0));
  const double last = testing::relative_distance(ours.gradients.at(19), alone.gradients.at(19));
  std::printf("[ errors   ] %-5s %-32s loss %.1e  gradient at step 1 %.1e  at step 20 %.1e\n", kind.c_str(), split.name,
              loss, first, last);
  for (std::size_t i = 0; i < ours.steps.size(); ++i)
    EXPECT_NEAR(ours.steps[i].gradient_norm, alone.steps[i].gradient_norm, 1e-5 * alone.steps[i].gradient_norm);
  EXPECT_LE(loss, 1e-5);
  EXPECT_LE(first, 1e-5);
  EXPECT_LE(last, 1e-4);
  EXPECT_LE(testing::relative_distance(ours.weights, alone.weights), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Splits, LatentEqualToSerial,
                         ::testing::Combine(::testing::Values("v3", "lite", "further"),
                                            ::testing::ValuesIn(kLatentSplits)),
                         [](const auto& one) {
                           return std::string(std::get<0>(one.param)) + "_" + std::get<1>(one.param).name;
                         });

// What the last token of a sequence predicts further is not in the batch, and counts nowhere.
TEST(FurtherPrediction, AddsItsWeightedLossAndNothingToAnEvaluation) {
  Trial trial = testing::golden_latent("further");
  trial.steps = 1;
  const auto loss_with = [&](double weight) {
    Trial one = trial;
    one.model.further.weight = weight;
    return testing::train(one).steps.front().loss;
  };
  const double alone = testing::train([&] {
                         Trial plain = trial;
                         plain.model.further = {};
                         return plain;
                       }())
                           .steps.front()
                           .loss;
  EXPECT_NEAR(loss_with(0), alone, 1e-6 * alone);
  const double further = loss_with(1) - alone;
  EXPECT_NEAR(loss_with(0.3), alone + 0.3 * further, 1e-6 * alone);
  const double share = 15.0 / 16;  // of the tokens of a sequence
  EXPECT_NEAR(further, share * std::log(64), 0.1 * further) << "an untrained module knows nothing of 64 words";
}

TEST(LatentTraining, InBf16FollowsFp32) {
  Trial trial = testing::golden_latent("lite");
  const Outcome exact = testing::train(trial);
  trial.spec.numerics.precision = models::DType::bf16;
  trial.spec.mesh.tensor = 2;
  EXPECT_LE(testing::loss_distance(testing::train(trial), exact), 5e-3);
}

}  // namespace latent_test
}  // namespace orrery::exec

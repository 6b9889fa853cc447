// Every way to split the training of a small mixture of experts gives the serial run's numbers.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "exec/files/safetensors.h"
#include "exec/state/initialise.h"
#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "tests/exec/small_mixtures.h"

namespace orrery::exec {
namespace experts_test {

using testing::Mixture;
using testing::mixture_trial;
using testing::Outcome;
using testing::Trial;

class GoldenMixture : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenMixture, AgreesWithPyTorchOverTwentySteps) {
  const std::string kind = GetParam();
  const bool alone = kind == "gpt_oss";  // in a file of its own
  std::ifstream in(alone ? testing::golden_mixture_file(kind, "_golden.json")
                         : testing::golden_mixture_file("golden", ".json"));
  const nlohmann::json golden = nlohmann::json::parse(in), steps = (alone ? golden : golden[kind])["steps"];
  for (const std::int64_t micro_batch : {8, 2}) {
    Trial trial = testing::golden_mixture(kind);
    trial.spec.shape.micro_batch = micro_batch;
    const Outcome ours = testing::train(trial);
    ASSERT_EQ(ours.steps.size(), steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      for (const auto& [key, value] : {std::pair{"loss", ours.steps[i].loss},
                                       {"aux_loss", ours.steps[i].experts.aux_loss},
                                       {"z_loss", ours.steps[i].experts.z_loss},
                                       {"gradient_norm", ours.steps[i].gradient_norm}}) {
        if (!steps[i].contains(key)) continue;
        const double theirs = steps[i][key].get<double>();
        EXPECT_NEAR(value, theirs, 1e-5 * theirs) << key << " of step " << i + 1;
      }
    }
    const auto file = SafetensorsFile::open(testing::golden_mixture_file(kind, "_gradient_step_1.safetensors"));
    ASSERT_TRUE(file);
    LogicalTensors theirs;
    for (const auto& [name, tensor] : ours.gradients.at(0)) {
      const TensorEntry* entry = file->header().find(name);
      ASSERT_NE(entry, nullptr) << name;
      theirs[name].shape = tensor.shape;
      theirs[name].values.resize(tensor.values.size());
      file->read(*entry, 0, theirs[name].values);
    }
    const double distance = testing::relative_distance(ours.gradients.at(0), theirs);
    std::printf("[ errors   ] %-12s micro-batch %d: gradient at step 1 %.1e\n", kind.c_str(),
                static_cast<int>(micro_batch), distance);
    EXPECT_LE(distance, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenMixture, ::testing::Values("mixtral", "deepseek", "gpt_oss"));

struct MixtureSplit {
  const char* name;
  void (*set)(plan::PlanSpec&);
};

/// Experts split over `ways` ranks beside a tensor group of `tensor`, over the rows of which all ranks have a part.
void fold(plan::PlanSpec& s, int tensor, int ways, int expert, int data = 1) {
  s.mesh.tensor = tensor, s.mesh.expert_tensor = ways, s.mesh.expert = expert, s.mesh.data = data;
  s.mesh.sequence_parallel = tensor > 1;
}

const MixtureSplit kMixtureSplits[] = {
    {"data_2", [](plan::PlanSpec& s) { s.mesh.data = 2; }},
    {"expert_2", [](plan::PlanSpec& s) { s.mesh.data = s.mesh.expert = 2; }},
    {"expert_4", [](plan::PlanSpec& s) { s.mesh.data = s.mesh.expert = 4; }},
    {"expert_2_of_data_4", [](plan::PlanSpec& s) { s.mesh.data = 4, s.mesh.expert = 2; }},
    {"expert_2_tensor_2", [](plan::PlanSpec& s) { s.mesh.data = s.mesh.expert = s.mesh.tensor = 2; }},
    {"expert_2_rows_over_tensor_2",
     [](plan::PlanSpec& s) { s.mesh.data = s.mesh.expert = s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
    {"expert_2_over_context", [](plan::PlanSpec& s) { s.mesh.context = s.mesh.expert = 2; }},
    {"expert_4_over_data_and_context", [](plan::PlanSpec& s) { s.mesh.data = s.mesh.context = 2, s.mesh.expert = 4; }},
    {"expert_2_pipeline_2", [](plan::PlanSpec& s) { s.mesh.data = s.mesh.expert = s.mesh.pipeline = 2; }},
    {"expert_2_dualpipe",
     [](plan::PlanSpec& s) {
       s.mesh.data = s.mesh.expert = s.mesh.pipeline = s.stages.virtual_stages = 2, s.shape.micro_batch = 1;
       s.stages.order = plan::Order::dualpipe;
     }},
    {"expert_2_dualpipe_zero_1",
     [](plan::PlanSpec& s) {
       s.mesh.data = s.mesh.expert = s.mesh.pipeline = s.stages.virtual_stages = 2, s.shape.micro_batch = 1;
       s.stages.order = plan::Order::dualpipe, s.states.zero_stage = 1, s.states.overlap_gradients = true;
     }},
    {"expert_2_of_4_dualpipe_recomputed",
     [](plan::PlanSpec& s) {
       s.mesh.data = 4, s.mesh.expert = s.mesh.pipeline = s.stages.virtual_stages = 2, s.shape.micro_batch = 1;
       s.stages.order = plan::Order::dualpipe, s.states.zero_stage = 1;
       s.recomputation.what = plan::Recompute::full;
     }},
    {"expert_2_recomputed",
     [](plan::PlanSpec& s) { s.mesh.data = s.mesh.expert = 2, s.recomputation.what = plan::Recompute::full; }},
    {"expert_2_experts_recomputed",
     [](plan::PlanSpec& s) {
       s.mesh.data = s.mesh.expert = 2, s.recomputation.what = plan::Recompute::selective;
       s.recomputation.modules = plan::Modules().with(plan::Module::experts);
     }},
    {"expert_2_experts_recomputed_rows_over_tensor_2",
     [](plan::PlanSpec& s) {
       s.mesh.data = s.mesh.expert = s.mesh.tensor = 2, s.mesh.sequence_parallel = true;
       s.recomputation.what = plan::Recompute::selective;
       s.recomputation.modules = plan::Modules().with(plan::Module::experts).with(plan::Module::norms);
     }},
    {"expert_2_of_4_dualpipe_norms_and_activations_recomputed",
     [](plan::PlanSpec& s) {
       s.mesh.data = 4, s.mesh.expert = s.mesh.pipeline = s.stages.virtual_stages = 2, s.shape.micro_batch = 1;
       s.stages.order = plan::Order::dualpipe, s.states.zero_stage = 1;
       s.recomputation.what = plan::Recompute::selective;
       s.recomputation.modules = plan::Modules().with(plan::Module::norms).with(plan::Module::activations);
     }},
    {"expert_2_of_4_zero_1", [](plan::PlanSpec& s) { s.mesh.data = 4, s.mesh.expert = 2, s.states.zero_stage = 1; }},
    {"expert_2_of_4_zero_2", [](plan::PlanSpec& s) { s.mesh.data = 4, s.mesh.expert = 2, s.states.zero_stage = 2; }},
    {"expert_2_of_4_zero_3", [](plan::PlanSpec& s) { s.mesh.data = 4, s.mesh.expert = 2, s.states.zero_stage = 3; }},
    {"expert_4_zero_2", [](plan::PlanSpec& s) { s.mesh.data = s.mesh.expert = 4, s.states.zero_stage = 2; }},
    {"expert_4_zero_3", [](plan::PlanSpec& s) { s.mesh.data = s.mesh.expert = 4, s.states.zero_stage = 3; }},
    {"expert_2_reduced_early",
     [](plan::PlanSpec& s) {
       s.mesh.data = 4, s.mesh.expert = 2, s.states.overlap_gradients = true, s.states.zero_stage = 1;
     }},
    {"tensor_2_alone", [](plan::PlanSpec& s) { s.mesh.tensor = 2; }},
    {"whole_experts_2_over_tensor",
     [](plan::PlanSpec& s) {
       s.mesh.tensor = s.mesh.expert = 2, s.mesh.sequence_parallel = true, s.mesh.expert_tensor = 1;
     }},
    {"whole_experts_4_over_tensor_and_data",
     [](plan::PlanSpec& s) {
       s.mesh.tensor = s.mesh.data = 2, s.mesh.expert = 4, s.mesh.sequence_parallel = true, s.mesh.expert_tensor = 1;
     }},
    {"whole_experts_2_of_4_zero_1",
     [](plan::PlanSpec& s) {
       s.mesh.tensor = s.mesh.data = s.mesh.expert = 2, s.mesh.sequence_parallel = true, s.mesh.expert_tensor = 1,
       s.states.zero_stage = 1;
     }},
    {"whole_experts_2_of_4_zero_3",
     [](plan::PlanSpec& s) {
       s.mesh.tensor = s.mesh.data = s.mesh.expert = 2, s.mesh.sequence_parallel = true, s.mesh.expert_tensor = 1,
       s.states.zero_stage = 3;
     }},
    {"split_2_of_tensor_4", [](plan::PlanSpec& s) { fold(s, 4, 2, 1); }},
    {"split_2_of_tensor_4_expert_2", [](plan::PlanSpec& s) { fold(s, 4, 2, 2); }},
    {"split_2_of_tensor_4_expert_2_data_2", [](plan::PlanSpec& s) { fold(s, 4, 2, 2, 2); }},
    {"split_2_of_tensor_4_expert_4_data_2", [](plan::PlanSpec& s) { fold(s, 4, 2, 4, 2); }},
    {"split_2_of_tensor_4_expert_2_pipeline_2", [](plan::PlanSpec& s) { fold(s, 4, 2, 2), s.mesh.pipeline = 2; }},
    {"split_2_of_tensor_4_expert_2_dualpipe",
     [](plan::PlanSpec& s) {
       fold(s, 4, 2, 2), s.mesh.pipeline = s.stages.virtual_stages = 2, s.shape.micro_batch = 1;
       s.stages.order = plan::Order::dualpipe;
     }},
    {"split_2_of_tensor_4_expert_2_zero_1",
     [](plan::PlanSpec& s) { fold(s, 4, 2, 2, 2), s.states.zero_stage = 1, s.states.overlap_gradients = true; }},
    {"split_2_of_tensor_4_expert_2_zero_2", [](plan::PlanSpec& s) { fold(s, 4, 2, 2, 2), s.states.zero_stage = 2; }},
    {"split_2_of_tensor_4_expert_2_zero_3", [](plan::PlanSpec& s) { fold(s, 4, 2, 2, 2), s.states.zero_stage = 3; }},
    {"split_2_of_tensor_4_expert_2_recomputed",
     [](plan::PlanSpec& s) { fold(s, 4, 2, 2), s.recomputation.what = plan::Recompute::full; }},
    {"split_2_of_tensor_4_experts_recomputed",
     [](plan::PlanSpec& s) {
       fold(s, 4, 2, 2), s.recomputation.what = plan::Recompute::selective;
       s.recomputation.modules = plan::Modules().with(plan::Module::experts).with(plan::Module::norms);
     }},
    {"split_2_over_data_4_expert_2", [](plan::PlanSpec& s) { fold(s, 1, 2, 2, 4); }},
    {"split_4_of_tensor_2_zero_1", [](plan::PlanSpec& s) { fold(s, 2, 4, 1, 4), s.states.zero_stage = 1; }},
    {"split_4_of_tensor_2_expert_2_zero_3",
     [](plan::PlanSpec& s) { fold(s, 2, 4, 2, 4), s.states.zero_stage = 3, s.shape.micro_batch = 1; }},
    {"split_2_over_context_2_expert_2", [](plan::PlanSpec& s) { fold(s, 1, 2, 2, 2), s.mesh.context = 2; }},
};

TEST(Weights, OfAnotherNumberOfExpertsSayHowMany) {
  for (const std::int64_t count : {4, 16}) {
    Trial trial = testing::golden_mixture("mixtral");
    trial.model.experts.count = count;
    const auto file = SafetensorsFile::open(trial.training.initial_weights);
    ASSERT_TRUE(file);
    const auto source = file_source(*file, plan::lower(testing::plan_of(trial)), &trial.model);
    ASSERT_FALSE(source);
    const std::string all = base::render(source.error(), false);
    EXPECT_NE(all.find("these weights have 8 experts, not " + std::to_string(count)), std::string::npos) << all;
  }
}

class MixtureEqualToSerial : public ::testing::TestWithParam<std::tuple<Mixture, MixtureSplit>> {};

TEST_P(MixtureEqualToSerial, InLossGradientsAndWeights) {
  const auto& [mixture, split] = GetParam();
  Trial trial = mixture_trial(mixture);
  split.set(trial.spec);
  const models::Experts e = trial.model.experts;
  if (e.capacity_factor > 0 && (trial.spec.mesh.context > 1 || trial.spec.mesh.routes_own_rows()))
    GTEST_SKIP() << "refused: P125";
  if (e.aux_coefficient > 0 && trial.spec.stages.mirrors()) GTEST_SKIP() << "refused: P124";
  const Outcome& alone = testing::serial_mixture(mixture);
  const Outcome ours = testing::train(trial);
  ASSERT_EQ(ours.steps.size(), 20U);
  const double loss = testing::loss_distance(ours, alone);
  const double first = testing::relative_distance(ours.gradients.at(0), alone.gradients.at(0));
  const double last = testing::relative_distance(ours.gradients.at(19), alone.gradients.at(19));
  std::printf("[ errors   ] %-24s %-32s loss %.1e  gradient at step 1 %.1e  at step 20 %.1e\n", mixture.name,
              split.name, loss, first, last);
  EXPECT_LE(loss, 1e-5);
  EXPECT_LE(first, 1e-5);
  EXPECT_LE(last, 1e-4);
  EXPECT_LE(testing::relative_distance(ours.weights, alone.weights), 1e-4);
}

std::string name_of_mixture_and_split(const ::testing::TestParamInfo<std::tuple<Mixture, MixtureSplit>>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
}

/// A third of all pairs, in which every mixture and every split is; or the two thirds that are left.
std::vector<std::tuple<Mixture, MixtureSplit>> pairs_of_mixtures_and_splits(bool share) {
  std::vector<std::tuple<Mixture, MixtureSplit>> pairs;
  std::size_t diagonal = 0;
  for (const Mixture& mixture : testing::kMixtures) {
    std::size_t place = diagonal++;
    for (const MixtureSplit& split : kMixtureSplits)
      if ((place++ % 3 == 0) == share) pairs.emplace_back(mixture, split);
  }
  return pairs;
}
INSTANTIATE_TEST_SUITE_P(Share, MixtureEqualToSerial, ::testing::ValuesIn(pairs_of_mixtures_and_splits(true)),
                         name_of_mixture_and_split);
INSTANTIATE_TEST_SUITE_P(Rest, MixtureEqualToSerial, ::testing::ValuesIn(pairs_of_mixtures_and_splits(false)),
                         name_of_mixture_and_split);

}  // namespace experts_test
}  // namespace orrery::exec

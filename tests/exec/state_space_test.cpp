// Nemotron-H's and Qwen3-Next's patterns in training from seeded weights: every split gives the serial run's numbers
// over 20 steps, bf16 follows fp32, and seeded decays and step widths are those of Mamba-2.
#include <gtest/gtest.h>

#include <cmath>

#include "exec/state/initialise.h"
#include "tests/exec/families.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace state_space_test {

using testing::Outcome;
using testing::Trial;

Trial hybrid_trial(models::Family family = models::Family::nemotron_h) {
  Trial trial = testing::golden_trial("cosine_clipped");
  testing::make_family(trial.model, family);
  trial.model.layers = 4;
  trial.model.norm_epsilon = 1e-5;
  trial.training.initial_weights.clear();
  return trial;
}

struct HybridSplit {
  const char* name;
  void (*set)(plan::PlanSpec&);
};

const HybridSplit kHybridSplits[] = {
    {"data_2", [](plan::PlanSpec& s) { s.mesh.data = 2; }},
    {"tensor_2", [](plan::PlanSpec& s) { s.mesh.tensor = 2; }},
    {"rows_over_tensor_2", [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
    {"one_f_one_b_2", [](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = plan::Order::one_f_one_b; }},
    {"interleaved_2",
     [](plan::PlanSpec& s) {
       s.mesh.pipeline = s.stages.virtual_stages = 2, s.stages.order = plan::Order::one_f_one_b;
     }},
    {"zero_bubble_2_tensor_2",
     [](plan::PlanSpec& s) {
       s.mesh.pipeline = s.mesh.tensor = 2, s.mesh.sequence_parallel = true, s.stages.order = plan::Order::zb_h1;
     }},
    {"zero_1", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }},
    {"zero_2", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }},
    {"zero_3", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }},
    {"zero_3_tensor_2_recomputed",
     [](plan::PlanSpec& s) {
       s.mesh.data = s.mesh.tensor = 2, s.states.zero_stage = 3, s.recomputation.what = plan::Recompute::full;
     }},
    {"recomputed", [](plan::PlanSpec& s) { s.recomputation.what = plan::Recompute::full; }},
    {"norms_and_mlp_recomputed",
     [](plan::PlanSpec& s) {
       s.recomputation.what = plan::Recompute::selective;
       s.recomputation.modules = s.recomputation.modules.with(plan::Module::norms).with(plan::Module::mlp);
     }},
};

const HybridSplit kExpertSplits[] = {
    {"experts_2", [](plan::PlanSpec& s) { s.mesh.data = s.mesh.expert = 2; }},
    {"experts_2_pipeline_2_zero_1",
     [](plan::PlanSpec& s) { s.mesh.data = s.mesh.expert = s.mesh.pipeline = 2, s.states.zero_stage = 1; }},
    {"experts_2_rows_over_tensor_2",
     [](plan::PlanSpec& s) { s.mesh.data = s.mesh.expert = s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
};

void expect_equal_to_serial(const HybridSplit& split, models::Family family, const Outcome& alone) {
  Trial here = hybrid_trial(family);
  split.set(here.spec);
  const Outcome ours = testing::train(here);
  ASSERT_EQ(ours.steps.size(), 20U);
  EXPECT_LT(alone.steps.back().loss, alone.steps.front().loss - 0.1) << "nothing was learned";
  const double loss = testing::loss_distance(ours, alone);
  const double first = testing::relative_distance(ours.gradients.at(0), alone.gradients.at(0));
  const double last = testing::relative_distance(ours.gradients.at(19), alone.gradients.at(19));
  std::printf("[ errors   ] %-28s loss %.1e  gradient at step 1 %.1e  at step 20 %.1e\n", split.name, loss, first,
              last);
  EXPECT_LE(loss, 1e-5);
  EXPECT_LE(first, 1e-5);
  EXPECT_LE(last, 1e-4);
  EXPECT_LE(testing::relative_distance(ours.weights, alone.weights), 1e-4);
}

class HybridEqualToSerial : public ::testing::TestWithParam<HybridSplit> {};

TEST_P(HybridEqualToSerial, InLossGradientsAndWeights) {
  static const Outcome alone = testing::train(hybrid_trial());
  expect_equal_to_serial(GetParam(), models::Family::nemotron_h, alone);
}

INSTANTIATE_TEST_SUITE_P(Splits, HybridEqualToSerial, ::testing::ValuesIn(kHybridSplits),
                         [](const auto& one) { return std::string(one.param.name); });

class GatedDeltaEqualToSerial : public ::testing::TestWithParam<HybridSplit> {};

TEST_P(GatedDeltaEqualToSerial, InLossGradientsAndWeights) {
  static const Outcome alone = testing::train(hybrid_trial(models::Family::qwen3_next));
  expect_equal_to_serial(GetParam(), models::Family::qwen3_next, alone);
}

INSTANTIATE_TEST_SUITE_P(Splits, GatedDeltaEqualToSerial, ::testing::ValuesIn(kHybridSplits),
                         [](const auto& one) { return std::string(one.param.name); });
INSTANTIATE_TEST_SUITE_P(OfExperts, GatedDeltaEqualToSerial, ::testing::ValuesIn(kExpertSplits),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(HybridTraining, InBf16FollowsFp32) {
  for (const models::Family family : {models::Family::nemotron_h, models::Family::qwen3_next}) {
    Trial trial = hybrid_trial(family);
    const Outcome exact = testing::train(trial);
    trial.spec.numerics.precision = models::DType::bf16;
    trial.spec.mesh.tensor = 2;
    EXPECT_LE(testing::loss_distance(testing::train(trial), exact), 5e-3) << models::name_of(family);
  }
}

// Muon takes the weights of products, and leaves the convolution, whose tensor
// is no matrix, to AdamW.
TEST(HybridTraining, ByMuonIsTheSameOnTwoRanks) {
  Trial trial = hybrid_trial();
  trial.training.optimizer = testing::optimizer_of(plan::OptimizerKind::muon);
  trial.steps = 3;
  trial.gradients_at = {0};
  const Outcome alone = testing::train(trial);
  trial.spec.mesh.data = 2, trial.spec.states.zero_stage = 1;
  EXPECT_LE(testing::loss_distance(testing::train(trial), alone), 1e-5);
}

// Experts in blocks of their own, as in Nemotron 3 Nano.
TEST(HybridTraining, WithExpertsIsTheSameOverAnExpertGroup) {
  Trial trial = hybrid_trial();
  models::Model& m = trial.model;
  testing::make_mixture(m);
  m.experts.shared = 24;
  m.pattern = {{models::Mixer::mamba, models::Feed::none},
               {models::Mixer::none, models::Feed::experts},
               {models::Mixer::attention, models::Feed::none},
               {models::Mixer::none, models::Feed::experts}};
  trial.steps = 5;
  trial.gradients_at = {0};
  const Outcome alone = testing::train(trial);
  for (const std::int64_t pipeline : {1, 2}) {
    Trial split = trial;
    split.spec.mesh.data = split.spec.mesh.expert = 2, split.spec.mesh.pipeline = static_cast<int>(pipeline);
    const Outcome ours = testing::train(split);
    EXPECT_LE(testing::loss_distance(ours, alone), 1e-5);
    EXPECT_LE(testing::relative_distance(ours.gradients.at(0), alone.gradients.at(0)), 1e-5);
  }
}

TEST(SeededStateSpaces, DecayAndStepAsMambas) {
  const auto drawn = [](models::Initial initial) {
    plan::ParameterRange range;
    range.name = "h.0.ssm.a_log";
    range.tensor.initial = initial;
    std::vector<float> values(4096);
    seeded_source(7, 1)(range, 0, values);
    std::vector<float> tail(96);
    seeded_source(7, 1)(range, 4000, tail);
    EXPECT_TRUE(std::equal(tail.begin(), tail.end(), values.begin() + 4000)) << "a shard draws other values";
    return values;
  };
  double rates = 0, widths = 0;
  for (const float a : drawn(models::Initial::decay_log)) {
    const double rate = std::exp(static_cast<double>(a));
    EXPECT_TRUE(rate >= 1 && rate <= 16.0001) << rate;
    rates += rate / 4096;
  }
  for (const float b : drawn(models::Initial::step_width)) {
    const double width = std::log1p(std::exp(static_cast<double>(b)));
    EXPECT_TRUE(width >= 0.00099 && width <= 0.1001) << width;
    widths += std::log(width) / 4096;
  }
  EXPECT_NEAR(rates, 8.5, 0.3);
  EXPECT_NEAR(widths, std::log(0.01), 0.1) << "the mean of the logarithms of 0.001 and 0.1";
}

}  // namespace state_space_test
}  // namespace orrery::exec

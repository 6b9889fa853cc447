// Other models and other shapes than the golden one: split runs equal the serial run of the same model, from seeded
// weights, in shuffled order.
#include <gtest/gtest.h>

#include "tests/exec/training.h"

namespace orrery::exec {
namespace {

using testing::Outcome;
using testing::Trial;

Trial seeded_trial() {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.training.initial_weights.clear();
  trial.training.order = plan::DataOrder::shuffled;
  trial.steps = 6;
  trial.gradients_at = {0, 5};
  return trial;
}

Trial llama_trial() {
  Trial trial = seeded_trial();
  models::Model& m = trial.model;
  m.family = models::Family::llama;
  m.kv_heads = 2;
  m.ffn_hidden = 96;
  m.normalisation = models::Normalisation::rms_norm;
  m.activation = models::Activation::swiglu;
  m.positions = models::Positions::rope;
  m.bias = false;
  m.tied_embeddings = false;
  return trial;
}

void expect_equal(Trial serial, const std::function<void(plan::PlanSpec&)>& split) {
  const Outcome one = testing::train(serial);
  Trial several = serial;
  split(several.spec);
  const Outcome other = testing::train(several);
  ASSERT_EQ(other.steps.size(), one.steps.size());
  EXPECT_LT(one.steps.back().loss, one.steps.front().loss) << "nothing was learnt";
  EXPECT_LE(testing::loss_distance(other, one), 1e-5);
  for (const auto& [step, gradients] : one.gradients)
    EXPECT_LE(testing::relative_distance(other.gradients.at(step), gradients), 1e-5) << "step " << step + 1;
  for (std::size_t i = 0; i < one.steps.size(); ++i)
    EXPECT_NEAR(other.steps[i].gradient_norm, one.steps[i].gradient_norm, 1e-5 * one.steps[i].gradient_norm)
        << "step " << i + 1;
}

TEST(EqualModels, LlamaWithGroupedQueriesOverTensorRanks) {
  expect_equal(llama_trial(), [](plan::PlanSpec& s) { s.tensor = 2; });
}

TEST(EqualModels, LlamaWithItsOwnHeadOverStagesAndShards) {
  expect_equal(llama_trial(), [](plan::PlanSpec& s) { s.pipeline = 2, s.data = 2, s.zero_stage = 1; });
}

TEST(EqualModels, FourUnevenStagesWithTheTiedTableOnFirstAndLast) {
  Trial trial = seeded_trial();
  trial.model.layers = 5;
  expect_equal(trial, [](plan::PlanSpec& s) { s.pipeline = 4, s.micro_batch = 1; });
}

TEST(EqualModels, FourStagesOfTwoReplicas) {
  Trial trial = seeded_trial();
  trial.model.layers = 4;
  expect_equal(trial, [](plan::PlanSpec& s) { s.pipeline = 4, s.data = 2, s.micro_batch = 1, s.zero_stage = 2; });
}

TEST(EqualModels, ThreeReplicasWhoseShardsDoNotMeetParameterBorders) {
  Trial trial = seeded_trial();
  trial.spec.batch = 6;
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(zero);
    expect_equal(trial, [zero](plan::PlanSpec& s) { s.data = 3, s.zero_stage = zero; });
  }
}

TEST(EqualModels, AVocabularyThatMustBePaddedDifferentlyForEachSplit) {
  Trial trial = seeded_trial();
  trial.model.vocab = 65;
  expect_equal(trial, [](plan::PlanSpec& s) { s.tensor = 4; });
}

TEST(EqualModels, WithoutClippingTheNormIsStillTheSame) {
  Trial trial = seeded_trial();
  trial.training.clip_norm.reset();
  expect_equal(trial, [](plan::PlanSpec& s) {
    s.data = 2, s.tensor = 2, s.zero_stage = 3, s.recompute = plan::Recompute::full;
  });
}

TEST(Determinism, TwoRunsOfOnePlanAreBitwiseEqual) {
  Trial trial = seeded_trial();
  trial.spec.data = 2;
  trial.spec.pipeline = 2;
  const Outcome a = testing::train(trial), b = testing::train(trial);
  for (std::size_t i = 0; i < a.steps.size(); ++i) EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
  for (const auto& [name, tensor] : a.weights) EXPECT_EQ(tensor.values, b.weights.at(name).values) << name;
}

TEST(Determinism, AnotherSeedGivesAnotherRun) {
  Trial trial = seeded_trial();
  const Outcome a = testing::train(trial);
  trial.training.seed = 2;
  EXPECT_NE(a.steps.front().loss, testing::train(trial).steps.front().loss);
}

}  // namespace
}  // namespace orrery::exec

// Adapters (LoRA): their gradients follow from those of the whole weights, nothing else moves, and every split gives
// the serial run's numbers.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/exec/families.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace lora_test {

using testing::Outcome;
using testing::Trial;

constexpr std::int64_t kRank = 4;
constexpr double kScale = 2;

Trial adapted(const std::function<void(models::Model&)>& change = {}) {
  Trial trial = testing::golden_trial("cosine_clipped");
  if (change) {
    change(trial.model);
    trial.training.initial_weights.clear();
  }
  trial.model.lora = {.rank = kRank, .alpha = kScale * kRank};
  trial.training.clip_norm.reset();
  return trial;
}

bool is_adapter(const std::string& name) {
  return name.find(".lora_") != std::string::npos;
}

/// B begins at zero, so the first gradient of A is none, and that of B is scale dW A^T, dW being the gradient of the
/// whole weight, which the same model without adapters has.
TEST(Adapters, HaveTheGradientsThatFollowFromTheWholeWeights) {
  Trial whole = adapted(), narrow = adapted();
  whole.model.lora = {};
  whole.steps = narrow.steps = 1;
  whole.gradients_at = narrow.gradients_at = {0};
  const LogicalTensors of_weights = testing::train(whole).gradients.at(0);
  Trial untouched = narrow;
  untouched.steps = 0;
  const LogicalTensors start = testing::train(untouched).weights;
  const LogicalTensors of_adapters = testing::train(narrow).gradients.at(0);
  int compared = 0;
  for (const auto& [name, gradient] : of_adapters) {
    ASSERT_TRUE(is_adapter(name)) << name << " is frozen";
    if (name.ends_with(".lora_a")) {
      for (const float value : gradient.values) ASSERT_EQ(value, 0) << name;
      continue;
    }
    const std::string weight = name.substr(0, name.size() - std::string(".lora_b").size());
    // q, k and v share an A, and so would gate and up.
    std::string shared = weight;
    for (const char* part : {".attn.q.", ".attn.k.", ".attn.v."})
      if (const auto at = shared.find(part); at != std::string::npos)
        shared.replace(at, std::string(part).size(), ".attn.qkv.");
    const std::vector<float>& dw = of_weights.at(weight).values;
    const std::vector<float>& a = start.at(shared + ".lora_a").values;
    const auto in = static_cast<std::int64_t>(a.size()) / kRank, out = static_cast<std::int64_t>(dw.size()) / in;
    double difference = 0, norm = 0;
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t r = 0; r < kRank; ++r) {
        double expected = 0;
        for (std::int64_t i = 0; i < in; ++i)
          expected += kScale * static_cast<double>(dw[static_cast<std::size_t>(o * in + i)]) *
                      static_cast<double>(a[static_cast<std::size_t>(r * in + i)]);
        const double found = static_cast<double>(gradient.values[static_cast<std::size_t>(o * kRank + r)]);
        difference += (found - expected) * (found - expected);
        norm += expected * expected;
      }
    EXPECT_LT(difference, 1e-10 * norm) << name;
    ++compared;
  }
  EXPECT_EQ(compared, narrow.model.layers * 6) << "q, k, v, the projection, and the MLP's two products of each block";
}

TEST(Adapters, TrainAloneAndLowerTheLoss) {
  const Trial trial = adapted();
  Trial untouched = trial;
  untouched.steps = 0;
  const LogicalTensors before = testing::train(untouched).weights;
  const Outcome after = testing::train(trial);
  ASSERT_EQ(before.size(), after.weights.size());
  for (const auto& [name, tensor] : after.weights)
    EXPECT_EQ(tensor.values == before.at(name).values, !is_adapter(name)) << name;
  EXPECT_LT(after.steps.back().loss, after.steps.front().loss);
}

TEST(Adapters, AreOfTheProductsThatAreNamed) {
  Trial trial = adapted();
  trial.model.lora.qkv = trial.model.lora.up = trial.model.lora.down = false;
  trial.steps = 1;
  for (const auto& [name, tensor] : testing::train(trial).weights) {
    if (is_adapter(name)) {
      EXPECT_NE(name.find(".attn.proj."), std::string::npos) << name;
    }
  }
}

struct Split {
  const char* name;
  std::function<void(plan::PlanSpec&)> change;
};

std::vector<Split> splits() {
  using plan::Order;
  return {{"data", [](plan::PlanSpec& s) { s.mesh.data = 2; }},
          {"zero 1", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }},
          {"zero 2", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }},
          {"zero 3", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }},
          {"tensor", [](plan::PlanSpec& s) { s.mesh.tensor = 2; }},
          {"rows over tensor", [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
          {"pipeline", [](plan::PlanSpec& s) { s.mesh.pipeline = 2; }},
          {"context", [](plan::PlanSpec& s) { s.mesh.context = 2; }},
          {"recompute", [](plan::PlanSpec& s) { s.recomputation.what = plan::Recompute::full; }},
          {"zero bubble", [](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = Order::zb_h1; }},
          {"early", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.overlap_gradients = true; }},
          {"all", [](plan::PlanSpec& s) {
             s.mesh.data = 2, s.mesh.tensor = 2, s.mesh.pipeline = 2, s.states.zero_stage = 1,
             s.mesh.sequence_parallel = true;
           }}};
}

void expect_equal_to_serial(const Trial& trial, const char* family) {
  const Outcome serial = testing::train(trial);
  for (const Split& split : splits()) {
    Trial other = trial;
    split.change(other.spec);
    const Outcome out = testing::train(other);
    const double loss = testing::loss_distance(out, serial);
    const double first = testing::relative_distance(out.gradients.at(0), serial.gradients.at(0));
    const double last = testing::relative_distance(out.gradients.at(19), serial.gradients.at(19));
    std::printf("[ errors   ] %s, %-16s loss %.1e  gradient at step 1 %.1e  at step 20 %.1e\n", family, split.name,
                loss, first, last);
    EXPECT_LT(loss, 1e-5) << split.name;
    EXPECT_LT(first, 1e-5) << split.name;
    EXPECT_LT(last, 1e-3) << split.name;
  }
}

// The ends of the pipeline hold the embedding and the head, and no adapter: they join in gathering gradients all the
// same.
TEST(Adapters, HaveTheSerialGradientsWhereSomeStagesTrainNothing) {
  Trial trial = adapted();
  trial.steps = 2;
  trial.gradients_at = {0, 1};
  const Outcome serial = testing::train(trial);
  const std::int64_t layers = trial.model.layers;
  trial.spec.mesh.pipeline = 4;
  trial.spec.stages.layers_per_stage = {0, 1, layers - 1, 0};
  const Outcome out = testing::train(trial);
  for (const std::int64_t step : trial.gradients_at) {
    ASSERT_EQ(out.gradients.at(step).size(), serial.gradients.at(step).size());
    EXPECT_LT(testing::relative_distance(out.gradients.at(step), serial.gradients.at(step)), 1e-5) << step;
  }
}

TEST(Adapters, TrainAlikeOnEverySplitOfAGpt) {
  expect_equal_to_serial(adapted(), "gpt");
}

TEST(Adapters, TrainAlikeOnEverySplitOfALlama) {
  expect_equal_to_serial(adapted(testing::make_llama), "llama");
}

// What these sum up over whole tensors is cleared by the first bucket that trains, which is not the first of all.
TEST(Adapters, TrainWithOptimizersOfWholeTensors) {
  for (const plan::OptimizerKind kind : {plan::OptimizerKind::lamb, plan::OptimizerKind::adafactor}) {
    Trial trial = adapted();
    trial.training.optimizer.kind = trial.spec.states.optimizer = kind;
    const Outcome serial = testing::train(trial);
    EXPECT_LT(serial.steps.back().loss, serial.steps.front().loss) << plan::name_of(kind);
    trial.spec.mesh.data = trial.spec.mesh.pipeline = 2, trial.spec.states.zero_stage = 1;
    EXPECT_LT(testing::loss_distance(testing::train(trial), serial), 1e-5) << plan::name_of(kind);
  }
}

TEST(Adapters, TrainBesideSinks) {
  const Trial trial = adapted(testing::make_gpt_oss);
  const Outcome serial = testing::train(trial);
  Trial split = trial;
  split.spec.mesh.tensor = 2;
  EXPECT_LT(testing::loss_distance(testing::train(split), serial), 1e-5);
}

TEST(Adapters, TrainBesideFrozenExperts) {
  Trial trial = adapted([](models::Model& m) {
    testing::make_llama(m);
    m.experts = {.count = 4, .chosen = 2, .hidden = 32};
  });
  const Outcome serial = testing::train(trial);
  EXPECT_NE(serial.weights.at("h.0.attn.proj.weight.lora_b").values.front(), 0) << "it has moved";
  trial.spec.mesh.data = trial.spec.mesh.expert = 2;
  EXPECT_LT(testing::loss_distance(testing::train(trial), serial), 1e-5);
}

TEST(Adapters, TrainInSixteenBits) {
  Trial trial = adapted();
  trial.spec.numerics.precision = models::DType::bf16;
  const Outcome out = testing::train(trial);
  EXPECT_LT(out.steps.back().loss, out.steps.front().loss);
}

}  // namespace lora_test
}  // namespace orrery::exec

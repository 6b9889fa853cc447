// Evaluation on held-out data: the training step's own forward passes, on every kind of plan, without a trace in the
// training.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/exec/training.h"

namespace orrery::exec {
namespace evaluation_test {

using testing::Outcome;
using testing::Trial;

Trial evaluated_trial() {
  Trial trial = testing::golden_trial("constant");
  trial.model.layers = 4;
  trial.training.initial_weights.clear();
  trial.training.order = plan::DataOrder::shuffled;
  trial.training.evaluation = plan::Evaluation{trial.training.data, 1, 2};
  trial.spec.shape.micro_batch = 1;
  trial.steps = 3;
  trial.gradients_at = {};
  return trial;
}

// Before the first step the parameters are those of step 1, and in sequential order its tokens are the first batch.
TEST(Evaluation, OfTheFirstBatchIsTheFirstStepsLoss) {
  Trial trial = evaluated_trial();
  trial.training.order = plan::DataOrder::sequential;
  trial.training.evaluation->batches = 1;
  const Outcome outcome = testing::train(trial);
  EXPECT_EQ(outcome.held_out.at(0), outcome.steps.at(0).loss);
  EXPECT_LT(outcome.held_out.back(), outcome.held_out.front()) << "nothing was learnt";
}

TEST(Evaluation, LeavesNoTraceInTheTraining) {
  for (const int zero : {0, 3}) {
    Trial trial = evaluated_trial();
    trial.spec.mesh.data = 2, trial.spec.mesh.pipeline = 2, trial.spec.states.zero_stage = zero;
    const Outcome with = testing::train(trial);
    trial.training.evaluation.reset();
    const Outcome without = testing::train(trial);
    for (std::size_t i = 0; i < with.steps.size(); ++i) EXPECT_EQ(with.steps[i].loss, without.steps[i].loss);
    for (const auto& [name, tensor] : without.weights) EXPECT_EQ(with.weights.at(name).values, tensor.values) << name;
    for (std::size_t rank = 0; rank < with.memory.size(); ++rank)
      EXPECT_EQ(with.memory[rank].peak_extent, without.memory[rank].peak_extent);
  }
}

class Evaluated : public ::testing::TestWithParam<std::pair<const char*, void (*)(plan::PlanSpec&)>> {};

TEST_P(Evaluated, EqualsSerial) {
  static const Outcome serial = testing::train(evaluated_trial());
  Trial trial = evaluated_trial();
  GetParam().second(trial.spec);
  const Outcome split = testing::train(trial);
  ASSERT_EQ(split.held_out.size(), 4U);
  for (std::size_t i = 0; i < split.held_out.size(); ++i)
    EXPECT_NEAR(split.held_out[i], serial.held_out[i], 1e-5 * serial.held_out[i]) << "after step " << i;
}

using plan::Order;
INSTANTIATE_TEST_SUITE_P(
    Plans, Evaluated,
    ::testing::Values(
        std::make_pair("data_2_zero_0", [](plan::PlanSpec& s) { s.mesh.data = 2; }),
        std::make_pair("data_2_zero_1", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }),
        std::make_pair("data_4_zero_2", [](plan::PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 2; }),
        std::make_pair("data_2_zero_3_recompute",
                       [](plan::PlanSpec& s) {
                         s.mesh.data = 2, s.states.zero_stage = 3, s.recomputation.what = plan::Recompute::full;
                       }),
        std::make_pair("tensor_2_sequence",
                       [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }),
        std::make_pair("pipeline_2_gpipe",
                       [](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = Order::gpipe; }),
        std::make_pair("pipeline_4", [](plan::PlanSpec& s) { s.mesh.pipeline = 4; }),
        std::make_pair("pipeline_2_uneven",
                       [](plan::PlanSpec& s) {
                         s.mesh.pipeline = 2, s.stages.layers_per_stage = {3, 1};
                       }),
        std::make_pair("interleaved", [](plan::PlanSpec& s) { s.mesh.pipeline = s.stages.virtual_stages = 2; }),
        std::make_pair("zb_h1", [](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = Order::zb_h1; }),
        std::make_pair("zb_h2", [](plan::PlanSpec& s) { s.mesh.pipeline = 4, s.stages.order = Order::zb_h2; }),
        std::make_pair("zb_v",
                       [](plan::PlanSpec& s) {
                         s.mesh.pipeline = s.stages.virtual_stages = 2, s.stages.order = Order::zb_v;
                       }),
        std::make_pair("context_2", [](plan::PlanSpec& s) { s.mesh.context = 2; }),
        std::make_pair("context_2_tensor_2_pipeline_2_zero_1",
                       [](plan::PlanSpec& s) {
                         s.mesh.context = s.mesh.tensor = s.mesh.pipeline = 2, s.states.zero_stage = 1;
                       })),
    [](const auto& one) { return std::string(one.param.first); });

}  // namespace evaluation_test
}  // namespace orrery::exec

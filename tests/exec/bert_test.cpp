// BERT on every axis: split runs equal the serial run of the same model, from seeded weights, in shuffled order.
#include <gtest/gtest.h>

#include <cmath>

#include "plan/schedule/place.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace bert_test {

using plan::Order;
using testing::Outcome;
using testing::Trial;

/// Four layers, so that stages can have chunks; trained with LAMB, as BERT was by those who named it.
Trial bert_trial() {
  Trial trial = testing::golden_bert();
  trial.training.initial_weights.clear();
  trial.training.order = plan::DataOrder::shuffled;
  trial.model.layers = 4;
  trial.training.optimizer = {plan::OptimizerKind::lamb, 1e-2, 0.9, 0.999, 1e-6, 0.01};
  trial.steps = 20;
  trial.gradients_at = {0, 19};
  return trial;
}

class Bert : public ::testing::TestWithParam<std::pair<const char*, void (*)(plan::PlanSpec&)>> {
 protected:
  static const Outcome& serial() {
    static const Outcome outcome = testing::train(bert_trial());
    return outcome;
  }
};

TEST_P(Bert, EqualsSerialInLossGradientsAndMemory) {
  Trial trial = bert_trial();
  GetParam().second(trial.spec);
  const Outcome split = testing::train(trial);
  const double loss = testing::loss_distance(split, serial());
  const double first = testing::relative_distance(split.gradients.at(0), serial().gradients.at(0));
  const double last = testing::relative_distance(split.gradients.at(19), serial().gradients.at(19));
  EXPECT_LE(loss, 1e-5);
  EXPECT_LE(first, 1e-5);
  EXPECT_LE(last, 1e-5);
  std::printf("[ errors   ] %-28s loss %.1e  gradient at step 1 %.1e  at step 20 %.1e\n", GetParam().first, loss, first,
              last);
  for (std::size_t rank = 0; rank < split.memory.size(); ++rank) {
    // A stage of an end alone may have a smaller kind of slab at the top of its pool.
    EXPECT_LE(split.memory[rank].peak_extent, split.placements[rank].arena_bytes) << "rank " << rank;
    EXPECT_GE(split.memory[rank].peak_extent + (trial.spec.stages.ends_as_layers ? plan::kAlignment : 0),
              split.placements[rank].arena_bytes)
        << "rank " << rank;
    EXPECT_EQ(split.memory[rank].peak_live, split.placements[rank].peak_live_bytes) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Bert,
    ::testing::Values(
        std::make_pair("data_2", [](plan::PlanSpec& s) { s.mesh.data = 2; }),
        std::make_pair("data_2_overlapped",
                       [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.overlap_gradients = true; }),
        std::make_pair("data_4_zero_1", [](plan::PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 1; }),
        std::make_pair("data_2_zero_2", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }),
        std::make_pair("data_2_zero_3", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }),
        std::make_pair("tensor_2", [](plan::PlanSpec& s) { s.mesh.tensor = 2; }),
        std::make_pair("tensor_4_sequence",
                       [](plan::PlanSpec& s) { s.mesh.tensor = 4, s.mesh.sequence_parallel = true; }),
        std::make_pair("pipeline_2", [](plan::PlanSpec& s) { s.mesh.pipeline = 2; }),
        std::make_pair("pipeline_4_gpipe",
                       [](plan::PlanSpec& s) { s.mesh.pipeline = 4, s.stages.order = Order::gpipe; }),
        std::make_pair("interleaved",
                       [](plan::PlanSpec& s) {
                         s.mesh.pipeline = s.stages.virtual_stages = 2, s.shape.micro_batch = 1;
                       }),
        std::make_pair("zb_h1", [](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = Order::zb_h1; }),
        std::make_pair("zb_v",
                       [](plan::PlanSpec& s) {
                         s.mesh.pipeline = s.stages.virtual_stages = 2, s.stages.order = Order::zb_v;
                       }),
        std::make_pair("ends_alone", [](plan::PlanSpec& s) { s.mesh.pipeline = 6, s.stages.ends_as_layers = true; }),
        std::make_pair("recompute", [](plan::PlanSpec& s) { s.recomputation.what = plan::Recompute::full; }),
        std::make_pair("unfused_selective",
                       [](plan::PlanSpec& s) {
                         s.numerics.flash = false, s.recomputation.what = plan::Recompute::selective;
                       }),
        std::make_pair("activations_offloaded", [](plan::PlanSpec& s) { s.offload.activations = plan::Space::host; }),
        std::make_pair("parameters_offloaded_zero_3",
                       [](plan::PlanSpec& s) {
                         s.mesh.data = 2, s.states.zero_stage = 3, s.offload.parameters = plan::Space::host;
                       }),
        std::make_pair("all_axes",
                       [](plan::PlanSpec& s) {
                         s.mesh.data = s.mesh.tensor = s.mesh.pipeline = 2, s.states.zero_stage = 1,
                         s.mesh.sequence_parallel = true;
                         s.recomputation.what = plan::Recompute::full, s.states.overlap_gradients = true;
                       })),
    [](const auto& one) { return std::string(one.param.first); });

TEST(BertTraining, LearnsInSixteenBitsWhatItLearnsInThirtyTwo) {
  Trial trial = bert_trial();
  trial.training.optimizer.kind = plan::OptimizerKind::adamw;
  trial.training.optimizer.learning_rate = 3e-3;
  trial.gradients_at = {};
  const Outcome full = testing::train(trial);
  for (const models::DType precision : {models::DType::bf16, models::DType::fp16}) {
    SCOPED_TRACE(models::name_of(precision));
    Trial narrow = trial;
    narrow.spec.numerics.precision = precision;
    narrow.training.loss_scaling.initial = 1024;
    const Outcome serial = testing::train(narrow);
    EXPECT_LT(testing::loss_distance(serial, full), 0.02);
    narrow.spec.mesh.tensor = narrow.spec.mesh.data = 2;
    narrow.spec.mesh.sequence_parallel = true;
    EXPECT_LT(testing::loss_distance(testing::train(narrow), serial), 0.01);
  }
}

TEST(BertTraining, EvaluatesOnMaskedDataThatDoesNotChange) {
  Trial trial = bert_trial();
  trial.steps = 2;
  trial.gradients_at = {};
  trial.training.evaluation.emplace();
  trial.training.evaluation->data = trial.training.data;
  trial.training.evaluation->batches = 2;
  trial.training.evaluation->every = 1;
  const Outcome serial = testing::train(trial);
  ASSERT_EQ(serial.held_out.size(), 3U);
  EXPECT_NE(serial.held_out[0], serial.held_out[1]);
  trial.spec.mesh.tensor = trial.spec.mesh.pipeline = 2;
  const Outcome split = testing::train(trial);
  for (std::size_t i = 0; i < serial.held_out.size(); ++i)
    EXPECT_NEAR(split.held_out[i], serial.held_out[i], 1e-5 * serial.held_out[i]);
}

TEST(BertTraining, WithoutTheSecondHeadPredictsMaskedTokensAlone) {
  Trial trial = bert_trial();
  trial.model.next_sentence = false;
  trial.model.token_types = 0;
  trial.steps = 3;
  trial.gradients_at = {0};
  const Outcome one = testing::train(trial);
  EXPECT_NEAR(one.steps.front().loss, std::log(67.0), 0.3) << "no second loss";
  EXPECT_FALSE(one.gradients.at(0).count("pooler.weight"));
  trial.spec.mesh.tensor = trial.spec.mesh.pipeline = 2;
  EXPECT_LE(testing::loss_distance(testing::train(trial), one), 1e-5);
}

}  // namespace bert_test
}  // namespace orrery::exec

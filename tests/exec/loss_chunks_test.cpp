// The loss in chunks of rows: equal to the run with all logits at once on every axis, in memory as the schedule says,
// and less of it by the logits that are never made.
#include <gtest/gtest.h>

#include "plan/schedule/place.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace loss_chunks_test {

using plan::Order;
using testing::Outcome;
using testing::Trial;

struct Case {
  const char* name;
  bool bert;
  std::int64_t chunks;
  void (*set)(plan::PlanSpec&);
};

Trial trial_of(bool bert) {
  Trial trial = bert ? testing::golden_bert() : testing::golden_trial("cosine_clipped");
  if (!bert) {
    trial.model.layers = 4;  // so that stages can have chunks
    trial.training.initial_weights.clear();
  }
  trial.steps = 4;
  trial.gradients_at = {0, 3};
  return trial;
}

const Outcome& whole_of(bool bert) {
  static const Outcome gpt = testing::train(trial_of(false)), masked = testing::train(trial_of(true));
  return bert ? masked : gpt;
}

class LossInChunks : public ::testing::TestWithParam<Case> {};

TEST_P(LossInChunks, EqualsTheSerialRunWithAllLogitsInLossGradientsAndMemory) {
  const Case& one = GetParam();
  Trial trial = trial_of(one.bert);
  trial.spec.numerics.loss_chunks = one.chunks;
  one.set(trial.spec);
  const Outcome split = testing::train(trial);
  const Outcome& whole = whole_of(one.bert);
  EXPECT_LE(testing::loss_distance(split, whole), 1e-5);
  EXPECT_LE(testing::relative_distance(split.gradients.at(0), whole.gradients.at(0)), 1e-5);
  EXPECT_LE(testing::relative_distance(split.gradients.at(3), whole.gradients.at(3)), 1e-5);
  for (std::size_t rank = 0; rank < split.memory.size(); ++rank) {
    EXPECT_LE(split.memory[rank].peak_extent, split.placements[rank].arena_bytes) << "rank " << rank;
    EXPECT_GE(split.memory[rank].peak_extent + (trial.spec.stages.ends_as_layers ? plan::kAlignment : 0),
              split.placements[rank].arena_bytes)
        << "rank " << rank;
    EXPECT_EQ(split.memory[rank].peak_live, split.placements[rank].peak_live_bytes) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, LossInChunks,
    ::testing::Values(
        Case{"serial", false, 4, [](plan::PlanSpec&) {}}, Case{"each_row", false, 32, [](plan::PlanSpec&) {}},
        Case{"data_2_overlapped", false, 2,
             [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.overlap_gradients = true; }},
        Case{"zero_2", false, 4, [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }},
        Case{"zero_3", false, 4, [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }},
        Case{"tensor_2", false, 4, [](plan::PlanSpec& s) { s.mesh.tensor = 2; }},
        Case{"tensor_2_sequence", false, 4,
             [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
        Case{"context_2", false, 4, [](plan::PlanSpec& s) { s.mesh.context = 2; }},
        Case{"pipeline_2_gpipe", false, 4,
             [](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = Order::gpipe; }},
        Case{"interleaved", false, 2,
             [](plan::PlanSpec& s) { s.mesh.pipeline = s.stages.virtual_stages = 2, s.shape.micro_batch = 1; }},
        Case{"ends_alone", false, 4, [](plan::PlanSpec& s) { s.mesh.pipeline = 6, s.stages.ends_as_layers = true; }},
        Case{"recompute_offload", false, 4,
             [](plan::PlanSpec& s) {
               s.recomputation.what = plan::Recompute::full, s.offload.activations = plan::Space::host;
             }},
        Case{"all_axes", false, 4,
             [](plan::PlanSpec& s) {
               s.mesh.data = s.mesh.tensor = s.mesh.pipeline = 2, s.states.zero_stage = 1,
               s.mesh.sequence_parallel = true;
             }},
        Case{"bert", true, 2, [](plan::PlanSpec&) {}},
        Case{"bert_tensor_2_sequence", true, 4,
             [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(LossInChunksTraining, InSixteenBitsLearnsWhatItLearnsWithAllLogits) {
  for (const models::DType precision : {models::DType::bf16, models::DType::fp16}) {
    SCOPED_TRACE(models::name_of(precision));
    Trial trial = trial_of(false);
    trial.spec.numerics.precision = precision;
    trial.training.loss_scaling.initial = 1024;
    const Outcome whole = testing::train(trial);
    trial.spec.numerics.loss_chunks = 4;
    const Outcome chunks = testing::train(trial);
    EXPECT_LT(testing::loss_distance(chunks, whole), 1e-3);
    EXPECT_LT(testing::relative_distance(chunks.gradients.at(0), whole.gradients.at(0)), 5e-3);
  }
}

TEST(LossInChunksTraining, OfAnAsynchronousPipelineIsThatOfAllLogits) {
  Trial trial = trial_of(false);
  trial.spec.mesh.pipeline = 2, trial.spec.stages.order = Order::pipedream_2bw;
  const Outcome whole = testing::train(trial);
  trial.spec.numerics.loss_chunks = 4;
  EXPECT_LE(testing::loss_distance(testing::train(trial), whole), 1e-5);
}

TEST(LossInChunksTraining, EvaluatesInChunksToo) {
  Trial trial = trial_of(false);
  trial.gradients_at = {};
  trial.training.evaluation.emplace();
  trial.training.evaluation->data = trial.training.data;
  trial.training.evaluation->batches = 2;
  trial.training.evaluation->every = 2;
  const Outcome whole = testing::train(trial);
  ASSERT_FALSE(whole.held_out.empty());
  trial.spec.numerics.loss_chunks = 4, trial.spec.mesh.tensor = 2, trial.spec.mesh.sequence_parallel = true;
  const Outcome chunks = testing::train(trial);
  ASSERT_EQ(chunks.held_out.size(), whole.held_out.size());
  for (std::size_t i = 0; i < whole.held_out.size(); ++i)
    EXPECT_NEAR(chunks.held_out[i], whole.held_out[i], 1e-5 * whole.held_out[i]);
}

}  // namespace loss_chunks_test
}  // namespace orrery::exec

// Other models and other shapes than the golden one: split runs equal the serial run of the same model, from seeded
// weights, in shuffled order.
#include <gtest/gtest.h>

#include "plan/schedule/place.h"
#include "tests/exec/families.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace equal_models_test {

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
  testing::make_llama(trial.model);
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
  expect_equal(llama_trial(), [](plan::PlanSpec& s) { s.mesh.tensor = 2; });
}

TEST(EqualModels, LlamaWithSequenceParallelism) {
  expect_equal(llama_trial(),
               [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.pipeline = 2, s.mesh.sequence_parallel = true; });
}

TEST(EqualModels, LlamaOverRingsOfTwoFourAndEightRanks) {
  for (const int context : {2, 4, 8}) {
    SCOPED_TRACE(context);
    expect_equal(llama_trial(), [&](plan::PlanSpec& s) { s.mesh.context = context; });
  }
}

TEST(EqualModels, LlamaOverRingsOfShardsInStages) {
  expect_equal(llama_trial(), [](plan::PlanSpec& s) {
    s.mesh.context = 2, s.mesh.tensor = 2, s.mesh.pipeline = 2, s.mesh.sequence_parallel = true,
    s.recomputation.what = plan::Recompute::full;
  });
}

TEST(EqualModels, LlamaWithSelectiveRecomputation) {
  Trial trial = llama_trial();
  trial.spec.numerics.flash = false;
  expect_equal(trial, [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.recomputation.what = plan::Recompute::selective; });
}

// The golden model has two layers: interleaved chunks need more. Over 20 steps, gradients of the first and the last.
class Interleaved : public ::testing::TestWithParam<std::pair<const char*, void (*)(plan::PlanSpec&)>> {
 protected:
  static Trial deep_trial() {
    Trial trial = seeded_trial();
    trial.model.layers = 4;
    trial.steps = 20;
    trial.gradients_at = {0, 19};
    return trial;
  }
  static const Outcome& serial() {
    static const Outcome outcome = testing::train(deep_trial());
    return outcome;
  }
};

TEST_P(Interleaved, EqualsSerialInLossGradientsAndMemory) {
  Trial trial = deep_trial();
  trial.spec.mesh.pipeline = trial.spec.stages.virtual_stages = 2;
  trial.spec.shape.micro_batch = 1;
  GetParam().second(trial.spec);
  const Outcome split = testing::train(trial);
  const double loss = testing::loss_distance(split, serial());
  const double first = testing::relative_distance(split.gradients.at(0), serial().gradients.at(0));
  const double last = testing::relative_distance(split.gradients.at(19), serial().gradients.at(19));
  EXPECT_LE(loss, 1e-5);
  EXPECT_LE(first, 1e-5);
  EXPECT_LE(last, 1e-5);
  std::printf("[ errors   ] %-24s loss %.1e  gradient at step 1 %.1e  at step 20 %.1e\n", GetParam().first, loss, first,
              last);
  for (std::size_t rank = 0; rank < split.memory.size(); ++rank) {
    EXPECT_EQ(split.memory[rank].peak_extent, split.placements[rank].arena_bytes) << "rank " << rank;
    EXPECT_EQ(split.memory[rank].peak_live, split.placements[rank].peak_live_bytes) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Interleaved,
    ::testing::Values(std::make_pair("interleaved", [](plan::PlanSpec&) {}),
                      std::make_pair("interleaved_micro_batch_2", [](plan::PlanSpec& s) { s.shape.micro_batch = 2; }),
                      std::make_pair("interleaved_tensor_2_sequence",
                                     [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }),
                      std::make_pair("interleaved_data_2_zero_1",
                                     [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }),
                      std::make_pair("interleaved_data_2_zero_2",
                                     [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }),
                      std::make_pair("interleaved_data_2_zero_3_recompute",
                                     [](plan::PlanSpec& s) {
                                       s.mesh.data = 2, s.states.zero_stage = 3,
                                       s.recomputation.what = plan::Recompute::full;
                                     }),
                      std::make_pair("interleaved_data_2_overlapped",
                                     [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.overlap_gradients = true; }),
                      std::make_pair("interleaved_data_2_zero_1_overlapped",
                                     [](plan::PlanSpec& s) {
                                       s.mesh.data = 2, s.states.zero_stage = 1, s.states.overlap_gradients = true;
                                     }),
                      std::make_pair("interleaved_context_2_zero_2",
                                     [](plan::PlanSpec& s) { s.mesh.context = 2, s.states.zero_stage = 2; }),
                      std::make_pair("interleaved_selective",
                                     [](plan::PlanSpec& s) {
                                       s.numerics.flash = false, s.recomputation.what = plan::Recompute::selective;
                                     })),
    [](const auto& one) { return std::string(one.param.first); });

// Two stages, and four with more and fewer micro-batches than fill them.
class ZeroBubble : public ::testing::TestWithParam<std::pair<const char*, void (*)(plan::PlanSpec&)>> {};

TEST_P(ZeroBubble, EqualsSerialInLossGradientsAndMemory) {
  static const auto deep_trial = [] {
    Trial trial = seeded_trial();
    trial.model.layers = 8;
    trial.spec.shape.batch = 8;
    trial.steps = 20;
    trial.gradients_at = {0, 19};
    return trial;
  };
  static const Outcome serial = testing::train(deep_trial());
  Trial trial = deep_trial();
  trial.spec.mesh.pipeline = 2;
  trial.spec.shape.micro_batch = 1;
  GetParam().second(trial.spec);
  if (trial.spec.stages.folds()) trial.spec.stages.virtual_stages = 2;
  const Outcome split = testing::train(trial);
  const double loss = testing::loss_distance(split, serial);
  const double first = testing::relative_distance(split.gradients.at(0), serial.gradients.at(0));
  const double last = testing::relative_distance(split.gradients.at(19), serial.gradients.at(19));
  EXPECT_LE(loss, 1e-5);
  EXPECT_LE(first, 1e-5);
  EXPECT_LE(last, 1e-5);
  std::printf("[ errors   ] %-24s loss %.1e  gradient at step 1 %.1e  at step 20 %.1e\n", GetParam().first, loss, first,
              last);
  for (std::size_t rank = 0; rank < split.memory.size(); ++rank) {
    EXPECT_EQ(split.memory[rank].peak_extent, split.placements[rank].arena_bytes) << "rank " << rank;
    EXPECT_EQ(split.memory[rank].peak_live, split.placements[rank].peak_live_bytes) << "rank " << rank;
  }
}

using plan::Order;
INSTANTIATE_TEST_SUITE_P(
    Plans, ZeroBubble,
    ::testing::Values(
        std::make_pair("zb_h1", [](plan::PlanSpec& s) { s.stages.order = Order::zb_h1; }),
        std::make_pair("zb_h1_pipeline_4",
                       [](plan::PlanSpec& s) { s.stages.order = Order::zb_h1, s.mesh.pipeline = 4; }),
        std::make_pair("zb_h1_recompute",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::zb_h1, s.recomputation.what = plan::Recompute::full;
                       }),
        std::make_pair("zb_h1_tensor_2_sequence_zero_1",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::zb_h1, s.mesh.tensor = s.mesh.data = 2,
                         s.mesh.sequence_parallel = true, s.states.zero_stage = 1;
                       }),
        std::make_pair("zb_h2", [](plan::PlanSpec& s) { s.stages.order = Order::zb_h2; }),
        std::make_pair("zb_h2_pipeline_4",
                       [](plan::PlanSpec& s) { s.stages.order = Order::zb_h2, s.mesh.pipeline = 4; }),
        std::make_pair("zb_h2_data_2_few",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::zb_h2, s.mesh.pipeline = 4, s.mesh.data = 2, s.shape.micro_batch = 2;
                       }),
        std::make_pair("zb_v", [](plan::PlanSpec& s) { s.stages.order = Order::zb_v; }),
        std::make_pair("zb_v_pipeline_4", [](plan::PlanSpec& s) { s.stages.order = Order::zb_v, s.mesh.pipeline = 4; }),
        std::make_pair("zb_h1_data_2_overlapped",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::zb_h1, s.mesh.data = 2, s.states.overlap_gradients = true;
                       }),
        std::make_pair("zb_v_data_2_zero_1_overlapped",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::zb_v, s.mesh.data = 2, s.states.zero_stage = 1,
                         s.states.overlap_gradients = true;
                       }),
        std::make_pair("dualpipe_v", [](plan::PlanSpec& s) { s.stages.order = Order::dualpipe_v; }),
        std::make_pair("dualpipe_v_pipeline_4",
                       [](plan::PlanSpec& s) { s.stages.order = Order::dualpipe_v, s.mesh.pipeline = 4; }),
        std::make_pair("dualpipe_v_few_tensor_2_data_2_zero_1_overlapped",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::dualpipe_v, s.shape.micro_batch = 2, s.mesh.tensor = s.mesh.data = 2,
                         s.states.zero_stage = 1;
                         s.mesh.sequence_parallel = true, s.states.overlap_gradients = true;
                       }),
        std::make_pair("dualpipe", [](plan::PlanSpec& s) { s.stages.order = Order::dualpipe; }),
        std::make_pair("dualpipe_pipeline_4_recompute",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::dualpipe, s.mesh.pipeline = 4,
                         s.recomputation.what = plan::Recompute::full;
                       }),
        std::make_pair("dualpipe_pipeline_4_overlapped",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::dualpipe, s.mesh.pipeline = 4, s.states.overlap_gradients = true;
                       }),
        std::make_pair("dualpipe_few_tensor_2_sequence_data_2_zero_1",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::dualpipe, s.shape.micro_batch = 2, s.mesh.tensor = s.mesh.data = 2,
                         s.states.zero_stage = 1;
                         s.mesh.sequence_parallel = true;
                       }),
        std::make_pair("dualpipe_data_4_sub_groups_overlapped",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::dualpipe, s.mesh.data = 4, s.states.zero_stage = 1,
                         s.states.zero_group = 2;
                         s.states.overlap_gradients = true;
                       }),
        std::make_pair("custom_gpipe_from_the_last_micro_batch_on",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::custom;
                         s.stages.passes = *plan::PassOrder::parse_csv(
                             "F7,F6,F5,F4,F3,F2,F1,F0,B7,B6,B5,B4,B3,B2,B1,B0\n"
                             "F7,F6,F5,F4,F3,F2,F1,F0,B7,B6,B5,B4,B3,B2,B1,B0\n",
                             "order.csv");
                       }),
        std::make_pair("custom_of_three_chunks_in_data_2_zero_1",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::custom, s.mesh.data = 2, s.states.zero_stage = 1,
                         s.stages.virtual_stages = 3;
                         s.shape.micro_batch = 2;
                         s.stages.passes = *plan::PassOrder::parse_csv(
                             "0F0,0F1,2F0,2F1,4F0,4F1,4I0,4W0,4B1,2B0,2B1,0I0,0I1,0W0,0W1\n"
                             "1F0,1F1,3F0,3F1,5F0,5I0,5F1,5I1,5W0,5W1,3B0,3B1,1B0,1B1\n",
                             "order.csv");
                       }),
        std::make_pair("zb_v_few",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::zb_v, s.mesh.pipeline = 4, s.shape.micro_batch = 4;
                       }),
        std::make_pair("zb_v_context_2_tensor_2_zero_1",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::zb_v, s.mesh.context = s.mesh.tensor = 2, s.states.zero_stage = 1,
                         s.mesh.sequence_parallel = true;
                       }),
        std::make_pair("zb_v_selective",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::zb_v, s.numerics.flash = false,
                         s.recomputation.what = plan::Recompute::selective;
                       })),
    [](const auto& one) { return std::string(one.param.first); });

// Four places for two layers: the embedding has one to itself, and the head.
class EndsAlone : public ::testing::TestWithParam<std::pair<const char*, void (*)(plan::PlanSpec&)>> {};

TEST_P(EndsAlone, EqualsSerialInLossGradientsAndMemory) {
  static const auto short_trial = [] {
    Trial trial = seeded_trial();
    trial.model.layers = 2;
    trial.spec.shape.batch = 8;
    trial.steps = 20;
    trial.gradients_at = {0, 19};
    return trial;
  };
  static const Outcome serial = testing::train(short_trial());
  Trial trial = short_trial();
  trial.spec.mesh.pipeline = 4;
  trial.spec.shape.micro_batch = 1;
  trial.spec.stages.ends_as_layers = true;
  GetParam().second(trial.spec);
  const Outcome split = testing::train(trial);
  EXPECT_LE(testing::loss_distance(split, serial), 1e-5);
  EXPECT_LE(testing::relative_distance(split.gradients.at(0), serial.gradients.at(0)), 1e-5);
  EXPECT_LE(testing::relative_distance(split.gradients.at(19), serial.gradients.at(19)), 1e-5);
  for (std::size_t rank = 0; rank < split.memory.size(); ++rank) {
    // Kinds of slabs that share a pool have the room of the largest each: the topmost may be of a smaller kind.
    EXPECT_LE(split.memory[rank].peak_extent, split.placements[rank].arena_bytes) << "rank " << rank;
    EXPECT_GE(split.memory[rank].peak_extent + plan::kAlignment, split.placements[rank].arena_bytes) << "rank " << rank;
    EXPECT_EQ(split.memory[rank].peak_live, split.placements[rank].peak_live_bytes) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, EndsAlone,
    ::testing::Values(
        std::make_pair("one_f_one_b", [](plan::PlanSpec&) {}),
        std::make_pair("gpipe_recompute",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::gpipe, s.recomputation.what = plan::Recompute::full;
                       }),
        std::make_pair("data_2_zero_2", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }),
        std::make_pair("data_2_zero_3", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }),
        std::make_pair("tensor_2_sequence",
                       [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }),
        std::make_pair("interleaved", [](plan::PlanSpec& s) { s.mesh.pipeline = s.stages.virtual_stages = 2; }),
        std::make_pair("listed",
                       [](plan::PlanSpec& s) {
                         s.stages.ends_as_layers = false, s.stages.layers_per_stage = {0, 1, 1, 0};
                       }),
        std::make_pair("zb_h1", [](plan::PlanSpec& s) { s.stages.order = Order::zb_h1; }),
        std::make_pair("zb_h2_data_2_zero_1",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::zb_h2, s.mesh.data = 2, s.states.zero_stage = 1;
                       }),
        std::make_pair("zb_v",
                       [](plan::PlanSpec& s) {
                         s.stages.order = Order::zb_v, s.mesh.pipeline = s.stages.virtual_stages = 2;
                       })),
    [](const auto& one) { return std::string(one.param.first); });

TEST(EqualModels, LlamaOverAFoldedPipeline) {
  Trial trial = llama_trial();
  trial.model.layers = 5;
  expect_equal(trial, [](plan::PlanSpec& s) {
    s.mesh.pipeline = s.stages.virtual_stages = 2, s.stages.order = Order::zb_v,
    s.stages.layers_per_stage = {1, 2, 1, 1}, s.shape.micro_batch = 1;
  });
}

TEST(EqualModels, LlamaOverInterleavedUnevenChunks) {
  Trial trial = llama_trial();
  trial.model.layers = 7;
  expect_equal(trial, [](plan::PlanSpec& s) {
    s.mesh.pipeline = 2, s.stages.virtual_stages = 3, s.stages.layers_per_stage = {1, 2, 1, 1, 1, 1},
    s.shape.micro_batch = 1;
  });
}

TEST(EqualModels, SixInterleavedChunksOnThreeStagesWithTheEndsCountedAsLayers) {
  Trial trial = seeded_trial();
  trial.model.layers = 10;
  trial.spec.shape.batch = 6;
  expect_equal(trial, [](plan::PlanSpec& s) {
    s.mesh.pipeline = 3, s.stages.virtual_stages = 2, s.stages.ends_as_layers = true, s.shape.micro_batch = 1,
    s.states.zero_stage = 0;
  });
}

TEST(EqualModels, LlamaWithItsOwnHeadOverStagesAndShards) {
  expect_equal(llama_trial(), [](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.mesh.data = 2, s.states.zero_stage = 1; });
}

TEST(EqualModels, FourUnevenStagesWithTheTiedTableOnFirstAndLast) {
  Trial trial = seeded_trial();
  trial.model.layers = 5;
  expect_equal(trial, [](plan::PlanSpec& s) { s.mesh.pipeline = 4, s.shape.micro_batch = 1; });
}

TEST(EqualModels, FourStagesOfTwoReplicas) {
  Trial trial = seeded_trial();
  trial.model.layers = 4;
  expect_equal(trial, [](plan::PlanSpec& s) {
    s.mesh.pipeline = 4, s.mesh.data = 2, s.shape.micro_batch = 1, s.states.zero_stage = 2;
  });
}

TEST(EqualModels, ThreeReplicasWhoseShardsDoNotMeetParameterBorders) {
  Trial trial = seeded_trial();
  trial.spec.shape.batch = 6;
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(zero);
    expect_equal(trial, [zero](plan::PlanSpec& s) { s.mesh.data = 3, s.states.zero_stage = zero; });
  }
}

TEST(EqualModels, AVocabularyThatMustBePaddedDifferentlyForEachSplit) {
  Trial trial = seeded_trial();
  trial.model.vocab = 65;
  expect_equal(trial, [](plan::PlanSpec& s) { s.mesh.tensor = 4; });
}

TEST(EqualModels, WithoutClippingTheNormIsStillTheSame) {
  Trial trial = seeded_trial();
  trial.training.clip_norm.reset();
  expect_equal(trial, [](plan::PlanSpec& s) {
    s.mesh.data = 2, s.mesh.tensor = 2, s.states.zero_stage = 3, s.recomputation.what = plan::Recompute::full;
  });
}

TEST(Determinism, TwoRunsOfOnePlanAreBitwiseEqual) {
  Trial trial = seeded_trial();
  trial.spec.mesh.data = 2;
  trial.spec.mesh.pipeline = 2;
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

}  // namespace equal_models_test
}  // namespace orrery::exec

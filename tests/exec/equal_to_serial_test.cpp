// Every way to split the training of a tiny GPT gives the serial run's numbers, and the serial run gives PyTorch's.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "exec/engine/logical.h"
#include "exec/files/safetensors.h"
#include "exec/state/initialise.h"
#include "plan/lower/lower.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace equal_to_serial_test {

using testing::Outcome;
using testing::Trial;

const Outcome& serial() {
  static const Outcome outcome = testing::train(testing::golden_trial("cosine_clipped"));
  return outcome;
}

class Serial : public ::testing::TestWithParam<const char*> {};

TEST_P(Serial, AgreesWithPyTorchOverTwentySteps) {
  const Outcome ours = testing::train(testing::golden_trial(GetParam()));
  std::ifstream in(std::string(ORRERY_SOURCE_DIR) + "/tests/golden/pytorch/golden.json");
  const nlohmann::json golden = nlohmann::json::parse(in)["runs"][GetParam()];
  for (const char* precision : {"float32", "float64"}) {
    const nlohmann::json& steps = golden[precision]["steps"];
    ASSERT_EQ(steps.size(), ours.steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const double loss = steps[i]["loss"].get<double>();
      const double norm = steps[i]["gradient_norm"].get<double>();
      EXPECT_NEAR(ours.steps[i].loss, loss, 1e-5 * loss) << "step " << i + 1;
      EXPECT_NEAR(ours.steps[i].gradient_norm, norm, 1e-5 * norm) << "step " << i + 1;
      EXPECT_NEAR(ours.steps[i].learning_rate, steps[i]["learning_rate"].get<double>(), 1e-12);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Serial, ::testing::Values("cosine_clipped", "constant"));

/// The largest relative difference of the losses from PyTorch's.
double loss_against(const std::string& run, const std::string& precision, const Outcome& ours) {
  std::ifstream in(std::string(ORRERY_SOURCE_DIR) + "/tests/golden/pytorch/golden.json");
  const nlohmann::json steps = nlohmann::json::parse(in)["runs"][run][precision]["steps"];
  double worst = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double loss = steps[i]["loss"].get<double>();
    worst = std::max(worst, std::abs(ours.steps.at(i).loss - loss) / loss);
  }
  return worst;
}

/// The golden gradients (float64, Hugging Face's names and orientations) as our logical tensors.
LogicalTensors golden_gradients(const std::string& name) {
  const auto file = SafetensorsFile::open(std::string(ORRERY_SOURCE_DIR) + "/tests/golden/pytorch/" + name);
  const plan::Schedule schedule = plan::lower(testing::plan_of(testing::golden_trial("cosine_clipped")));
  const auto source = file_source(*file, schedule);
  EXPECT_TRUE(source) << base::render(source.error(), false);
  LogicalTensors out;
  for (const plan::Bucket& bucket : schedule.classes.front().buckets)
    for (const plan::ParameterRange& range : bucket.ranges) {
      LogicalTensor& tensor = out[range.name];
      tensor.shape = range.tensor.logical_shape;
      tensor.values.resize(static_cast<std::size_t>(logical_elements(range.tensor)));
      (*source)(range, 0, tensor.values);
    }
  return out;
}

TEST(Golden, GradientsOfTheFirstAndLastStepAgreeWithPyTorch) {
  const double first =
      testing::relative_distance(serial().gradients.at(0), golden_gradients("gradient_step_1.safetensors"));
  const double last =
      testing::relative_distance(serial().gradients.at(19), golden_gradients("gradient_step_20.safetensors"));
  std::printf("[ errors   ] %-24s loss %.1e  gradient at step 1 %.1e  at step 20 %.1e\n", "serial_against_pytorch",
              loss_against("cosine_clipped", "float64", serial()), first, last);
  EXPECT_LE(first, 1e-5);
  EXPECT_LE(last, 1e-5);
}

TEST(Golden, WeightsOfAnotherShapeAreRefusedByName) {
  testing::Trial trial = testing::golden_trial("constant");
  trial.model.ffn_hidden = 64;
  trial.model.layers = 3;
  const auto file = SafetensorsFile::open(trial.training.initial_weights);
  const auto source = file_source(*file, plan::lower(testing::plan_of(trial)));
  ASSERT_FALSE(source);
  const std::string all = base::render(source.error(), false);
  EXPECT_NE(all.find("\"transformer.h.0.mlp.c_fc.weight\" has shape (32, 128), expected (32, 64)"), std::string::npos)
      << all;
  EXPECT_NE(all.find("no tensor \"h.2.ln_1.weight\""), std::string::npos) << all;
}

struct Case {
  const char* name;
  void (*set)(plan::PlanSpec&);
};

class EqualToSerial : public ::testing::TestWithParam<Case> {};

TEST_P(EqualToSerial, InLossGradientsAndMemory) {
  Trial trial = testing::golden_trial("cosine_clipped");
  GetParam().set(trial.spec);
  const Outcome split = testing::train(trial);
  ASSERT_EQ(split.steps.size(), 20U);
  const double loss = testing::loss_distance(split, serial());
  const double first = testing::relative_distance(split.gradients.at(0), serial().gradients.at(0));
  const double last = testing::relative_distance(split.gradients.at(19), serial().gradients.at(19));
  EXPECT_LE(loss, 1e-5);
  EXPECT_LE(first, 1e-5);
  EXPECT_LE(last, 1e-5);
  RecordProperty("loss", std::to_string(loss));
  std::printf("[ errors   ] %-24s loss %.1e  gradient at step 1 %.1e  at step 20 %.1e\n", GetParam().name, loss, first,
              last);
  for (std::size_t rank = 0; rank < split.memory.size(); ++rank) {
    const auto predicted = static_cast<double>(split.placements[rank].arena_bytes);
    EXPECT_NEAR(static_cast<double>(split.memory[rank].peak_extent), predicted, 0.02 * predicted) << "rank " << rank;
    EXPECT_EQ(split.memory[rank].peak_live, split.placements[rank].peak_live_bytes) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, EqualToSerial,
    ::testing::Values(
        Case{"micro_batch_8", [](plan::PlanSpec& s) { s.shape.micro_batch = 8; }},
        Case{"data_2", [](plan::PlanSpec& s) { s.mesh.data = 2; }},
        Case{"tensor_2", [](plan::PlanSpec& s) { s.mesh.tensor = 2; }},
        Case{"pipeline_2_gpipe", [](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = plan::Order::gpipe; }},
        Case{"pipeline_2_1f1b",
             [](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = plan::Order::one_f_one_b; }},
        Case{"zero_1", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }},
        Case{"zero_2", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }},
        Case{"zero_3", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }},
        Case{"zero_3_data_4", [](plan::PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 3; }},
        Case{"data_2_tensor_2", [](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.tensor = 2; }},
        Case{"data_2_pipeline_2", [](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.pipeline = 2; }},
        Case{"tensor_2_pipeline_2", [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.pipeline = 2; }},
        Case{"recompute", [](plan::PlanSpec& s) { s.recomputation.what = plan::Recompute::full; }},
        Case{"recompute_tensor_2",
             [](plan::PlanSpec& s) { s.recomputation.what = plan::Recompute::full, s.mesh.tensor = 2; }},
        Case{"unfused_attention", [](plan::PlanSpec& s) { s.numerics.flash = false; }},
        Case{"zero_1_tensor_2_pipeline_2",
             [](plan::PlanSpec& s) {
               s.mesh.data = 2, s.mesh.tensor = 2, s.mesh.pipeline = 2, s.states.zero_stage = 1;
             }},
        Case{"zero_2_pipeline_2_gpipe",
             [](plan::PlanSpec& s) {
               s.mesh.data = 2, s.mesh.pipeline = 2, s.states.zero_stage = 2, s.stages.order = plan::Order::gpipe;
             }},
        Case{"tensor_2_sequence", [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
        Case{"tensor_4_sequence", [](plan::PlanSpec& s) { s.mesh.tensor = 4, s.mesh.sequence_parallel = true; }},
        Case{"tensor_2_sequence_recompute",
             [](plan::PlanSpec& s) {
               s.mesh.tensor = 2, s.mesh.sequence_parallel = true, s.recomputation.what = plan::Recompute::full;
             }},
        Case{"zero_1_tensor_2_sequence_pipeline_2",
             [](plan::PlanSpec& s) {
               s.mesh.data = 2, s.mesh.tensor = 2, s.mesh.pipeline = 2, s.mesh.sequence_parallel = true;
               s.states.zero_stage = 1;
             }},
        Case{"zero_2_tensor_2_sequence",
             [](plan::PlanSpec& s) {
               s.mesh.data = 2, s.mesh.tensor = 2, s.mesh.sequence_parallel = true, s.states.zero_stage = 2;
             }},
        Case{"zero_3_tensor_2_sequence",
             [](plan::PlanSpec& s) {
               s.mesh.data = 2, s.mesh.tensor = 2, s.mesh.sequence_parallel = true, s.states.zero_stage = 3;
             }},
        Case{"selective",
             [](plan::PlanSpec& s) { s.numerics.flash = false, s.recomputation.what = plan::Recompute::selective; }},
        Case{"selective_tensor_2_sequence_pipeline_2",
             [](plan::PlanSpec& s) {
               s.mesh.tensor = 2, s.mesh.pipeline = 2, s.mesh.sequence_parallel = true, s.numerics.flash = false,
               s.recomputation.what = plan::Recompute::selective;
             }},
        Case{"recompute_one_layer",
             [](plan::PlanSpec& s) { s.recomputation.what = plan::Recompute::full, s.recomputation.layers = 1; }},
        Case{"context_2", [](plan::PlanSpec& s) { s.mesh.context = 2; }},
        Case{"context_4", [](plan::PlanSpec& s) { s.mesh.context = 4; }},
        Case{"context_4_recompute",
             [](plan::PlanSpec& s) { s.mesh.context = 4, s.recomputation.what = plan::Recompute::full; }},
        Case{"context_2_data_2", [](plan::PlanSpec& s) { s.mesh.context = 2, s.mesh.data = 2; }},
        Case{"context_2_zero_1", [](plan::PlanSpec& s) { s.mesh.context = 2, s.states.zero_stage = 1; }},
        Case{"context_2_data_2_zero_2",
             [](plan::PlanSpec& s) { s.mesh.context = 2, s.mesh.data = 2, s.states.zero_stage = 2; }},
        Case{"context_2_data_2_zero_3",
             [](plan::PlanSpec& s) { s.mesh.context = 2, s.mesh.data = 2, s.states.zero_stage = 3; }},
        Case{"context_2_tensor_2_sequence",
             [](plan::PlanSpec& s) { s.mesh.context = 2, s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
        Case{"context_2_tensor_2_pipeline_2",
             [](plan::PlanSpec& s) {
               s.mesh.context = 2, s.mesh.tensor = 2, s.mesh.pipeline = 2, s.states.zero_stage = 1;
             }},
        Case{"data_2_overlapped", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.overlap_gradients = true; }},
        Case{"data_4_one_micro_batch_overlapped",
             [](plan::PlanSpec& s) { s.mesh.data = 4, s.shape.micro_batch = 2, s.states.overlap_gradients = true; }},
        Case{"zero_1_overlapped",
             [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1, s.states.overlap_gradients = true; }},
        Case{"zero_1_tensor_2_sequence_pipeline_2_recompute_overlapped",
             [](plan::PlanSpec& s) {
               s.mesh.data = 2, s.mesh.tensor = 2, s.mesh.pipeline = 2, s.mesh.sequence_parallel = true;
               s.states.zero_stage = 1;
               s.recomputation.what = plan::Recompute::full, s.states.overlap_gradients = true;
             }},
        Case{"context_2_data_2_overlapped",
             [](plan::PlanSpec& s) { s.mesh.context = 2, s.mesh.data = 2, s.states.overlap_gradients = true; }},
        Case{"zero_3_tensor_2_recompute",
             [](plan::PlanSpec& s) {
               s.mesh.data = 2, s.mesh.tensor = 2, s.states.zero_stage = 3;
               s.recomputation.what = plan::Recompute::full;
             }}),
    [](const auto& one) { return std::string(one.param.name); });

// What messages are about to read or write stays as it is while they move, whoever moves them.
TEST(EqualToSerial, WithAProgressThreadBesideEachRank) {
  using Set = void (*)(plan::PlanSpec&);
  for (const Set set :
       {Set([](plan::PlanSpec& s) { s.mesh.data = 2, s.states.overlap_gradients = true; }),
        Set([](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1, s.states.overlap_gradients = true; }),
        Set([](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }), Set([](plan::PlanSpec& s) {
          s.mesh.data = 2, s.states.zero_stage = 3, s.recomputation.what = plan::Recompute::full;
        }),
        Set([](plan::PlanSpec& s) { s.mesh.tensor = s.mesh.pipeline = 2, s.mesh.sequence_parallel = true; }),
        Set([](plan::PlanSpec& s) { s.mesh.context = 2, s.mesh.pipeline = 2; })}) {
    Trial trial = testing::golden_trial("cosine_clipped");
    set(trial.spec);
    SCOPED_TRACE(plan::describe(trial.spec));
    trial.progress = Communication::Progress::thread;
    const Outcome split = testing::train(trial);
    EXPECT_LE(testing::loss_distance(split, serial()), 1e-5);
    EXPECT_LE(testing::relative_distance(split.gradients.at(19), serial().gradients.at(19)), 1e-5);
    for (const std::vector<RawSpan>& spans : split.spans)
      for (const RawSpan& span : spans) EXPECT_LE(span.ready, span.end);
  }
}

TEST(EqualToSerial, TheComparisonSeesAWrongGradient) {
  LogicalTensors wrong = serial().gradients.at(0);
  wrong.begin()->second.values[0] += 1e-3F;
  EXPECT_GT(testing::relative_distance(wrong, serial().gradients.at(0)), 1e-5);
}

}  // namespace equal_to_serial_test
}  // namespace orrery::exec

// Over MPI: reductions of 16-bit tensors, the norms and factors of optimizers that look at whole tensors, and what a
// run directory says of the loss's scale.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/mpi/mpi_support.h"

namespace orrery::exec {
namespace precision_test {

using models::DType;
using plan::OptimizerKind;
using testing::Folder;
using testing::Line;
using testing::Trial;

struct Case {
  const char* name;
  DType precision;
  OptimizerKind optimizer;
  void (*set)(plan::PlanSpec&);
  double bound;  ///< of the loss, relative to the same plan in threads
};

class NarrowOverMpi : public ::testing::TestWithParam<Case> {};

TEST_P(NarrowOverMpi, TrainsAsInThreads) {
  const Case& one = GetParam();
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.spec.numerics.precision = one.precision;
  trial.training.optimizer.kind = one.optimizer;
  one.set(trial.spec);
  trial.gradients_at = {};
  const testing::Outcome threads = testing::train(trial);
  const Folder folder;
  const TrainCommand command = testing::command_for(trial, folder);
  const RunOutcome outcome = supervise(command, {}, nullptr);
  ASSERT_EQ(outcome.end, RunEnd::completed) << outcome.reason << "\n" << outcome.error_tail;
  const std::vector<Line> lines = testing::read_metrics(command.run);
  ASSERT_EQ(lines.size(), threads.steps.size());
  for (std::size_t i = 0; i < lines.size(); ++i)
    EXPECT_NEAR(lines[i].loss, threads.steps[i].loss, one.bound * threads.steps[i].loss) << "step " << i + 1;
  for (std::size_t rank = 0; rank < threads.placements.size(); ++rank) {
    const auto predicted = static_cast<double>(threads.placements[rank].arena_bytes);
    EXPECT_NEAR(static_cast<double>(lines.back().arena_peak[rank]), predicted, 0.02 * predicted);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, NarrowOverMpi,
    ::testing::Values(
        Case{"bf16_tensor_2", DType::bf16, OptimizerKind::adamw, [](plan::PlanSpec& s) { s.mesh.tensor = 2; }, 1e-3},
        Case{"fp16_data_2", DType::fp16, OptimizerKind::adamw, [](plan::PlanSpec& s) { s.mesh.data = 2; }, 5e-4},
        Case{"fp16_zero_2_tensor_2", DType::fp16, OptimizerKind::adamw,
             [](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.tensor = 2, s.states.zero_stage = 2; }, 5e-4},
        Case{"fp8_zero_1", DType::fp8, OptimizerKind::adamw,
             [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }, 1e-3},
        Case{"tf32_pipeline_2", DType::tf32, OptimizerKind::adamw, [](plan::PlanSpec& s) { s.mesh.pipeline = 2; },
             1e-5},
        Case{"lamb_zero_1_tensor_2", DType::fp32, OptimizerKind::lamb,
             [](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.tensor = 2, s.states.zero_stage = 1; }, 1e-5},
        Case{"adafactor_zero_3_tensor_2", DType::fp32, OptimizerKind::adafactor,
             [](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.tensor = 2, s.states.zero_stage = 3; }, 1e-5},
        Case{"adamw_8bit_zero_1", DType::fp32, OptimizerKind::adamw_8bit,
             [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }, 1e-4}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(RunDirectory, SaysTheScaleOfTheLossAndWhichStepsWereSkipped) {
  Trial trial = testing::golden_trial("constant");
  trial.spec.numerics.precision = DType::fp16;
  trial.spec.mesh.data = 2;
  trial.training.loss_scaling = {std::ldexp(1.0, 40), 1000, 1024};
  const Folder folder;
  const TrainCommand command = testing::command_for(trial, folder);
  const RunOutcome outcome = supervise(command, {}, nullptr);
  ASSERT_EQ(outcome.end, RunEnd::completed) << outcome.reason << "\n" << outcome.error_tail;
  std::ifstream in(command.run / "metrics.jsonl");
  std::string text;
  ASSERT_TRUE(std::getline(in, text));
  nlohmann::json line = nlohmann::json::parse(text);
  EXPECT_EQ(line["loss_scale"], std::ldexp(1.0, 40));
  EXPECT_EQ(line["skipped"], true);
  EXPECT_TRUE(line["gradient_norm"].is_null()) << "it is no number";
  ASSERT_TRUE(std::getline(in, text));
  line = nlohmann::json::parse(text);
  EXPECT_EQ(line["loss_scale"], std::ldexp(1.0, 30));
}

/// A small GPT over the bytes of the licence texts that every Debian carries, one rank.
Trial curve_of(DType precision, plan::Rounding rounding, OptimizerKind optimizer) {
  Trial trial = testing::golden_trial("cosine_clipped");
  models::Model& m = trial.model;
  m.layers = 4, m.hidden = 64, m.head_dim = 16, m.ffn_hidden = 256, m.vocab = 256, m.max_sequence = 64;
  trial.spec.shape.batch = trial.spec.shape.micro_batch = 8;
  trial.spec.shape.sequence = 64;
  trial.spec.numerics.vocab_multiple = 128;
  trial.spec.numerics.precision = precision;
  trial.spec.numerics.rounding = rounding;
  trial.training.steps = trial.steps = 500;
  trial.training.data = "/usr/share/common-licenses";
  trial.training.order = plan::DataOrder::shuffled;
  trial.training.initial_weights.clear();
  trial.training.optimizer.kind = optimizer;
  trial.training.optimizer.learning_rate = 3e-3;
  trial.training.schedule = {20, plan::Decay::cosine, 3e-5};
  trial.gradients_at = {};
  trial.check = Arena::Check::none;
  return trial;
}

double mean(const testing::Outcome& outcome, std::size_t first, std::size_t last) {
  double sum = 0;
  for (std::size_t i = first; i < last; ++i) sum += outcome.steps[i].loss;
  return sum / static_cast<double>(last - first);
}

TEST(SlowLossCurves, StayNearThirtyTwoBitsOverFiveHundredSteps) {
  constexpr std::size_t kSteps = 500, kWindow = 20, kLast = 50;
  const testing::Outcome full = testing::train(curve_of(DType::fp32, plan::Rounding::nearest, OptimizerKind::adamw));
  ASSERT_EQ(full.steps.size(), kSteps);
  const double end = mean(full, kSteps - kLast, kSteps);
  std::printf("[ curve    ] fp32             first %.4f  last 50 %.4f\n", full.steps.front().loss, end);
  EXPECT_LT(end, 0.6 * full.steps.front().loss) << "it learns";
  struct Curve {
    const char* name;
    DType precision;
    plan::Rounding rounding;
    OptimizerKind optimizer;
    double bound;  ///< of the mean of the last 50 losses, relative to fp32's
  };
  for (const Curve& c : {Curve{"bf16", DType::bf16, plan::Rounding::nearest, OptimizerKind::adamw, 0.01},
                         Curve{"fp16", DType::fp16, plan::Rounding::nearest, OptimizerKind::adamw, 0.01},
                         Curve{"tf32", DType::tf32, plan::Rounding::nearest, OptimizerKind::adamw, 0.01},
                         Curve{"fp8", DType::fp8, plan::Rounding::nearest, OptimizerKind::adamw, 0.02},
                         Curve{"bf16 stochastic", DType::bf16, plan::Rounding::stochastic, OptimizerKind::adamw, 0.03},
                         Curve{"adamw-8bit", DType::fp32, plan::Rounding::nearest, OptimizerKind::adamw_8bit, 0.01}}) {
    const testing::Outcome outcome = testing::train(curve_of(c.precision, c.rounding, c.optimizer));
    double sum = 0, most = 0;
    for (std::size_t at = 0; at + kWindow <= kSteps; at += kWindow) {
      const double apart = std::abs(mean(outcome, at, at + kWindow) - mean(full, at, at + kWindow));
      sum += apart;
      most = std::max(most, apart);
    }
    const double last = mean(outcome, kSteps - kLast, kSteps) / end - 1;
    const auto skipped =
        std::count_if(outcome.steps.begin(), outcome.steps.end(), [](const auto& s) { return s.skipped; });
    std::printf(
        "[ curve    ] %-16s last 50 %+.2f %%, windows of 20 steps apart by %.4f in the mean, %.4f at most; arena %lld "
        "bytes; %td skipped\n",
        c.name, 100 * last, sum / (kSteps / kWindow), most, static_cast<long long>(outcome.placements[0].arena_bytes),
        skipped);
    EXPECT_LE(std::abs(last), c.bound) << c.name;
  }
}

}  // namespace precision_test
}  // namespace orrery::exec

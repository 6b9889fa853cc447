// Over MPI: reductions of 16-bit tensors, the norms and factors of optimizers that look at whole tensors, and what a
// run directory says of the loss's scale.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/mpi/mpi_support.h"

namespace orrery::exec {
namespace {

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
  trial.spec.precision = one.precision;
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
        Case{"bf16_tensor_2", DType::bf16, OptimizerKind::adamw, [](plan::PlanSpec& s) { s.tensor = 2; }, 1e-3},
        Case{"fp16_data_2", DType::fp16, OptimizerKind::adamw, [](plan::PlanSpec& s) { s.data = 2; }, 5e-4},
        Case{"fp16_zero_2_tensor_2", DType::fp16, OptimizerKind::adamw,
             [](plan::PlanSpec& s) { s.data = 2, s.tensor = 2, s.zero_stage = 2; }, 5e-4},
        Case{"lamb_zero_1_tensor_2", DType::fp32, OptimizerKind::lamb,
             [](plan::PlanSpec& s) { s.data = 2, s.tensor = 2, s.zero_stage = 1; }, 1e-5},
        Case{"adafactor_zero_3_tensor_2", DType::fp32, OptimizerKind::adafactor,
             [](plan::PlanSpec& s) { s.data = 2, s.tensor = 2, s.zero_stage = 3; }, 1e-5},
        Case{"adamw_8bit_zero_1", DType::fp32, OptimizerKind::adamw_8bit,
             [](plan::PlanSpec& s) { s.data = 2, s.zero_stage = 1; }, 1e-4}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(RunDirectory, SaysTheScaleOfTheLossAndWhichStepsWereSkipped) {
  Trial trial = testing::golden_trial("constant");
  trial.spec.precision = DType::fp16;
  trial.spec.data = 2;
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

}  // namespace
}  // namespace orrery::exec

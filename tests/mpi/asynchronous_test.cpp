// Asynchronous pipelines over MPI: the losses, gradients and memory of a serial program with the same old weights, and
// a run that is resumed.
#include <gtest/gtest.h>

#include <cmath>

#include "plan/lower/lower.h"
#include "plan/schedule/place.h"
#include "tests/exec/stale.h"
#include "tests/mpi/mpi_support.h"

namespace orrery::exec {
namespace asynchronous_test {

using plan::Order;
using testing::Folder;
using testing::Line;
using testing::Outcome;
using testing::Trial;

struct Case {
  const char* name;
  Order order;
  int stages;
  void (*change)(Trial&);
};

class StaleSerialOverMpi : public ::testing::TestWithParam<Case> {};

TEST_P(StaleSerialOverMpi, IsEqualInLossGradientsAndMemory) {
  Trial trial = testing::asynchronous_trial(GetParam().order, GetParam().stages);
  GetParam().change(trial);
  const Outcome serial = testing::train_stale(trial);
  const Folder folder;
  TrainCommand command = testing::command_for(trial, folder);
  command.dump_gradients = {1, 20};
  const RunOutcome outcome = supervise(command, {}, nullptr);
  ASSERT_EQ(outcome.end, RunEnd::completed) << outcome.reason << "\n" << outcome.error_tail;
  const std::vector<Line> lines = testing::read_metrics(command.run);
  ASSERT_EQ(lines.size(), 20U);
  double loss = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].step, static_cast<std::int64_t>(i) + 1);
    loss = std::max(loss, std::abs(lines[i].loss - serial.steps[i].loss) / serial.steps[i].loss);
    if (!trial.model.tied_embeddings) {
      EXPECT_NEAR(lines[i].gradient_norm, serial.steps[i].gradient_norm, 1e-5 * serial.steps[i].gradient_norm);
    }
  }
  const double first = testing::relative_distance(
      testing::read_tensors(command.run / "gradients/step-000001.safetensors"), serial.gradients.at(0));
  const double last = testing::relative_distance(
      testing::read_tensors(command.run / "gradients/step-000020.safetensors"), serial.gradients.at(19));
  EXPECT_LE(loss, 1e-5);
  EXPECT_LE(first, 1e-5);
  EXPECT_LE(last, 1e-5);
  std::printf("[ errors   ] %-24s loss %.1e  gradient at step 1 %.1e  at step 20 %.1e\n", GetParam().name, loss, first,
              last);
  const plan::Schedule schedule = plan::lower(testing::plan_of(trial));
  for (int rank = 0; rank < trial.spec.mesh.ranks(); ++rank) {
    const auto predicted = static_cast<double>(plan::place(schedule.class_of(rank)).arena_bytes);
    EXPECT_NEAR(static_cast<double>(lines.back().arena_peak[static_cast<std::size_t>(rank)]), predicted,
                0.02 * predicted);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, StaleSerialOverMpi,
                         ::testing::Values(Case{"pipedream_2", Order::pipedream, 2, [](Trial&) {}},
                                           Case{"pipedream_4_untied", Order::pipedream, 4,
                                                [](Trial& one) { one.model.tied_embeddings = false; }},
                                           Case{"pipedream_2_data_2_zero_1", Order::pipedream, 2,
                                                [](Trial& one) {
                                                  one.spec.mesh.data = 2, one.spec.shape.micro_batch /= 2;
                                                  one.spec.states.zero_stage = 1;
                                                }},
                                           Case{"pipedream_2bw_2_tensor_2", Order::pipedream_2bw, 2,
                                                [](Trial& one) { one.spec.mesh.tensor = 2; }},
                                           Case{"pipedream_2bw_3", Order::pipedream_2bw, 3, [](Trial&) {}}),
                         [](const auto& which) { return std::string(which.param.name); });

Trial served_trial() {
  Trial trial = testing::asynchronous_trial(Order::one_f_one_b, 1);
  trial.spec.mesh.data = 2;
  trial.spec.shape.micro_batch = 2;
  trial.spec.states.staleness = 1;
  return trial;
}

// Whose runs in threads are compared with a serial program in tests/exec/parameter_server_test.cpp.
TEST(AsynchronousOverMpi, AParameterServerHasTheLossesOfItsRunInThreads) {
  const Trial trial = served_trial();
  const Outcome threads = testing::train(trial);
  const Folder folder;
  TrainCommand command = testing::command_for(trial, folder);
  command.dump_gradients = {1, 20};
  const RunOutcome outcome = supervise(command, {}, nullptr);
  ASSERT_EQ(outcome.end, RunEnd::completed) << outcome.reason << "\n" << outcome.error_tail;
  const std::vector<Line> lines = testing::read_metrics(command.run);
  ASSERT_EQ(lines.size(), 20U);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_NEAR(lines[i].loss, threads.steps[i].loss, 1e-5 * threads.steps[i].loss);
    EXPECT_NEAR(lines[i].gradient_norm, threads.steps[i].gradient_norm, 1e-5 * threads.steps[i].gradient_norm);
  }
  EXPECT_LE(testing::relative_distance(testing::read_tensors(command.run / "gradients/step-000020.safetensors"),
                                       threads.gradients.at(19)),
            1e-5);
}

class ResumedOverMpi : public ::testing::TestWithParam<bool> {};

TEST_P(ResumedOverMpi, HasTheLossesOfTheRunThatWasNotStopped) {
  const Trial trial = GetParam() ? served_trial() : testing::asynchronous_trial(Order::pipedream, 2);
  const Folder whole, parts;
  TrainCommand command = testing::command_for(trial, whole);
  ASSERT_EQ(supervise(command, {}, nullptr).end, RunEnd::completed);
  const std::vector<Line> expected = testing::read_metrics(command.run);
  command = testing::command_for(trial, parts);
  command.steps = 7;  // ends there: nothing is run ahead
  ASSERT_EQ(supervise(command, {}, nullptr).end, RunEnd::completed);
  command.steps = 20;
  command.resume = true;
  command.checkpoint_every = 5;
  ASSERT_EQ(supervise(command, {}, nullptr).end, RunEnd::completed);
  const std::vector<Line> lines = testing::read_metrics(command.run);
  ASSERT_EQ(lines.size(), expected.size());
  for (std::size_t i = 0; i < lines.size(); ++i)
    EXPECT_EQ(lines[i].loss_text, expected[i].loss_text) << "step " << i + 1;
}

INSTANTIATE_TEST_SUITE_P(Runs, ResumedOverMpi, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "parameter_server" : "pipedream"; });

}  // namespace asynchronous_test
}  // namespace orrery::exec

// Recommendation models with a parameter server, against plain loops in which workers take turns with weights as old as
// theirs: 20 steps in loss, norm and weights, wherever tables stand.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/exec/recommender.h"

namespace orrery::exec {
namespace recommender_server_test {

using plan::OptimizerKind;
using plan::TableSharding;
using testing::Outcome;
using testing::Trial;

LogicalTensors initial_weights(Trial trial) {
  trial.spec.mesh.data = 1;
  trial.spec.shape.micro_batch = trial.spec.shape.batch;
  trial.spec.states.staleness.reset();
  trial.spec.embedding = {};
  trial.training.optimizer.learning_rate = 0;
  trial.steps = 1;
  trial.gradients_at = {};
  return testing::train(trial).weights;
}

struct Case {
  const char* name;
  int ranks, staleness;
  TableSharding sharding;
  std::vector<std::string> places = {};
};

Trial served_trial(const Case& of, OptimizerKind optimizer) {
  Trial trial = testing::click_trial(optimizer == OptimizerKind::rowwise_adagrad, optimizer);
  trial.spec.mesh.data = of.ranks;
  trial.spec.shape.micro_batch = trial.spec.shape.batch / of.ranks;
  trial.spec.states.staleness = of.staleness;
  trial.spec.embedding.sharding = of.sharding;
  std::vector<plan::TablePlacement::Cell> cells;
  for (const std::string& row : of.places) cells.push_back({row, {}});
  if (!cells.empty()) trial.spec.embedding.placement = *plan::TablePlacement::parse_rows(cells);
  return trial;
}

class ServedTables : public ::testing::TestWithParam<Case> {};

TEST_P(ServedTables, TrainAsWorkersInTurnsInPlainLoops) {
  for (const OptimizerKind optimizer : {OptimizerKind::sgd, OptimizerKind::rowwise_adagrad, OptimizerKind::adam}) {
    SCOPED_TRACE(plan::name_of(optimizer));
    Trial trial = served_trial(GetParam(), optimizer);
    const LogicalTensors initial = initial_weights(trial);
    const testing::ReferenceRun reference = testing::reference_run(trial, initial);
    const Outcome run = testing::train(trial);
    ASSERT_EQ(run.steps.size(), 20U);
    for (std::size_t step = 0; step < run.steps.size(); ++step) {
      EXPECT_NEAR(run.steps[step].loss, reference.losses[step], 1e-5 * reference.losses[step]) << "step " << step;
      EXPECT_NEAR(run.steps[step].gradient_norm, reference.norms[step], 1e-5 * reference.norms[step])
          << "step " << step;
    }
    const double distance = testing::relative_distance(run.weights, reference.weights);
    EXPECT_LT(distance, 1e-5);
    std::printf("[ errors   ] %-20s %-16s weights %.1e\n", GetParam().name, plan::name_of(optimizer), distance);
    for (std::size_t rank = 0; rank < run.memory.size(); ++rank)
      EXPECT_EQ(run.memory[rank].peak_live, run.placements[rank].peak_live_bytes) << "rank " << rank;
    ++*trial.spec.states.staleness;  // a step more would be another run
    EXPECT_GT(testing::relative_distance(testing::reference_run(trial, initial).weights, reference.weights), 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Placements, ServedTables,
    ::testing::Values(
        Case{"whole_2_stale_0", 2, 0, TableSharding::whole}, Case{"whole_4_stale_2", 4, 2, TableSharding::whole},
        Case{"row_2_stale_1", 2, 1, TableSharding::row}, Case{"row_4_stale_3", 4, 3, TableSharding::row},
        Case{"column_2_stale_1", 2, 1, TableSharding::column},
        Case{"replicated_2_stale_0", 2, 0, TableSharding::replicated},
        Case{"replicated_4_stale_2", 4, 2, TableSharding::replicated},
        Case{"each_another_way_4", 4, 1, TableSharding::automatic, {"column 3 1", "replicated", "row 0-2", "whole 2"}}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace recommender_server_test
}  // namespace orrery::exec

// How pooled vectors travel, by where tables stand: reduced over all ranks, reduced within a node and exchanged between
// nodes, or exchanged by all; each equal to the serial run.
#include <gtest/gtest.h>

#include <cmath>

#include "plan/lower/lower.h"
#include "plan/spec/table_layout.h"
#include "tests/exec/recommender.h"
#include "tests/exec/serial.h"

namespace orrery::exec {
namespace table_messages_test {

using plan::CollectiveKind;
using plan::OptimizerKind;
using plan::Phase;
using plan::PooledType;
using testing::Outcome;
using testing::Trial;

Outcome train_on_nodes(const Trial& trial, int per_node) {
  const plan::Plan plan = testing::plan_on_nodes(trial, per_node);
  return testing::train(trial, plan, plan::lower(plan));
}

struct Stood {
  const char* name;
  int ranks, per_node;
  std::vector<std::string> places;
};
void PrintTo(const Stood& one, std::ostream* out) {
  *out << one.name;
}

class TablesOnNodes : public ::testing::TestWithParam<Stood> {};

TEST_P(TablesOnNodes, AreEqualToSerial) {
  for (const OptimizerKind optimizer : {OptimizerKind::sgd, OptimizerKind::rowwise_adagrad, OptimizerKind::adam}) {
    SCOPED_TRACE(plan::name_of(optimizer));
    const Trial serial = testing::click_trial(optimizer == OptimizerKind::rowwise_adagrad, optimizer);
    Trial trial = serial;
    testing::place(trial, GetParam().ranks, GetParam().places);
    const Outcome one = testing::train(serial), several = train_on_nodes(trial, GetParam().per_node);
    ASSERT_EQ(several.steps.size(), 20U);
    EXPECT_LE(testing::loss_distance(several, one), 1e-5);
    EXPECT_LE(testing::relative_distance(several.weights, one.weights), 1e-5);
    EXPECT_LE(testing::relative_distance(several.gradients.at(19), one.gradients.at(19)), 1e-5);
    for (std::size_t rank = 0; rank < several.memory.size(); ++rank)
      EXPECT_EQ(several.memory[rank].peak_live, several.placements[rank].peak_live_bytes) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Nodes, TablesOnNodes,
    ::testing::Values(Stood{"rows_of_nodes", 4, 2, {"row 0 1", "row 3 2", "row 2 3", "row 0 1"}},
                      Stood{"rows_of_one_node_alone", 4, 2, {"row 2 3", "row 2 3", "row 3 2", "row 2 3"}},
                      Stood{"grids", 4, 2, {"grid 2x2 0-3", "grid 2x2 2 3 1 0", "grid 2x2 0-3", "row 0 1"}},
                      Stood{"grids_across_nodes", 4, 2, {"grid 2x2 0 2 1 3", "row 1 2", "row 0-3", "grid 2x2 0-3"}},
                      Stood{"every_way", 4, 2, {"row 3 0 2 1", "row 2 3", "column 3 1", "whole 2"}},
                      Stood{"every_way_and_replicated", 4, 2, {"row 0-3", "replicated", "row 0-2", "row 0 1"}},
                      Stood{"four_nodes", 8, 2, {"row 0 1", "row 6 7", "grid 2x2 4 5 2 3", "whole 5"}}),
    [](const auto& one) { return std::string(one.param.name); });

/// Bytes of all messages of a kind whose source is a buffer of such a name.
std::int64_t bytes_sent(const plan::Schedule& schedule, Phase phase, CollectiveKind kind, const char* group) {
  std::int64_t bytes = 0;
  for (const plan::Block& block : schedule.classes[0].blocks)
    for (const plan::Step& step : block.steps) {
      if (step.kind != plan::StepKind::collective || step.phase != phase || step.collective != kind) continue;
      const auto& buffers = schedule.classes[0].buffers;
      const std::string& source = buffers[step.source.buffer].name;
      const bool pooled = source.find("pooled") == 0 || source.find("gradients") == 0;
      if (pooled && schedule.groups[step.group].name == group) bytes += step.message_bytes(buffers);
    }
  return bytes;
}

// 16 samples of 8 columns in fp32: a table's sums are 512 bytes.
TEST(TableMessages, RowsOverAllRanksAreReducedAndTheirGradientsGathered) {
  Trial trial = testing::click_trial(false, false);
  testing::place(trial, 4, {"row 0-3", "whole 1", "row 0-3", "whole 2"});
  const plan::Schedule schedule = plan::lower(testing::plan_of(trial));
  EXPECT_EQ(bytes_sent(schedule, Phase::forward, CollectiveKind::reduce_scatter, "tables"), 2 * 512);
  EXPECT_EQ(bytes_sent(schedule, Phase::backward, CollectiveKind::all_gather, "tables"), 2 * 512);
  EXPECT_EQ(bytes_sent(schedule, Phase::forward, CollectiveKind::all_to_all, "tables"), 512 / 2)
      << "half the ranks have none";
  testing::place(trial, 4, {"whole 0", "whole 1", "whole 3", "whole 2"});
  const plan::Schedule whole = plan::lower(testing::plan_of(trial));
  EXPECT_EQ(bytes_sent(whole, Phase::forward, CollectiveKind::reduce_scatter, "tables"), 0);
  EXPECT_EQ(bytes_sent(whole, Phase::backward, CollectiveKind::all_gather, "tables"), 0);
}

// Of two tables' partial sums, 1,024 bytes, half stays on each rank of a node, and half of that leaves it.
TEST(TableMessages, RowsOverANodeAreReducedWithinItAndExchangedBetweenEqualPlaces) {
  Trial trial = testing::click_trial(false, false);
  testing::place(trial, 4, {"row 0 1", "row 0 1", "row 2 3", "row 2 3"});
  const plan::Schedule schedule = plan::lower(testing::plan_on_nodes(trial, 2));
  EXPECT_EQ(bytes_sent(schedule, Phase::forward, CollectiveKind::reduce_scatter, "tables_node"), 2 * 512);
  EXPECT_EQ(bytes_sent(schedule, Phase::forward, CollectiveKind::all_to_all, "tables_nodes"), 512);
  EXPECT_EQ(bytes_sent(schedule, Phase::backward, CollectiveKind::all_to_all, "tables_nodes"), 512);
  EXPECT_EQ(bytes_sent(schedule, Phase::backward, CollectiveKind::all_gather, "tables_node"), 2 * 512);
  EXPECT_EQ(bytes_sent(schedule, Phase::forward, CollectiveKind::all_to_all, "tables"), 0);
  const plan::Schedule one_node = plan::lower(testing::plan_of(trial));
  EXPECT_EQ(one_node.groups.size(), 2U) << "ranks of one node are told apart by nothing";
  EXPECT_GT(bytes_sent(one_node, Phase::forward, CollectiveKind::all_to_all, "tables"), 0);
}

/// Of the first ten steps: later a value that crosses a ReLU's kink takes a run elsewhere.
double distance_of_ten(const Outcome& a, const Outcome& b) {
  double worst = 0;
  for (std::size_t i = 0; i < 10; ++i) worst = std::max(worst, std::abs(a.steps.at(i).loss / b.steps.at(i).loss - 1));
  return worst;
}

TEST(TableMessages, PartialSumsTravelInFewerBitsEachWayByItself) {
  const Trial serial = testing::click_trial(false, false);
  const Outcome exact = testing::train(serial);
  struct Case {
    PooledType forward, backward;
    double error;
  };
  for (const Case& one :
       {Case{PooledType::fp16, PooledType::fp32, 1e-4}, Case{PooledType::bf16, PooledType::fp32, 1e-3},
        Case{PooledType::fp32, PooledType::int8, 2e-3}, Case{PooledType::fp16, PooledType::bf16, 1e-3}}) {
    SCOPED_TRACE(std::string(plan::name_of(one.forward)) + ", " + plan::name_of(one.backward));
    Trial trial = serial;
    testing::place(trial, 4, {"row 0-3", "row 2 3", "row 0 1", "whole 2"});
    trial.spec.embedding.forward = one.forward;
    trial.spec.embedding.backward = one.backward;
    const plan::Schedule schedule = plan::lower(testing::plan_on_nodes(trial, 2));
    const std::int64_t width = one.forward == PooledType::fp32 ? 4 : 2;
    EXPECT_EQ(bytes_sent(schedule, Phase::forward, CollectiveKind::reduce_scatter, "tables"), 128 * width);
    const double loss = distance_of_ten(train_on_nodes(trial, 2), exact);
    std::printf("[ errors   ] %-5s %-5s loss %.1e\n", plan::name_of(one.forward), plan::name_of(one.backward), loss);
    EXPECT_GT(loss, 1e-8) << "it is rounded";
    EXPECT_LT(loss, one.error);
  }
}

// Scales differ by rank: no collective adds such vectors up.
TEST(TableMessages, VectorsOfInt8AreExchangedByAll) {
  Trial trial = testing::click_trial(false, false);
  const Outcome exact = testing::train(trial);
  testing::place(trial, 4, {"row 0-3", "row 2 3", "row 0 1", "whole 2"});
  trial.spec.embedding.forward = PooledType::int8;
  const plan::Plan plan = testing::plan_on_nodes(trial, 2);
  const plan::Schedule schedule = plan::lower(plan);
  EXPECT_EQ(schedule.groups.size(), 2U);
  EXPECT_EQ(bytes_sent(schedule, Phase::forward, CollectiveKind::reduce_scatter, "tables"), 0);
  EXPECT_GT(bytes_sent(schedule, Phase::forward, CollectiveKind::all_to_all, "tables"), 0);
  EXPECT_LT(distance_of_ten(testing::train(trial, plan, schedule), exact), 2e-3);
}

}  // namespace table_messages_test
}  // namespace orrery::exec

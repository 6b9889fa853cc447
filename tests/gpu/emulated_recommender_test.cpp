// Recommendation models trained on emulated devices beside the CPU backend: every placement and optimizer, vectors in
// fewer bits, graphs and the counts that end them, the same bits whatever the order; what is refused.
#include <gtest/gtest.h>

#include <functional>

#include "exec/engine/lookups.h"
#include "plan/lower/lower.h"
#include "plan/spec/table_layout.h"
#include "tests/exec/recommender.h"
#include "tests/exec/serial.h"
#include "tests/gpu/emulated_training.h"
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace emulated_recommender_test {

using plan::OptimizerKind;
using plan::PooledType;
using plan::TableSharding;
using testing::Outcome;
using testing::place;
using testing::split;
using testing::Trial;

Trial short_clicks(bool cross, OptimizerKind optimizer, std::int64_t steps = 3) {
  return short_trial(steps, testing::click_trial(cross, optimizer));
}

struct OfTables {
  const char* name;
  bool cross;
  OptimizerKind optimizer;
  void (*set)(Trial&);
};

class EmulatedRecommender : public ::testing::TestWithParam<OfTables> {};

TEST_P(EmulatedRecommender, TrainsAsOnTheCpuBackend) {
  Trial trial = short_clicks(GetParam().cross, GetParam().optimizer);
  GetParam().set(trial);
  const Outcome theirs = testing::train(trial), ours = on_devices(trial);
  expect_near(ours, theirs, {1e-5, 1e-5, 1e-5});
  for (std::size_t step = 0; step < theirs.steps.size(); ++step)
    EXPECT_NEAR(ours.steps[step].gradient_norm, theirs.steps[step].gradient_norm,
                1e-5 * theirs.steps[step].gradient_norm);
  expect_memory_as_placed(ours);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, EmulatedRecommender,
    ::testing::Values(
        OfTables{"serial_sgd", false, OptimizerKind::sgd, [](Trial&) {}},
        OfTables{"serial_adam", false, OptimizerKind::adam, [](Trial&) {}},
        OfTables{"serial_cross_adagrad", true, OptimizerKind::rowwise_adagrad, [](Trial&) {}},
        OfTables{"whole_2_cross_adam", true, OptimizerKind::adam,
                 [](Trial& one) { split(one, 2, TableSharding::whole); }},
        OfTables{"whole_4_sgd", false, OptimizerKind::sgd, [](Trial& one) { split(one, 4, TableSharding::whole); }},
        OfTables{"row_2_adagrad", false, OptimizerKind::rowwise_adagrad,
                 [](Trial& one) { split(one, 2, TableSharding::row); }},
        OfTables{"row_4_adam", false, OptimizerKind::adam, [](Trial& one) { split(one, 4, TableSharding::row); }},
        OfTables{"column_2_sgd", false, OptimizerKind::sgd, [](Trial& one) { split(one, 2, TableSharding::column); }},
        OfTables{"column_4_adagrad", false, OptimizerKind::rowwise_adagrad,
                 [](Trial& one) { split(one, 4, TableSharding::column); }},
        OfTables{"replicated_2_adam", false, OptimizerKind::adam,
                 [](Trial& one) { split(one, 2, TableSharding::replicated); }},
        OfTables{"replicated_4_cross_adagrad", true, OptimizerKind::rowwise_adagrad,
                 [](Trial& one) { split(one, 4, TableSharding::replicated); }},
        OfTables{"grid_4_adagrad", false, OptimizerKind::rowwise_adagrad,
                 [](Trial& one) {
                   place(one, 4, {"grid 2x2 0-3", "grid 2x2 3 1 0 2", "grid 2x2 0-3", "grid 2x2 1-3 0"});
                 }},
        OfTables{"rows_of_a_node_4_sgd", false, OptimizerKind::sgd,
                 [](Trial& one) {
                   place(one, 4, {"row 0 1", "row 2 3", "row 2 3", "row 0 1"});
                 }},
        OfTables{"all_on_one_of_2_adagrad", false, OptimizerKind::rowwise_adagrad,
                 [](Trial& one) {
                   place(one, 2, {"whole 1", "whole 1", "whole 1", "whole 1"});
                 }},
        OfTables{"weighted_bags_4_adagrad", false, OptimizerKind::rowwise_adagrad,
                 [](Trial& one) {
                   one = short_trial(3, testing::bag_trial(false, OptimizerKind::rowwise_adagrad));
                   place(one, 4, {"column 3 1", "replicated", "row 0-2", "whole 2"});
                 }},
        OfTables{"each_another_way_4_cross_adam", true, OptimizerKind::adam,
                 [](Trial& one) {
                   place(one, 4, {"column 3 1", "replicated", "row 0-2", "whole 2"});
                 }}),
    [](const auto& tested) { return std::string(tested.param.name); });

Trial each_another_way(OptimizerKind optimizer = OptimizerKind::rowwise_adagrad) {
  Trial trial = short_clicks(true, optimizer);
  place(trial, 4, {"column 3 1", "replicated", "row 0-2", "whole 2"});
  trial.gradients_at = {};
  return trial;
}

/// Trained on the CPU backend, and on devices, of nodes with two ranks each.
struct OnNodes {
  Outcome theirs, ours;
};
OnNodes train_on_nodes(const Trial& trial, bool nccl = true) {
  const plan::Plan plan = testing::plan_on_nodes(trial, 2);
  const plan::Schedule schedule = plan::lower(plan);
  return {testing::train(trial, plan, schedule), testing::train(with_devices(trial, nccl, kUntuned), plan, schedule)};
}

struct Stood {
  const char* name;
  int ranks;
  std::vector<std::string> places;
};
void PrintTo(const Stood& one, std::ostream* out) {
  *out << one.name;
}

class EmulatedRecommenderOnNodes : public ::testing::TestWithParam<Stood> {};

// Sums that are reduced over all ranks, over a node, or exchanged.
TEST_P(EmulatedRecommenderOnNodes, TrainsAsOnTheCpuBackend) {
  for (const bool nccl : {true, false}) {
    Trial trial = short_clicks(false, nccl ? OptimizerKind::rowwise_adagrad : OptimizerKind::adam);
    place(trial, GetParam().ranks, GetParam().places);
    const OnNodes trained = train_on_nodes(trial, nccl);
    expect_near(trained.ours, trained.theirs, {1e-5, 1e-5, 1e-5});
    expect_memory_as_placed(trained.ours);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, EmulatedRecommenderOnNodes,
    ::testing::Values(Stood{"rows_of_nodes", 4, {"row 0 1", "row 3 2", "row 2 3", "row 0 1"}},
                      Stood{"rows_of_one_node_alone", 4, {"row 2 3", "row 2 3", "row 3 2", "row 2 3"}},
                      Stood{"grids", 4, {"grid 2x2 0-3", "grid 2x2 2 3 1 0", "grid 2x2 0-3", "row 0 1"}},
                      Stood{"every_way", 4, {"row 3 0 2 1", "row 2 3", "column 3 1", "whole 2"}},
                      Stood{"every_way_and_replicated", 4, {"row 0-3", "replicated", "row 0-2", "row 0 1"}},
                      Stood{"four_nodes", 8, {"row 0 1", "row 6 7", "grid 2x2 4 5 2 3", "whole 5"}}),
    [](const auto& tested) { return std::string(tested.param.name); });

// CPU ranks add 16 bits up in fp32 and round once; NCCL rounds as it passes sums on.
TEST(EmulatedRecommending, SumsOverNodesTravelInFewerBits) {
  Trial trial = short_clicks(true, OptimizerKind::rowwise_adagrad, 2);
  place(trial, 4, {"row 3 0 2 1", "row 2 3", "column 3 1", "whole 2"});
  trial.gradients_at = {};
  for (const auto& [forward, backward] :
       {std::pair{PooledType::fp16, PooledType::bf16}, std::pair{PooledType::bf16, PooledType::int8}}) {
    SCOPED_TRACE(std::string(plan::name_of(forward)) + " forward, " + plan::name_of(backward) + " backward");
    trial.spec.embedding.forward = forward;
    trial.spec.embedding.backward = backward;
    const OnNodes by_nccl = train_on_nodes(trial), staged = train_on_nodes(trial, false);
    EXPECT_LE(testing::loss_distance(by_nccl.ours, by_nccl.theirs), 1e-3);
    EXPECT_LE(testing::relative_distance(by_nccl.ours.weights, by_nccl.theirs.weights), 1e-2);
    EXPECT_LE(testing::loss_distance(staged.ours, staged.theirs), 1e-5);
    EXPECT_LE(testing::relative_distance(staged.ours.weights, staged.theirs.weights), 1e-4);
  }
}

// Both sides round alike, so that codes differ where a value lies between two of them.
TEST(EmulatedRecommending, VectorsTravelInFewerBitsAsBetweenCpuRanks) {
  Trial trial = each_another_way();
  trial.steps = 2;
  const Outcome exact = on_devices(trial);
  for (const auto& [forward, backward] :
       {std::pair{PooledType::fp16, PooledType::bf16}, std::pair{PooledType::int8, PooledType::fp32},
        std::pair{PooledType::fp32, PooledType::int8}}) {
    SCOPED_TRACE(std::string(plan::name_of(forward)) + " forward, " + plan::name_of(backward) + " backward");
    trial.spec.embedding.forward = forward;
    trial.spec.embedding.backward = backward;
    const Outcome theirs = testing::train(trial), ours = on_devices(trial);
    EXPECT_LE(testing::loss_distance(ours, theirs), 1e-5);
    EXPECT_LE(testing::relative_distance(ours.weights, theirs.weights), 1e-4);
    EXPECT_GT(testing::relative_distance(ours.weights, exact.weights), 1e-7) << "they were rounded";
  }
}

TEST(EmulatedRecommending, HasTheSameBitsInEveryOrderOfThreadsAndStreams) {
  const Trial trial = each_another_way();
  const Outcome first = on_devices(trial);
  Trial plain = trial;
  plain.graphs = false;
  expect_same_bits(on_devices(plain), first);
  for (const unsigned order : {kOthersFirst, kByChance}) {
    const OrderOfStreams streams(order);
    emulation::set_thread_order(order);
    const Outcome other = on_devices(trial);
    emulation::set_thread_order(0);
    expect_same_bits(other, first);
  }
}

TEST(EmulatedRecommending, TravelsThroughPinnedMemoryToo) {
  const Trial trial = each_another_way(OptimizerKind::sgd);
  expect_near(on_devices(trial, false), testing::train(trial), {1e-5, 1e-5, 1e-5});
}

// Duplicates of a row are merged in the order of the step's samples: bit by bit, wherever a table stands.
TEST(EmulatedRecommending, TheFirstStepsTablesDoNotDependOnWhereTheyStand) {
  Trial trial = short_clicks(false, OptimizerKind::rowwise_adagrad, 1);
  trial.gradients_at = {};
  LogicalTensors first;
  for (const auto& rows : {std::vector<std::string>{"whole 0", "whole 1", "whole 0", "whole 1"},
                           std::vector<std::string>{"whole 1", "whole 0", "whole 1", "whole 1"},
                           std::vector<std::string>{"row 0 1", "whole 1", "whole 0", "whole 0"}}) {
    Trial other = trial;
    place(other, 2, rows);
    const LogicalTensors weights = on_devices(other).weights;
    if (first.empty()) first = weights;
    for (std::int64_t t = 0; t < 4; ++t)
      EXPECT_EQ(weights.at(models::table_name(t)).values, first.at(models::table_name(t)).values) << "table " << t;
  }
}

// The host has a part in reading samples and in starting messages whose sizes it must know: graphs end there, and no
// capture is tried in vain. Without such messages what follows the samples is one graph.
TEST(EmulatedRecommending, GraphsEndWhereTheHostReadsCounts) {
  struct Expected {
    void (*set)(Trial&);
    std::int64_t graphs, beside;
  };
  for (const auto& [set, graphs, beside] :
       {Expected{[](Trial&) {}, 2, 1}, Expected{[](Trial& one) { split(one, 2, TableSharding::replicated); }, 2, 1},
        // Samples, what sorts their indices out, lengths, indices.
        Expected{[](Trial& one) { split(one, 2, TableSharding::row); }, 2, 4},
        // Vectors and gradients are counted too, where ranks have more and fewer columns; sums outlive what is between.
        Expected{[](Trial& one) {
                   place(one, 2, {"whole 0", "whole 1", "whole 1", "whole 1"});
                 },
                 5, 11}}) {
    Trial trial = short_clicks(false, OptimizerKind::sgd);
    trial.gradients_at = {};
    set(trial);
    for (const Executor::GraphCounts& counts : on_devices(trial).graphs) {
      EXPECT_EQ(counts.reason, "");
      EXPECT_EQ(counts.failed, 0);
      EXPECT_EQ(counts.captured, graphs);
      EXPECT_EQ(counts.replayed, 2 * graphs) << "two steps behind the one that is traced";
      EXPECT_EQ(counts.plain_steps, 2 * beside);
    }
  }
}

// Logits of an evaluation come back to the host, which judges them.
TEST(EmulatedRecommending, EvaluatesAsOnTheCpuBackend) {
  Trial trial = each_another_way();
  trial.training.evaluation = plan::Evaluation{trial.training.data, 1, 3};
  const Outcome theirs = testing::train(trial), ours = on_devices(trial);
  ASSERT_EQ(ours.held_out.size(), theirs.held_out.size());
  ASSERT_EQ(ours.held_out.size(), 4U);
  for (std::size_t i = 0; i < ours.held_out.size(); ++i)
    EXPECT_NEAR(ours.held_out[i], theirs.held_out[i], 1e-5 * theirs.held_out[i]);
}

plan::TableLayout layout_of(const Trial& trial) {
  return plan::make_table_layout(*trial.model.recommender, testing::plan_of(trial).spec(), 1);
}

// A kernel would leave such an index out.
TEST(EmulatedRecommending, AnIndexThatItsTableHasNotIsRefusedBeforeItIsCopied) {
  const plan::TableLayout layout = layout_of(each_another_way());
  std::vector<std::int32_t> indices(static_cast<std::size_t>(layout.samples * layout.indices), 6);
  EXPECT_NO_THROW(check_lookups(layout, indices));
  for (const std::int32_t bad : {-1, 7}) {
    indices[static_cast<std::size_t>(3 * layout.indices + 2)] = bad;  // in table 1, which has 7 rows
    try {
      check_lookups(layout, indices);
      ADD_FAILURE() << bad;
    } catch (const Failure& failure) {
      EXPECT_NE(std::string(failure.what())
                    .find("sample 3 of the batch looks up row " + std::to_string(bad) + " of table 1, which has 7"),
                std::string::npos)
          << failure.what();
    }
  }
}

TEST(EmulatedRecommending, TablesOutsideTheDevicesMemoryAreRefusedByName) {
  plan::TableLayout layout = layout_of(each_another_way());
  layout.most_book = 1;
  models::Op op;
  op.kind = models::OpKind::embedding_bag;
  StepContext context;
  context.tables = &layout;
  try {
    cuda_backend().run(op, {}, {}, {}, context);
    ADD_FAILURE();
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("embedding_bag"), std::string::npos);
    EXPECT_NE(std::string(failure.what()).find("embedding.tiers"), std::string::npos);
  }
}

}  // namespace emulated_recommender_test
}  // namespace orrery::exec::gpu_test

// Recommendation models: the serial run against plain loops, every placement of tables against the serial run, and what
// fewer bits on the wire cost.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "exec/data/click_generator.h"
#include "exec/data/clicks.h"
#include "exec/engine/thread_transport.h"
#include "exec/files/safetensors.h"
#include "exec/run/run_data.h"
#include "exec/state/initialise.h"
#include "plan/lower/lower.h"
#include "plan/spec/table_layout.h"
#include "tests/exec/recommender.h"

namespace orrery::exec {
namespace recommender_test {

using plan::OptimizerKind;
using plan::TableSharding;
using testing::Outcome;
using testing::place;
using testing::split;
using testing::Trial;

/// Weights as drawn: a run of a rate of 0.
LogicalTensors initial_weights(Trial trial) {
  trial.training.optimizer.learning_rate = 0;
  trial.steps = 1;
  trial.gradients_at = {};
  return testing::train(trial).weights;
}

constexpr OptimizerKind kOptimizersOfTables[] = {OptimizerKind::sgd, OptimizerKind::rowwise_adagrad,
                                                 OptimizerKind::adam};

TEST(Recommender, TrainsAsPlainLoopsDo) {
  for (const bool cross : {false, true})
    for (const OptimizerKind optimizer : kOptimizersOfTables) {
      SCOPED_TRACE(std::string(cross ? "cross, " : "dot, ") + plan::name_of(optimizer));
      const Trial trial = testing::click_trial(cross, optimizer);
      const testing::ReferenceRun reference = testing::reference_run(trial, initial_weights(trial));
      const Outcome run = testing::train(trial);
      ASSERT_EQ(run.steps.size(), 20U);
      for (std::size_t step = 0; step < run.steps.size(); ++step)
        EXPECT_NEAR(run.steps[step].loss, reference.losses[step], 1e-5 * reference.losses[step]) << "step " << step;
      EXPECT_LT(testing::relative_distance(run.weights, reference.weights), 1e-5);
      EXPECT_GT(testing::relative_distance(run.weights, initial_weights(trial)), 1e-2) << "it learns something";
    }
}

// Weighted sums, bags of several lengths, sums and means of them, and empty bags.
TEST(Recommender, TrainsBagsOfAnyLengthAsPlainLoopsDo) {
  for (const OptimizerKind optimizer : kOptimizersOfTables) {
    SCOPED_TRACE(plan::name_of(optimizer));
    const Trial trial = testing::bag_trial(optimizer == OptimizerKind::adam, optimizer);
    const testing::ReferenceRun reference = testing::reference_run(trial, initial_weights(trial));
    const Outcome run = testing::train(trial);
    ASSERT_EQ(run.steps.size(), 20U);
    for (std::size_t step = 0; step < run.steps.size(); ++step)
      EXPECT_NEAR(run.steps[step].loss, reference.losses[step], 1e-5 * reference.losses[step]) << "step " << step;
    EXPECT_LT(testing::relative_distance(run.weights, reference.weights), 1e-5);
  }
}

// torch.nn.EmbeddingBag with sparse gradients, and its optimizers: losses of 20 steps, and the weights behind them.
TEST(Recommender, TrainsAsPyTorchDoes) {
  const std::string folder = std::string(ORRERY_SOURCE_DIR) + "/tests/golden/pytorch/";
  std::ifstream in(folder + "dlrm_golden.json");
  const nlohmann::json golden = nlohmann::json::parse(in);
  for (const OptimizerKind optimizer : kOptimizersOfTables) {
    const std::string name = plan::name_of(optimizer);
    SCOPED_TRACE(name);
    Trial trial = testing::golden_clicks(optimizer);
    trial.training.optimizer.learning_rate = golden["runs"][name]["learning_rate"];
    const Outcome run = testing::train(trial);
    for (std::size_t step = 0; step < run.steps.size(); ++step) {
      const double loss = golden["runs"][name]["losses"][step];
      EXPECT_NEAR(run.steps[step].loss, loss, 1e-5 * loss) << "step " << step;
    }
    auto file = SafetensorsFile::open(folder + "dlrm_" + name + "_final.safetensors");
    ASSERT_TRUE(file);
    LogicalTensors end;
    for (const auto& [tensor, values] : run.weights) {
      end[tensor].shape = values.shape;
      end[tensor].values.resize(values.values.size());
      ASSERT_NE(file->header().find(tensor), nullptr) << tensor;
      file->read(*file->header().find(tensor), 0, end[tensor].values);
    }
    EXPECT_LT(testing::relative_distance(run.weights, end), 1e-5);
  }
}

class Placements : public ::testing::TestWithParam<std::pair<const char*, void (*)(Trial&)>> {};

void expect_equal_to_serial(const Trial& serial, void (*place)(Trial&)) {
  Trial trial = serial;
  place(trial);
  const Outcome one = testing::train(serial), several = testing::train(trial);
  ASSERT_EQ(several.steps.size(), 20U);
  EXPECT_LE(testing::loss_distance(several, one), 1e-5);
  EXPECT_LE(testing::relative_distance(several.weights, one.weights), 1e-5);
  EXPECT_LE(testing::relative_distance(several.gradients.at(19), one.gradients.at(19)), 1e-5);
  for (std::size_t step = 0; step < 20; ++step)
    EXPECT_NEAR(several.steps[step].gradient_norm, one.steps[step].gradient_norm, 1e-5 * one.steps[step].gradient_norm);
  for (std::size_t rank = 0; rank < several.memory.size(); ++rank)
    EXPECT_EQ(several.memory[rank].peak_live, several.placements[rank].peak_live_bytes) << "rank " << rank;
}

TEST_P(Placements, AreEqualToSerial) {
  for (const OptimizerKind optimizer : kOptimizersOfTables) {
    SCOPED_TRACE(plan::name_of(optimizer));
    const bool cross = optimizer == OptimizerKind::rowwise_adagrad;
    expect_equal_to_serial(testing::click_trial(cross, optimizer), GetParam().second);
  }
}

TEST_P(Placements, OfWeightedBagsAreEqualToSerial) {
  for (const OptimizerKind optimizer : kOptimizersOfTables) {
    SCOPED_TRACE(plan::name_of(optimizer));
    expect_equal_to_serial(testing::bag_trial(optimizer == OptimizerKind::sgd, optimizer), GetParam().second);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tables, Placements,
    ::testing::Values(std::pair{"whole_2", +[](Trial& one) { split(one, 2, TableSharding::whole); }},
                      std::pair{"whole_4", +[](Trial& one) { split(one, 4, TableSharding::whole); }},
                      std::pair{"row_2", +[](Trial& one) { split(one, 2, TableSharding::row); }},
                      std::pair{"row_4", +[](Trial& one) { split(one, 4, TableSharding::row); }},
                      std::pair{"column_2", +[](Trial& one) { split(one, 2, TableSharding::column); }},
                      std::pair{"column_4", +[](Trial& one) { split(one, 4, TableSharding::column); }},
                      std::pair{"replicated_2", +[](Trial& one) { split(one, 2, TableSharding::replicated); }},
                      std::pair{"replicated_4", +[](Trial& one) { split(one, 4, TableSharding::replicated); }},
                      std::pair{"automatic_4", +[](Trial& one) { split(one, 4, TableSharding::automatic); }},
                      std::pair{"grid_4",
                                +[](Trial& one) {
                                  place(one, 4, {"grid 2x2 0-3", "grid 2x2 3 1 0 2", "grid 2x2 0-3", "grid 2x2 1-3 0"});
                                }},
                      std::pair{"rows_of_a_node_4",
                                +[](Trial& one) {
                                  place(one, 4, {"row 0 1", "row 2 3", "row 2 3", "row 0 1"});
                                }},
                      std::pair{"all_on_one_of_2",
                                +[](Trial& one) {
                                  place(one, 2, {"whole 1", "whole 1", "whole 1", "whole 1"});
                                }},
                      std::pair{
                          "each_another_way_4",
                          +[](Trial& one) { place(one, 4, {"column 3 1", "replicated", "row 0-2", "whole 2"}); }}),
    [](const auto& one) { return std::string(one.param.first); });

// Where three ranks divide a table's rows, or four in an order that is not theirs, parts of a bag's sum are added in
// another order; 1e-9 then decides at a ReLU's kink. The samples are those that come near none, whatever the seed.
TEST(Recommender, ByRowsInAnyOrderIsEqualToSerialForEverySeed) {
  std::int64_t all_dropped = 0;
  for (const OptimizerKind optimizer : kOptimizersOfTables)
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(std::string(plan::name_of(optimizer)) + ", seed " + std::to_string(seed));
      Trial serial = testing::bag_trial(false, optimizer);
      serial.training.seed = seed;
      std::int64_t dropped = 0;
      serial = testing::beside_kinks(serial, initial_weights(serial), &dropped);
      all_dropped += dropped;
      expect_equal_to_serial(serial, [](Trial& one) {
        place(one, 4, {"row 0-2", "row 3 1 0 2", "row 1-3", "row 2 0 1 3"});
      });
    }
  EXPECT_GT(all_dropped, 0) << "no sample came near a kink, so that this shows nothing";
}

// The sums over samples and over a bag's rows are one tree, whoever has which part of it (exec/cpu/sample_blocks.h,
// exec/data/row_blocks.h), so that nothing differs that Adagrad's and Adam's first steps could make larger.
TEST(Recommender, OnTwoOrFourRanksIsTheSerialRunToTheLastBit) {
  for (const OptimizerKind optimizer : kOptimizersOfTables)
    for (const bool weighted : {false, true}) {
      const Trial serial = weighted ? testing::bag_trial(false, optimizer)
                                    : testing::click_trial(optimizer == OptimizerKind::rowwise_adagrad, optimizer);
      const Outcome one = testing::train(serial);
      const auto expect_the_same = [&](const std::string& how, const Trial& trial) {
        SCOPED_TRACE(std::string(plan::name_of(optimizer)) + (weighted ? ", weighted, " : ", ") + how);
        const Outcome several = testing::train(trial);
        EXPECT_EQ(testing::relative_distance(several.weights, one.weights), 0);
        EXPECT_EQ(testing::relative_distance(several.gradients.at(19), one.gradients.at(19)), 0);
      };
      for (const TableSharding sharding :
           {TableSharding::whole, TableSharding::column, TableSharding::row, TableSharding::replicated})
        for (const int ranks : {2, 4}) {
          Trial trial = serial;
          split(trial, ranks, sharding);
          expect_the_same(std::string(plan::name_of(sharding)) + " on " + std::to_string(ranks), trial);
        }
      Trial trial = serial;
      place(trial, 4, {"grid 2x2 0-3", "grid 2x2 3 1 0 2", "grid 2x2 0-3", "grid 2x2 1-3 0"});
      expect_the_same("grids", trial);
      place(trial, 4, {"row 3 1", "row 2 3", "row 0-3", "row 1 0"});
      expect_the_same("rows on some ranks", trial);
    }
}

// What a rank has of a table's moments is what it has of the table, twice; MLPs have theirs on every rank.
TEST(Recommender, AdamHasTwoMomentsOfEachValueInMemory) {
  const auto bytes_of = [](OptimizerKind optimizer, TableSharding sharding, plan::Purpose purpose) {
    Trial trial = testing::click_trial(false, optimizer);
    split(trial, 2, sharding);
    std::int64_t bytes = 0;
    const plan::Schedule schedule = plan::lower(testing::plan_of(trial));
    for (const plan::Buffer& buffer : schedule.classes[0].buffers)
      if (buffer.purpose == purpose) bytes += buffer.bytes();
    return bytes;
  };
  constexpr double kPadding = 256;  // of the buckets of MLPs and of replicated tables
  for (const TableSharding sharding : {TableSharding::row, TableSharding::column, TableSharding::replicated}) {
    const std::int64_t values = bytes_of(OptimizerKind::adam, sharding, plan::Purpose::parameters);
    const std::int64_t states = bytes_of(OptimizerKind::adam, sharding, plan::Purpose::optimizer_states);
    EXPECT_GT(values, 8 * 135 * 4) << "half of the tables' rows at least";
    EXPECT_NEAR(static_cast<double>(states), 2 * static_cast<double>(values), kPadding);
  }
  EXPECT_EQ(bytes_of(OptimizerKind::sgd, TableSharding::row, plan::Purpose::optimizer_states), 0);
}

// Bit by bit the same, whoever reads, and however far ahead.
TEST(Recommender, ReadingAheadChangesNothing) {
  Trial trial = testing::click_trial(false, OptimizerKind::rowwise_adagrad);
  split(trial, 2, TableSharding::row);
  trial.gradients_at = {};
  for (const plan::DataOrder order : {plan::DataOrder::sequential, plan::DataOrder::shuffled}) {
    trial.training.order = order;
    std::vector<Outcome> runs;
    for (const int ahead : {0, 1, 3}) {
      trial.training.read_ahead = ahead;
      runs.push_back(testing::train(trial));
    }
    for (const Outcome& run : runs) {
      EXPECT_EQ(testing::relative_distance(run.weights, runs[0].weights), 0);
      EXPECT_EQ(testing::loss_distance(run, runs[0]), 0);
    }
  }
}

// A row that no sample looks up keeps its value, though its moments would still move it (as dense Adam's do).
TEST(Recommender, AdamLeavesRowsThatNobodyLooksUp) {
  for (const TableSharding sharding : {TableSharding::row, TableSharding::replicated}) {
    Trial trial = testing::click_trial(false, OptimizerKind::adam);
    split(trial, 2, sharding);
    trial.gradients_at = {};
    // Of all samples the first 16 alone look up row 49 of table 0: steps 1 and 2 do not touch it.
    std::ifstream in(trial.training.data);
    trial.training.data = ::testing::TempDir() + "rows-" + std::to_string(::getpid()) + ".tsv";
    std::ofstream out(trial.training.data);
    int number = 0;
    for (std::string line; std::getline(in, line); ++number) {
      std::size_t first = 0;
      for (int tab = 0; tab < 4; ++tab) first = line.find('\t', first) + 1;
      out << line.substr(0, first) << (number < 16 ? "31" : "2") << line.substr(line.find('\t', first)) << "\n";
    }
    out.close();
    const auto row_after = [&](std::int64_t steps) {
      trial.steps = steps;
      const std::vector<float> table = testing::train(trial).weights.at("emb_l.0.weight").values;
      return std::vector<float>(table.end() - 8, table.end());
    };
    const std::vector<float> after_one = row_after(1);
    EXPECT_NE(after_one, row_after(0));
    EXPECT_EQ(after_one, row_after(3));
  }
}

// Duplicates of a row are merged in the order of the step's samples: not to within rounding, but bit by bit, where the
// gradients that come are the same: tables stand whole, or have one index a sample.
TEST(Recommender, TheFirstStepsTablesDoNotDependOnWhereTheyStand) {
  Trial trial = testing::click_trial(false, true);
  trial.steps = 1;
  trial.gradients_at = {};
  LogicalTensors first;
  for (const auto& rows : {std::vector<std::string>{"whole 0", "whole 1", "whole 0", "whole 1"},
                           std::vector<std::string>{"whole 1", "whole 0", "whole 1", "whole 1"},
                           std::vector<std::string>{"row 0 1", "whole 1", "whole 0", "whole 0"}}) {
    Trial other = trial;
    place(other, 2, rows);
    const LogicalTensors weights = testing::train(other).weights;
    if (first.empty()) first = weights;
    for (std::int64_t t = 0; t < 4; ++t)
      EXPECT_EQ(weights.at(models::table_name(t)).values, first.at(models::table_name(t)).values) << "table " << t;
  }
}

std::int64_t exchanged(const plan::Schedule& schedule, plan::Phase phase) {
  std::int64_t bytes = 0;
  for (const plan::Block& block : schedule.classes[0].blocks)
    for (const plan::Step& step : block.steps)
      if (step.kind == plan::StepKind::collective && step.collective == plan::CollectiveKind::all_to_all &&
          step.phase == phase &&
          schedule.classes[0].buffers[step.source.buffer].name.find("indices") == std::string::npos &&
          schedule.classes[0].buffers[step.source.buffer].name.find("lengths") == std::string::npos)
        bytes += step.message_bytes(schedule.classes[0].buffers);
  return bytes;
}

/// Of the first ten steps: later a value that crosses a ReLU's kink takes a run elsewhere.
double early_distance(const Outcome& a, const Outcome& b) {
  double worst = 0;
  for (std::size_t i = 0; i < 10; ++i) worst = std::max(worst, std::abs(a.steps.at(i).loss / b.steps.at(i).loss - 1));
  return worst;
}

// 16 bits are half the bytes; int8 a quarter and a scale for each vector of 8 values: (8 + 4) / 32.
TEST(Recommender, PooledVectorsTravelInFewerBitsEachWayByItself) {
  using plan::PooledType;
  const Trial serial = testing::click_trial(false, false);
  const Outcome exact = testing::train(serial);
  Trial plain = serial;
  place(plain, 2, {"whole 0", "whole 1", "whole 0", "whole 1"});
  const plan::Schedule whole = plan::lower(testing::plan_of(plain));
  const std::int64_t forward = exchanged(whole, plan::Phase::forward),
                     backward = exchanged(whole, plan::Phase::backward);
  ASSERT_GT(forward, 0);
  EXPECT_EQ(forward, backward);
  struct Case {
    PooledType type;
    std::int64_t share_of_32;
    double error;
  };
  for (const Case& one :
       {Case{PooledType::bf16, 16, 4e-4}, Case{PooledType::fp16, 16, 5e-5}, Case{PooledType::int8, 12, 1e-3}})
    for (const bool ahead : {true, false}) {
      Trial trial = plain;
      (ahead ? trial.spec.embedding.forward : trial.spec.embedding.backward) = one.type;
      SCOPED_TRACE(std::string(plan::name_of(one.type)) + (ahead ? " forward" : " backward"));
      const plan::Schedule schedule = plan::lower(testing::plan_of(trial));
      EXPECT_EQ(exchanged(schedule, plan::Phase::forward), ahead ? forward * one.share_of_32 / 32 : forward);
      EXPECT_EQ(exchanged(schedule, plan::Phase::backward), ahead ? backward : backward * one.share_of_32 / 32);
      const Outcome rounded = testing::train(trial);
      const double loss = early_distance(rounded, exact);
      std::printf("[ errors   ] %-5s %-8s loss %.1e\n", plan::name_of(one.type), ahead ? "forward" : "backward", loss);
      EXPECT_GT(loss, 1e-8) << "it is rounded";
      EXPECT_LT(loss, one.error);
    }
}

TEST(Recommender, AlsoTravelsInFewerBitsOfUnevenPlacements) {
  Trial serial = testing::click_trial(false, false);
  const Outcome exact = testing::train(serial);
  Trial trial = serial;
  place(trial, 4, {"column 3 1", "replicated", "row 0-2", "whole 2"});
  trial.spec.embedding.forward = plan::PooledType::int8;
  trial.spec.embedding.backward = plan::PooledType::bf16;
  EXPECT_LT(early_distance(testing::train(trial), exact), 2e-3);
}

// Files cannot say one; whoever else makes samples is held to it, and never reads another row.
TEST(Recommender, AnIndexThatItsTableHasNotIsRefused) {
  Trial trial = testing::click_trial(false, false);
  split(trial, 2, TableSharding::row);
  const plan::Plan plan = testing::plan_of(trial);
  const plan::TableLayout layout = plan::make_table_layout(*trial.model.recommender, plan.spec(), 2);
  const auto backend = make_cpu_backend(1);
  StepContext context;
  context.tables = &layout;
  for (const std::int32_t bad : {-1, 7, 1 << 30}) {
    std::vector<std::int32_t> indices(static_cast<std::size_t>(layout.samples * layout.indices), 0);
    indices[static_cast<std::size_t>(3 * layout.indices + 2)] = bad;  // of sample 3, in table 1, which has 7 rows
    std::vector<std::int32_t> lengths(static_cast<std::size_t>(2 * layout.most_shards * layout.samples));
    std::vector<std::int32_t> values(static_cast<std::size_t>(2 * layout.most_indices)), counts(8);
    models::Op op;
    op.kind = models::OpKind::bucketise_indices;
    const auto of = [](std::vector<std::int32_t>& ints, std::size_t first, std::size_t count) {
      return Operand{reinterpret_cast<std::byte*>(ints.data() + first), static_cast<std::int64_t>(count),
                     models::DType::int32};
    };
    const std::vector<Operand> in = {of(indices, 0, indices.size())};
    const std::vector<Operand> out = {of(lengths, 0, lengths.size()),
                                      of(values, 0, values.size()),
                                      of(counts, 0, 2),
                                      of(counts, 2, 2),
                                      of(counts, 4, 2),
                                      of(counts, 6, 2)};
    try {
      backend->run(op, in, out, {}, context);
      ADD_FAILURE() << "row " << bad << " was looked up";
    } catch (const Failure& failure) {
      EXPECT_EQ(std::string(failure.what()),
                "sample 3 of the batch looks up row " + std::to_string(bad) + " of table 1, which has 7");
    }
  }
}

// -- what it learns ---------------------------------------------------------------------------------------------------
Trial learning() {
  Trial trial = testing::click_trial(false, true);
  models::Recommender& r = *trial.model.recommender;
  r.dense_features = 4;
  r.tables = {{1000, models::Pooling::sum, 1}, {200, models::Pooling::mean, 3}, {50, models::Pooling::sum, 1}};
  const std::string folder = ::testing::TempDir() + "generated-" + std::to_string(::getpid());
  const auto write = [&](const std::string& name, std::int64_t first, std::int64_t count) {
    const std::string path = folder + name;
    std::ofstream(path) << generate_clicks(r, first, count, 17).text;
    return path;
  };
  trial.spec.shape.batch = trial.spec.shape.micro_batch = 128;
  trial.training.data = write("-train.tsv", 0, 25'600);
  trial.training.evaluation = plan::Evaluation{write("-held.tsv", 25'600, 5'120), 200, 40};
  trial.training.optimizer.learning_rate = 0.05;
  trial.steps = 400;
  trial.gradients_at = {};
  trial.check = Arena::Check::none;
  return trial;
}

struct Learned {
  double loss = 0, auc = 0;
  std::optional<double> best = {};  ///< of the click model, if the run draws its samples
};
Learned learn(const Trial& trial) {
  const plan::Plan plan = testing::plan_of(trial);
  const plan::Schedule schedule = plan::lower(plan);
  const int ranks = plan.spec().mesh.ranks();
  const Waiter waiter(wait_policy(ranks, 1, std::chrono::seconds(60)));
  ThreadWorld world(ranks);
  Learned out;
  testing::in_threads(
      ranks,
      [&](int rank) {
        const auto transport = world.transport(rank);
        const auto backend = make_cpu_backend(1);
        base::Result<RunData> data = open_data(plan, trial.training, *transport, ::testing::TempDir());
        ASSERT_TRUE(data) << base::render(data.error(), false);
        Trainer trainer(plan, trial.training, schedule, *backend, *transport, waiter, std::move(data->batches), {},
                        std::move(data->held_out));
        initialise(schedule, rank, trainer.executor().arena(), *backend, seeded_source(trial.training.seed));
        for (std::int64_t step = 0; step < trial.steps; ++step) (void)trainer.step(step);
        const double loss = trainer.evaluate();
        if (rank == 0) out = {loss, trainer.area_under_curve().value(), trainer.best_area()};
      },
      [&](const std::string& why) { world.abort(why); });
  return out;
}

// Of clicks whose chances are known: what is reached is held to what can be.
TEST(RecommenderLearns, NearlyWhatThereIsToLearnAndTheSameOnSeveralRanks) {
  const Trial serial = learning();
  const double best = generate_clicks(*serial.model.recommender, 25'600, 5'120, 17).best_auc;
  const Learned one = learn(serial);
  Trial trial = serial;
  place(trial, 2, {"row 0 1", "whole 1", "replicated"});
  trial.spec.embedding.forward = plan::PooledType::fp16;
  trial.spec.embedding.backward = plan::PooledType::bf16;
  const Learned several = learn(trial);
  std::printf("[ learned  ] AUC %.4f, on 2 ranks in 16 bits %.4f, of the true chances %.4f\n", one.auc, several.auc,
              best);
  EXPECT_LT(best, 1);
  EXPECT_GT(one.auc, best - 0.06);
  EXPECT_GT(one.auc, 0.7);
  EXPECT_NEAR(several.auc, one.auc, 0.005);
  EXPECT_NEAR(several.loss, one.loss, 0.01);
}

TEST(RecommenderLearns, FromSamplesThatRanksDrawWhatAFileOfThemTeaches) {
  Trial trial = learning();
  trial.steps = 60;
  const Learned file = learn(trial);
  EXPECT_FALSE(file.best) << "a file says nothing about its click model";
  const double best = generate_clicks(*trial.model.recommender, 25'600, 5'120, 17).best_auc;
  trial.training.generated = plan::GeneratedSamples{25'600, 17};
  trial.training.data.clear();
  trial.training.evaluation->data.clear();
  const Learned drawn = learn(trial);
  EXPECT_EQ(drawn.loss, file.loss);
  EXPECT_EQ(drawn.auc, file.auc);
  EXPECT_EQ(drawn.best, best);
  place(trial, 2, {"row 0 1", "whole 1", "replicated"});
  const Learned several = learn(trial);
  EXPECT_NEAR(several.loss, drawn.loss, 1e-4);
  EXPECT_EQ(several.best, best);
}

// At the synchronous run's rate, which nobody tuned for weights that are older.
TEST(RecommenderLearns, WithAParameterServerToo) {
  Trial trial = learning();
  place(trial, 2, {"row 0 1", "whole 1", "replicated"});
  const Learned synchronous = learn(trial);
  for (const int staleness : {0, 1}) {
    trial.spec.states.staleness = staleness;
    const Learned served = learn(trial);
    std::printf("[ learned  ] staleness %d: loss %.4f, AUC %.4f; synchronous %.4f, %.4f\n", staleness, served.loss,
                served.auc, synchronous.loss, synchronous.auc);
    EXPECT_GT(served.auc, synchronous.auc - 0.005);
    EXPECT_LT(served.loss, synchronous.loss + 0.02);
  }
}

}  // namespace recommender_test
}  // namespace orrery::exec

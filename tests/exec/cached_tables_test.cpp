// Tables in the host's memory and on NVMe behind a cache: the same values as without, and the hits that are predicted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/random.h"
#include "exec/data/clicks.h"
#include "exec/engine/thread_transport.h"
#include "exec/failure.h"
#include "exec/state/checkpoint.h"
#include "exec/state/initialise.h"
#include "plan/lower/lower.h"
#include "plan/spec/table_hits.h"
#include "plan/spec/table_tiers.h"
#include "tests/exec/recommender.h"

namespace orrery::exec {
namespace cached_tables_test {

using plan::OptimizerKind;
using plan::Space;
using testing::Outcome;
using testing::Trial;

constexpr OptimizerKind kOptimizersOfCached[] = {OptimizerKind::sgd, OptimizerKind::rowwise_adagrad,
                                                 OptimizerKind::adam};

void stand(Trial& trial, const std::vector<std::string>& rows) {
  std::vector<plan::TablePlacement::Cell> cells;
  int ranks = 1;
  for (const std::string& row : rows) cells.push_back({row, {}});
  trial.spec.embedding.placement = *plan::TablePlacement::parse_rows(cells);
  for (const plan::TablePlace& place : trial.spec.embedding.placement.places())
    for (const int rank : place.ranks) ranks = std::max(ranks, rank + 1);
  trial.spec.mesh.data = ranks;
  trial.spec.shape.micro_batch = trial.spec.shape.batch / ranks;
}

/// Caches of what a step needs and so many rows more, in the memories of the tables; of a trial with a placement.
void cache(Trial& trial, const std::vector<Space>& spaces, std::int64_t more) {
  const models::Recommender& model = *trial.model.recommender;
  plan::PlanSpec spec = trial.spec;
  plan::take_optimizer(spec, trial.training);
  std::vector<plan::TableTier> tiers;
  for (std::size_t t = 0; t < model.tables.size(); ++t) {
    tiers.push_back({spaces[t], 0, {}});
    if (spaces[t] == Space::device) continue;
    const plan::TablePlace& place = spec.embedding.placement.places()[t];
    const std::int64_t parts = place.row_parts(), rows = (model.tables[t].rows + parts - 1) / parts;
    const std::int64_t slots = std::min(rows, plan::rows_needed(model.tables[t], spec, place.row_parts()) + more);
    tiers.back().cache = slots * plan::row_bytes(model, spec, place.columns);
  }
  trial.spec.embedding.tiers = plan::TableTiers(std::move(tiers));
}

void expect_same(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << "step " << i;
    EXPECT_EQ(a.steps[i].gradient_norm, b.steps[i].gradient_norm) << "step " << i;
  }
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (const auto& [name, tensor] : b.weights) EXPECT_EQ(a.weights.at(name).values, tensor.values) << name;
}

struct Tiered {
  const char* name;
  std::vector<std::string> places;
  std::vector<Space> spaces;
  std::int64_t evicts_with = 9;  ///< the most rows beyond a step's with which rows go and come again; -1: never do
  bool bags = false;             ///< lookups have weights, and bags several lengths
};
void PrintTo(const Tiered& one, std::ostream* out) {
  *out << one.name;
}
constexpr Space D = Space::device, H = Space::host, N = Space::nvme;

class CachedTables : public ::testing::TestWithParam<Tiered> {};

TEST_P(CachedTables, AreBitByBitWhatTheyAreOnTheDevice) {
  for (const OptimizerKind optimizer : kOptimizersOfCached)
    for (const std::int64_t more : {std::int64_t{0}, std::int64_t{9}}) {
      SCOPED_TRACE(plan::name_of(optimizer));
      const bool cross = optimizer == OptimizerKind::rowwise_adagrad;
      Trial plain = GetParam().bags ? testing::bag_trial(cross, optimizer) : testing::click_trial(cross, optimizer);
      plain.gradients_at = {};
      stand(plain, GetParam().places);
      Trial tiered = plain;
      cache(tiered, GetParam().spaces, more);
      const Outcome with = testing::train(tiered), without = testing::train(plain);
      expect_same(with, without);
      std::int64_t written = 0;
      for (const StepResult& step : with.steps)
        for (const auto& [table, use] : step.caches) {
          EXPECT_NE(GetParam().spaces[static_cast<std::size_t>(table)], D);
          EXPECT_LE(use.hits, use.lookups);
          written += use.written_bytes;
        }
      EXPECT_TRUE(without.steps.back().caches.empty());
      EXPECT_EQ(more <= GetParam().evicts_with, written > 0) << "rows have gone and come again";
      for (std::size_t rank = 0; rank < with.memory.size(); ++rank) {
        EXPECT_EQ(with.memory[rank].peak_live, with.placements[rank].peak_live_bytes) << "rank " << rank;
        EXPECT_EQ(with.host_memory[rank].peak_live, with.placements[rank].host.peak_live_bytes) << "rank " << rank;
        EXPECT_EQ(with.file_memory[rank].peak_live, with.placements[rank].nvme.peak_live_bytes) << "rank " << rank;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Tiers, CachedTables,
    ::testing::Values(Tiered{"host_alone", {"whole 0", "whole 0", "whole 0", "whole 0"}, {H, H, H, H}},
                      Tiered{"nvme_alone", {"whole 0", "whole 0", "whole 0", "whole 0"}, {N, N, N, N}},
                      Tiered{"whole_2", {"whole 0", "whole 1", "whole 0", "whole 1"}, {H, D, H, H}},
                      Tiered{"small_ones", {"whole 1", "whole 0", "whole 1", "whole 0"}, {D, H, D, H}, -1},
                      Tiered{"row_2", {"row 0 1", "row 0 1", "row 0 1", "row 0 1"}, {H, H, N, D}},
                      Tiered{"column_2", {"column 0 1", "column 1 0", "column 0 1", "column 0 1"}, {N, H, H, D}},
                      Tiered{"grid_4", {"grid 2x2 0-3", "replicated", "grid 2x2 3 1 0 2", "whole 2"}, {H, D, N, H}},
                      Tiered{"all_three_4", {"column 3 1", "replicated", "row 0-2", "whole 2"}, {H, D, N, D}},
                      Tiered{"bags_nvme_alone", {"whole 0", "whole 0", "whole 0", "whole 0"}, {N, N, N, N}, 9, true},
                      Tiered{"bags_row_2", {"row 0 1", "row 0 1", "row 0 1", "row 0 1"}, {H, H, N, D}, 0, true},
                      Tiered{"bags_4", {"column 3 1", "replicated", "row 0-2", "whole 2"}, {H, D, N, D}, 0, true}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(CachedTables, EvaluationLeavesTrainingAsItIs) {
  Trial plain = testing::click_trial(false, OptimizerKind::adam);
  plain.gradients_at = {};
  plain.steps = 6;
  stand(plain, {"whole 1", "whole 0", "row 0 1", "whole 0"});
  Trial quiet = plain;
  for (Trial* trial : {&plain, &quiet}) cache(*trial, {H, D, N, H}, 2);
  plain.training.evaluation = plan::Evaluation{plain.training.data, 1, 3};
  const Outcome looked = testing::train(plain), alone = testing::train(quiet);
  expect_same(looked, alone);
  Trial whole = plain;
  whole.spec.embedding.tiers = {};
  EXPECT_EQ(looked.held_out, testing::train(whole).held_out);
}

LogicalTensors go(const Trial& trial, std::int64_t first, std::int64_t steps, const std::filesystem::path& from,
                  const std::filesystem::path& to) {
  const plan::Plan plan = testing::plan_of(trial);
  const plan::Schedule schedule = plan::lower(plan);
  const int ranks = plan.spec().mesh.ranks();
  const Waiter waiter(wait_policy(ranks, 1, std::chrono::seconds(60)));
  ThreadWorld world(ranks);
  LogicalTensors weights;
  testing::in_threads(
      ranks,
      [&](int rank) {
        const auto transport = world.transport(rank);
        const auto backend = make_cpu_backend(1);
        auto file = ClickFile::open(trial.training.data, *trial.model.recommender);
        Executor::Options options;
        options.state_file = ::testing::TempDir() + "tables-" + std::to_string(::getpid()) + "-" + std::to_string(rank);
        Trainer trainer(plan, trial.training, schedule, *backend, *transport, waiter,
                        Batches(*file, plan::DataOrder::sequential, 1, plan.spec().shape.batch), options);
        const CheckpointContext context{schedule, trainer.executor().arena(), *backend, *transport};
        initialise(schedule, rank, trainer.executor().arena(), *backend, seeded_source(trial.training.seed));
        if (!from.empty()) (void)load_checkpoint(context, from);
        for (std::int64_t step = first; step < first + steps; ++step) {
          (void)trainer.step(step);
          if (!to.empty()) save_checkpoint(context, to, step + 1);
        }
        LogicalTensors all =
            gather_logical(schedule, Gathered::weights, trainer.executor().arena(), *backend, *transport);
        if (rank == 0) weights = std::move(all);
      },
      [&](const std::string& why) { world.abort(why); });
  return weights;
}

TEST(CachedTables, CheckpointsGoFromAndToRunsWithoutCaches) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("orrery-cached-" + std::to_string(::getpid()));
  for (const OptimizerKind optimizer : kOptimizersOfCached) {
    std::filesystem::remove_all(folder);
    Trial plain = testing::click_trial(false, optimizer);
    stand(plain, {"whole 1", "whole 0", "row 0 1", "column 0 1"});
    Trial host = plain, mixed = plain;
    cache(host, {H, H, H, H}, 1);
    cache(mixed, {N, D, N, H}, 3);
    const LogicalTensors whole_run = go(plain, 0, 8, {}, {});
    (void)go(host, 0, 3, {}, folder);
    (void)go(plain, 3, 1, folder / "step-000003", folder);
    (void)go(mixed, 4, 2, folder / "step-000004", folder);
    const LogicalTensors end = go(host, 6, 2, folder / "step-000006", {});
    for (const auto& [name, tensor] : whole_run) EXPECT_EQ(end.at(name).values, tensor.values) << name;
  }
  std::filesystem::remove_all(folder);
}

// Of a table whose rows are split a cache has room for twice a part's even share: samples may ask for more.
TEST(CachedTables, AStepThatLooksUpMoreRowsThanACacheHoldsSaysWhatWouldDo) {
  Trial trial = testing::click_trial(false, OptimizerKind::sgd);
  trial.training.data = ::testing::TempDir() + "lower-half-" + std::to_string(::getpid()) + ".tsv";
  std::ofstream out(trial.training.data);
  for (int i = 0; i < 32; ++i) {  // table 0's rows 0 to 15, of which rank 0 has twelve
    out << "1\t1\t1\t1\t";
    char row[8];
    std::snprintf(row, sizeof row, "%x", i % 16);
    out << row << "\t1\t1\t1\t1\t1\t1\t1\t1\t1\n";
  }
  out.close();
  trial.gradients_at = {};
  stand(trial, {"row 0-3", "whole 0", "whole 0", "whole 0"});
  cache(trial, {H, D, D, D}, 0);
  const plan::Plan plan = testing::plan_of(trial);
  try {
    (void)go(trial, 0, 1, {}, {});
    FAIL() << "nobody has said anything";
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), ::testing::HasSubstr("step 1 looks up 12 different rows of rank 0's part of "
                                                     "emb_l.0.weight, whose cache has room for 8"));
    EXPECT_THAT(failure.what(), ::testing::HasSubstr("1.50 times"));
  }
}

/// Samples of two clicks in three, whose rows follow Zipf's law: row i as 1 / (i + 1).
void write_zipf(const std::string& path, const models::Recommender& r, std::int64_t samples) {
  std::ofstream out(path);
  std::vector<std::vector<double>> below;
  for (const models::Table& table : r.tables) {
    below.emplace_back();
    double sum = 0;
    for (std::int64_t i = 0; i < table.rows; ++i) below.back().push_back(sum += 1 / static_cast<double>(i + 1));
  }
  std::uint64_t draw = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    out << (i % 3 == 0 ? "1\t1\t1\t1" : "0\t1\t1\t1");
    for (std::size_t t = 0; t < r.tables.size(); ++t)
      for (std::int64_t j = 0; j < r.tables[t].multi_hot; ++j) {
        const double u = 0.5 * std::erfc(-base::normal(13, 1, draw++) / std::sqrt(2.0)) * below[t].back();
        out << "\t" << std::hex << std::lower_bound(below[t].begin(), below[t].end(), u) - below[t].begin() << std::dec;
      }
    out << "\n";
  }
}

// Lookups by Zipf's law: Che's approximation against what a run counts.
TEST(CachedTables, HitsAndFetchesAreThoseThatArePredicted) {
  Trial trial = testing::click_trial(false, OptimizerKind::rowwise_adagrad);
  models::Recommender& r = *trial.model.recommender;
  r.tables = {{20000, models::Pooling::sum, 2}, {3000, models::Pooling::sum, 1}, {500, models::Pooling::mean, 4}};
  constexpr std::int64_t kBatch = 64, kWarm = 150, kCounted = 150;
  trial.training.data = ::testing::TempDir() + "zipf-" + std::to_string(::getpid()) + ".tsv";
  write_zipf(trial.training.data, r, kBatch * (kWarm + kCounted));
  trial.spec.shape.batch = trial.spec.shape.micro_batch = kBatch;
  trial.steps = kWarm + kCounted;
  trial.gradients_at = {};
  trial.check = Arena::Check::none;
  stand(trial, {"whole 0", "whole 0", "whole 0"});
  trial.spec.embedding.skew = 1;
  for (const std::int64_t more : {std::int64_t{0}, std::int64_t{200}}) {
    cache(trial, {H, H, H}, more);
    const Outcome run = testing::train(trial);
    const plan::PlanSpec spec = testing::plan_of(trial).spec();
    for (std::size_t t = 0; t < r.tables.size(); ++t) {
      Executor::CacheUse sum;
      for (std::size_t step = kWarm; step < run.steps.size(); ++step) {
        const Executor::CacheUse& use = run.steps[step].caches.at(static_cast<int>(t));
        sum.lookups += use.lookups;
        sum.hits += use.hits;
        sum.fetched_bytes += use.fetched_bytes;
      }
      const std::int64_t bytes = plan::row_bytes(r, spec, 1);
      const std::int64_t slots = spec.embedding.tiers.tiers()[t].cache / bytes;
      const plan::CacheExpectation expected = plan::expect_hits(
          r.tables[t].rows, 1, static_cast<double>(kBatch * r.tables[t].multi_hot), static_cast<double>(slots));
      const double hits = static_cast<double>(sum.hits) / static_cast<double>(sum.lookups);
      const double fetched = static_cast<double>(sum.fetched_bytes / bytes) / kCounted;
      std::printf("[ cache    ] %6lld rows, %4lld in the cache: hit rate %.3f, predicted %.3f; fetched %.1f, %.1f\n",
                  static_cast<long long>(r.tables[t].rows), static_cast<long long>(slots), hits, expected.hit_rate,
                  fetched, expected.fetched);
      EXPECT_NEAR(hits, expected.hit_rate, 0.03);
      EXPECT_NEAR(fetched, expected.fetched, 0.08 * expected.distinct);
    }
  }
}

}  // namespace cached_tables_test
}  // namespace orrery::exec

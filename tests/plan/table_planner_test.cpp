// Placements of tables: against exhaustive search where that comes to an end, against the bound where it does not.
#include "plan/spec/table_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "plan/spec/table_layout.h"

namespace orrery::plan {
namespace table_planner_test {

double draw(std::uint64_t stream, std::uint64_t index) {
  return std::exp(base::normal(11, stream, index));
}

/// Whole, in two parts of columns, and on all ranks.
TableProblem random_problem(std::uint64_t seed, int ranks, std::size_t tables) {
  TableProblem p;
  p.ranks = p.ranks_per_node = ranks;
  for (std::size_t t = 0; t < tables; ++t) {
    const double load = draw(seed, 2 * t), memory = draw(seed, 2 * t + 1);
    std::vector<TableOption> options;
    const auto add = [&](TableSharding sharding, int parts, double factor) {
      TableOption o;
      o.sharding = sharding;
      o.parts = parts;
      o.columns = sharding == TableSharding::column ? parts : 1;
      o.load = factor * load / parts;
      o.memory = memory / parts;
      options.push_back(o);
    };
    add(TableSharding::whole, 1, 1);
    if (ranks > 2) add(TableSharding::column, 2, 1.2);
    add(TableSharding::row, ranks, 1.7);
    p.options.push_back(options);
  }
  return p;
}

/// Every option of every table on every set of ranks.
void exhaust(const TableProblem& p, std::size_t t, std::vector<double>& load, std::vector<double>& memory,
             double& best) {
  const double most = *std::max_element(load.begin(), load.end());
  if (t == p.options.size()) {
    best = std::min(best, most);
    return;
  }
  for (const TableOption& o : p.options[t])
    for (unsigned set = 0; set < (1U << p.ranks); ++set) {
      if (__builtin_popcount(set) != o.parts) continue;
      bool room = true;
      for (int r = 0; r < p.ranks; ++r)
        if (((set >> r) & 1U) != 0)
          room &= p.capacity <= 0 || memory[static_cast<std::size_t>(r)] + o.memory <= p.capacity;
      if (!room) continue;
      const std::vector<double> before = load, held = memory;
      for (int r = 0; r < p.ranks; ++r)
        if (((set >> r) & 1U) != 0)
          load[static_cast<std::size_t>(r)] += o.load, memory[static_cast<std::size_t>(r)] += o.memory;
      exhaust(p, t + 1, load, memory, best);
      load = before;
      memory = held;
    }
}

double exhausted(const TableProblem& p) {
  std::vector<double> load(static_cast<std::size_t>(p.ranks), 0), memory = load;
  double best = std::numeric_limits<double>::infinity();
  exhaust(p, 0, load, memory, best);
  return best;
}

TEST(TablePlanner, IsExactOnSmallCases) {
  int split = 0, crowded = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 3);
    TableProblem p = random_problem(seed, ranks, ranks == 4 ? 5 : 6);
    if (seed % 2 == 1) {
      double memory = 0;
      for (const auto& options : p.options) memory += options[0].memory;
      p.capacity = 1.15 * memory / ranks;
    }
    const TablePlan plan = plan_tables(p, 10'000'000);
    const double best = exhausted(p);
    if (!std::isfinite(best)) {
      EXPECT_FALSE(plan.fits) << seed;
      ++crowded;
      continue;
    }
    EXPECT_TRUE(plan.exact) << seed;
    EXPECT_TRUE(plan.fits) << seed;
    EXPECT_NEAR(plan.load, best, 1e-9 * best) << seed;
    EXPECT_LE(plan.lower_bound, best * (1 + 1e-9)) << seed;
    if (p.capacity > 0) {
      EXPECT_LE(plan.memory, p.capacity * (1 + 1e-9)) << seed;
    }
    for (const TableOption& o : plan.chosen) split += o.parts > 1 ? 1 : 0;
  }
  EXPECT_GT(split, 0) << "some table is better split";
  EXPECT_LT(crowded, 10);
}

TEST(TablePlanner, ItsBoundIsBelowAnyPlacement) {
  for (std::uint64_t seed = 100; seed < 120; ++seed) {
    const TableProblem p = random_problem(seed, 3, 6);
    const TablePlan greedy = plan_tables(p, 0);
    EXPECT_LE(greedy.lower_bound, exhausted(p) * (1 + 1e-9)) << seed;
    EXPECT_GE(greedy.load * (1 + 1e-9), greedy.lower_bound) << seed;
  }
}

TEST(TablePlanner, ThousandTablesOver128RanksComeNearTheBound) {
  const TableProblem p = random_problem(5, 128, 1000);
  const auto began = std::chrono::steady_clock::now();
  const TablePlan plan = plan_tables(p);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf("[ planner  ] 1000 tables over 128 ranks: %.3f s, gap %.4f %%\n", seconds, 100 * plan.gap());
  EXPECT_TRUE(plan.fits);
  EXPECT_LT(plan.gap(), 0.02);
}

// Unlike tables leave the search many ways: it may be as deep as there are parts, more than a stack has room for.
TEST(TablePlanner, PlacesThousandDifferentTablesInEverySharding) {
  models::Recommender model;
  model.embedding_dim = 64;
  for (std::uint64_t t = 0; t < 1000; ++t)
    model.tables.push_back({1000 + static_cast<std::int64_t>(1e3 * std::pow(draw(12, t), 3)), models::Pooling::sum,
                            1 + static_cast<int>(base::below(20, 11, 13, t))});
  clusters::Cluster cluster;
  cluster.nodes = 16;
  cluster.devices_per_node = 8;
  cluster.devices.resize(1);
  cluster.devices.front().memory = base::Bytes{400e9};
  cluster.devices.front().memory_bandwidth = base::BytesPerSecond{1.5e12};
  cluster.intra.bandwidth = base::BytesPerSecond{3e11};
  cluster.inter.bandwidth = base::BytesPerSecond{2.5e10};
  PlanSpec spec;
  spec.mesh.data = 128;
  spec.shape.batch = 65536;
  spec.states.optimizer = OptimizerKind::rowwise_adagrad;
  for (const TableSharding sharding :
       {TableSharding::automatic, TableSharding::whole, TableSharding::row, TableSharding::column,
        TableSharding::node_row, TableSharding::grid, TableSharding::replicated}) {
    spec.embedding.sharding = sharding;
    const TableProblem problem = table_problem(model, cluster, spec);
    const TablePlan plan = plan_tables(problem);
    EXPECT_TRUE(plan.fits) << name_of(sharding);
    EXPECT_GE(plan.gap(), 0) << name_of(sharding);
    EXPECT_LT(plan.gap(), 0.02) << name_of(sharding);
    EXPECT_LE(plan.load, plan_tables(problem, 0).load) << name_of(sharding) << ": a search makes nothing worse";
    if (plan.exact) {
      EXPECT_DOUBLE_EQ(plan.gap(), 0) << name_of(sharding);
    }
  }
}

TEST(TablePlacement, IsWrittenAsItIsRead) {
  std::vector<TablePlacement::Cell> cells;
  const std::vector<std::string> rows = {"replicated", "whole 3", "row 0-7", "column 0 2 4", "grid 2x4 0-7"};
  for (const std::string& row : rows) cells.push_back({row, {}});
  const auto placement = TablePlacement::parse_rows(cells);
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->rows(), rows);
  EXPECT_EQ(placement->places()[4].columns, 2);
  EXPECT_EQ(placement->places()[4].row_parts(), 4);
  for (const char* bad : {"", "whole", "whole 1 2", "row", "row 3-1", "grid 2x2 0-2", "grid 2 0-3", "column -1",
                          "all 3", "replicated 2", "row 0-99999999"}) {
    const auto found = TablePlacement::parse_rows({{bad, {"p.yaml", 3, 7, 1}}});
    ASSERT_FALSE(found) << bad;
    EXPECT_EQ(found.error().front().code, "E0126");
    EXPECT_EQ(found.error().front().where.line, 3);
  }
}

TEST(TableLayout, HasEveryValueOfATableOnce) {
  models::Recommender model;
  model.embedding_dim = 8;
  model.tables = {{11, models::Pooling::sum, 2}, {5, models::Pooling::mean, 1}, {100, models::Pooling::sum, 3}};
  PlanSpec spec;
  spec.mesh.data = 4;
  spec.shape.batch = 16;
  spec.embedding.placement = *TablePlacement::parse_rows({{"grid 2x2 0-3", {}}, {"replicated", {}}, {"row 3 1 0", {}}});
  const TableLayout layout = make_table_layout(model, spec, 4);
  std::vector<std::vector<int>> seen = {std::vector<int>(88), {}, std::vector<int>(800)};
  for (const TableShard& s : layout.shards)
    for (std::int64_t r = s.row_begin; r < s.row_end; ++r)
      for (std::int64_t c = s.column_begin; c < s.column_end; ++c)
        ++seen[static_cast<std::size_t>(s.table)][static_cast<std::size_t>(r * 8 + c)];
  for (const std::vector<int>& table : seen)
    for (const int times : table) EXPECT_EQ(times, 1);
  EXPECT_EQ(layout.samples, 4);
  EXPECT_EQ(layout.replicated_elements, 40);
  EXPECT_EQ(layout.columns_of(2, PooledWay::exchange), 4);   // its part of the grid alone
  EXPECT_EQ(layout.columns_of(0, PooledWay::exchange), 12);  // and a part of the rows of the third table
  EXPECT_EQ(layout.pooled_values(0, PooledWay::exchange, PooledType::int8), 4 * (12 + 2 * 4));
  EXPECT_EQ(layout.squares, 2 * 16 * 2);  // of two row parts, as many rows as the step looks up
}

TablePlace read_place(const char* text) {
  return TablePlacement::parse_rows({{text, {}}})->places().front();
}

TEST(PooledWay, FollowsFromWhereRowsStand) {
  const auto way = [](const char* text, PooledType forward = PooledType::fp32) {
    return way_of(read_place(text), 8, 4, forward, false);
  };
  EXPECT_EQ(way("row 0-7"), PooledWay::ranks);
  EXPECT_EQ(way("row 7 0-6"), PooledWay::ranks);
  EXPECT_EQ(way("row 4-7"), PooledWay::node);
  EXPECT_EQ(way("grid 2x4 7 6 5 4 0-3"), PooledWay::node);
  for (const char* other : {"row 2-5", "row 0-2", "row 0-6", "grid 2x4 0 4 1 5 2 6 3 7", "grid 4x2 0-7", "whole 3",
                            "column 0-3", "column 0-7", "replicated"})
    EXPECT_EQ(way(other), PooledWay::exchange) << other;
  EXPECT_EQ(way("row 0-7", PooledType::int8), PooledWay::exchange) << "scales cannot be added up";
  EXPECT_EQ(way("row 4-7", PooledType::int8), PooledWay::exchange);
  EXPECT_EQ(way_of(read_place("row 0-3"), 4, 4, PooledType::fp32, false), PooledWay::ranks) << "one node";
  EXPECT_EQ(way_of(read_place("row 0-3"), 6, 4, PooledType::fp32, false), PooledWay::exchange) << "nodes are not alike";
  EXPECT_EQ(way_of(read_place("whole 0"), 1, 1, PooledType::fp32, false), PooledWay::exchange);
}

// 16 nodes of 8: a ring leaves a node once for all its ranks, an all-to-all once for each.
TEST(PooledWay, PutsAnEighthOnTheLinksBetweenNodesOfEight) {
  const PooledShares all = shares_of(PooledWay::exchange, 128, 8), ranks = shares_of(PooledWay::ranks, 128, 8),
                     node = shares_of(PooledWay::node, 128, 8);
  EXPECT_DOUBLE_EQ(all.between, 127.0 / 128);
  EXPECT_DOUBLE_EQ(all.within, 0);
  EXPECT_DOUBLE_EQ(ranks.between, 127.0 / 128 / 8);
  EXPECT_DOUBLE_EQ(ranks.within, 127.0 / 128 * 7 / 8);
  EXPECT_DOUBLE_EQ(node.between, 15.0 / 16 / 8);
  EXPECT_DOUBLE_EQ(node.within, 7.0 / 8);
  const PooledShares alone = shares_of(PooledWay::ranks, 8, 8);
  EXPECT_DOUBLE_EQ(alone.between, 7.0 / 8) << "the only links that there are";
  EXPECT_DOUBLE_EQ(alone.within, 0);
}

TEST(TableLayout, HasAPlaceForEverySampleAtBothEndsOfEachWay) {
  models::Recommender model;
  model.embedding_dim = 8;
  model.tables = std::vector<models::Table>(5, {100, models::Pooling::sum, 2});
  PlanSpec spec;
  spec.mesh.data = 4;
  spec.shape.batch = 12;
  spec.embedding.placement = *TablePlacement::parse_rows(
      {{"row 0-3", {}}, {"row 3 2", {}}, {"grid 2x2 0-3", {}}, {"whole 1", {}}, {"column 0 3", {}}});
  const TableLayout layout = make_table_layout(model, spec, 2);
  EXPECT_EQ(layout.nodes(), 2);
  EXPECT_EQ(layout.columns_of(3, PooledWay::ranks), 8);
  EXPECT_EQ(layout.columns_of(3, PooledWay::node), 8 + 4);
  EXPECT_EQ(layout.columns_of(0, PooledWay::node), 4);
  EXPECT_EQ(layout.columns_of(3, PooledWay::exchange), 4);
  // At the tables: a slot for each rank, one after the other.
  std::vector<int> seen(static_cast<std::size_t>(layout.pooled_elements(PooledEnd::tables, PooledType::fp32)));
  for (const PooledWay way : kEveryWay) {
    const PooledSlots slots = layout.slots(PooledEnd::tables, way, PooledType::fp32);
    EXPECT_EQ(slots.count, 4);
    for (int rank = 0; rank < 4; ++rank)
      for (std::int64_t i = 0; i < slots.slot; ++i)
        ++seen[static_cast<std::size_t>(slots.offset + layout.slot_of(way, rank) * slots.slot + i)];
  }
  for (const int times : seen) EXPECT_EQ(times, 1);
  // At the owner: every column of every table once.
  std::vector<int> columns(5 * 8),
      values(static_cast<std::size_t>(layout.pooled_elements(PooledEnd::samples, PooledType::fp32)));
  for (const PooledPart& part : layout.parts)
    for (std::int64_t c = 0; c < part.columns; ++c) {
      ++columns[static_cast<std::size_t>(part.table * 8 + part.column_begin + c)];
      for (std::int64_t i = 0; i < layout.samples; ++i)
        ++values[static_cast<std::size_t>(part.at + i * part.stride + c)];
    }
  for (const int times : columns) EXPECT_EQ(times, 1);
  for (const int times : values) EXPECT_LE(times, 1);
}

}  // namespace table_planner_test
}  // namespace orrery::plan

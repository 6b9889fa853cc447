// Tables outside the device's memory: what a job says of them, what is expected of their caches, what a schedule does.
#include "plan/spec/table_tiers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "models/read/read.h"
#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "plan/schedule/rehearse.h"
#include "plan/spec/plan.h"
#include "plan/spec/table_hits.h"
#include "plan/spec/table_layout.h"
#include "plan/spec/table_planner.h"

namespace orrery::plan {
namespace table_tiers_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

models::Model tables_of(const std::string& tables) {
  auto model = models::parse_model("family: dlrm\nname: small\ndense_features: 3\nembedding_dim: 8\ntables:\n" +
                                       tables + "bottom_mlp: [16, 8]\ntop_mlp: [16, 1]\n",
                                   "small.yaml");
  EXPECT_TRUE(model) << base::render(model.error(), false);
  return *model;
}

clusters::Cluster devices(int count, double memory, double host) {
  clusters::Cluster cluster;
  cluster.name = "some";
  cluster.nodes = 1;
  cluster.devices_per_node = count;
  cluster.devices.resize(1);
  cluster.devices.front().kind = clusters::DeviceKind::gpu;
  cluster.devices.front().memory = base::Bytes{memory};
  cluster.devices.front().memory_bandwidth = base::BytesPerSecond{1e12};
  cluster.intra.bandwidth = base::BytesPerSecond{1e10};
  cluster.host_memory.capacity = base::Bytes{host};
  return cluster;
}

PlanSpec spec_of(int ranks, std::int64_t batch) {
  PlanSpec spec;
  spec.mesh.data = ranks;
  spec.shape.batch = batch;
  spec.shape.micro_batch = batch / ranks;
  spec.states.optimizer = OptimizerKind::rowwise_adagrad;
  return spec;
}

TableTiers tiers(const std::vector<std::string>& rows) {
  std::vector<TableTiers::Cell> cells;
  int line = 7;
  for (const std::string& row : rows) cells.push_back({row, {"job.yaml", line++, 3, 1}});
  auto read = TableTiers::parse_rows(cells);
  EXPECT_TRUE(read);
  return read ? *read : TableTiers();
}

TEST(TableTiers, AreReadAndWrittenAsText) {
  const TableTiers read = tiers({"device", "host", " host 64 MiB ", "nvme 1.5 GiB"});
  EXPECT_EQ(read.tiers()[2], (TableTier{Space::host, std::int64_t{64} << 20, {}}));
  EXPECT_EQ(read.tiers()[3], (TableTier{Space::nvme, std::int64_t{3} << 29, {}}));
  EXPECT_EQ(tiers(read.rows()), read);
}

TEST(TableTiers, AnUnknownMemoryIsAnErrorWithItsPlace) {
  for (const char* row : {"tape", "host 64", "host 64 GB/s", "device 1 GiB", "nvme -1 GiB", ""}) {
    const auto read = TableTiers::parse_rows({{"host 1 MiB", {}}, {row, {"job.yaml", 9, 5, 1}}});
    ASSERT_FALSE(read) << row;
    EXPECT_EQ(read.error().front().code, "E0127");
    EXPECT_EQ(read.error().front().where.line, 9);
    EXPECT_THAT(read.error().front().help, HasSubstr("host 64 MiB"));
  }
}

// 16 samples of two indices: up to 32 rows of 36 bytes.
TEST(TableTiers, CachesThatDoNotSuitTheirTableAreRefusedWithWhatIsNeeded) {
  const models::Model model = tables_of("  - {rows: 1000, multi_hot: 2}\n");
  const clusters::Cluster cluster = devices(1, 1e9, 1e9);
  PlanSpec spec = spec_of(1, 16);
  spec.embedding.placement = *TablePlacement::parse_rows({{"whole 0", {}}});
  const auto refused = [&](const char* row, const char* code) {
    spec.embedding.tiers = tiers({row});
    const auto settled = settle_tiers(*model.recommender, cluster, spec);
    EXPECT_FALSE(settled) << row;
    if (settled) return std::string();
    EXPECT_EQ(settled.error().front().code, code);
    EXPECT_EQ(settled.error().front().where.line, 7) << "where the job says so";
    return settled.error().front().message + "; " + settled.error().front().help;
  };
  EXPECT_THAT(refused("host 1151 B", "P138"), HasSubstr("1152 B"));
  EXPECT_THAT(refused("host 36001 B", "P138"), HasSubstr("larger than"));
  EXPECT_THAT(refused("nvme 2 kB", "P139"), HasSubstr("has none"));
  spec.embedding.tiers = tiers({"host 1152 B"});
  EXPECT_TRUE(settle_tiers(*model.recommender, cluster, spec));
  spec.embedding.placement = *TablePlacement::parse_rows({{"replicated", {}}});
  spec.embedding.tiers = tiers({"host 2 kB", "host 2 kB"});
  EXPECT_THAT(settle_tiers(*model.recommender, cluster, spec).error().front().message, HasSubstr("2 tables"));
}

TEST(TableTiers, OneCacheIsSharedByWhatAStepMayLookUp) {
  const models::Model model = tables_of("  - {rows: 1000, multi_hot: 3}\n  - {rows: 1000}\n  - {rows: 10}\n");
  const clusters::Cluster cluster = devices(1, 1e9, 1e9);
  PlanSpec spec = spec_of(1, 16);
  spec.embedding.placement = *TablePlacement::parse_rows({{"whole 0", {}}, {"whole 0", {}}, {"whole 0", {}}});
  spec.embedding.tiers = tiers({"host 7200 B"});  // 200 rows: 10 of the third table, which is all of it, and 3 to 1
  const auto settled = settle_tiers(*model.recommender, cluster, spec);
  ASSERT_TRUE(settled) << base::render(settled.error(), false);
  EXPECT_NEAR(static_cast<double>(settled->tiers()[0].cache), 0.75 * (7200 - 360), 3);
  EXPECT_NEAR(static_cast<double>(settled->tiers()[1].cache), 0.25 * (7200 - 360), 3);
  EXPECT_EQ(settled->tiers()[2].cache, 360);
  spec.embedding.tiers = *settled;
  EXPECT_EQ(*settle_tiers(*model.recommender, cluster, spec), *settled) << "a plan that is read again is the same";
}

// The first rank's table has 100 rows of 36 bytes, the second's 1,000; a step looks up at most 16 and 32.
TEST(TableTiers, OneSizeIsCappedWhereARanksTablesAreSmaller) {
  const models::Model model = tables_of("  - {rows: 100}\n  - {rows: 1000, multi_hot: 2}\n");
  const clusters::Cluster cluster = devices(2, 1e9, 1e9);
  PlanSpec spec = spec_of(2, 16);
  spec.embedding.placement = *TablePlacement::parse_rows({{"whole 0", {}}, {"whole 1", {}}});
  const auto settle = [&](const char* row) {
    spec.embedding.tiers = tiers({row});
    return settle_tiers(*model.recommender, cluster, spec);
  };
  const auto settled = settle("host 18000 B");
  ASSERT_TRUE(settled) << base::render(settled.error(), false);
  EXPECT_EQ(settled->tiers()[0].cache, 3600);
  EXPECT_NEAR(static_cast<double>(settled->tiers()[1].cache), 18000, 1);
  const auto refused = [&](const char* row) {
    const auto found = settle(row);
    EXPECT_FALSE(found) << row;
    return found ? std::string() : found.error().front().message + "; " + found.error().front().help;
  };
  EXPECT_THAT(refused("host 1151 B"), AllOf(HasSubstr("1 table of rank 1"), HasSubstr("1152 B")));
  EXPECT_THAT(refused("host 36001 B"), AllOf(HasSubstr("larger than"), HasSubstr("rank 1"), HasSubstr("no rank")));
}

// 24 MB of tables on two devices of 10 MB: those with most lookups for their bytes stay.
TEST(TableTiers, TablesLeaveDevicesThatTheyDoNotFit) {
  const models::Model model = tables_of(
      "  - {rows: 200000}\n  - {rows: 200000, multi_hot: 8}\n  - {rows: 200000, multi_hot: 2}\n"
      "  - {rows: 60000, multi_hot: 4}\n");
  const auto shared = std::make_shared<const models::Model>(model);
  const auto plan_on = [&](double memory, double host) {
    return make_plan(shared, std::make_shared<const clusters::Cluster>(devices(2, memory, host)), spec_of(2, 64));
  };
  const auto large = plan_on(20e6, 1e9);
  ASSERT_TRUE(large);
  EXPECT_TRUE(large->spec().embedding.tiers.empty()) << "what fits needs no other memory";
  const auto small = plan_on(10e6, 1e9);
  ASSERT_TRUE(small) << base::render(small.error(), false);
  const std::vector<TableTier>& chosen = small->spec().embedding.tiers.tiers();
  ASSERT_EQ(chosen.size(), 4U);
  EXPECT_EQ(chosen[0].space, Space::host);
  EXPECT_EQ(chosen[1].space, Space::device);
  EXPECT_EQ(chosen[3].space, Space::device);
  EXPECT_GT(chosen[0].cache, cache_needed(*model.recommender, model.recommender->tables[0], small->spec(), 1, 1));
  EXPECT_THAT(describe(small->spec()), HasSubstr("on host"));
  const Schedule schedule = lower(*small);
  base::Diagnostics faults = check(schedule);
  if (faults.empty()) faults = rehearse(schedule);
  EXPECT_TRUE(faults.empty()) << base::render(faults, false);
}

// Each row is drawn by itself; the list of the rows drawn last is kept in plain sight.
CacheExpectation counted(std::int64_t rows, double skew, std::int64_t lookups, std::size_t slots) {
  std::vector<double> below(static_cast<std::size_t>(rows));
  double sum = 0;
  for (std::size_t i = 0; i < below.size(); ++i) below[i] = sum += std::pow(static_cast<double>(i + 1), -skew);
  std::vector<std::int64_t> last(below.size(), -1);
  std::vector<std::size_t> order;
  CacheExpectation out{0, 0, 0};
  std::uint64_t draw = 0;
  std::int64_t now = 0;
  constexpr int kWarm = 200, kCounted = 200;
  for (int step = 0; step < kWarm + kCounted; ++step) {
    std::vector<std::int64_t> times;
    for (const std::int64_t time : last)
      if (time >= 0) times.push_back(time);
    std::sort(times.rbegin(), times.rend());
    const std::int64_t oldest = times.size() > slots ? times[slots - 1] : 0;
    std::vector<std::int64_t> before = last;
    std::vector<bool> seen(below.size());
    for (std::int64_t i = 0; i < lookups; ++i) {
      const double u = 0.5 * std::erfc(-base::normal(3, 1, draw++) / std::sqrt(2.0)) * sum;
      const auto row = static_cast<std::size_t>(std::lower_bound(below.begin(), below.end(), u) - below.begin());
      const bool hit = before[row] >= oldest && before[row] >= 0;
      if (step >= kWarm) {
        out.hit_rate += hit ? 1 : 0;
        if (!seen[row]) out.distinct += 1, out.fetched += hit ? 0 : 1;
      }
      seen[row] = true;
      last[row] = now++;
    }
  }
  out.hit_rate /= static_cast<double>(kCounted * lookups);
  out.distinct /= kCounted;
  out.fetched /= kCounted;
  return out;
}

TEST(TableHits, AreThoseOfDrawsThatAreCounted) {
  struct Case {
    std::int64_t rows;
    double skew;
    std::int64_t lookups;
    std::size_t slots;
  };
  for (const Case& one : {Case{1000, 0, 50, 300}, Case{1000, 1, 50, 100}, Case{5000, 1.2, 100, 400},
                          Case{300, 0.5, 80, 200}, Case{2000, 2, 40, 60}}) {
    SCOPED_TRACE(one.rows);
    const CacheExpectation is = counted(one.rows, one.skew, one.lookups, one.slots);
    const CacheExpectation said =
        expect_hits(one.rows, one.skew, static_cast<double>(one.lookups), static_cast<double>(one.slots));
    EXPECT_NEAR(said.distinct, is.distinct, 0.02 * is.distinct);
    EXPECT_NEAR(said.hit_rate, is.hit_rate, 0.02);
    EXPECT_NEAR(said.fetched, is.fetched, 0.04 * is.distinct);
  }
}

// Of even lookups a cache of half the rows finds half.
TEST(TableHits, OfEvenLookupsAreTheCachesShareOfTheRows) {
  EXPECT_NEAR(expect_hits(1'000'000'000, 0, 1e5, 5e8).hit_rate, 0.5, 1e-6);
  EXPECT_DOUBLE_EQ(expect_hits(1000, 1, 50, 1000).hit_rate, 1);
  EXPECT_DOUBLE_EQ(expect_hits(1000, 1, 50, 1000).fetched, 0);
}

// 30 tables of which none fits, over 128 ranks: how they may be shared out is not tried without end.
TEST(TablePlanner, EndsSoonWhereNothingFits) {
  std::string rows = "  - {rows: 1562500000, multi_hot: 20, count: 30}\n";
  const models::Model model = tables_of(rows);
  clusters::Cluster cluster = devices(8, 1e9, 1e9);
  cluster.nodes = 16;
  cluster.inter.bandwidth = base::BytesPerSecond{1e10};
  PlanSpec spec = spec_of(128, 65536);
  const TableProblem problem = table_problem(*model.recommender, cluster, spec);
  const TablePlan plan = plan_tables(problem, 2000);
  EXPECT_FALSE(plan.fits);
  EXPECT_EQ(plan.placement.places().size(), 30U);
}

}  // namespace table_tiers_test
}  // namespace orrery::plan

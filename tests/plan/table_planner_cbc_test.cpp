// Placements of tables of every kind beside those of CBC, a solver of integer programs (coinor-cbc). Skipped without
// it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "base/random.h"
#include "plan/spec/table_planner.h"

namespace orrery::plan {
namespace table_planner_cbc_test {

constexpr TableSharding kKinds[] = {TableSharding::whole,    TableSharding::column, TableSharding::row,
                                    TableSharding::node_row, TableSharding::grid,   TableSharding::replicated};

bool cbc_is_here() {
  return std::system("command -v cbc > /dev/null 2>&1") == 0;
}

/// The least load of the most loaded rank that the most loaded rank of any placement can have, as an integer program in
/// CPLEX's LP format: y chooses an option of a table, z the ranks of its parts, or the nodes of its rows.
class Program {
 public:
  explicit Program(const TableProblem& p) : p_(p), load_(count()), memory_(count()), far_(count()) {
    for (std::size_t t = 0; t < p.options.size(); ++t) {
      std::string one;
      for (std::size_t i = 0; i < p.options[t].size(); ++i) {
        const std::string y = fmt::format("y_{}_{}", t, i);
        binary_ += " " + y + "\n";
        one += " + " + y;
        option(p.options[t][i], y, fmt::format("z_{}_{}", t, i));
      }
      rows_ += one.substr(1) + " = 1\n";
    }
  }

  /// In the units of the problem's load; none: no placement has room.
  [[nodiscard]] std::optional<double> solve() const {
    const std::string path =
        (std::filesystem::path(::testing::TempDir()) / fmt::format("tables-{}", ::getpid())).string();
    std::ofstream(path + ".lp") << text();
    const std::string command =
        fmt::format("cbc '{0}.lp' ratioGap 0 allowableGap 0 sec 120 solve solution '{0}.txt' > '{0}.log' 2>&1", path);
    EXPECT_EQ(std::system(command.c_str()), 0) << path;
    std::ifstream in(path + ".txt");
    std::string first;
    std::getline(in, first);
    for (const char* end : {".lp", ".txt", ".log"}) std::filesystem::remove(path + end);
    if (first.rfind("Infeasible", 0) == 0 || first.rfind("Integer infeasible", 0) == 0) return {};
    EXPECT_EQ(first.rfind("Optimal", 0), 0U) << first;
    return std::stod(first.substr(first.rfind(' '))) * unit();
  }

 private:
  [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(p_.ranks); }
  // CBC prints eight decimals and tolerates differences of 1e-7: loads are numbers around a thousand, memory shares.
  [[nodiscard]] double unit() const { return p_.options.front().front().load / 1000; }

  void on(int rank, const TableOption& o, const std::string& variable) {
    const auto r = static_cast<std::size_t>(rank);
    load_[r] += fmt::format(" + {:.15g} {}\n", o.load / unit(), variable);
    if (p_.capacity > 0) memory_[r] += fmt::format(" + {:.15g} {}\n", o.memory / p_.capacity, variable);
    if (p_.far_capacity > 0 && o.far > 0) far_[r] += fmt::format(" + {:.15g} {}\n", o.far / p_.far_capacity, variable);
  }
  void option(const TableOption& o, const std::string& y, const std::string& z) {
    if (o.parts == p_.ranks) {
      for (int r = 0; r < p_.ranks; ++r) on(r, o, y);
      return;
    }
    const bool by_node = o.sharding == TableSharding::node_row || o.sharding == TableSharding::grid;
    const int each = by_node ? o.parts / o.columns : 1;  // parts at a place
    const int step = by_node ? p_.ranks_per_node : 1;
    std::string sum;
    for (int place = 0; place < p_.ranks / step; ++place) {
      const std::string chosen = fmt::format("{}_{}", z, place);
      binary_ += " " + chosen + "\n";
      sum += " + " + chosen;
      rows_ += fmt::format(" {} - {} <= 0\n", chosen, y);
      for (int i = 0; i < each; ++i) on(place * step + i, o, chosen);
    }
    rows_ += fmt::format("{} - {} {} = 0\n", sum, o.parts / each, y);
  }
  [[nodiscard]] std::string text() const {
    std::string out = "Minimize\n obj: most\nSubject To\n" + rows_;
    for (std::size_t r = 0; r < count(); ++r) {
      if (!load_[r].empty()) out += load_[r] + " - most <= 0\n";
      if (!memory_[r].empty()) out += memory_[r] + " <= 1\n";
      if (!far_[r].empty()) out += far_[r] + " <= 1\n";
    }
    return out + "Binaries\n" + binary_ + "End\n";
  }

  const TableProblem& p_;
  std::vector<std::string> load_, memory_, far_;  ///< by rank: sums over what it may hold
  std::string rows_, binary_;
};

double lognormal(std::uint64_t seed, std::uint64_t index) {
  return std::exp(base::normal(29, seed, index));
}

/// The planner's own costs of tables on two nodes of two ranks.
struct Small {
  models::Recommender model;
  clusters::Cluster cluster;
  PlanSpec spec;

  explicit Small(std::uint64_t seed) {
    model.embedding_dim = 32;
    for (std::uint64_t t = 0; t < 5; ++t)
      model.tables.push_back({20 + static_cast<std::int64_t>(2e4 * lognormal(seed, 2 * t)), models::Pooling::sum,
                              1 + static_cast<std::int64_t>(4 * lognormal(seed, 2 * t + 1))});
    cluster.nodes = 2;
    cluster.devices_per_node = 2;
    cluster.devices.resize(1);
    cluster.devices.front().memory = base::Bytes{400e9};
    cluster.devices.front().memory_bandwidth = base::BytesPerSecond{1.5e12};
    cluster.intra.bandwidth = base::BytesPerSecond{3e11};
    cluster.inter.bandwidth = base::BytesPerSecond{2.5e10};
    spec.mesh.data = 4;
    spec.shape.batch = 1024;
    spec.states.optimizer = OptimizerKind::rowwise_adagrad;
  }
  [[nodiscard]] TableProblem problem(TableSharding kind) {
    spec.embedding.sharding = kind;
    return table_problem(model, cluster, spec);
  }
};

/// Returns whether there is a placement.
bool expect_as_cbc(const TableProblem& p, const std::string& what) {
  SCOPED_TRACE(what);
  const TablePlan plan = plan_tables(p, 10'000'000);
  const std::optional<double> best = Program(p).solve();
  EXPECT_EQ(plan.fits, best.has_value());
  if (!best || !plan.fits) return false;
  EXPECT_TRUE(plan.exact);
  EXPECT_NEAR(plan.load, *best, 1e-6 * *best);
  if (p.capacity > 0) {
    EXPECT_LE(plan.memory, p.capacity * (1 + 1e-9));
  }
  return true;
}

TEST(TablePlannerBesideCbc, PlacesTablesOfOneKindAsWell) {
  if (!cbc_is_here()) GTEST_SKIP() << "no cbc";
  for (std::uint64_t seed = 0; seed < 1; ++seed) {
    Small small(seed);
    for (const TableSharding kind : kKinds) EXPECT_TRUE(expect_as_cbc(small.problem(kind), name_of(kind))) << seed;
    EXPECT_TRUE(expect_as_cbc(small.problem(TableSharding::automatic), "automatic")) << seed;
  }
}

// Every kind for every table, at costs that make each the best of one; half of the cases hardly fit, and some do not.
TEST(TablePlannerBesideCbc, ChoosesAmongAllKindsAsWell) {
  if (!cbc_is_here()) GTEST_SKIP() << "no cbc";
  std::map<TableSharding, int> chosen;
  int placed = 0, crowded = 0;
  for (std::uint64_t seed = 10; seed < 16; ++seed) {
    Small small(seed);
    TableProblem p = small.problem(TableSharding::whole);
    for (const TableSharding kind : kKinds) {
      if (kind == TableSharding::whole) continue;
      const TableProblem more = small.problem(kind);
      for (std::size_t t = 0; t < p.options.size(); ++t)
        p.options[t].insert(p.options[t].end(), more.options[t].begin(), more.options[t].end());
    }
    double memory = 0;
    std::uint64_t number = 100;
    for (std::size_t t = 0; t < p.options.size(); ++t) {
      memory += p.options[t].front().memory;
      const double whole = p.options[t].front().load;
      // Parts of a table cost more than the table, by a factor of their own, but one table is best served by one kind.
      for (TableOption& o : p.options[t]) {
        const double factor = o.sharding == TableSharding::whole ? 1 : 1.1 + 0.6 * lognormal(seed, number++);
        o.load = whole / o.parts * (t == seed % 5 && o.sharding == kKinds[seed % 6] ? 0.3 : factor);
      }
    }
    if (seed % 2 == 1) p.capacity = (seed % 4 == 1 ? 1.1 : 0.9) * memory / p.ranks;
    (expect_as_cbc(p, fmt::format("seed {}", seed)) ? placed : crowded) += 1;
    for (const TableOption& o : plan_tables(p, 10'000'000).chosen) ++chosen[o.sharding];
  }
  for (const TableSharding kind : kKinds) EXPECT_GT(chosen[kind], 0) << name_of(kind);
  EXPECT_GT(placed, 2);
  EXPECT_GT(crowded, 0);
}

// Tables on the host: rows there count against its memory, caches against the device's.
TEST(TablePlannerBesideCbc, HeedsTheHostsMemoryAsWell) {
  if (!cbc_is_here()) GTEST_SKIP() << "no cbc";
  int placed = 0;
  for (std::uint64_t seed = 40; seed < 42; ++seed) {
    Small small(seed);
    small.spec.embedding.tiers = TableTiers({TableTier{Space::host, 0, {}}});
    TableProblem p = small.problem(TableSharding::automatic);
    double far = 0;
    for (const auto& options : p.options) far += options.front().far;
    ASSERT_GT(far, 0);
    p.far_capacity = 1.05 * far / p.ranks;
    placed += expect_as_cbc(p, fmt::format("seed {}", seed)) ? 1 : 0;
  }
  EXPECT_GT(placed, 0);
}

// The comparison has teeth: a load that is a thousandth too high is no longer CBC's.
TEST(TablePlannerBesideCbc, KnowsABetterPlacementFromAWorseOne) {
  if (!cbc_is_here()) GTEST_SKIP() << "no cbc";
  TableProblem p;
  p.ranks = p.ranks_per_node = 2;
  for (const double load : {3.0, 3.0, 2.0, 2.0, 2.003}) {
    TableOption whole;
    whole.load = load;
    p.options.push_back({whole});
  }
  const std::optional<double> best = Program(p).solve();
  ASSERT_TRUE(best);
  EXPECT_NEAR(*best, 6.003, 1e-6);
  EXPECT_NEAR(plan_tables(p).load, 6.003, 1e-9);
  EXPECT_LT(plan_tables(p, 0).load, 8) << "greedily";
}

}  // namespace table_planner_cbc_test
}  // namespace orrery::plan

// Sharded, padded, flat storage against logical tensors: every element once, initial values the same however split.
#include "exec/engine/logical.h"

#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "exec/state/initialise.h"

namespace orrery::exec {
namespace logical_test {

models::Tensor tensor(std::vector<std::int64_t> logical, std::vector<std::int64_t> local, int axis) {
  models::Tensor t;
  t.name = "t";
  t.logical_shape = std::move(logical);
  t.shape = std::move(local);
  t.split_axis = axis;
  return t;
}

/// Elements that all ranks' parts cover together, cut at every possible flat shard border.
void expect_each_once(const models::Tensor& t, int ways) {
  std::int64_t local = 1;
  for (const std::int64_t extent : t.shape) local *= extent;
  for (std::int64_t cut = 0; cut <= local; ++cut) {
    std::multiset<std::int64_t> seen;
    for (int rank = 0; rank < ways; ++rank)
      for (const auto& [begin, end] : {std::pair{std::int64_t{0}, cut}, std::pair{cut, local}})
        for (const Run& run : runs_of(t, rank, begin, end)) {
          EXPECT_GE(run.local, begin);
          EXPECT_LE(run.local + run.elements, end);
          for (std::int64_t i = 0; i < run.elements; ++i) seen.insert(run.logical + i);
        }
    ASSERT_EQ(static_cast<std::int64_t>(seen.size()), logical_elements(t)) << "cut at " << cut;
    EXPECT_EQ(static_cast<std::int64_t>(std::set<std::int64_t>(seen.begin(), seen.end()).size()), logical_elements(t));
  }
}

TEST(Runs, CoverEveryElementOnceHoweverATensorIsCut) {
  expect_each_once(tensor({6, 4}, {3, 4}, 0), 2);
  expect_each_once(tensor({6, 4}, {6, 2}, 1), 2);
  expect_each_once(tensor({5, 3}, {2, 3}, 0), 3);  // padded to 6 rows: the last rank has one row less
  expect_each_once(tensor({3, 2}, {4, 2}, 0), 2);  // padded to 8: the second rank has padding alone
  expect_each_once(tensor({7}, {7}, -1), 1);
  expect_each_once(tensor({2, 6, 2}, {2, 2, 2}, 1), 3);
}

TEST(Runs, OfAColumnSplitAreOnePerRow) {
  const auto runs = runs_of(tensor({3, 4}, {3, 2}, 1), 1, 0, 6);
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[1].local, 2);
  EXPECT_EQ(runs[1].logical, 6);
}

TEST(Runs, OfARowSplitAreOne) {
  EXPECT_EQ(runs_of(tensor({6, 4}, {3, 4}, 0), 1, 0, 12).size(), 1U);
}

TEST(SeededSource, DependsOnNameAndPlaceAlone) {
  plan::ParameterRange range;
  range.name = "h.0.mlp.fc.weight";
  range.tensor = tensor({10}, {10}, -1);
  range.tensor.initial_stddev = 0.5;
  const LogicalSource source = seeded_source(9);
  std::vector<float> whole(10), part(4);
  source(range, 0, whole);
  source(range, 3, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 3));
  EXPECT_FLOAT_EQ(whole[7], static_cast<float>(0.5 * base::normal(9, base::stream_of(range.name), 7)));
  range.name = "h.1.mlp.fc.weight";
  source(range, 3, part);
  EXPECT_FALSE(std::equal(part.begin(), part.end(), whole.begin() + 3));
  range.tensor.initial_stddev = 0;
  range.tensor.initial_value = 1;
  source(range, 0, part);
  EXPECT_EQ(part, std::vector<float>(4, 1));
}

TEST(SeededSource, DrawsTheSameByAnyNumberOfThreads) {
  plan::ParameterRange range;
  range.name = "wte.weight";
  range.tensor = tensor({40000}, {40000}, -1);
  range.tensor.initial_stddev = 0.02;
  std::vector<float> alone(33333), shared(33333);
  seeded_source(9)(range, 5, alone);
  for (const int threads : {2, 3, 16}) {
    std::fill(shared.begin(), shared.end(), 0.0F);
    seeded_source(9, threads)(range, 5, shared);
    EXPECT_EQ(shared, alone) << threads << " threads";
  }
}

}  // namespace logical_test
}  // namespace orrery::exec

/// Regret and rank correlation of groups of rows, worked by hand.
#include "sim/validate/which_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace which_plan_test {

TEST(RankCorrelation, IsOneForTheSameOrderAndMinusOneForTheOpposite) {
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3, 4}, {10, 20, 25, 1000}), 1);
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3}, {3, 2, 1}), -1);
  // 1 - 6 (1 + 1) / (4 * 15)
  EXPECT_NEAR(rank_correlation({1, 2, 3, 4}, {1, 3, 2, 4}), 0.8, 1e-12);
}

TEST(RankCorrelation, SharesTheRanksOfEqualValues) {
  // Ranks 0.5 0.5 2 against 0 1 2: 1.5 / sqrt(1.5 * 2).
  EXPECT_NEAR(rank_correlation({5, 5, 7}, {1, 2, 3}), std::sqrt(0.75), 1e-12);
  EXPECT_TRUE(std::isnan(rank_correlation({5, 5, 5}, {1, 2, 3})));
}

struct Run {
  int micro_batch;
  double measured, predicted;
  const char* changed = "";
};

std::vector<cost::PlanGroup> groups_of(const std::vector<Run>& runs) {
  std::string text = "results:\n";
  std::vector<double> seconds;
  for (const Run& run : runs) {
    text += fmt::format(
        "- {{id: a, source: somebody, kind: training, verified: true, family: gpt, layers: 12, hidden: 1024, heads: "
        "16, "
        "seq_len: 1024, gpus: 8, tp: 1, pp: 1, dp: 8, micro_batch: {}, global_batch: {}, gpu_type: A100-SXM4-80GB, "
        "stack: "
        "megatron-2021, iter_time_s: {}}}\n",
        run.micro_batch, std::string(run.changed).empty() ? "64" : run.changed, run.measured);
    seconds.push_back(run.predicted);
  }
  Library library;
  library.clusters = {*testing::cluster("dgx-a100-80gb")};
  library.stacks = {testing::stack("megatron-2021")};
  const std::vector<Row> rows = *parse_rows(text, "rows.yaml");
  return which_plan(rows, make_cases(rows, library), seconds);
}

TEST(WhichPlan, RegretIsWhatThePredictedBestCostOverTheMeasuredBest) {
  const auto groups = groups_of({{1, 3.0, 2.9}, {2, 2.2, 2.0}, {4, 2.0, 2.1}});
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].plans, 3U);
  EXPECT_DOUBLE_EQ(groups[0].regret, 1.1);
  EXPECT_DOUBLE_EQ(groups[0].rank_correlation, 0.5);
  EXPECT_THAT(groups[0].predicted_best, ::testing::HasSubstr("micro-batch 2"));
  EXPECT_THAT(groups[0].measured_best, ::testing::HasSubstr("micro-batch 4"));
}

TEST(WhichPlan, RepeatsOfAPlanCountOnceWithTheirMedian) {
  const auto groups = groups_of({{1, 3.0, 3}, {2, 2.0, 2.5}, {4, 2.4, 1}, {4, 1.0, 1}, {4, 2.6, 1}});
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].plans, 3U);
  EXPECT_EQ(groups[0].rows, 5U);
  EXPECT_DOUBLE_EQ(groups[0].regret, 1.2) << "2.4 against 2.0; the lucky 1.0 does not count";
}

TEST(WhichPlan, OfPlansPredictedAlikeTheSlowestCounts) {
  const auto groups = groups_of({{1, 2.0, 1}, {2, 3.0, 1}, {4, 4.0, 5}});
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_DOUBLE_EQ(groups[0].regret, 1.5);
}

TEST(WhichPlan, OtherBatchesAreOtherGroupsAndTwoPlansAreNone) {
  EXPECT_TRUE(groups_of({{1, 3, 3}, {2, 2, 2}, {4, 1, 1, "128"}}).empty());
  EXPECT_EQ(groups_of({{1, 3, 3}, {2, 2, 2}, {4, 1, 1}, {4, 1, 1, "128"}}).size(), 1U);
}

}  // namespace which_plan_test
}  // namespace orrery::sim

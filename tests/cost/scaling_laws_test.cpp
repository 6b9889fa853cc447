// Tokens for a model and a budget, against the papers' own tables.
#include "cost/run/scaling_laws.h"

#include <gtest/gtest.h>

#include <cmath>

namespace orrery::cost {
namespace scaling_laws_test {

TEST(ComputeOptimal, FollowsTableThreeOfHoffmann) {
  // Parameters, FLOPs, tokens.
  const double rows[][3] = {{400e6, 1.92e19, 8.0e9},   {1e9, 1.21e20, 20.2e9},   {10e9, 1.23e22, 205.1e9},
                            {67e9, 5.76e23, 1.5e12},   {175e9, 3.85e24, 3.7e12}, {280e9, 9.90e24, 5.9e12},
                            {520e9, 3.43e25, 11.0e12}, {1e12, 1.27e26, 21.2e12}};
  for (const auto& row : rows) {
    const ComputeOptimal given = compute_optimal_tokens(row[0]).front();
    EXPECT_NEAR(given.tokens / row[2], 1, 0.11) << row[0] << ": the exponents of table 2 are rounded";
    EXPECT_NEAR(given.flops() / row[1], 1, 0.11) << row[0];
    EXPECT_NEAR(compute_optimal_model(row[1]).front().parameters / row[0], 1, 0.06) << row[1];
  }
}

TEST(ComputeOptimal, IsTheSameFromTheModelAndFromItsBudget) {
  for (const double n : {124e6, 7e9, 175e9}) {
    const auto tokens = compute_optimal_tokens(n);
    for (std::size_t law : {0, 1}) {
      const ComputeOptimal back = compute_optimal_model(tokens[law].flops())[law];
      EXPECT_NEAR(back.parameters / n, 1, 1e-9) << tokens[law].law;
      EXPECT_NEAR(back.tokens / tokens[law].tokens, 1, 1e-9) << tokens[law].law;
    }
  }
}

TEST(ComputeOptimal, ByApproachThreeIsWhereTheLossOfABudgetIsLeast) {
  const double budget = 1e23;
  const ComputeOptimal best = compute_optimal_model(budget)[1];
  const double least = expected_loss(best.parameters, best.tokens);
  EXPECT_NEAR(best.flops() / budget, 1, 1e-9);
  for (const double n : {best.parameters / 1.1, best.parameters * 1.1})
    EXPECT_GT(expected_loss(n, tokens_for(budget, n)), least);
}

TEST(ComputeOptimal, OfKaplanAsksForFewerTokensOfLargeModels) {
  const ComputeOptimal at_a_day = compute_optimal_model(1e15 * 86400)[2];
  EXPECT_DOUBLE_EQ(at_a_day.parameters, 1.3e9) << "one PF-day, appendix A";
  EXPECT_DOUBLE_EQ(at_a_day.tokens, 2e10);
  const auto large = compute_optimal_tokens(175e9);
  EXPECT_LT(large[2].tokens, large[0].tokens / 10);
  // By hand: (175 / 1.3)^(0.27 / 0.73) x 2e10.
  EXPECT_NEAR(large[2].tokens, 2e10 * std::pow(175 / 1.3, 0.27 / 0.73), 1e3);
}

TEST(ExpectedLoss, OfChinchillaIsAsTheFormulaSays) {
  // 70 B parameters, 1.4 T tokens: 1.69 + 406.4 / 70e9^0.34 + 410.7 / 1.4e12^0.28, worked by hand.
  EXPECT_NEAR(expected_loss(70e9, 1.4e12), 1.9365, 1e-3);
}

}  // namespace scaling_laws_test
}  // namespace orrery::cost

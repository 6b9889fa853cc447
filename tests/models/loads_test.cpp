/// Stated distributions of tokens over experts.
#include "models/loads.h"

#include <gtest/gtest.h>

#include <numeric>

namespace orrery::models {
namespace loads_test {

TEST(ExpertLoads, OfExponentZeroAreEvenAndNoRankIsFuller) {
  const std::vector<double> even = zipf_loads(16, 2, 0);
  for (const double load : even) EXPECT_DOUBLE_EQ(load, 1.0 / 16);
  EXPECT_DOUBLE_EQ(fullest_over_mean(even, 4), 1);
}

TEST(ExpertLoads, FallAsZipfsLawSaysAndSumToOne) {
  const std::vector<double> loads = zipf_loads(64, 1, 1);
  EXPECT_NEAR(std::accumulate(loads.begin(), loads.end(), 0.0), 1, 1e-12);
  EXPECT_NEAR(loads[0] / loads[1], 2, 1e-12);
  EXPECT_NEAR(loads[3] / loads[7], 2, 1e-12);
}

TEST(ExpertLoads, NoExpertGetsATokenTwice) {
  const std::vector<double> loads = zipf_loads(4, 2, 3);  // alone the first would have 85 % of all choices
  EXPECT_NEAR(loads[0], 0.5, 1e-12);
  EXPECT_NEAR(std::accumulate(loads.begin(), loads.end(), 0.0), 1, 1e-12);
  EXPECT_NEAR(loads[1] / loads[2], 27.0 / 8, 1e-9) << "what is cut off goes to the others alike";
}

TEST(ExpertLoads, OfARankWithSeveralExpertsAreEvener) {
  const std::vector<double> loads = zipf_loads(128, 8, 0.6);
  const double each = fullest_over_mean(loads, 128), of_sixteen = fullest_over_mean(loads, 8);
  EXPECT_NEAR(each, 128 * loads[0], 1e-9) << "a rank with one expert has its load";
  EXPECT_GT(of_sixteen, 1.2);
  EXPECT_LT(of_sixteen, 2);
  EXPECT_LT(of_sixteen, each);
  EXPECT_DOUBLE_EQ(of_sixteen, fullest_over_mean(loads, 8)) << "drawn from a fixed seed";
}

TEST(ExpertLoads, OfALogStandInTheOrderOfItsExperts) {
  EXPECT_DOUBLE_EQ(fullest_in_order({4, 4, 1, 1}, 2), 1.6);
  EXPECT_DOUBLE_EQ(fullest_in_order({4, 1, 4, 1}, 2), 1);
}

}  // namespace loads_test
}  // namespace orrery::models

// Evaluation is priced from its own schedule: the forward share of the step, and its messages.
#include <gtest/gtest.h>

#include "plan/check.h"
#include "plan/lower.h"
#include "sim/simulate.h"
#include "tests/plan/samples.h"

namespace orrery::sim {
namespace {

cost::Pricing pricing_of(const plan::Plan& plan) {
  cost::Stack stack;
  stack.name = "test";
  return cost::Pricing(std::make_shared<const clusters::Cluster>(plan.cluster()), stack, {});
}

cost::Prediction evaluated(const plan::Plan& plan) {
  return simulate(plan, plan::lower(plan, {.forward_only = true}), pricing_of(plan)).prediction;
}

TEST(Evaluation, OnOneRankTakesTheStepsForwardTime) {
  const plan::Plan plan = samples::make({});
  const cost::Prediction step = simulate(plan, pricing_of(plan)).prediction, evaluation = evaluated(plan);
  EXPECT_GT(evaluation.breakdown.forward, 0);
  EXPECT_DOUBLE_EQ(evaluation.breakdown.forward, step.breakdown.forward);
  EXPECT_EQ(evaluation.breakdown.backward, 0);
  EXPECT_LT(evaluation.step_time_s, 0.6 * step.step_time_s);
}

TEST(Evaluation, SendsWhatForwardSendsOnEverySplit) {
  for (const auto& [name, spec] : samples::splits()) {
    const plan::Plan plan = samples::make(spec);
    const cost::Prediction step = simulate(plan, pricing_of(plan)).prediction, evaluation = evaluated(plan);
    EXPECT_GT(evaluation.step_time_s, 0) << name;
    EXPECT_LT(evaluation.step_time_s, step.step_time_s) << name;
    EXPECT_NEAR(evaluation.breakdown.forward, step.breakdown.forward, 1e-9 * step.breakdown.forward) << name;
    const auto bytes = [](const cost::Prediction& p, const std::string& dimension) {
      double sum = 0;
      for (const cost::CommunicationRow& row : p.communication)
        if (row.dimension == dimension) sum += row.bytes;
      return sum;
    };
    EXPECT_NEAR(2 * bytes(evaluation, "pipeline"), bytes(step, "pipeline"), 1e-6 * bytes(step, "pipeline")) << name;
    for (const cost::CommunicationRow& row : evaluation.communication)
      EXPECT_TRUE(row.dimension != "data" || row.operation == "all_gather") << name << ": ZeRO-3 alone gathers";
  }
}

}  // namespace
}  // namespace orrery::sim

// Evaluation is priced from its own schedule: the forward share of the step, and its messages.
#include <gtest/gtest.h>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "sim/simulate.h"
#include "tests/plan/samples.h"

namespace orrery::sim {
namespace evaluation_test {

cost::Pricing pricing_of(const plan::Plan& plan) {
  cost::Stack stack;
  stack.name = "test";
  return cost::Pricing(std::make_shared<const clusters::Cluster>(plan.cluster()), stack, {});
}

cost::Prediction evaluated(const plan::Plan& plan) {
  return simulate(plan, plan::lower(plan, {.forward_only = true}), pricing_of(plan)).prediction;
}

/// Seconds of the loss's gradient, where it stands in the forward pass (models/layers/loss_chunks.h); evaluation has
/// none.
double gradient_in_forward(const plan::Plan& plan) {
  double seconds = 0;
  const cost::Pricing pricing = pricing_of(plan);
  const plan::Schedule schedule = plan::lower(plan);
  for (const plan::Entry& entry : schedule.classes.back().program)
    for (const plan::Step& step : schedule.classes.back().blocks[static_cast<std::size_t>(entry.block)].steps)
      for (const models::Op& op : step.ops)
        if (step.phase == plan::Phase::forward && op.kind == models::OpKind::cross_entropy_grad)
          seconds += pricing.op_time(op).value;
  return seconds;
}

TEST(Evaluation, OnOneRankTakesTheStepsForwardTime) {
  const plan::Plan plan = samples::make({});
  const cost::Prediction step = simulate(plan, pricing_of(plan)).prediction, evaluation = evaluated(plan);
  EXPECT_GT(evaluation.breakdown.forward, 0);
  EXPECT_GT(gradient_in_forward(plan), 0);
  EXPECT_NEAR(evaluation.breakdown.forward + gradient_in_forward(plan), step.breakdown.forward, 1e-12);
  EXPECT_EQ(evaluation.breakdown.backward, 0);
  EXPECT_LT(evaluation.step_time_s, 0.6 * step.step_time_s);
}

TEST(Evaluation, SendsWhatForwardSendsOnEverySplit) {
  for (const auto& [name, spec] : samples::splits()) {
    const plan::Plan plan = samples::make(spec);
    const cost::Prediction step = simulate(plan, pricing_of(plan)).prediction, evaluation = evaluated(plan);
    EXPECT_GT(evaluation.step_time_s, 0) << name;
    EXPECT_LT(evaluation.step_time_s, step.step_time_s) << name;
    EXPECT_NEAR(evaluation.breakdown.forward + gradient_in_forward(plan), step.breakdown.forward,
                1e-9 * step.breakdown.forward)
        << name;
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

}  // namespace evaluation_test
}  // namespace orrery::sim

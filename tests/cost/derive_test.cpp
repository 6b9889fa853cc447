/// What a prediction says in dollars, joules, tokens and shares of a peak, worked by hand.
#include <gtest/gtest.h>

#include "cost/estimate/estimate.h"
#include "tests/plan/samples.h"

namespace orrery::cost {
namespace derive_test {

/// Four devices of 100 GFLOP/s, 90 W and 3.6 $/h each.
plan::Plan plan_on_four() {
  clusters::Cluster cluster = samples::cpu_cluster(4);
  cluster.devices[0].price = base::DollarsPerHour{3.6};
  cluster.devices[0].power = base::Watts{90};
  plan::PlanSpec spec;
  spec.mesh.data = 4, spec.shape.batch = 8, spec.shape.sequence = 16, spec.numerics.vocab_multiple = 1;
  const auto made = plan::make_plan(std::make_shared<models::Model>(samples::tiny_gpt()),
                                    std::make_shared<clusters::Cluster>(cluster), spec);
  if (!made) throw std::runtime_error(base::render(made.error(), false));
  return *made;
}

TEST(Derived, AreWorkedByHand) {
  Prediction p;
  p.step_time_s = 2;
  derive(p, plan_on_four());
  EXPECT_DOUBLE_EQ(p.cost_per_step_usd, 4 * 3.6 / 3600 * 2);
  EXPECT_DOUBLE_EQ(p.energy_per_step_j, 4 * 90 * 2);
  EXPECT_DOUBLE_EQ(p.tokens_per_s, 8 * 16 / 2.0);
  EXPECT_DOUBLE_EQ(p.memory_capacity_bytes, 2e9);
  // A token and block: 24 C^2 of products and 4 T C of the full attention matrix; the head 2 C V; backward twice that.
  const double token = 4 * (24.0 * 32 * 32 + 4 * 16 * 32) + 2 * 32 * 64;
  EXPECT_DOUBLE_EQ(p.mfu, 3 * token * 8 * 16 / (2 * 4 * 1e11));
}

TEST(Derived, AreNothingWithoutAStep) {
  Prediction p;
  derive(p, plan_on_four());
  EXPECT_EQ(p.cost_per_step_usd, 0);
  EXPECT_EQ(p.mfu, 0);
  EXPECT_EQ(p.tokens_per_s, 0);
}

}  // namespace derive_test
}  // namespace orrery::cost

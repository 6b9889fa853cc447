/// What a step saves whose first micro-batch writes gradients (plan/lower/write_first.h): in the closed form as in the
/// replay.
#include <gtest/gtest.h>

#include <memory>

#include "cost/estimate/estimate.h"
#include "sim/simulate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace first_writes_test {

/// Seconds of zeroing fp32 gradients of so many elements each.
double zeroing(const cost::Pricing& pricing, std::initializer_list<std::int64_t> buckets) {
  double seconds = 0;
  for (const std::int64_t elements : buckets) {
    models::Op op;
    op.kind = models::OpKind::fill_zero;
    op.m = elements;
    seconds += pricing.op_time(op).value;
  }
  return seconds;
}

TEST(FirstWrites, SaveAStepItsZerosWhereverItIsPredicted) {
  const auto model = testing::model("gpt2-124m");
  const auto cluster = testing::cluster("dgx-a100", 8);
  cost::Stack writes = testing::stack("orrery-cuda"), zeroes = writes;
  EXPECT_FALSE(writes.zero_gradients);
  EXPECT_TRUE(testing::stack("megatron-lm").zero_gradients) << "not stated";
  zeroes.zero_gradients = true;
  const cost::Pricing with(cluster, zeroes), without(cluster, writes);
  const std::int64_t h = model->hidden, block = 12 * h * h + 13 * h, table = 50304 * h, head = 2 * h;
  double blocks = 0;
  for (int i = 0; i < 12; ++i) blocks += zeroing(with, {block});
  struct Saving {
    const char* name;
    int data, zero;
    double saved;
  };
  // Positions are zeroed in any case, and where each pass has gradients of its own the table's as input.
  const Saving cases[] = {{"whole", 1, 0, blocks + zeroing(with, {table, head})},
                          {"ZeRO 1", 8, 1, blocks + zeroing(with, {table, head})},
                          {"ZeRO 2", 8, 2, 2 * (blocks + zeroing(with, {table, head}))},
                          {"ZeRO 3", 8, 3, 2 * (blocks + zeroing(with, {table, head}))}};
  for (const Saving& c : cases) {
    plan::PlanSpec spec;
    spec.numerics.precision = models::DType::bf16;
    spec.mesh.data = c.data, spec.states.zero_stage = c.zero;
    spec.shape.micro_batch = 4, spec.shape.batch = 8 * c.data, spec.shape.sequence = 1024;
    const auto plan = plan::make_plan(model, testing::cluster("dgx-a100", c.data), spec);
    ASSERT_TRUE(plan.has_value()) << base::render(plan.error(), false);
    const auto estimated = [&](const cost::Pricing& p) { return cost::Estimator(model, p).time(*plan).step_time; };
    const auto replayed = [&](const cost::Pricing& p) { return simulate(*plan, p).prediction.step_time_s; };
    EXPECT_NEAR(estimated(with) - estimated(without), c.saved, 1e-9) << c.name;
    EXPECT_NEAR(replayed(with) - replayed(without), c.saved, 1e-9) << c.name;
  }
}

}  // namespace first_writes_test
}  // namespace orrery::sim

// DualPipe's bubble (DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", table 2).
#include <gtest/gtest.h>

#include "tests/cost/plain_passes.h"

namespace orrery::cost {
namespace dualpipe_test {

using plan::Order;

/// Seconds beside a rank's own work: of m micro-batches it computes a stage's passes, half of them with either chunk.
double bubble(int stages, std::int64_t m, double forward, double backward, double weights) {
  const testing::PlainPipeline p{.stages = testing::equal_stages(stages, {forward, backward, weights}),
                                 .chunks = 2,
                                 .overlaps = true,
                                 .order = Order::dualpipe};
  return p.makespan(m) - static_cast<double>(m) * (forward + backward + weights);
}

// The table's (p/2 - 1)(F&B + B - 3W), with B of a whole backward pass, has passes in pairs that overlap. One after the
// other, F&B = F + B, they hand over earlier, and wait (p/2 - 1)(f + b - w) by the halves b and w of a backward pass.
TEST(DualPipe, WaitsNoLongerThanItsTableSays) {
  for (const int stages : {2, 4, 8, 16})
    for (const std::int64_t m : {2 * stages, 3 * stages, 10 * stages}) {
      const double half = static_cast<double>(stages) / 2 - 1;
      SCOPED_TRACE(std::to_string(stages) + " stages, " + std::to_string(m));
      EXPECT_NEAR(bubble(stages, m, 1, 1, 1), half * (1 + 1 - 1), 1e-9);
      EXPECT_LE(bubble(stages, m, 1, 1, 1), half * ((1 + 2) + 2 - 3 * 1) + 1e-9);
      EXPECT_LE(bubble(stages, m, 1, 1.2, 0.9), half * ((1 + 2.1) + 2.1 - 3 * 0.9) + 0.3);
    }
}

TEST(DualPipe, HasHalfTheBubbleOfOneF1BWithSplitBackward) {
  const testing::PlainPipeline split{
      .stages = testing::equal_stages(8, {1, 1, 1}), .overlaps = true, .order = Order::zb_h1};
  EXPECT_LT(bubble(8, 32, 1, 1, 1), (split.makespan(32) - 3 * 32) / 2);
}

}  // namespace dualpipe_test
}  // namespace orrery::cost

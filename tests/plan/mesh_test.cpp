// Degrees of a mesh whose product no int holds.
#include <gtest/gtest.h>

#include <limits>

#include "plan/spec/plan.h"

namespace orrery::plan {
namespace {

TEST(Mesh, OfMoreRanksThanAnIntHoldsIsNoSmallOne) {
  PlanSpec spec;
  spec.data = 641, spec.context = 6'700'417;  // 2^32 + 1, which is 1 to 32 bits
  EXPECT_EQ(spec.ranks(), std::numeric_limits<int>::max());
  EXPECT_EQ(spec.replicas(), std::numeric_limits<int>::max());
  spec.tensor = spec.pipeline = 1 << 24;
  EXPECT_EQ(spec.ranks(), std::numeric_limits<int>::max());
  spec = {};
  spec.data = 4, spec.tensor = 8, spec.pipeline = 3, spec.context = 2;
  EXPECT_EQ(spec.ranks(), 192);
  EXPECT_EQ(spec.replicas(), 8);
}

}  // namespace
}  // namespace orrery::plan

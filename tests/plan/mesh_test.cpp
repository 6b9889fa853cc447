// Degrees of a mesh whose product no int holds.
#include <gtest/gtest.h>

#include <limits>

#include "plan/spec/plan.h"

namespace orrery::plan {
namespace mesh_test {

TEST(Mesh, OfMoreRanksThanAnIntHoldsIsNoSmallOne) {
  PlanSpec spec;
  spec.mesh.data = 641, spec.mesh.context = 6'700'417;  // 2^32 + 1, which is 1 to 32 bits
  EXPECT_EQ(spec.mesh.ranks(), std::numeric_limits<int>::max());
  EXPECT_EQ(spec.mesh.replicas(), std::numeric_limits<int>::max());
  spec.mesh.tensor = spec.mesh.pipeline = 1 << 24;
  EXPECT_EQ(spec.mesh.ranks(), std::numeric_limits<int>::max());
  spec = {};
  spec.mesh.data = 4, spec.mesh.tensor = 8, spec.mesh.pipeline = 3, spec.mesh.context = 2;
  EXPECT_EQ(spec.mesh.ranks(), 192);
  EXPECT_EQ(spec.mesh.replicas(), 8);
}

}  // namespace mesh_test
}  // namespace orrery::plan

// Types that devices compute in: a job that leaves its precision open gets one of them, another is refused by name.
#include "plan/spec/precision.h"

#include <gtest/gtest.h>

namespace orrery::plan {
namespace precision_test {

using clusters::Architecture;
using models::DType;

clusters::Device device(Architecture architecture, const std::vector<const char*>& types) {
  clusters::Device out;
  out.kind = clusters::DeviceKind::gpu;
  out.architecture = architecture;
  for (const char* type : types) out.peak[type] = clusters::FlopsPerSecond{1e14};
  return out;
}

TEST(Precision, IsTheOneThatADeviceTrainsIn) {
  EXPECT_EQ(usual_precision(device(Architecture::volta, {"fp16"})), DType::fp16);
  EXPECT_EQ(usual_precision(device(Architecture::ampere, {"fp16"})), DType::bf16) << "a file may give one for both";
  EXPECT_EQ(usual_precision(device(Architecture::generic, {"bf16"})), DType::bf16);
  EXPECT_EQ(usual_precision(device(Architecture::generic, {"fp32", "fp16"})), DType::fp16) << "a P100";
}

TEST(Precision, ThatADeviceLacksIsNotComputedIn) {
  const clusters::Device tpu = device(Architecture::generic, {"bf16"}), p100 = device(Architecture::generic, {"fp16"});
  EXPECT_TRUE(computes_in(tpu, DType::bf16) && computes_in(p100, DType::fp16));
  EXPECT_FALSE(computes_in(tpu, DType::fp16) || computes_in(p100, DType::bf16));
  EXPECT_EQ(instead_of(tpu, DType::fp16), DType::bf16);
  EXPECT_EQ(instead_of(p100, DType::bf16), DType::fp16);
  EXPECT_TRUE(computes_in(device(Architecture::generic, {"fp32"}), DType::bf16)) << "nobody said which it has";
  EXPECT_FALSE(computes_in(device(Architecture::ampere, {"bf16"}), DType::fp8));
  EXPECT_TRUE(computes_in(device(Architecture::blackwell, {"bf16", "fp4"}), DType::fp4));
}

}  // namespace precision_test
}  // namespace orrery::plan

// Matrix products at the power that a device may draw.
#include "cost/parameters/device_power.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cost/parameters/calibration.h"
#include "tests/cost/support.h"

namespace orrery::cost {
namespace device_power_test {

clusters::Device device_of(double watts, double idle, int multiprocessors) {
  clusters::Device out;
  out.power = base::Watts{watts};
  out.idle_power = base::Watts{idle};
  out.multiprocessors = multiprocessors;
  return out;
}

constexpr ProductsMeasured kA100{base::Watts{400}, base::Watts{50}, 108};
constexpr ProductsMeasured kH100{base::Watts{700}, base::Watts{70}, 132};
constexpr ProductsMeasured kB200{base::Watts{1000}, base::Watts{140}, 148};

TEST(ProductsAndPower, FollowTheCubeRootOfWhatIsAboveIdle) {
  EXPECT_EQ(products_beside(kH100, device_of(700, 70, 132)), 1);
  EXPECT_DOUBLE_EQ(products_beside(kH100, device_of(70 + 630 / 8.0, 70, 132)), 0.5);
  EXPECT_DOUBLE_EQ(products_beside(kH100, device_of(700, 70, 132 / 2)), std::pow(0.5, 2 / 3.0))
      << "half of the multiprocessors have twice the power each";
  EXPECT_EQ(products_beside(kH100, device_of(700, 0, 132)), 1) << "without a figure of its own it idles as its family";
  EXPECT_EQ(products_beside(kH100, device_of(0, 0, 66)), 1) << "no rated power: nothing bounds it";
  EXPECT_EQ(products_beside(kH100, device_of(60, 60, 132)), 0);
}

/// Shape searches on two products of one family (ml-engineering, stas00): what the one at its power makes of the other,
/// TFLOPS in bf16. None of these pairs chose a number.
TEST(ProductsAndPower, TellOneMeasuredProductOfAFamilyFromAnother) {
  constexpr double kWithin = 0.05;
  EXPECT_NEAR(271 * products_beside(kA100, device_of(300, 50, 108)) / 253, 1, kWithin) << "A100 SXM, PCIe";
  EXPECT_NEAR(794 * products_beside(kH100, device_of(870, 70, 132)) / 829, 1, kWithin)
      << "H100, the GPU of a GH200 of 900 W";
  EXPECT_NEAR(1745 * products_beside(kB200, device_of(1200, 140, 148)) / 1822, 1, kWithin) << "B200, GB200";
  EXPECT_NEAR(1745 * products_beside(kB200, device_of(1100, 140, 148)) / 1769, 1, kWithin) << "B200, B300";
}

double share_of(clusters::Device device, const char* dtype = "bf16") {
  clusters::Cluster cluster = *testing::cpu_cluster(1);
  cluster.devices = {std::move(device)};
  return defaults(cluster).at(std::string("device.matmul.") + dtype + ".efficiency");
}

clusters::Device h100(double watts) {
  clusters::Device out = device_of(watts, 70, 132);
  out.name = "H100-SXM5-80GB";
  out.kind = clusters::DeviceKind::gpu;
  out.architecture = clusters::Architecture::hopper;
  for (const auto& [dtype, tflops] : {std::pair{"fp32", 67.0}, {"bf16", 989.4}, {"fp8", 1978.9}})
    out.peak[dtype] = base::FlopsPerSecond{tflops * 1e12};
  return out;
}

TEST(ProductsAndPower, ADeviceThatMayDrawLessReachesASmallerShareOfItsPeak) {
  EXPECT_EQ(share_of(h100(700)), 0.803);
  EXPECT_EQ(share_of(h100(900)), 0.803) << "a faster product than was measured is not assumed";
  EXPECT_DOUBLE_EQ(share_of(h100(500)), 0.803 * std::cbrt(430 / 630.0));
  EXPECT_DOUBLE_EQ(share_of(h100(500), "fp8"), 0.709 * std::cbrt(430 / 630.0));
  clusters::Device fewer = h100(700);
  fewer.name = "V100-SXM2-32GB";
  fewer.power = base::Watts{150};
  EXPECT_EQ(share_of(fewer), 0.9) << "its products do not reach its rated power";
}

}  // namespace device_power_test
}  // namespace orrery::cost

// Matrix products at the power that a device may draw.
#include "cost/parameters/device_power.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cost/parameters/calibration.h"
#include "tests/clusters/support.h"
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

constexpr ProductsMeasured kH100{base::Watts{700}, base::Watts{70}, 132};

TEST(ProductsAndPower, FollowTheCubeRootOfWhatIsAboveIdle) {
  EXPECT_EQ(products_beside(kH100, device_of(700, 70, 132)), 1);
  EXPECT_DOUBLE_EQ(products_beside(kH100, device_of(70 + 630 / 8.0, 70, 132)), 0.5);
  EXPECT_DOUBLE_EQ(products_beside(kH100, device_of(700, 70, 132 / 2)), std::pow(0.5, 2 / 3.0))
      << "half of the multiprocessors have twice the power each";
  EXPECT_EQ(products_beside(kH100, device_of(700, 84, 132)), 1) << "its family draws less without work";
  EXPECT_EQ(products_beside(kH100, device_of(0, 0, 66)), 1) << "no rated power: nothing bounds it";
  EXPECT_GT(products_beside(kH100, device_of(61, 60, 132)), 0);
}

double share_of(clusters::Device device, const char* dtype = "bf16") {
  clusters::Cluster cluster = *testing::cpu_cluster(1);
  cluster.devices = {std::move(device)};
  return defaults(cluster).at(std::string("device.matmul.") + dtype + ".efficiency");
}

/// The best products in one public table (ml-engineering, stas00) of devices of a family, in bf16. None of these pairs
/// chose a number of the law.
TEST(ProductsAndPower, TellOneMeasuredProductOfAFamilyFromAnother) {
  const auto tflops = [](const char* as, double measured_tflops, const char* cluster, double watts = 0) {
    const clusters::Device known = clusters::testing::catalog(as).device();
    clusters::Device other = clusters::testing::catalog(cluster).device();
    if (watts > 0) other.power = base::Watts{watts};
    return measured_tflops * products_beside({known.power, known.idle_power, known.multiprocessors}, other);
  };
  constexpr double kWithin = 0.05, kWidest = 0.085;
  EXPECT_NEAR(tflops("dgx-a100-80gb", 271, "pcie-a100-80gb") / 253, 1, kWithin);
  EXPECT_NEAR(tflops("hgx-h100", 794, "alps", 870) / 829, 1, kWithin) << "a superchip of 900 W, 30 of them Grace's";
  EXPECT_NEAR(tflops("hgx-b200", 1745, "gb200-nvl64") / 1822, 1, kWithin);
  EXPECT_NEAR(tflops("hgx-b200", 1745, "hgx-b300") / 1769, 1, kWidest);
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
  clusters::Device as_fp16 = h100(500);
  as_fp16.peak["fp16"] = as_fp16.peak.at("bf16");
  as_fp16.peak.erase("bf16");
  EXPECT_DOUBLE_EQ(share_of(as_fp16), share_of(h100(500))) << "16 bits are 16 bits";
  clusters::Device fewer = h100(700);
  fewer.name = "V100-SXM2-32GB";
  fewer.power = base::Watts{150};
  EXPECT_EQ(share_of(fewer), 0.9) << "its products do not reach its rated power";
}

}  // namespace device_power_test
}  // namespace orrery::cost

/// Calibration and stack files.
#include "cost/parameters/calibration.h"

#include <gtest/gtest.h>

#include "cost/fit/least_squares.h"
#include "cost/parameters/stack.h"
#include "cost/prices/pricing.h"
#include "tests/cost/support.h"

namespace orrery::cost {
namespace calibration_test {

constexpr const char* kFile = R"(calibration: two cores
device: test-core
network: shared-memory
stack: test-stack
fitted_to:
  - {run: "runs/a: 1", fingerprint: "00ff"}
parameters:
  device.matmul.fp32.efficiency: {value: 0.5, source: "fit 2026-01-02"}
  network.send.latency: {value: 3 us, source: "fit 2026-01-02"}
  stack.op_overhead: {value: 7 us, source: "fit 2026-01-02"}
)";

// exp(log(10)) is 10.000000000000002.
TEST(CalibrationFile, OfAFitThatEndsAtABoundIsRead) {
  EXPECT_EQ(value_between(std::log(10.0), 0, 10), 10);
  Calibration at_bound;
  at_bound.name = "c", at_bound.device = "test-core", at_bound.network = "shared-memory", at_bound.stack = "test-stack";
  at_bound.set("device.neighbour_slowdown", value_between(std::log(10.0), 0, 10), "fit");
  const auto read = parse_calibration(write_calibration(at_bound), "c.yaml");
  EXPECT_TRUE(read) << base::render(read.error(), false);
  at_bound.set("device.neighbour_slowdown", std::exp(std::log(10.0)), "fit");
  EXPECT_FALSE(parse_calibration(write_calibration(at_bound), "c.yaml")) << "the case that must fail";
}

TEST(CalibrationFile, ReadsWhatItWrites) {
  const auto read = parse_calibration(kFile, "c.yaml");
  ASSERT_TRUE(read) << base::render(read.error(), false);
  EXPECT_DOUBLE_EQ(read->at("network.send.latency"), 3e-6);
  EXPECT_EQ(read->fitted_to, (std::vector<FittedTo>{{"runs/a: 1", "00ff"}}));
  const auto again = parse_calibration(write_calibration(*read), "again.yaml");
  ASSERT_TRUE(again) << base::render(again.error(), false);
  EXPECT_EQ(*again, *read);
}

TEST(CalibrationFile, KeepsEveryBitOfAFittedValue) {
  Calibration c;
  c.name = "bits";
  c.set("network.send.latency", 1.0 / 3e5, "a \"quoted\": source");
  c.set("device.cache.bandwidth", 1e11 / 7, "b");
  c.set("device.matmul.fp32.efficiency", 2.0 / 3, "c");
  const auto again = parse_calibration(write_calibration(c), "bits.yaml");
  ASSERT_TRUE(again) << base::render(again.error(), false);
  EXPECT_EQ(*again, c);
}

TEST(CalibrationFile, RefusesUnknownNamesBareNumbersAndSilence) {
  const auto read = parse_calibration(R"(calibration: wrong
parameters:
  device.matmul.fp32.eficiency: {value: 0.5, source: "x"}
  network.send.latency: {value: 3, source: "x"}
  stack.op_overhead: {value: 1 us}
)",
                                      "wrong.yaml");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().size(), 3u) << base::render(read.error(), false);
  EXPECT_NE(base::render(read.error(), false).find("device.matmul.fp32.efficiency"), std::string::npos)
      << "suggests the name";
}

TEST(Merge, KeepsCoefficientsWithTheHardwareAndSoftwareTheyWereMadeFor) {
  Calibration base = defaults(*testing::cpu_cluster(2));
  base.stack = "another-stack";
  const auto file = parse_calibration(kFile, "c.yaml");
  std::vector<std::string> skipped;
  const Calibration merged = merge(base, {*file}, &skipped);
  EXPECT_DOUBLE_EQ(merged.at("device.matmul.fp32.efficiency"), 0.5);
  EXPECT_DOUBLE_EQ(merged.at("network.send.latency"), 3e-6);
  EXPECT_FALSE(merged.has("stack.op_overhead"));
  ASSERT_EQ(skipped.size(), 1u);
  EXPECT_NE(skipped[0].find("stack.op_overhead"), std::string::npos);
}

TEST(Merge, LetsTheLaterFileWin) {
  Calibration first, second;
  first.set("network.send.latency", 1e-6, "first");
  second.set("network.send.latency", 2e-6, "second");
  EXPECT_DOUBLE_EQ(merge({}, {first, second}).at("network.send.latency"), 2e-6);
}

TEST(Defaults, GiveEveryCoefficientASourceAndASaneValue) {
  for (const bool gpu : {false, true}) {
    auto cluster = testing::cpu_cluster(2);
    if (gpu) {
      cluster->devices[0].kind = clusters::DeviceKind::gpu;
      cluster->devices[0].name = "A100-SXM4-80GB";
    }
    for (const auto& [name, parameter] : defaults(*cluster).parameters) {
      const auto kind = known_parameter(name);
      ASSERT_TRUE(kind) << name;
      EXPECT_FALSE(parameter.source.empty()) << name;
      EXPECT_GE(parameter.value, kind->low) << name;
      EXPECT_LE(parameter.value, kind->high) << name;
    }
  }
}

TEST(StackFile, ReadsFactsAndOverheads) {
  const auto read = parse_stack(R"(stack: mine
flash: false
host_inline: true
overlap: {tensor: false, data: true, pipeline: false}
parameters:
  stack.op_overhead: {value: 4 us, source: "x"}
)",
                                "mine.yaml");
  ASSERT_TRUE(read) << base::render(read.error(), false);
  EXPECT_FALSE(read->flash);
  EXPECT_TRUE(read->overlaps(plan::Stream::data));
  EXPECT_FALSE(read->overlaps(plan::Stream::pipeline_recv));
  ASSERT_EQ(read->parameters.size(), 1u);
  EXPECT_DOUBLE_EQ(read->parameters[0].value, 4e-6);
}

TEST(StackFile, RefusesHardwareNumbers) {
  const auto read = parse_stack(R"(stack: mine
flash: false
host_inline: true
overlap: {tensor: false, data: true, pipeline: false}
parameters:
  device.memory.efficiency: {value: 0.9, source: "x"}
)",
                                "mine.yaml");
  ASSERT_FALSE(read);
}

TEST(StackFile, RefusesKernelsFarFasterThanTheBestKnown) {
  const auto read = [](const std::string& share) {
    return parse_stack(
        "stack: mine\nflash: false\nhost_inline: true\n"
        "overlap: {tensor: false, data: true, pipeline: false}\n"
        "parameters:\n  stack.matmul_share: {value: " +
            share + ", source: \"x\"}\n",
        "mine.yaml");
  };
  EXPECT_TRUE(read("1.05"));
  const auto refused = read("1.9");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().front().where.line, 6);
  EXPECT_NE(refused.error().front().message.find("from 0.1 to 1.25"), std::string::npos);
}

}  // namespace calibration_test
}  // namespace orrery::cost

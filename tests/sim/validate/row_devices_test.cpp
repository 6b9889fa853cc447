/// Devices with other memory or power than the catalogue's.
#include "sim/validate/row_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sim/validate/translate.h"
#include "tests/sim/validate/one_row.h"

namespace orrery::sim {
namespace row_devices_test {

using ::testing::HasSubstr;
using namespace one_row;

TEST(RowDevices, TakesTheMemoryThatARowStatesOfItsDevices) {
  const auto told = [](const std::string& device) {
    return validate(rows(changed("A100-SXM4-80GB", device)), library()).rows.at(0);
  };
  const cost::ValidatedRow whole = told("A100-SXM4-80GB"), half = told("A100-SXM4-40GB");
  EXPECT_THAT(half.notes, ::testing::Contains(HasSubstr("with 40 GB of memory")));
  EXPECT_EQ(half.predicted_s, whole.predicted_s);
  EXPECT_THAT(told("A100-SXM4-480GB").notes, ::testing::Not(::testing::Contains(HasSubstr("of memory"))))
      << "so much is the host's";
}

TEST(RowDevices, FillsTheMemoryThatARowStatesOfItsDevices) {
  cost::Intervals intervals;
  intervals.spreads = {{"", true, {0.8, 1.25}, {0.5, 2}, 0}};
  const auto fits = [&](const std::string& device) {
    std::string text = changed("A100-SXM4-80GB", device) + "  zero_stage: 0\n";
    text.replace(text.find("hidden: 2048"), 12, "hidden: 6144");
    text.replace(text.find("heads: 16"), 9, "heads: 48");
    const std::vector<Row> all = rows(text);
    return validate(all, make_cases(all, library()), intervals).rows.at(0).fits_probability.value_or(-1);
  };
  const double half = fits("A100-SXM4-40GB"), whole = fits("A100-SXM4-80GB");
  EXPECT_GT(half, 0);
  EXPECT_LT(half, whole) << "the same run on devices of half the memory";
}

TEST(RowDevices, DevicesThatMayDrawLessThanTheirRatedPowerAreSlower) {
  Library known = library();
  known.clusters = {*testing::cluster("hgx-h100")};
  const auto told = [&](const std::string& name, const std::string& more) {
    return validate(rows(changed("A100-SXM4-80GB", name) + more), known).rows.at(0);
  };
  const auto rated = told("H100-SXM5-80GB", ""), capped = told("H100-SXM5-80GB", "  gpu_power_w: 500\n");
  EXPECT_GT(capped.predicted_s, rated.predicted_s);
  EXPECT_LT(capped.predicted_s, rated.predicted_s / std::cbrt(430 / 630.0)) << "its products alone are slower";
  EXPECT_THAT(capped.notes, ::testing::Contains(HasSubstr("devices that may draw 500 W instead of 700")));
  EXPECT_EQ(told("H100-SXM5 500W", "").predicted_s, capped.predicted_s) << "stated in the name";
  EXPECT_EQ(told("H100-SXM5-80GB", "  gpu_power_w: 700\n").predicted_s, rated.predicted_s);
  const auto too_little = rows(changed("A100-SXM4-80GB", "H100-SXM5-80GB") + "  gpu_power_w: 70\n");
  const auto refused = Translator(known).translate(too_little[0].setup);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().front().message, HasSubstr("draw 70 W without work"));
}

TEST(RowDevices, TheMemoryInASuperchipsNameIsOftenItsHosts) {
  Library known = library();
  known.clusters = {*testing::cluster("alps")};
  const auto notes = [&](const std::string& name) {
    return validate(rows(changed("A100-SXM4-80GB", name)), known).rows.at(0).notes;
  };
  const auto other = ::testing::Contains(HasSubstr("GB of memory"));
  EXPECT_THAT(notes("NVIDIA GH200 120GB"), ::testing::Not(other)) << "the driver's name of that with 96 GB";
  EXPECT_THAT(notes("GH200 480GB"), ::testing::Not(other));
  EXPECT_THAT(notes("GH200 144GB"), other);
}

TEST(RowDevices, TakesTheLargerMemoryWhereARowLeavesItOpenAndItsRunDoesNotFitTheSmaller) {
  Library two = library();
  two.clusters = {*testing::cluster("dgx-a100"), *testing::cluster("dgx-a100-80gb")};
  two.clusters.push_back(*testing::cluster("azure-nd96asr-v4"));
  const auto notes = [&](const std::string& device, const std::string& sequences) {
    std::string text = changed("A100-SXM4-80GB", device);
    const std::size_t at = text.find("full");
    text.replace(at, 4, "none");
    text.replace(text.find("micro_batch: 4"), 14, "micro_batch: " + sequences);
    return validate(rows(text), two).rows.at(0).notes;
  };
  const auto larger = ::testing::Contains(HasSubstr("whose memory the row leaves open"));
  EXPECT_THAT(notes("A100", "16"), larger);
  EXPECT_THAT(notes("A100", "1"), ::testing::Not(larger)) << "it fits";
  EXPECT_THAT(notes("A100-SXM4-40GB", "16"), ::testing::Not(larger)) << "the row says it";
}

}  // namespace row_devices_test
}  // namespace orrery::sim

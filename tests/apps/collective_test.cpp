// collective through the binary: tables of predictions, and measurements beside them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace {

TEST(Collective, PricesEverySizeOnACluster) {
  const Ran ran = orrery({"collective", "hgx-h200", "--sizes", "1MiB,16GiB", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json result = ran.result();
  expect_keys(result, {"cluster", "operation", "ranks", "nodes", "rows", "measured"});
  EXPECT_EQ(result.at("ranks"), 8);
  ASSERT_EQ(result.at("rows").size(), 2U);
  for (const nlohmann::json& row : result.at("rows")) {
    expect_keys(row, {"bytes", "algorithm", "protocol", "time_s", "algorithm_bandwidth_bytes_per_s",
                      "bus_bandwidth_bytes_per_s"});
  }
  EXPECT_EQ(result.at("rows")[0].at("protocol"), "LL");
  EXPECT_EQ(result.at("rows")[1].at("algorithm"), "nvls");
  EXPECT_NEAR(result.at("rows")[1].at("bus_bandwidth_bytes_per_s").get<double>(), 482e9, 20e9);
}

TEST(Collective, TakesPartOfAClusterAndAForcedAlgorithm) {
  const Ran ran = orrery({"collective", "hgx-h200", "--nodes", "4", "--per-node", "4", "--op", "all_gather", "--sizes",
                          "1GiB", "--algorithm", "ring", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.result().at("ranks"), 16);
  EXPECT_EQ(ran.result().at("rows")[0].at("algorithm"), "ring");
  EXPECT_THAT(orrery({"collective", "localhost-2", "--op", "send"}).out, ::testing::HasSubstr("MPI"));
}

TEST(Collective, ComparesWithWhatWasMeasured) {
  const Scratch scratch;
  const std::string file = scratch.file("rows.yaml",
                                        "series:\n  - {id: a, source: here, cluster: hgx-h200, operation: all_gather,\n"
                                        "     rows: [[64 KiB, 1 GB/s], [16 GiB, 361.4 GB/s]]}\n");
  const Ran ran = orrery({"collective", "--measured", file, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json measured = ran.result().at("measured");
  expect_keys(measured, {"judged", "median_error", "mean_error", "p90_error", "worst_error", "series", "rows"});
  EXPECT_EQ(measured.at("judged"), 1);
  EXPECT_LT(measured.at("worst_error").get<double>(), 0.05);
  expect_keys(measured.at("rows")[1], {"series", "bytes", "measured_bytes_per_s", "predicted_bytes_per_s", "time_s",
                                       "error", "algorithm", "protocol", "standing"});
  EXPECT_EQ(measured.at("rows")[0].at("standing"), "small");
  EXPECT_THAT(orrery({"collective", "--measured", file}).out, ::testing::HasSubstr("1 rows judged"));
}

TEST(Collective, SaysWhatIsWrong) {
  EXPECT_EQ(orrery({"collective"}).exit_code, 2);
  EXPECT_EQ(orrery({"collective", "hgx-h200", "--sizes", "5"}).exit_code, 2);
  EXPECT_EQ(orrery({"collective", "hgx-h200", "--op", "gossip"}).exit_code, 2);
  EXPECT_EQ(orrery({"collective", "hgx-h200", "--op", "send", "--per-node", "3"}).exit_code, 2);
  EXPECT_EQ(orrery({"collective", "nowhere"}).exit_code, 3);
  EXPECT_EQ(orrery({"collective", "hgx-h200", "--per-node", "9"}).exit_code, 3);
  const Scratch scratch;
  const std::string cut = scratch.file("cut.yaml", "series:\n  - {id: a, source: here, cluster: hgx-h2");
  EXPECT_EQ(orrery({"collective", "--measured", cut}).exit_code, 3);
  const std::string wrong = scratch.file("wrong.yaml",
                                         "series:\n  - {id: a, source: s, cluster: dgx-a100, operation: all_reduce,\n"
                                         "     rows: [[1 MiB, 2]]}\n");
  const Ran ran = orrery({"collective", "--measured", wrong, "--json"});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_EQ(ran.envelope().at("diagnostics")[0].at("line"), 3);
}

}  // namespace
}  // namespace orrery::tests

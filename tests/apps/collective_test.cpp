// collective through the binary: tables of predictions, and measurements beside them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/network/algorithms.h"
#include "cost/network/collective_measurements.h"
#include "cost/network/messages.h"
#include "sim/collectives/replay_transfers.h"
#include "tests/apps/command.h"
#include "tests/clusters/support.h"

namespace orrery::tests {
namespace collective_test {

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

TEST(Collective, RefusesAnAlgorithmThatTheLibraryCannotRunHere) {
  for (const char* algorithm : {"foo", "pairwise"}) {
    const Ran ran = orrery({"collective", "hgx-h100", "--nodes", "2", "--sizes", "1GiB", "--algorithm", algorithm});
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_THAT(ran.err, ::testing::HasSubstr("it takes nvls-tree here"));
  }
}

TEST(Collective, TakesTheNamesOfOperationsAsTablesWriteThem) {
  const auto rows = [](const char* op) {
    return orrery({"collective", "hgx-h100", "--op", op, "--sizes", "1MiB", "--json"}).result();
  };
  EXPECT_EQ(rows("all-gather"), rows("all_gather"));
  EXPECT_EQ(rows("AllGather"), rows("all_gather"));
  EXPECT_EQ(orrery({"collective", "hgx-h100", "--op", "gather"}).exit_code, 2);
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
  EXPECT_THAT(orrery({"collective", "--measured", file}).out, ::testing::HasSubstr("1 row judged"));
}

// What is printed is what the rooms' functions say of the same case.
TEST(Collective, ReplaysWithTheLibraryTheClosedFormAndTheLinksBeside) {
  const Ran ran =
      orrery({"collective", "hgx-h200", "--replay", "--algorithm", "ring", "--sizes", "4KiB,1GiB", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const clusters::Cluster cluster = clusters::testing::catalog("hgx-h200");
  const std::vector<int> members = cost::members_of(cluster, 1, 8);
  clusters::Paths paths(cluster);
  const plan::CollectiveSteps ring = plan::ring_all_reduce(8);
  ASSERT_EQ(ran.result().at("replay").at("rows").size(), 2U);
  for (const nlohmann::json& row : ran.result().at("replay").at("rows")) {
    expect_keys(row, {"bytes", "algorithm", "pieces", "library_time_s", "library_algorithm", "library_protocol",
                      "closed_form_s", "replay_s", "latency_s", "messages", "binds", "bound_share", "links"});
    const base::Bytes bytes{row.at("bytes").get<double>()};
    const auto replay = sim::replay_transfers({sim::placed(ring, paths, members, bytes)}, paths);
    EXPECT_DOUBLE_EQ(row.at("replay_s").get<double>(), sim::seconds(replay.ends.front()));
    EXPECT_DOUBLE_EQ(row.at("closed_form_s").get<double>(),
                     cost::time_alone(plan::Algorithm::ring, plan::Goal::all_reduce, {8, 8, 1}, paths,
                                      cost::places_of(paths, members), bytes)
                         .value);
    EXPECT_DOUBLE_EQ(
        row.at("library_time_s").get<double>(),
        cost::price_of(cluster, cost::defaults(cluster), cost::Operation::all_reduce, bytes, members, "ring")
            .time.value);
    expect_keys(row.at("links")[0], {"class", "bytes", "mean_utilisation", "peak_utilisation"});
    // A ring's GPU sends 2 (n-1)/n of the message up its NVLinks, 450 GB/s.
    EXPECT_NEAR(row.at("links")[0].at("peak_utilisation").get<double>(),
                bytes.value * 14 / 8 / 450e9 / row.at("replay_s").get<double>(), 1e-6);
  }
  EXPECT_EQ(ran.result().at("replay").at("rows")[0].at("binds"), "latency");
  EXPECT_EQ(ran.result().at("replay").at("rows")[1].at("binds"), "nvlink");
  const std::string text = orrery({"collective", "hgx-h200", "--replay", "--sizes", "1GiB"}).out;
  for (const char* algorithm : {"ring", "tree", "halving-doubling", "nvls", "hierarchical"})
    EXPECT_THAT(text, ::testing::HasSubstr(algorithm));
}

TEST(Collective, ReplaysEveryOperationThatHasAlgorithms) {
  for (const char* operation : {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"}) {
    const Ran ran = orrery({"collective", "hgx-h200", "--nodes", "2", "--op", operation, "--replay", "--channels", "2",
                            "--tasks", "2", "--pieces", "4", "--sizes", "16MiB", "--json"});
    ASSERT_EQ(ran.exit_code, 0) << operation << ran.err;
    const nlohmann::json replay = ran.result().at("replay");
    EXPECT_EQ(replay.at("tasks"), 2);
    EXPECT_EQ(replay.at("channels"), 2);
    EXPECT_GE(replay.at("rows").size(), 2U);
    for (const nlohmann::json& row : replay.at("rows"))
      EXPECT_GE(row.at("replay_s").get<double>(), 0.99 * row.at("closed_form_s").get<double>()) << operation << row;
  }
}

TEST(Collective, RefusesReplaysThatThereAreNot) {
  const auto refused = [](std::vector<std::string> more, const std::string& why) {
    std::vector<std::string> all = {"collective", "hgx-h200", "--nodes", "3", "--sizes", "1MiB"};
    all.insert(all.end(), more.begin(), more.end());
    const Ran ran = orrery(all);
    EXPECT_EQ(ran.exit_code, 2) << why;
    EXPECT_THAT(ran.err, ::testing::HasSubstr(why));
  };
  refused({"--replay", "--algorithm", "tree", "--op", "all_gather"}, "tree cannot do all_gather");
  refused({"--replay", "--algorithm", "tree", "--op", "all_gather"}, "among these ranks: ring, pat, direct");
  refused({"--replay", "--algorithm", "pat", "--op", "all_reduce"}, "pat cannot do all_reduce");
  refused({"--replay", "--algorithm", "nvls-tree"}, "no algorithm `nvls-tree`");
  refused({"--replay", "--algorithm", "nvls"}, "within a node");
  refused({"--replay", "--algorithm", "halving-doubling", "--op", "all_gather"}, "power of two");
  EXPECT_THAT(orrery({"collective", "hgx-h200", "--replay", "--op", "send"}).err,
              ::testing::HasSubstr("send is a single message"));
  refused({"--replay", "--tasks", "5"}, "cannot be dealt out evenly to 5");
  refused({"--tasks", "2"}, "--replay");
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

}  // namespace collective_test
}  // namespace orrery::tests

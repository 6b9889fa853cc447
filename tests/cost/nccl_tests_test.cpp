/// Output of nccl-tests: read strictly, and fitted to.
#include "cost/network/nccl_tests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "clusters/read.h"
#include "clusters/routes.h"
#include "cost/fit/nccl_fit.h"
#include "cost/network/collectives.h"

namespace orrery::cost {
namespace nccl_tests_test {

using ::testing::HasSubstr;

std::string file_text(const std::string& path) {
  std::ifstream in(std::string(ORRERY_SOURCE_DIR) + "/" + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string fixture(const std::string& name) {
  return file_text("tests/cost/fixtures/" + name);
}

clusters::Cluster cluster_of(const std::string& name, int devices) {
  const clusters::Find find = [](const std::string& wanted) -> std::optional<std::string> {
    std::string text = file_text("clusters/catalog/" + wanted + ".yaml");
    return text.empty() ? std::nullopt : std::optional(text);
  };
  return *clusters::resized(*clusters::parse_cluster(*find(name), name + ".yaml", find), devices);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

base::Diagnostic error_of(const std::string& text, const std::string& file = "x.log") {
  const auto test = parse_nccl_test(text, file);
  EXPECT_FALSE(test);
  return test || test.error().empty() ? base::Diagnostic{} : test.error().front();
}

TEST(NcclTests, TextIsReadWithItsRanksAndBothColumns) {
  const std::string text = fixture("all_reduce_8xa100.log");
  ASSERT_TRUE(is_nccl_test(text));
  const auto test = parse_nccl_test(text, "x.log");
  ASSERT_TRUE(test) << base::render(test.error(), false);
  EXPECT_EQ(test->operation, Tested::all_reduce);
  ASSERT_EQ(test->ranks.size(), 8U);
  EXPECT_EQ(test->ranks[3].device, 3);
  EXPECT_EQ(test->ranks[3].device_name, "NVIDIA A100-SXM4-80GB");
  ASSERT_EQ(test->sizes.size(), 21U);
  EXPECT_EQ(test->sizes[0].bytes, 8192);
  EXPECT_NEAR(test->sizes[0].seconds, (43.83 + 42.96) / 2 * 1e-6, 1e-12);
  EXPECT_TRUE(test->warnings.empty());
}

TEST(NcclTests, TagsOfLaunchersAreTakenOff) {
  std::string tagged;
  std::string line;
  for (const char c : fixture("all_reduce_8xa100.log")) {
    line += c;
    if (c != '\n') continue;
    tagged += "[1,0]<stdout>:" + line;
    line.clear();
  }
  const auto test = parse_nccl_test(tagged, "x.log");
  ASSERT_TRUE(test) << base::render(test.error(), false);
  EXPECT_EQ(test->sizes.size(), 21U);
}

TEST(NcclTests, TheOperationOfAnOldLogIsToldByItsNameOrItsBandwidths) {
  const std::string reduce =
      replaced(fixture("all_reduce_8xa100.log"), "# Collective test starting: all_reduce_perf\n", "");
  const auto told = parse_nccl_test(reduce, "x.log");
  ASSERT_TRUE(told) << base::render(told.error(), false);
  EXPECT_EQ(told->operation, Tested::all_reduce);
  const std::string gather =
      replaced(fixture("all_gather_16xa100.log"), "# Collective test starting: all_gather_perf\n", "");
  EXPECT_EQ(error_of(gather).code, "E0314");  // or an all-to-all
  const auto named = parse_nccl_test(gather, "logs/all_gather_perf.16.log");
  ASSERT_TRUE(named) << base::render(named.error(), false);
  EXPECT_EQ(named->operation, Tested::all_gather);
}

TEST(NcclTests, WrongResultsAreRefused) {
  const std::string text = fixture("all_reduce_8xa100.log");
  EXPECT_EQ(error_of(replaced(text, "Out of bounds values : 0 OK", "Out of bounds values : 8 FAILED")).code, "E0313");
  const base::Diagnostic error = error_of(replaced(text, "0.33       0    42.96", "0.33       9    42.96"));
  EXPECT_EQ(error.code, "E0313");
  EXPECT_EQ(error.where.line, 19);
}

TEST(NcclTests, ALogThatEndsEarlyGivesItsCompleteRows) {
  const std::string text = fixture("all_reduce_8xa100.log");
  const auto test = parse_nccl_test(text.substr(0, text.find("\n   268435456") + 60), "x.log");
  ASSERT_TRUE(test) << base::render(test.error(), false);
  EXPECT_EQ(test->sizes.back().bytes, 134217728);
  ASSERT_EQ(test->warnings.size(), 1U);
  EXPECT_EQ(test->warnings[0].code, "E0308");
}

TEST(NcclTests, RanksThatAreMissingOrTwiceAreNoticed) {
  const std::string text = fixture("all_reduce_8xa100.log");
  const std::size_t at = text.find("#  Rank  7"), end = text.find('\n', at) + 1;
  std::string fewer = text;
  fewer.erase(at, end - at);
  EXPECT_THAT(error_of(fewer).message, HasSubstr("factor"));  // 2 (p-1)/p of 7 is not that of 8
  EXPECT_EQ(error_of(fewer).code, "E0314");
  std::string twice = text;
  twice.insert(at, text.substr(at, end - at));
  EXPECT_EQ(error_of(twice).code, "E0314");
  EXPECT_EQ(error_of(replaced(text, "#  Rank  7 Group  0", "#  Rank  7 Group  1")).code, "E0314");
}

TEST(NcclTests, MalformedRowsPointAtTheWord) {
  const base::Diagnostic error = error_of(replaced(fixture("all_reduce_8xa100.log"), "43.83", "4x.83"));
  EXPECT_EQ(error.code, "E0307");
  EXPECT_EQ(error.where.line, 19);
}

TEST(NcclTests, CutAnywhereItNeverCrashes) {
  const std::string text = fixture("all_reduce_8xa100.log");
  for (std::size_t length = 0; length < text.size(); ++length) {
    const auto test = parse_nccl_test(text.substr(0, length), "x.log");
    if (test) continue;
    ASSERT_FALSE(test.error().empty());
    EXPECT_GE(test.error()[0].where.line, 1);
  }
}

constexpr const char* kJson =
    R"({"version":3,"start_time":"2026-03-03 10:00:00","args":["build\/all_reduce_perf","-J","x"],
"env":["PATH=\/bin"],"nccl_version":22809,"config":{"nthreads":1,"ngpus":2,"minimum_bytes":1048576,"maximum_bytes":2097152,
"step_factor":2,"devices":[{"rank":0,"group":0,"pid":7,"hostname":"a","device":0,"device_hex":"0000:07:00","device_info":"NVIDIA A100-SXM4-80GB"}]},
"results":[{"size":1048576,"count":262144,"type":"float","redop":"sum","root":"    -1",
"out_of_place":{"time":50.0,"alg_bw":20.97,"bus_bw":20.97,"nwrong":0.0},"in_place":{"time":52.0,"alg_bw":20.16,"bus_bw":20.16,"nwrong":null},
"actual_iterations":20,"experiment_name":""}],"out_of_bounds":{"count":0,"okay":"true"},
"average_bus_bandwidth":{"bandwidth":20.5,"okay":"unchecked"},"errors":[],"end_time":"2026-03-03 10:00:09"})";

TEST(NcclTests, JsonIsReadToo) {
  ASSERT_TRUE(is_nccl_test(kJson));
  const auto test = parse_nccl_test(kJson, "x.json");
  ASSERT_TRUE(test) << base::render(test.error(), false);
  EXPECT_EQ(test->operation, Tested::all_reduce);
  EXPECT_EQ(test->ranks.size(), 2U);  // of a process with two GPUs only the first is listed
  ASSERT_EQ(test->sizes.size(), 1U);
  EXPECT_NEAR(test->sizes[0].seconds, 51e-6, 1e-12);
  EXPECT_EQ(error_of(replaced(kJson, "\"nwrong\":0.0", "\"nwrong\":3.0"), "x.json").code, "E0313");
  EXPECT_EQ(error_of(std::string(kJson).substr(0, 700), "x.json").code, "E0101");
  EXPECT_EQ(error_of(replaced(kJson, "\"version\":3", "\"version\":9"), "x.json").code, "E0105");
}

// ---- the fit

/// A log of what the formulas say under `truth`, with both columns off by a percent.
NcclTest simulated(const clusters::Cluster& cluster, const Calibration& truth, Tested tested, Operation operation,
                   const std::string& file) {
  NcclTest test;
  test.file = file;
  test.operation = tested;
  std::vector<int> members;
  for (int i = 0; i < cluster.size(); ++i) {
    test.ranks.push_back(
        {i, 0, "host" + std::to_string(cluster.node_of(i)), i % cluster.devices_per_node, "NVIDIA A100-SXM4-80GB"});
    members.push_back(i);
  }
  const Network network = collective_network(cluster, truth);
  for (double bytes = 8192; bytes <= 8.0 * (1 << 30); bytes *= 2) {
    const double seconds =
        collective_time(network, operation, clusters::span_of(cluster, members), cluster.size(), base::Bytes{bytes})
            .value;
    test.sizes.push_back({bytes, seconds * (test.sizes.size() % 2 == 0 ? 1.01 : 0.99), {}});
  }
  return test;
}

TEST(NcclFit, RecoversWhatTheLinksReach) {
  const clusters::Cluster cluster = cluster_of("dgx-a100-80gb", 16);
  Calibration truth = defaults(cluster);
  truth.parameters["network.intra.efficiency"].value *= 0.85;
  truth.parameters["network.inter.efficiency"].value *= 0.8;
  const clusters::Cluster node = cluster_of("dgx-a100-80gb", 8);
  std::vector<NcclTest> tests = {simulated(node, truth, Tested::all_reduce, Operation::all_reduce, "a.log"),
                                 simulated(node, truth, Tested::all_gather, Operation::all_gather, "b.log"),
                                 simulated(cluster, truth, Tested::all_gather, Operation::all_gather, "c.log"),
                                 simulated(cluster, truth, Tested::all_reduce, Operation::all_reduce, "d.log")};
  // One size of one log was disturbed: it must not pull the fit.
  tests[0].sizes[18].seconds *= 5;
  const auto fitted = fit_nccl_tests(tests, cluster, {}, {.date = "2026-03-03", .name = "fit"});
  ASSERT_TRUE(fitted) << base::render(fitted.error(), false);
  EXPECT_GT(fitted->result.error_before, 0.08);
  EXPECT_LT(fitted->result.error_after, 0.05);
  const auto value = [&](const char* name) { return fitted->calibration.parameters.at(name).value; };
  EXPECT_NEAR(value("network.intra.efficiency") / truth.at("network.intra.efficiency"), 1, 0.06);
  EXPECT_NEAR(value("network.inter.efficiency") / truth.at("network.inter.efficiency"), 1, 0.06);
  EXPECT_LT(fitted->result.held_out_error_after, 0.1);
  EXPECT_THAT(fitted->calibration.parameters.at("network.intra.efficiency").source, HasSubstr("nccl-tests: a.log"));
  const auto again = parse_calibration(write_calibration(fitted->calibration), "again.yaml");
  ASSERT_TRUE(again);
}

TEST(NcclFit, TakesEveryOperation) {
  const clusters::Cluster node = cluster_of("dgx-a100-80gb", 8);
  Calibration truth = defaults(node);
  truth.parameters["network.intra.efficiency"].value *= 0.85;
  for (const auto& [tested, operation] :
       {std::pair{Tested::reduce, Operation::reduce}, std::pair{Tested::broadcast, Operation::broadcast},
        std::pair{Tested::reduce_scatter, Operation::reduce_scatter}}) {
    const auto fitted = fit_nccl_tests({simulated(node, truth, tested, operation, "a.log")}, node, {},
                                       {.date = "2026-03-03", .name = "fit"});
    ASSERT_TRUE(fitted) << name_of(tested);
    EXPECT_NEAR(
        fitted->calibration.parameters.at("network.intra.efficiency").value / truth.at("network.intra.efficiency"), 1,
        0.06)
        << name_of(tested);
  }
}

TEST(NcclFit, WhatTheLogDoesNotRevealStays) {
  const clusters::Cluster node = cluster_of("dgx-a100-80gb", 8);
  const auto test = simulated(node, defaults(node), Tested::all_gather, Operation::all_gather, "a.log");
  const auto fitted = fit_nccl_tests({test}, node, {}, {.date = "2026-03-03", .name = "fit"});
  ASSERT_TRUE(fitted);
  EXPECT_FALSE(fitted->calibration.has("network.inter.efficiency"));  // one node
  EXPECT_TRUE(fitted->calibration.has("network.intra.efficiency"));
}

TEST(NcclFit, RefusesAnotherDeviceAndTooManyHosts) {
  const auto test = parse_nccl_test(fixture("all_gather_16xa100.log"), "g.log");
  ASSERT_TRUE(test);
  const auto wrong = fit_nccl_tests({*test}, cluster_of("hgx-h100", 16), {}, {.date = "", .name = "x"});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error()[0].code, "E0310");
  EXPECT_EQ(wrong.error()[0].where.file, "g.log");
  const auto small = fit_nccl_tests({*test}, cluster_of("dgx-a100-80gb", 8), {}, {.date = "", .name = "x"});
  ASSERT_FALSE(small);
  EXPECT_THAT(small.error()[0].message, HasSubstr("2 hosts"));
}

TEST(NcclFit, SmallSizesAloneAreNotEnough) {
  auto test = parse_nccl_test(fixture("all_reduce_8xa100.log"), "r.log");
  ASSERT_TRUE(test);
  test->sizes.resize(4);
  const auto fitted = fit_nccl_tests({*test}, cluster_of("dgx-a100-80gb", 8), {}, {.date = "", .name = "x"});
  ASSERT_FALSE(fitted);
  EXPECT_EQ(fitted.error()[0].code, "F01");
}

}  // namespace nccl_tests_test
}  // namespace orrery::cost

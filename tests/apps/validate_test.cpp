// validate through the binary: its promises to scripts, and the error on the rows that the project carries.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace {

using ::testing::HasSubstr;

TEST(Validate, KeepsItsPromisesOnTheCarriedRows) {
  const Ran ran = orrery({"validate", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json result = ran.result();
  expect_keys(result,
              {"scorable", "median_error", "mean_error", "p90_error", "by_source", "rows", "left_out", "memory"});
  expect_keys(result.at("rows").at(0), {"id", "measured_s", "predicted_s", "error"});
  expect_keys(result.at("by_source").at(0), {"source", "count", "median_error", "mean_error"});
  expect_keys(result.at("left_out").at(0), {"id", "reason"});
  expect_keys(result.at("memory"), {"scorable", "median_error", "p90_error", "rows"});
  expect_keys(result.at("memory").at("rows").at(0), {"id", "measured_bytes", "predicted_bytes", "error"});
}

// A ratchet: lower these when the simulator gets better, never raise them for a change that makes it worse.
TEST(Validate, TheErrorOnTheCarriedRowsDoesNotRise) {
  const nlohmann::json result = orrery({"validate", "--json"}).result();
  int left_out = 0;
  for (const nlohmann::json& row : result.at("left_out")) left_out += row.at("scorable").get<bool>() ? 1 : 0;
  EXPECT_GE(result.at("scorable").get<int>(), 387);
  EXPECT_LE(left_out, 2);
  EXPECT_LT(result.at("median_error").get<double>(), 0.032);
  EXPECT_LT(result.at("p90_error").get<double>(), 0.12);
  EXPECT_LT(result.at("memory").at("median_error").get<double>(), 0.026);
  EXPECT_LT(result.at("memory").at("p90_error").get<double>(), 0.07);
}

TEST(Validate, LeavesSourcesOutAndJudgesIntervalsByThem) {
  const std::string rows = std::string(ORRERY_SOURCE_DIR) + "/tests/validation/published/";
  const Ran ran = orrery({"validate", "--cross-validate", "--json", rows + "zero_bubble_pp_qi_2023.yaml",
                          rows + "megascale_nsdi_2024.yaml", rows + "mosaicml_llm_foundry_benchmarking_readme.yaml"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json v = ran.result().at("cross_validation");
  EXPECT_GE(v.at("left_out").at("count").get<int>(), 140);
  EXPECT_LT(v.at("ratio").get<double>(), 1.6);
  EXPECT_GT(v.at("inside_interval").get<double>(), 0.6);
  for (const nlohmann::json& row : ran.result().at("rows")) {
    EXPECT_LT(row.at("interval_s").at(0).get<double>(), row.at("interval_s").at(1).get<double>());
  }
}

TEST(Validate, FitsStacksInPlaceAndASecondFitChangesNothing) {
  const Scratch scratch;
  const std::filesystem::path source(ORRERY_SOURCE_DIR);
  std::filesystem::copy(source / "cost/stacks", scratch.path() / "stacks");
  const std::string rows = (source / "tests/validation/published/zero_bubble_pp_qi_2023.yaml").string();
  const std::string folder = (scratch.path() / "stacks").string();
  const Ran first = orrery({"validate", "--json", "--fit-stacks", folder, rows});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  for (const nlohmann::json& file : first.result().at("written"))
    EXPECT_THAT(file.get<std::string>(), HasSubstr("megatron")) << "no row of other software was given";
  const Ran second = orrery({"validate", "--json", "--fit-stacks", folder, rows});
  EXPECT_TRUE(second.result().at("written").empty());
  std::filesystem::remove(scratch.path() / "stacks" / "megatron-2023.yaml");
  EXPECT_EQ(orrery({"validate", "--fit-stacks", folder, rows}).exit_code, 3);
}

TEST(Validate, SimulatesTheHeadlinesAndWritesAPage) {
  const Scratch scratch;
  const std::string page = (scratch.path() / "page.html").string();
  const Ran ran = orrery({"validate", "--headlines", "--html", page, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json headlines = ran.result().at("headlines");
  EXPECT_GE(headlines.size(), 35U);
  int predicted = 0;
  for (const nlohmann::json& one : headlines) {
    EXPECT_NE(one.at("predicted").is_null(), one.at("reason").is_null()) << one.at("headline");
    if (one.at("predicted").is_null()) continue;
    ++predicted;
    if (one.at("published") == 0.0) {  // no bubble at all
      EXPECT_LT(one.at("predicted").get<double>(), 0.01) << one.dump();
      continue;
    }
    const double ratio = one.at("predicted").get<double>() / one.at("published").get<double>();
    EXPECT_GT(ratio, 0.2) << one.dump();
    EXPECT_LT(ratio, 5) << one.dump();
  }
  EXPECT_GE(predicted, 37);
  EXPECT_TRUE(std::filesystem::file_size(page) > 10000);
}

TEST(Validate, NamesFileLineAndColumnOfABadRow) {
  const Scratch scratch;
  const std::string file = scratch.file("rows.yaml", "results:\n- id: a\n  layers: -3\n");
  const Ran ran = orrery({"validate", file});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("rows.yaml:3:11"));
  EXPECT_EQ(orrery({"validate", (scratch.path() / "none.yaml").string()}).exit_code, 3);
}

}  // namespace
}  // namespace orrery::tests

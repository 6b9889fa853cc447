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
  EXPECT_GE(result.at("scorable").get<int>(), 343);
  EXPECT_LE(left_out, 46);
  EXPECT_LT(result.at("median_error").get<double>(), 0.105);
  EXPECT_LT(result.at("p90_error").get<double>(), 0.36);
  EXPECT_LT(result.at("memory").at("median_error").get<double>(), 0.036);
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

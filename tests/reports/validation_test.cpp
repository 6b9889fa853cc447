/// Validation as tables and JSON: what is shown, and that docs/json.md names every key.
#include "reports/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

namespace orrery::reports {
namespace validation_test {

using nlohmann::json;
using ::testing::HasSubstr;

cost::Validation sample() {
  cost::Validation v;
  v.rows = {{"a",
             "paper",
             "megatron-2021",
             "data 8",
             1.1,
             2e10,
             1.0,
             2.5e10,
             {"precision fp16"},
             cost::Interval{0.9, 1.3},
             {},
             false,
             0.75,
             cost::Basis::published,
             "from 16 published runs"},
            {"b", "paper", "megatron-2021", "data 4", 2.0, 2e10, {}, {}, {}, {}, {}, true, {}, {}, ""}};
  v.left_out = {{"c", "paper", "it does not state heads", 7, false}};
  v.time = {1, 0.1, 0.1, 0.1};
  v.memory = {1, 0.2, 0.2, 0.2};
  v.by_source = {{"paper", {1, 0.1, 0.1, 0.1}}};
  v.groups = {{"paper", "gpt", 3, 4, 1.25, 0.5, "data 8", "data 4"},
              {"paper", "gpt 2", 3, 3, 1.0, std::nan(""), "x", "x"}};
  cost::CrossValidation cross;
  cross.rows = {{"a", "paper", "megatron-2021", "paper", 1.0, 1.1, 1.2, 1.4, {0.9, 1.5}}};
  cross.folds = {{"paper", {"megatron-2021"}, false, 1, 0.1, 0.2, 0.4, 1.0}};
  cross.in_sample = {1, 0.1, 0.1, 0.1};
  cross.left_out = {1, 0.2, 0.2, 0.2};
  cross.usual = {1, 0.4, 0.4, 0.4};
  cross.inside = 1;
  cross.width = 0.5;
  v.cross_validation = cross;
  return v;
}

std::vector<cost::FamilyFit> fits() {
  return {{{"a", "b"}, 5, 0.2, 0.1, {{"a", "stack.host_op_time", 5e-5, 7e-5, "coarse grid over 5 rows"}}}};
}

std::vector<cost::HeadlineResult> headlines() {
  return {{"a trillion parameters", "paper", "163 TFLOPs", "TFLOP/s", "", {"data 6"}, 178.0, 163.0, true, 1.96, false},
          {"offload", "paper", "13B", "", "offload is not simulated yet", {}, {}, {}}};
}

void collect(const json& value, std::set<std::string>& keys) {
  if (value.is_object())
    for (const auto& [key, inner] : value.items()) keys.insert(key), collect(inner, keys);
  if (value.is_array())
    for (const json& inner : value) collect(inner, keys);
}

TEST(ValidationJson, IsNamedInTheDocumentationKeyByKey) {
  std::ifstream file(std::string(ORRERY_SOURCE_DIR) + "/docs/json.md");
  std::ostringstream text;
  text << file.rdbuf();
  std::set<std::string> keys{"written"};
  collect(validate_json(sample()), keys);
  collect(stack_fits_json(fits()), keys);
  collect(headlines_json(headlines()), keys);
  cost::RowFit fit;
  fit.stack.fitted = cost::Stack::Fitted{};
  fit.numbers = {{"ours", "stack.matmul_share", 0.8, 0.7, "here"}};
  fit.left_out = {{"a", "b", "c", 1, false}};
  fit.teaching = {{"8 devices", 1, 0.1}};
  collect(row_fit_json(fit, "ours.yaml"), keys);
  EXPECT_GT(keys.size(), 40U);
  for (const std::string& key : keys) EXPECT_THAT(text.str(), HasSubstr("`" + key + "`"));
}

TEST(ValidationJson, HasNullsForWhatIsNotKnown) {
  const json out = validate_json(sample());
  cost::Validation alive = sample();
  alive.rows[1].out_of_memory = false;
  const json both = validate_json(alive);
  EXPECT_TRUE(both["rows"][1]["measured_s"].is_null());
  EXPECT_TRUE(both["rows"][1]["error"].is_null());
  EXPECT_TRUE(both["rows"][1]["interval_s"].is_null());
  EXPECT_EQ(out["rows"][0]["interval_s"], (json{0.9, 1.3}));
  EXPECT_TRUE(out["groups"][1]["rank_correlation"].is_null());
  EXPECT_DOUBLE_EQ(out["cross_validation"]["ratio"].get<double>(), 2);
}

// A run that died has no time to be judged by.
TEST(ValidationJson, HasRunsThatDiedInMemoryAlone) {
  const json out = validate_json(sample());
  EXPECT_EQ(out["predicted"], 2);
  ASSERT_EQ(out["rows"].size(), 1U);
  EXPECT_EQ(out["rows"][0]["evidence"], "published");
  ASSERT_EQ(out["memory"]["rows"].size(), 2U);
  EXPECT_EQ(out["memory"]["rows"][0]["fits_probability"], 0.75);
  EXPECT_TRUE(out["memory"]["rows"][1]["fits_probability"].is_null());
  EXPECT_EQ(out["memory"]["rows"][1]["out_of_memory"], true);
}

TEST(ValidationText, HasAnIntervalAndTheEvidenceBesideEachPrediction) {
  cost::Validation v = sample();
  v.rows.push_back(v.rows[0]);
  v.rows[2].id = "unmeasured", v.rows[2].measured_s.reset();
  const std::string text = validation_text(v, {});
  EXPECT_THAT(text, HasSubstr("4 of 5 runs"));
  EXPECT_THAT(text, HasSubstr("900 ms–1.30 s"));
  EXPECT_THAT(text, HasSubstr("Predicted, without a measured time"));
  EXPECT_THAT(text_of(unmeasured_table(v, 5), {}), HasSubstr("unmeasured"));
  EXPECT_THAT(text_of(unmeasured_table(v, 0), {}), HasSubstr("1 row more in --json"));
  for (const Table& table : {worst_rows_table(v, 5), unmeasured_table(v, 5)})
    EXPECT_THAT(text_of(table, {}), HasSubstr("published"));
}

TEST(ValidationText, CountsTheRunsThatAreToldToFitAndNotTo) {
  cost::Validation v = sample();
  EXPECT_THAT(fits_table(v, 5).notes, ::testing::ElementsAre("1 of 1 that ran are predicted to fit"))
      << "without an interval nobody knows whether the other one fits";
  v.rows[1].fits_probability = 0.9;
  v.rows.push_back(v.rows[1]);
  v.rows[2].id = "told", v.rows[2].fits_probability = 0.1;
  const Table table = fits_table(v, 5);
  EXPECT_THAT(table.notes, ::testing::Contains("1 of 2 that died for lack of memory are predicted not to fit"));
  ASSERT_EQ(table.rows.size(), 1U);
  EXPECT_EQ(table.rows[0][0], "b") << "it died, and was told to fit";
  EXPECT_EQ(table.rows[0][1], "died");
}

TEST(ValidationText, OfRunsThatDiedAloneHasNoEmptyTables) {
  cost::Validation v;
  v.rows = {sample().rows[1]};
  v.rows[0].fits_probability = 0.1;
  v.time = v.memory = {0, std::nan(""), std::nan(""), std::nan("")};
  const std::string text = validation_text(v, {});
  EXPECT_THAT(text, ::testing::Not(HasSubstr("step times")));
  EXPECT_THAT(text, HasSubstr("1 of 1 that died"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("Told wrongly"))) << "none is";
}

TEST(ValidationText, CountsAStacksFittedNumbersBesideItsRows) {
  cost::Validation v = sample();
  v.by_stack = {{"megatron-2021", 2, 7, {1, 0.1, 0.1, 0.1}}};
  EXPECT_THAT(stacks_table(v).rows,
              ::testing::ElementsAre(::testing::ElementsAre("megatron-2021", "2", "7", "10.0 %", "10.0 %")));
  EXPECT_EQ(validate_json(v)["by_stack"][0]["fitted_numbers"], 7);
}

TEST(Regret, IsSummedUpByItsMedianAndItsWorst) {
  const RegretSummary r = regret_of(sample().groups);
  EXPECT_EQ(r.groups, 2U);
  EXPECT_DOUBLE_EQ(r.median, 1.125);
  EXPECT_DOUBLE_EQ(r.worst, 1.25);
  EXPECT_DOUBLE_EQ(r.rank_correlation, 0.5) << "a group whose plans are all alike has none";
  EXPECT_TRUE(std::isnan(regret_of({}).median));
}

TEST(HeadlinesTable, SaysWhatIsNotPredictedAndWhy) {
  const std::string text = text_of(headlines_table(headlines()), {});
  EXPECT_THAT(text, HasSubstr("178"));
  EXPECT_THAT(text, HasSubstr("not predicted: offload: offload is not simulated yet"));
  EXPECT_TRUE(headlines_json(headlines())[1]["predicted"].is_null());
  EXPECT_TRUE(headlines_json(headlines())[1]["fits"].is_null());
}

TEST(HeadlinesTable, MarksWhatIsInSampleAndWhatDoesNotFit) {
  const std::string text = text_of(headlines_table(headlines()), {});
  EXPECT_THAT(text, HasSubstr("in-sample, does not fit (1.96)"));
  std::vector<cost::HeadlineResult> sound = headlines();
  sound[0].in_sample = false;
  sound[0].fits = true;
  EXPECT_EQ(text_of(headlines_table(sound), {}).find("fit ("), std::string::npos);
  EXPECT_EQ(headlines_json(headlines())[0]["in_sample"], true);
  EXPECT_EQ(headlines_json(headlines())[0]["memory_share"], 1.96);
}

TEST(ValidationPage, HoldsEveryPartAndNamesNoPlaceOnTheNetwork) {
  const std::string page = validation_html(sample(), headlines(), {});
  for (const char* part : {"By source", "Worst rows first", "Which plan wins", "In-sample and left out", "Headlines",
                           "it does not state heads", "tables only"})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_EQ(page.find("http://"), std::string::npos);
  const std::string bare = validation_html({}, {}, {});
  for (const char* part : {"By source", "Which plan wins", "Headlines"}) EXPECT_EQ(bare.find(part), std::string::npos);
}

TEST(ValidationPage, EscapesWhatSourcesAreCalled) {
  cost::Validation v = sample();
  v.rows[0].source = "<script>alert(1)</script>";
  EXPECT_EQ(validation_html(v, {}, {}).find("<script>alert"), std::string::npos);
}

TEST(ValidationText, ShowsErrorsGroupsAndWhatWasLeftOut) {
  const std::string text = validation_text(sample(), {});
  for (const char* part : {"+10.0 %", "it does not state heads", "1.250", "peak memory"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(cross_validation_text(*sample().cross_validation, {}), HasSubstr("2.00"));
  EXPECT_THAT(stack_fits_text(fits(), {}), HasSubstr("70 us"));
}

}  // namespace validation_test
}  // namespace orrery::reports

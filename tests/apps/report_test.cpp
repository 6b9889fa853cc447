// report: of jobs, plans and runs, in any mix.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace {

using ::testing::HasSubstr;

class Report : public ::testing::Test {
 protected:
  Report()
      : job_(scratch_.file("job.yaml",
                           "model: gpt2-124m\ncluster: hgx-h100\nbatch: 64\nsequence: 1024\nprecision: bf16\n"
                           "plan: {tensor: 1, pipeline: 1}\n")),
        page_((scratch_.path() / "page.html").string()) {}
  Scratch scratch_;
  std::string job_, page_;
};

TEST_F(Report, OfAJobAloneScalesItOverTheSizesAskedFor) {
  const Ran ran = orrery({"report", "--scaling", job_, "--gpus", "8,2,4,8", "-o", page_, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  const nlohmann::json points = ran.result().at("scaling");
  ASSERT_EQ(points.size(), 3U);
  double before = 1e9;
  for (const nlohmann::json& point : points) {
    EXPECT_LT(point.at("predicted_s").get<double>(), before);
    before = point.at("predicted_s");
  }
  EXPECT_THAT(text_of(page_), HasSubstr("gpt2-124m on hgx-h100"));
}

TEST_F(Report, OfAPlanFileShowsItAsPredicted) {
  const std::string plan = (scratch_.path() / "plan.yaml").string();
  ASSERT_EQ(orrery({"plan", job_, "-o", plan}).exit_code, 0);
  EXPECT_EQ(orrery({"report", plan, "-o", page_}).exit_code, 0);
  EXPECT_THAT(text_of(page_), HasSubstr("predicted"));
  EXPECT_EQ(orrery({"report", plan, plan, "-o", page_}).exit_code, 2);
}

TEST_F(Report, OfNothingIsAUsageError) {
  EXPECT_EQ(orrery({"report", "-o", page_}).exit_code, 2);
  EXPECT_EQ(orrery({"report", "no-such-run", "-o", page_}).exit_code, 3);
}

TEST_F(Report, OfSizesThatNothingFitsSaysSo) {
  const std::string large = scratch_.file("large.yaml", "model: gpt3-175b\ncluster: hgx-h100\nbatch: 8\n");
  const Ran ran = orrery({"report", "--scaling", large, "--gpus", "1", "-o", page_});
  EXPECT_EQ(ran.exit_code, 4);
  EXPECT_THAT(ran.err, HasSubstr("error[P90]"));
}

}  // namespace
}  // namespace orrery::tests

// report: of jobs, plans and runs, in any mix.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace {

using ::testing::HasSubstr;

class Report : public ::testing::Test {
 protected:
  /// A plan of the job, as `setting` says.
  std::string planned(const std::string& name, const std::string& setting = "plan.micro_batch=1") {
    const std::string out = (scratch_.path() / (name + ".yaml")).string();
    const Ran ran = orrery({"plan", job_, "--set", setting, "-o", out});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return out;
  }
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
  const std::string plan = planned("plan");
  EXPECT_EQ(orrery({"report", plan, "--no-what-if", "-o", page_}).exit_code, 0);
  EXPECT_THAT(text_of(page_), HasSubstr("predicted"));
}

TEST_F(Report, OfAPlanExplainsWhereItsTimeGoesAndWhatItHangsOn) {
  const std::string plan = planned("plan");
  const Ran ran = orrery({"report", plan, "-o", page_, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  const nlohmann::json shown = ran.result().at("plan");
  const nlohmann::json simulated = orrery({"simulate", plan, "--json"}).result();
  EXPECT_EQ(shown.at("step_time_s"), simulated.at("step_time_s"));
  EXPECT_EQ(shown.at("figures").at("step_time_interval_s"), simulated.at("step_time_interval_s"));
  EXPECT_EQ(shown.at("figures").at("evidence_text"), simulated.at("evidence_text"));
  double sum = 0;
  for (const nlohmann::json& part : shown.at("waterfall")) sum += part.at("seconds").get<double>();
  EXPECT_NEAR(sum / simulated.at("step_time_s").get<double>(), 1, 1e-9);
  const nlohmann::json explained = orrery({"explain", plan, "--json"}).result();
  EXPECT_EQ(shown.at("neighbours"), explained.at("neighbours")) << "one function serves both";
  EXPECT_FALSE(shown.at("sensitivities").empty());
  EXPECT_FALSE(shown.at("operators").empty());
  const std::string html = text_of(page_);
  for (const char* heading :
       {"Timeline", "From the peak to the step", "Where the step goes", "Memory by stage", "What the step hangs on",
        "Roofline by operator", "Topology with the load of its links", "Load of the network", "Provenance"})
    EXPECT_THAT(html, HasSubstr(std::string(">") + heading + "</h2>"));
  EXPECT_THAT(html, ::testing::ContainsRegex("<td>plan</td><td>sha256 [0-9a-f]{64}</td>"));
  EXPECT_THAT(html, HasSubstr("device.matmul.")) << "coefficients with their sources";
}

TEST_F(Report, OfTwoPlansBeginsWithWhatDiffers) {
  const std::string a = planned("a"), b = planned("b", "plan.micro_batch=4");
  const Ran ran = orrery({"report", a, b, "--no-what-if", "-o", page_, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  const nlohmann::json compared = ran.result().at("compared");
  ASSERT_EQ(compared.at("items").size(), 2U);
  EXPECT_EQ(compared.at("items")[1].at("step_time_s"), orrery({"simulate", b, "--json"}).result().at("step_time_s"));
  bool said = false;
  for (const nlohmann::json& one : compared.at("differences")) {
    EXPECT_NE(one.at("values")[0], one.at("values")[1]);
    said = said || (one.at("what") == "micro_batch" && one.at("values")[1] == "4");
  }
  EXPECT_TRUE(said) << compared.at("differences");
  const std::string html = text_of(page_);
  EXPECT_LT(html.find(">What differs</h2>"), html.find("class=\"tiles\""));
  EXPECT_THAT(html, HasSubstr("B · b.yaml"));

  const Ran same = orrery({"report", a, a, "--no-what-if", "-o", page_});
  EXPECT_EQ(same.exit_code, 0);
  EXPECT_THAT(same.out, HasSubstr("The plans are the same."));
  EXPECT_EQ(orrery({"report", a, "no-such-plan.yaml", "-o", page_}).exit_code, 3);
}

TEST_F(Report, OfAWholeRunSaysStepsDaysMoneyAndGoodput) {
  const std::string plan = planned("plan");
  const Ran ran = orrery({"report", plan, "--tokens", "1e9", "--mtbf", "10 h", "--no-what-if", "-o", page_, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  const nlohmann::json result = ran.result();
  const nlohmann::json& given = result.at("whole_run").at("lengths")[0];
  EXPECT_EQ(given.at("tokens"), 1e9);
  EXPECT_EQ(given.at("steps"), 15259) << "of 64 sequences of 1,024 tokens";
  const nlohmann::json simulated =
      orrery({"simulate", plan, "--run-tokens", "1e9", "--mtbf", "10 h", "--json"}).result();
  EXPECT_EQ(given.at("run_time_s"), simulated.at("goodput").at("run_time_s"));
  EXPECT_EQ(result.at("whole_run").at("goodput"), simulated.at("goodput"));
  const double steps = given.at("run_time_s").get<double>() / result.at("plan").at("step_time_s").get<double>();
  EXPECT_NEAR(given.at("cost_usd").get<double>() / (steps * result.at("plan").at("cost_per_step_usd").get<double>()), 1,
              1e-9);
  EXPECT_NEAR(given.at("energy_j").get<double>() / (steps * result.at("plan").at("energy_per_step_j").get<double>()), 1,
              1e-9);
  EXPECT_THAT(text_of(page_), HasSubstr("Goodput by the time between checkpoints"));
}

TEST_F(Report, OfAComputeOptimalRunGoesByHoffmannAndNamesKaplan) {
  const std::string plan = planned("plan");
  const nlohmann::json lengths = orrery({"report", plan, "--compute-optimal", "--no-what-if", "-o", page_, "--json"})
                                     .result()
                                     .at("whole_run")
                                     .at("lengths");
  EXPECT_THAT(lengths[0].at("what").get<std::string>(), HasSubstr("Hoffmann"));
  EXPECT_NEAR(lengths[0].at("tokens").get<double>(), 20.2 * 124'439'808, 1);
  EXPECT_THAT(lengths[2].at("what").get<std::string>(), HasSubstr("Kaplan"));
  const nlohmann::json budget = orrery({"report", plan, "--budget", "1e20", "--no-what-if", "-o", page_, "--json"})
                                    .result()
                                    .at("whole_run")
                                    .at("lengths");
  EXPECT_NEAR(budget[0].at("tokens").get<double>(), 1e20 / 6 / 124'439'808, 1);
  EXPECT_TRUE(budget.back().at("run_time_s").is_null()) << "of another model there is no plan";
  EXPECT_EQ(orrery({"report", "--job", job_, "--compute-optimal", "-o", page_}).exit_code, 2) << "of which plan?";
  EXPECT_EQ(orrery({"report", plan, "--mtbf", "soon", "--no-what-if", "-o", page_}).exit_code, 2);
}

TEST_F(Report, OfASearchPinsPlansAndCountsTheRejected) {
  const Ran ran = orrery({"report", "--job", job_, "-o", page_, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  const nlohmann::json search = ran.result().at("search");
  EXPECT_GT(search.at("plans").size(), 1U);
  const std::string html = text_of(page_);
  EXPECT_THAT(html, HasSubstr(">Plans: time and memory</h2>"));
  std::size_t pins = 0;
  for (std::size_t at = html.find("class=\"pin\""); at != html.npos; at = html.find("class=\"pin\"", at + 1)) ++pins;
  EXPECT_EQ(pins, search.at("plans").size());
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

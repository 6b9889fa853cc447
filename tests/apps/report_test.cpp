// report: of jobs, plans and runs, in any mix.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace report_test {

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
       {"Timeline", "From the peak to the step", "Where the step goes", "Memory by stage", "What the step depends on",
        "Roofline by operator", "Topology with the load of its links", "Load of the network", "Provenance"})
    EXPECT_THAT(html, HasSubstr(std::string(">") + heading + "</h2>"));
  EXPECT_THAT(html, ::testing::ContainsRegex("<td>plan</td><td>sha256 [0-9a-f]{64}</td>"));
  EXPECT_THAT(html, HasSubstr("device.matmul.")) << "coefficients with their sources";
}

TEST_F(Report, OfAPlanFileThatIsMissingSaysThatAFileIsMissing) {
  const std::string missing = (scratch_.path() / "absent.yaml").string();
  const Ran file = orrery({"report", missing, "-o", page_});
  EXPECT_EQ(file.exit_code, 3);
  EXPECT_THAT(file.err, HasSubstr("absent.yaml"));
  EXPECT_THAT(file.err, ::testing::Not(HasSubstr("absent.yaml/plan.yaml"))) << "it is named like a file";
  const Ran folder = orrery({"report", (scratch_.path() / "absent").string(), "-o", page_});
  EXPECT_EQ(folder.exit_code, 3);
  EXPECT_THAT(folder.err, HasSubstr("no plan or run named"));
  EXPECT_THAT(folder.err, ::testing::Not(HasSubstr("absent/plan.yaml"))) << "it may have been meant as either";
}

TEST_F(Report, IsTheSamePageEveryTimeAndWhereverItIsWritten) {
  const std::string plan = planned("plan"), other = (scratch_.path() / "elsewhere" / "again.html").string();
  std::filesystem::create_directories(scratch_.path() / "elsewhere");
  ASSERT_EQ(orrery({"report", plan, "--job", job_, "--scaling", job_, "--gpus", "2,4", "-o", page_}).exit_code, 0);
  ASSERT_EQ(orrery({"report", plan, "--job", job_, "--scaling", job_, "--gpus", "2,4", "-o", other}).exit_code, 0);
  EXPECT_EQ(text_of(page_), text_of(other)) << "nothing of it depends on the clock or on the machine";
  EXPECT_THAT(text_of(page_), ::testing::Not(HasSubstr(ORRERY_SOURCE_DIR))) << "nor on where Orrery is";
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

TEST_F(Report, OfAJobShowsTheBestPlanThatPlanFindsAmongTheOthers) {
  const Ran ran = orrery({"report", job_, "--no-what-if", "-o", page_, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  const nlohmann::json best = orrery({"plan", job_, "--json"}).result().at("plans").at(0);
  const nlohmann::json shown = ran.result();
  const double seconds = best.at("step_time_s");
  EXPECT_NEAR(shown.at("plan").at("step_time_s").get<double>(), seconds, 1e-9 * seconds);
  EXPECT_EQ(shown.at("search").at("plans").at(0).at("step_time_s"), best.at("step_time_s"));
  EXPECT_THAT(text_of(page_), HasSubstr(">Plans: time and memory</h2>"));
  EXPECT_THAT(text_of(page_), ::testing::ContainsRegex("<td>job</td><td>sha256 [0-9a-f]{64}</td>"));

  const std::string plan = planned("other", "plan.micro_batch=4");
  const Ran both = orrery({"report", plan, job_, "--no-what-if", "-o", page_, "--json"});
  ASSERT_EQ(both.exit_code, 0) << both.out;
  EXPECT_EQ(both.result().at("compared").at("items").size(), 2U);
  const Ran whole = orrery({"report", job_, "--compute-optimal", "--no-what-if", "-o", page_, "--json"});
  EXPECT_FALSE(whole.result().at("whole_run").is_null()) << "of the best plan";

  const std::string large = scratch_.file("large.yaml", "model: gpt3-175b\ncluster: hgx-h100\nbatch: 8\n");
  const Ran none = orrery({"report", large, "--set", "plan.tensor=1", "-o", page_});
  EXPECT_EQ(none.exit_code, 4);
  EXPECT_THAT(none.err, HasSubstr("error[P90]"));
}

TEST_F(Report, OfAPlanFileShowsThePlansOfTheJobThatItCarries) {
  const std::string plan = planned("plan");
  const nlohmann::json search = orrery({"report", plan, "-o", page_, "--json"}).result().at("search");
  EXPECT_GT(search.at("search").at("candidates"), 1);
  EXPECT_TRUE(orrery({"report", plan, "--no-what-if", "-o", page_, "--json"}).result().at("search").is_null());
  const Ran csv = orrery({"report", plan, "--format", "csv", "-o", "-"});
  EXPECT_EQ(csv.out, orrery({"report", plan, "--format", "csv"}).out) << "text goes to standard output by default";
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 2) << "one plan was named: " << csv.out;
}

TEST_F(Report, TakesAPredictionThatWasPrintedAsItTakesItsPlan) {
  const std::string plan = planned("plan");
  const std::string simulated = scratch_.file("simulated.json", orrery({"simulate", plan, "--json"}).out);
  nlohmann::json of_plan = orrery({"report", plan, "-o", page_, "--json"}).result().at("plan");
  const Ran ran = orrery({"report", simulated, "-o", page_, "--json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(ran.envelope().at("diagnostics").empty()) << ran.out;
  nlohmann::json of_printed = ran.result().at("plan");
  of_printed["simulation_seconds"] = of_plan.at("simulation_seconds");
  for (nlohmann::json* one : {&of_plan, &of_printed})  // intervals differ in their last digit
    for (nlohmann::json& neighbour : one->at("neighbours")) neighbour.erase("step_time_interval_s");
  EXPECT_EQ(of_printed, of_plan);
}

TEST_F(Report, ShowsAPredictionOfThenAsItWasAndWarnsWhereTodaysDiffers) {
  const std::string plan = planned("plan");
  nlohmann::json then = nlohmann::json::parse(orrery({"simulate", plan, "--json"}).out);
  const double now = then.at("result").at("step_time_s");
  then["result"]["step_time_s"] = now / 2;
  const std::string old = scratch_.file("old.json", then.dump(2));
  const Ran ran = orrery({"report", old, plan, "-o", page_, "--json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  ASSERT_EQ(ran.envelope().at("diagnostics").size(), 1U) << ran.out;
  EXPECT_EQ(ran.envelope().at("diagnostics").at(0).at("code"), "E0209");
  const nlohmann::json items = ran.result().at("compared").at("items");
  EXPECT_DOUBLE_EQ(items.at(0).at("step_time_s").get<double>(), now / 2);
  EXPECT_DOUBLE_EQ(items.at(1).at("step_time_s").get<double>(), now);
  EXPECT_EQ(items.at(0).at("communication"), then.at("result").at("communication"));
  EXPECT_EQ(items.at(0).at("memory_by_purpose_bytes"), then.at("result").at("memory_by_purpose_bytes"));
  EXPECT_EQ(items.at(0).at("breakdown_s"), then.at("result").at("breakdown_s"));
  const std::string page = text_of(page_);
  EXPECT_THAT(page, HasSubstr("These figures are as they were saved"));
  EXPECT_THAT(page, HasSubstr("A · old.json: as it was saved."));
  EXPECT_EQ(page.find("Roofline"), page.npos) << "operators of today's replay are not those of the saved figures";
}

TEST_F(Report, TakesTheRankedPlansThatPlanPrinted) {
  const nlohmann::json printed = orrery({"plan", job_, "--set", "plan.tensor=[1,2]", "--json"}).envelope();
  const std::string file = scratch_.file("ranked.json", printed.dump());
  const Ran ran = orrery({"report", file, "-o", page_, "--json"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json shown = ran.result().at("search"), asked = printed.at("result");
  ASSERT_EQ(shown.at("plans").size(), asked.at("plans").size());
  for (std::size_t i = 0; i < shown.at("plans").size(); ++i)
    for (const char* key : {"step_time_s", "memory_peak_bytes", "data", "tensor", "micro_batch", "breakdown_s"})
      EXPECT_EQ(shown.at("plans").at(i).at(key), asked.at("plans").at(i).at(key)) << i << key;
  EXPECT_EQ(shown.at("search").at("rejected"), asked.at("search").at("rejected"));
}

TEST_F(Report, OfWhatIsNoPredictionSaysWhichFileToName) {
  const std::string plan = planned("plan");
  nlohmann::json printed = nlohmann::json::parse(orrery({"simulate", plan, "--json"}).out);
  const std::string simulated = scratch_.file("simulated.json", printed.dump());
  const std::string model = scratch_.file("model.json", orrery({"model", "gpt2-124m", "--json"}).out);
  printed["result"]["plan_file"]["plan"]["tensor"] = 3;
  const std::string broken = scratch_.file("broken.json", printed.dump(2));
  printed["result"] = nullptr;
  const std::string failed = scratch_.file("failed.json", printed.dump());
  const auto said = [&](const std::vector<std::string>& words, const char* what) {
    const Ran ran = orrery(words);
    EXPECT_EQ(ran.exit_code, 3) << words.front();
    EXPECT_THAT(ran.err, HasSubstr(what)) << words.front();
    EXPECT_LT(ran.err.size(), 5000U) << "a file on one line is not shown whole";
  };
  said({"simulate", simulated}, "this is what a verb prints with --json, but a plan is expected");
  said({"plan", simulated}, "this is what a verb prints with --json, but a job is expected");
  said({"report", model, "-o", page_}, "this is what `orrery model` prints, which is no prediction");
  said({"report", failed, "-o", page_}, "`orrery simulate` printed no prediction");
  said({"report", broken, "-o", page_}, "data 8 x tensor 3 x pipeline 1 is 24 ranks");
}

TEST_F(Report, OfPlansIsMarkdownCsvAndJsonToo) {
  const std::string one = planned("one"), other = planned("other", "plan.micro_batch=4");
  const auto written = [&](const std::vector<std::string>& inputs, const char* format) {
    std::vector<std::string> words = {"report", "--no-what-if", "--format", format, "-o", "-"};
    words.insert(words.end(), inputs.begin(), inputs.end());
    const Ran ran = orrery(words);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.out;
  };
  const std::string markdown = written({one}, "md"), both = written({one, other}, "md");
  for (const char* part : {"# gpt2-124m on hgx-h100", "**Where the step goes", "**Memory at its peak"})
    EXPECT_THAT(markdown, HasSubstr(part));
  EXPECT_THAT(both, HasSubstr("**What differs**"));
  const std::string csv = written({one, other}, "csv");
  EXPECT_EQ(csv.rfind("input,plan,devices,step_time_s,measured_step_time_s,", 0), 0U) << csv;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3) << csv;
  const double seconds = orrery({"simulate", other, "--json"}).result().at("step_time_s");
  std::string line = csv.substr(csv.rfind('\n', csv.size() - 2) + 1);
  for (int field = 0, quoted = 0; field < 3; line.erase(0, 1)) {
    quoted ^= line.front() == '"' ? 1 : 0;
    field += line.front() == ',' && quoted == 0 ? 1 : 0;
  }
  EXPECT_NEAR(std::stod(line), seconds, 1e-6 * seconds) << csv;
  const nlohmann::json json = nlohmann::json::parse(written({one, other}, "json"));
  EXPECT_EQ(json.at("format_version"), "1.0");
  EXPECT_EQ(json.at("report").at("compared").at("items").size(), 2U);
  for (const char* format : {"md", "csv", "json"}) {
    const std::string file = (scratch_.path() / "report").string() + "." + format;
    for (int twice = 0; twice < 2; ++twice)
      EXPECT_EQ(orrery({"report", one, "--no-what-if", "--format", format, "-o", file}).exit_code, 0)
          << "what Orrery wrote it may write again: " << format;
  }
}

TEST_F(Report, HasTheFormatOfItsFilesEnding) {
  const std::string plan = planned("plan");
  for (const auto& [ending, begins] : {std::pair(".csv", "input,plan,devices"), std::pair(".md", "# gpt2-124m"),
                                       std::pair(".json", "{\"format_version\""), std::pair(".htm", "<!")}) {
    const std::string file = (scratch_.path() / "page").string() + ending;
    EXPECT_EQ(orrery({"report", plan, "--no-what-if", "-o", file}).exit_code, 0);
    EXPECT_EQ(text_of(file).rfind(begins, 0), 0U) << text_of(file).substr(0, 60);
  }
  const std::string page = (scratch_.path() / "is-a-page.csv").string();
  EXPECT_EQ(orrery({"report", plan, "--no-what-if", "--format", "html", "-o", page}).exit_code, 2)
      << "a page in a .csv";
  EXPECT_FALSE(std::filesystem::exists(page));
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

/// Jobs on more and more devices; a smaller space, so that a point takes no time.
class ReportScaling : public ::testing::Test {
 protected:
  ReportScaling()
      : job_(scratch_.file("job.yaml",
                           "model: gpt2-124m\ncluster: hgx-h100\nbatch: 64\nsequence: 1024\nprecision: bf16\n"
                           "plan: {tensor: 1, pipeline: 1, recompute: none}\n")),
        page_((scratch_.path() / "page.html").string()) {}
  [[nodiscard]] Ran report(std::vector<std::string> more) const {
    std::vector<std::string> all = {"report", "--scaling", job_};
    all.insert(all.end(), more.begin(), more.end());
    if (std::find(all.begin(), all.end(), "-o") == all.end()) all.insert(all.end(), {"-o", page_, "--json"});
    return orrery(all);
  }
  Scratch scratch_;
  std::string job_, page_;
};

TEST_F(ReportScaling, TellsOfEachSizeWhatPlanTellsOfIt) {
  const Ran ran = report({"--gpus", "2,8"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  for (const nlohmann::json& point : ran.result().at("study").at("series").at(0).at("points")) {
    const std::string size = std::to_string(point.at("devices").get<int>());
    const nlohmann::json plan = orrery({"plan", job_, "--gpus", size, "--json"}).result().at("plans").at(0);
    for (const char* key : {"step_time_s", "memory_peak_bytes", "mfu", "tokens_per_s", "tokens_per_s_per_device",
                            "step_time_interval_s", "evidence", "cost_per_step_usd", "energy_per_step_j", "stack"})
      EXPECT_EQ(point.at(key), plan.at(key)) << key << " at " << size;
    for (const char* key : {"data", "tensor", "micro_batch", "zero_stage"})
      EXPECT_EQ(point.at("plan").at(key), plan.at(key)) << key << " at " << size;
  }
}

TEST_F(ReportScaling, SweepsModelsClustersSequencesAndBatches) {
  const Ran ran = report({"--gpus", "4,8", "--models", "gpt2-124m,gpt2-355m", "--clusters", "hgx-h100,dgx-a100",
                          "--sequence", "512,1024", "--batch", "32", "--both"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  const nlohmann::json series = ran.result().at("study").at("series");
  ASSERT_EQ(series.size(), 16U) << "two models x clusters x sequences, strong and weak";
  std::set<std::string> seen;
  for (const nlohmann::json& one : series) {
    EXPECT_EQ(one.at("batch"), 32);
    EXPECT_EQ(one.at("points").size(), 2U);
    EXPECT_EQ(one.at("points").at(1).at("batch"), one.at("scaling") == "weak" ? 64 : 32);
    seen.insert(one.at("model").get<std::string>() + one.at("cluster").get<std::string>() + one.at("sequence").dump() +
                one.at("scaling").get<std::string>());
  }
  EXPECT_EQ(seen.size(), 16U);
  EXPECT_THAT(text_of(page_), HasSubstr("2 models on 2 clusters"));
  EXPECT_THAT(text_of(page_), HasSubstr("MFU by model and cluster"));
}

TEST_F(ReportScaling, TakesSeveralJobsAndRunsBesideThem) {
  const std::string other =
      scratch_.file("other.yaml",
                    "model: gpt2-355m\ncluster: hgx-h100\nbatch: 64\nsequence: 1024\nprecision: bf16\n"
                    "plan: {tensor: 1, pipeline: 1}\n");
  const Ran ran = orrery({"report", "--scaling", job_, other, "--gpus", "8", "-o", page_, "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  EXPECT_EQ(ran.result().at("study").at("series").size(), 2U);
  const std::string folder = (scratch_.path() / "run").string();
  std::filesystem::create_directory(folder);
  EXPECT_EQ(orrery({"report", "--scaling", job_, folder, "--gpus", "8", "-o", page_}).exit_code, 3)
      << "an empty folder is a run that cannot be read, not a job";
}

TEST_F(ReportScaling, IsNamedAfterTheStudyAndShowsPlansAfterItInAnyOrder) {
  const std::string tiny = (scratch_.path() / "tiny.yaml").string();
  ASSERT_EQ(orrery({"plan", "examples/tiny-gpt-localhost-2.yaml", "-o", tiny}).exit_code, 0);
  std::string first;
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--scaling", job_, tiny}, {"--scaling", tiny, job_}}) {
    std::vector<std::string> all = {"report", "--gpus", "4,8", "--no-what-if", "-o", page_};
    all.insert(all.end(), words.begin(), words.end());
    const Ran ran = orrery(all);
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    const std::string html = text_of(page_);
    EXPECT_THAT(html, HasSubstr("<title>gpt2-124m on hgx-h100"));
    EXPECT_THAT(html, HasSubstr("Strong scaling, 4 to 8 devices"));
    const std::size_t study = html.find(">What growth gains</h2>"), plan = html.find("Beside the study: tiny-gpt on");
    ASSERT_NE(plan, std::string::npos);
    EXPECT_LT(study, plan);
    EXPECT_LT(plan, html.find("class=\"tiles\"")) << "whose step it is stands above its figures";
    EXPECT_TRUE(first.empty() || html == first) << "the order is of no account";
    first = html;
  }
  const Ran none = orrery({"report", "--scaling", tiny, "-o", page_});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("--scaling names no job"));
}

TEST_F(ReportScaling, CostsARunAndFindsTheWaysToADeadline) {
  const Ran ran = report({"--gpus", "1,8", "--tokens", "10B", "--deadline", "1", "--co2", "100"});
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  const nlohmann::json study = ran.result().at("study");
  EXPECT_EQ(study.at("tokens"), 1e10);
  for (const nlohmann::json& point : study.at("series").at(0).at("points")) {
    const nlohmann::json run = point.at("run");
    const double seconds = 1e10 / point.at("tokens_per_s").get<double>();
    EXPECT_NEAR(run.at("days").get<double>(), seconds / 86400, 1e-9 * seconds);
    const double kwh =
        point.at("energy_per_step_j").get<double>() / 3.6e6 * seconds / point.at("step_time_s").get<double>();
    EXPECT_NEAR(run.at("energy_kwh").get<double>(), kwh, 1e-9 * kwh);
    EXPECT_NEAR(run.at("co2_kg").get<double>(), kwh / 10, 1e-9 * kwh);
  }
  EXPECT_EQ(study.at("ways").at(0).at("fastest").at("devices"), 8);
  EXPECT_EQ(report({"--gpus", "1", "--tokens", "300e9"}).result().at("study").at("tokens"), 3e11);
}

TEST_F(ReportScaling, WritesMarkdownCsvAndJsonToFilesAndMarkdownAndCsvToStandardOutput) {
  const Ran csv = report({"--gpus", "4,8", "--format", "csv", "-o", "-"});
  ASSERT_EQ(csv.exit_code, 0) << csv.err;
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 3) << csv.out;
  EXPECT_EQ(csv.out.rfind("model,parameters,cluster,device,scaling,", 0), 0U);
  EXPECT_THAT(report({"--gpus", "4,8", "--format", "md", "-o", "-"}).out, HasSubstr("# gpt2-124m on hgx-h100"));
  for (const char* format : {"md", "csv", "json"}) {
    const std::string file = (scratch_.path() / "study").string() + "." + format;
    for (int twice = 0; twice < 2; ++twice)
      EXPECT_EQ(report({"--gpus", "8", "--format", format, "-o", file}).exit_code, 0)
          << "what Orrery wrote it may write again: " << format;
    EXPECT_FALSE(text_of(file).empty());
  }
  const std::string theirs = scratch_.file("theirs.csv", "a,b\n1,2\n");
  EXPECT_EQ(report({"--gpus", "8", "--format", "csv", "-o", theirs}).exit_code, 2);
  EXPECT_EQ(text_of(theirs), "a,b\n1,2\n");
}

TEST_F(ReportScaling, PutsRowsOfTheSameJobBesideItsPoints) {
  const std::string rows = scratch_.file(
      "rows.yaml",
      "results:\n"
      "- {id: mine, source: our cluster, kind: training, verified: true, family: gpt, layers: 12, hidden: 768, heads: "
      "12,\n"
      "   vocab: 50257, seq_len: 1024, gpu_type: H100-SXM5-80GB, gpus_per_node: 8, gpus: 8, tp: 2, pp: 1, dp: 4,\n"
      "   zero_stage: 0, micro_batch: 4, global_batch: 64, recompute_kind: none, precision_kind: bf16,\n"
      "   stack: megatron-core, derived_iter_time_s: 0.1}\n"
      "- {id: not-mine, source: our cluster, kind: training, verified: true, family: gpt, layers: 12, hidden: 768,\n"
      "   heads: 12, vocab: 50257, seq_len: 1024, gpu_type: H100-SXM5-80GB, gpus_per_node: 8, gpus: 8, tp: 2, pp: 1,\n"
      "   dp: 4, zero_stage: 0, micro_batch: 4, global_batch: 128, recompute_kind: none, precision_kind: bf16,\n"
      "   stack: megatron-core, derived_iter_time_s: 0.2}\n");
  const Ran ran = report({"--gpus", "4,8", "--measured", rows});
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  const nlohmann::json measured = ran.result().at("study").at("series").at(0).at("measured");
  ASSERT_EQ(measured.size(), 1U) << measured.dump();
  EXPECT_EQ(measured[0].at("source"), "our cluster (mine)");
  EXPECT_EQ(measured[0].at("devices"), 8);
  EXPECT_EQ(measured[0].at("measured_s"), 0.1);
  EXPECT_GT(measured[0].at("predicted_s"), 0);
  EXPECT_THAT(measured[0].at("plan_text").get<std::string>(), HasSubstr("tensor 2")) << "another plan than the best";
  EXPECT_THAT(text_of(page_), HasSubstr("our cluster (mine)"));
}

TEST_F(ReportScaling, RefusesWhatCannotBeMeant) {
  const auto refused = [&](std::vector<std::string> more, const char* why) {
    more.insert(more.end(), {"-o", page_});
    const Ran ran = report(std::move(more));
    EXPECT_EQ(ran.exit_code, 2) << why;
    EXPECT_THAT(ran.err, HasSubstr(why));
  };
  refused({"--weak", "--batch", "32,64"}, "weak scaling itself grows the batch");
  refused({"--models", ""}, "--models has an empty name");
  refused({"--models", "gpt2-142m"}, "did you mean `gpt2-124m`");
  refused({"--clusters", "hgx-h101"}, "--clusters");
  refused({"--tokens", "many"}, "`many` is not a count");
  refused({"--deadline", "30"}, "--tokens");
  refused({"--gpus", ""}, "--gpus");
  EXPECT_EQ(orrery({"report", "--scaling", "-", "-", "-o", page_}).exit_code, 2) << "is one file";
  EXPECT_EQ(report({"-o", "-"}).exit_code, 2) << "no page on standard output";
  EXPECT_EQ(orrery({"report", "--weak", "-o", page_}).exit_code, 2) << "needs --scaling";
  for (const std::vector<std::string>& of_a_study : {std::vector<std::string>{"--deadline", "30"}, {"--co2", "100"}}) {
    std::vector<std::string> line = {"report", "examples/tiny-gpt-localhost-2.yaml", "--tokens", "1B", "-o", page_};
    line.insert(line.end(), of_a_study.begin(), of_a_study.end());
    EXPECT_THAT(orrery(line).err, HasSubstr(of_a_study.front() + " requires --scaling"));
  }
  EXPECT_FALSE(std::filesystem::exists(page_));
}

TEST_F(Report, IsWrittenInTheFormatThatItsEndingSays) {
  const std::string plan = planned("plan");
  const auto in = [&](const std::string& name) { return (scratch_.path() / name).string(); };
  const Ran text = orrery({"report", plan, "--no-what-if", "--format", "markdown", "-o", "-"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("\n| "));
  EXPECT_EQ(orrery({"report", plan, "--no-what-if", "-o", in("a.markdown")}).exit_code, 0);
  EXPECT_EQ(text_of(in("a.markdown")), text.out);

  const Ran other = orrery({"report", plan, "--format", "csv", "-o", page_});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("csv is asked for, but"));
  EXPECT_FALSE(std::filesystem::exists(page_));
  const Ran none = orrery({"report", plan, "-o", in("page.pdf")});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("no format of a report has the ending `.pdf`"));
  EXPECT_EQ(orrery({"report", plan, "--no-what-if", "--format", "csv", "-o", in("table.txt")}).exit_code, 0);
}

TEST_F(Report, OfDifferentModelsIsTitledAfterAll) {
  const std::string one = planned("one"), two = planned("two", "model=gpt2-355m");
  ASSERT_EQ(orrery({"report", one, two, "--no-what-if", "-o", page_}).exit_code, 0);
  EXPECT_THAT(text_of(page_), HasSubstr("gpt2-124m on hgx-h100 and gpt2-355m on hgx-h100"));
  EXPECT_THAT(orrery({"report", one, two, "--no-what-if", "--format", "md", "-o", "-"}).out,
              HasSubstr("in full: " + one));
}

}  // namespace report_test
}  // namespace orrery::tests

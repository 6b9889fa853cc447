// The loop through the binaries: plan, train, calibrate, simulate again, report. Two ranks of this machine; the times
// are not judged here, for a test's machine may be busy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace loop_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kJob =
    "model: tiny-gpt\ncluster: localhost-2\nbatch: 4\nsequence: 32\nprecision: fp32\n"
    "training: {steps: 4, data: text.txt, optimizer: {name: adamw, learning_rate: 1e-3}, clip_norm: 1.0, seed: 7}\n";

class Loop : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(fs::path(ORRERY_BINARY).parent_path() / "orrery-worker")) GTEST_SKIP() << "the worker is not built";
    std::string text;
    for (int i = 0; i < 400; ++i) text += "The quick brown fox jumps over the lazy dog. ";
    scratch_.file("text.txt", text);
  }

  std::string plan(const std::string& name, const std::string& bounds, const std::string& ranks) {
    std::string text = kJob + ("plan: " + bounds + "\n");
    const std::string usual = "localhost-2";
    if (ranks == "4") text.replace(text.find(usual), usual.size(), "localhost-4");
    const std::string job = scratch_.file(name + "-job.yaml", text);
    const std::string out = (scratch_.path() / (name + ".yaml")).string();
    const Ran ran = orrery({"plan", job, "--gpus", ranks, "-o", out});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return out;
  }
  std::string path(const std::string& name) const { return (scratch_.path() / name).string(); }

  Scratch scratch_;
};

TEST_F(Loop, VerifiesASplitRunAgainstTheSerialOne) {
  const std::string file = plan("split", "{data: 2, micro_batch: 1, zero_stage: 2}", "2");
  const Ran ran = orrery({"train", file, "--run", path("run"), "--steps", "3", "--verify-serial", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json serial = ran.result().at("serial");
  expect_keys(serial, {"run", "steps", "loss", "gradient_first", "gradient_last", "bound", "gradient_bound", "equal"});
  EXPECT_EQ(serial.at("equal"), true);
  EXPECT_EQ(serial.at("steps"), 3);
  for (const char* key : {"loss", "gradient_first", "gradient_last"})
    EXPECT_LE(serial.at(key).get<double>(), 1e-5) << key;
  EXPECT_GT(serial.at("gradient_last").get<double>(), 0) << "sums of different order agree to the last bit";
  const Ran again = orrery({"train", file, "--run", path("run2"), "--verify-serial", "--resume"});
  EXPECT_EQ(again.exit_code, 2) << "there is nothing to resume";
}

// A mixture's bad input: a rate at which scores are no numbers any more, and a checkpoint with other experts.
TEST_F(Loop, AMixtureStopsAtScoresThatAreNoNumbersAndAtOtherExperts) {
  const auto planned = [&](const std::string& name, const std::string& model, const std::string& rate) {
    const std::string job = scratch_.file(
        name + "-job.yaml", "model: " + model + "\ncluster: localhost-2\nbatch: 4\nsequence: 32\n" +
                                "precision: fp32\nplan: {data: 2, expert: 2, micro_batch: 2, schedule: gpipe}\n" +
                                "training: {steps: 4, data: text.txt, optimizer: {name: adamw, learning_rate: " + rate +
                                "}, seed: 7}\n");
    const Ran ran = orrery({"plan", job, "-o", path(name + ".yaml")});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return path(name + ".yaml");
  };
  const auto model = [&](const std::string& name, int experts) {
    scratch_.file(name,
                  "name: small\nfamily: gpt\nlayers: 2\nhidden: 32\nheads: 2\nffn_hidden: 64\nvocab: 256\n"
                  "max_sequence: 32\nexperts: {count: " +
                      std::to_string(experts) + ", chosen: 2, hidden: 32}\n");
    return name;
  };
  const Ran wild = orrery({"train", planned("wild", "tiny-moe", "1000"), "--run", path("wild-run")});
  EXPECT_EQ(wild.exit_code, 1) << wild.err;
  EXPECT_THAT(wild.err, ::testing::ContainsRegex("rank [01]: step 2, layer 0: the router's scores of token"));

  const std::string few = planned("few", model("few-model.yaml", 4), "1e-3");
  ASSERT_EQ(orrery({"train", few, "--run", path("few-run"), "--steps", "2"}).exit_code, 0);
  const std::string more = planned("more", model("more-model.yaml", 8), "1e-3");
  const Ran other = orrery({"train", more, "--run", path("few-run"), "--resume"});
  EXPECT_EQ(other.exit_code, 3) << other.err;
  EXPECT_THAT(other.err, HasSubstr("experts.count 4, not 8"));
}

TEST_F(Loop, ReportsRestartsOfARunBesideThePrediction) {
  const std::string file = plan("plain", "{data: 2, micro_batch: 1}", "2");
  ASSERT_EQ(orrery({"train", file, "--run", path("run"), "--steps", "4"}).exit_code, 0);
  const std::vector<std::string> asked = {"report", path("run"), "--tokens", "1e6", "-o", path("page.html"), "--json"};
  const nlohmann::json calm = orrery(asked).result().at("whole_run").at("measured");
  EXPECT_EQ(calm.at("restarts"), 0);
  EXPECT_GT(calm.at("goodput").get<double>(), 0);
  EXPECT_GT(calm.at("checkpoints").get<int>(), 0);
  scratch_.file("run/restarts.jsonl",
                "{\"reason\":\"rank 1 was killed by signal 9\",\"from_step\":0,\"checkpoint_step\":2,\"ran_s\":3.5,"
                "\"pause_s\":1}\nnot a line\n");
  const nlohmann::json failed = orrery(asked).result().at("whole_run").at("measured");
  EXPECT_EQ(failed.at("restarts"), 1) << "a line cut short counts nothing";
  EXPECT_NEAR(failed.at("lost_s").get<double>(), 4.5 - 2 * failed.at("step_time_s").get<double>(), 1e-9);
  EXPECT_LT(failed.at("goodput").get<double>(), calm.at("goodput").get<double>());
  EXPECT_THAT(text_of(path("page.html")), HasSubstr("rank 1 was killed by signal 9"));
}

TEST_F(Loop, VerifiesPlansThatChangeTheMathematicsByTheirSerialPrograms) {
  for (const auto& [name, bounds] : std::vector<std::pair<std::string, std::string>>{
           {"pipedream", "{pipeline: 2, schedule: pipedream, micro_batch: 4}"},
           {"server", "{data: 2, staleness: 1, micro_batch: 1}"},
           {"bf16", "{data: 2, micro_batch: 2, compression: {gradients: bf16}}"},
           {"powersgd", "{data: 2, micro_batch: 2, compression: {gradients: powersgd}}"},
           {"late", "{data: 2, micro_batch: 2, compression: {gradients: powersgd, start: 2}}"}}) {
    const Ran ran = orrery({"train", plan(name, bounds, "2"), "--run", path(name), "--verify-serial", "--json"});
    ASSERT_EQ(ran.exit_code, 0) << name << ran.err;
    const nlohmann::json serial = ran.result().at("serial");
    EXPECT_EQ(serial.at("equal"), true) << name;
    EXPECT_LE(serial.at("loss").get<double>(), 1e-5) << name;
    EXPECT_FALSE(fs::exists(fs::path(path(name)) / "serial" / "timeline.json")) << name;
  }
  // Of its four steps two are of either kind.
  const nlohmann::json late = orrery({"simulate", path("late.yaml"), "--json"}).result();
  const nlohmann::json& start = late.at("start");
  EXPECT_EQ(start.at("steps"), 2);
  EXPECT_NE(start.at("step_time_s"), late.at("step_time_s"));
  EXPECT_DOUBLE_EQ(start.at("run_time_s").get<double>(),
                   2 * start.at("step_time_s").get<double>() + 2 * late.at("step_time_s").get<double>());
  EXPECT_FALSE(orrery({"simulate", path("powersgd.yaml"), "--json"}).result().contains("start"));
  const std::string parts =
      plan("parts", "{data: 2, tensor: 2, micro_batch: 2, compression: {gradients: powersgd}}", "4");
  const Ran none = orrery({"train", parts, "--run", path("parts"), "--verify-serial"});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.err, HasSubstr("P94"));
}

// At a rate at which the loss jumps, two orders of the same sums part by more than the bounds, and the second serial
// run says so.
TEST_F(Loop, TellsWhatRoundingAloneDoesWhereRunsAreNotEqual) {
  const std::string job =
      scratch_.file("jumps-job.yaml",
                    "model: tiny-gpt\ncluster: localhost-2\nbatch: 4\nsequence: 64\nprecision: fp32\n"
                    "plan: {tensor: 2, micro_batch: 2}\n"
                    "training: {steps: 12, data: text.txt, optimizer: {name: adamw, learning_rate: 0.3}}\n");
  ASSERT_EQ(orrery({"plan", job, "-o", path("jumps.yaml")}).exit_code, 0);
  const Ran ran = orrery({"train", path("jumps.yaml"), "--run", path("run"), "--verify-serial", "--json"});
  ASSERT_EQ(ran.exit_code, 5) << ran.err;
  const nlohmann::json serial = ran.result().at("serial");
  EXPECT_EQ(serial.at("equal"), false);
  EXPECT_LE(serial.at("gradient_first").get<double>(), 1e-5);
  const nlohmann::json& alone = serial.at("rounding_alone");
  EXPECT_EQ(alone.at("micro_batch"), 1);
  EXPECT_LE(alone.at("gradient_first").get<double>(), 1e-5);
  EXPECT_GT(alone.at("gradient_last").get<double>(), 1e-5) << "as of the split run";
  EXPECT_GT(alone.at("gradient_last").get<double>(), 0.01 * serial.at("gradient_last").get<double>());
}

// What a run has measured of its experts, a prediction takes; and rows of tokens in 8 bits are of the mathematics.
TEST_F(Loop, MeasuredLoadsOfExpertsMakeAPredictedStepLonger) {
  const auto job = [&](const std::string& name, const std::string& more) {
    return scratch_.file(name + "-job.yaml",
                         "model: tiny-moe\ncluster: localhost-2\nbatch: 4\nsequence: 64\nprecision: fp32\n"
                         "plan: {data: 2, expert: 2, micro_batch: 2, schedule: gpipe, tokens: {dispatch: fp8, combine: "
                         "bf16}}\n" +
                             more +
                             "training: {steps: 6, data: text.txt, optimizer: {name: adamw, learning_rate: 1e-2}}\n");
  };
  const auto planned = [&](const std::string& name, const std::string& more) {
    const Ran ran = orrery({"plan", job(name, more), "-o", path(name + ".yaml"), "--json"});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return ran.result().at("plans").at(0);
  };
  const nlohmann::json balanced = planned("balanced", "");
  const Ran ran = orrery({"train", path("balanced.yaml"), "--run", path("run"), "--verify-serial", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.result().at("serial").at("equal"), true);

  const nlohmann::json measured = planned("measured", "expert_loads: {from: run}\n");
  EXPECT_GT(measured.at("plan").at("plan").at("expert_imbalance").get<double>(), 1);
  EXPECT_GT(measured.at("step_time_s").get<double>(), balanced.at("step_time_s").get<double>());
  EXPECT_FALSE(balanced.at("plan").at("plan").contains("expert_imbalance")) << "it is 1";
  // As a law says it.
  const nlohmann::json skewed = planned("skewed", "expert_loads: {zipf: 4}\n");
  EXPECT_GT(skewed.at("step_time_s").get<double>(), balanced.at("step_time_s").get<double>());
  // A plan file says by itself what was taken.
  const nlohmann::json simulated = orrery({"simulate", path("measured.yaml"), "--json"}).result();
  EXPECT_GT(simulated.at("step_time_s").get<double>(),
            orrery({"simulate", path("balanced.yaml"), "--json"}).result().at("step_time_s").get<double>());

  const Ran nowhere = orrery({"plan", job("nowhere", "expert_loads: {from: no-run}\n")});
  EXPECT_EQ(nowhere.exit_code, 3) << nowhere.err;
  scratch_.file("dense/metrics.jsonl", "{\"step\":1,\"loss\":3}\n");
  const Ran dense = orrery({"plan", job("dense", "expert_loads: {from: dense}\n")});
  EXPECT_EQ(dense.exit_code, 3);
  EXPECT_THAT(dense.err, HasSubstr("E0128"));
}

TEST_F(Loop, ABertTrainsAsItsSerialRunDoesIsExportedAndDoesNotGoOnFromAText) {
  const std::string job = scratch_.file(
      "bert-job.yaml",
      "model: tiny-bert\ncluster: localhost-2\nbatch: 4\nsequence: 32\n"
      "training: {steps: 3, data: text.txt, order: shuffled, optimizer: {name: lamb, learning_rate: 1e-2},\n"
      "  evaluation: {data: text.txt, every: 2, batches: 1}}\n"
      "plan: {tensor: 2, micro_batch: 2, sequence_parallel: true}\n");
  const std::string file = path("bert.yaml");
  const Ran planned = orrery({"plan", job, "--gpus", "2", "-o", file});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Ran ran = orrery({"train", file, "--run", path("bert"), "--verify-serial", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.result().at("serial").at("equal"), true) << ran.out;
  const Ran trained = orrery({"train", file, "--run", path("trained"), "--no-repeat"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NE(trained.err.find("--no-repeat changes nothing"), std::string::npos) << trained.err;
  const Ran exported = orrery({"export", path("trained"), "-o", path("out")});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  const Ran sampled = orrery({"train", "--run", path("trained"), "--sample"});
  EXPECT_NE(sampled.exit_code, 0);
  EXPECT_THAT(sampled.err, HasSubstr("E0624"));
  EXPECT_THAT(sampled.err, HasSubstr("cannot continue a text"));
}

TEST_F(Loop, TrainsFromAnotherFolderAndKeepsItsPromises) {
  const std::string file = plan("data2", "{data: 2, micro_batch: 2}", "2");
  fs::create_directory(scratch_.path() / "elsewhere");
  const Ran ran = orrery({"train", "../data2.yaml", "--run", "run", "--steps", "3", "--json"},
                         {scratch_.path() / "elsewhere", {}, {}});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const nlohmann::json result = ran.result();
  expect_keys(result, {"steps", "first_loss", "final_loss", "step_time_s", "tokens_per_s", "memory_peak_bytes",
                       "completed", "backend"});
  EXPECT_EQ(result.at("steps"), 3);
  EXPECT_EQ(result.at("completed"), true);
  EXPECT_EQ(result.at("backend"), "cpu");
  EXPECT_NEAR(result.at("first_loss").get<double>(), 5.55, 0.1);  // ln 256 at first
  EXPECT_LT(result.at("final_loss").get<double>(), result.at("first_loss").get<double>());

  const fs::path run = scratch_.path() / "elsewhere" / "run";
  for (const char* name : {"plan.yaml", "metrics.jsonl", "timeline.json", "checkpoints"})
    EXPECT_TRUE(fs::exists(run / name)) << name;
  std::istringstream lines(text_of(run / "metrics.jsonl"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    expect_keys(nlohmann::json::parse(line), {"step", "loss", "step_time_s", "tokens_per_s", "memory_peak_bytes"});
  EXPECT_EQ(count, 3);
}

TEST_F(Loop, TrainsThePlanThatStandardInputHolds) {
  const std::string file = plan("given", "{data: 2, micro_batch: 2}", "2");
  const Ran ran = orrery({"train", "-", "--run", path("run"), "--steps", "2", "--json"}, {.input = file});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.result().at("completed"), true);
  EXPECT_EQ(text_of(scratch_.path() / "run" / "plan.yaml"), text_of(file));
  for (const auto& left : fs::directory_iterator(path("run")))
    EXPECT_NE(left.path().filename().string().rfind("plan-given", 0), 0U) << "what the ranks read goes with the run";
  const Ran further =
      orrery({"train", "-", "--run", path("run"), "--steps", "4", "--resume", "--json"}, {.input = file});
  ASSERT_EQ(further.exit_code, 0) << further.err;
  EXPECT_EQ(further.result().at("steps"), 4);

  EXPECT_EQ(orrery({"train", "-", "--run", path("dry"), "--dry-run"}, {.input = file}).exit_code, 0);
  const Ran refused = orrery({"train", "-", "--run", path("none")}, {.input = path("text.txt")});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("-:1:"));
  for (const char* name : {"dry", "none"}) EXPECT_FALSE(fs::exists(path(name))) << name;
}

TEST_F(Loop, TheWorkersMemoryIsTheSimulatorsOnEveryKindOfPlan) {
  for (const auto& [name, bounds] : std::vector<std::pair<std::string, std::string>>{
           {"zero3", "{data: 2, zero_stage: 3, micro_batch: 1}"},
           {"tensor", "{tensor: 2, micro_batch: 2}"},
           {"pipeline", "{pipeline: 2, schedule: gpipe, micro_batch: 1}"},
           {"recompute", "{data: 2, zero_stage: 1, micro_batch: 2, recompute: full}"}}) {
    const std::string file = plan(name, bounds, "2");
    const Ran ran = orrery({"train", file, "--run", path(name), "--steps", "2", "--json"});
    ASSERT_EQ(ran.exit_code, 0) << name << ran.err;
    const nlohmann::json predicted = orrery({"simulate", file, "--json"}).result();
    double peak = 0;
    const nlohmann::json &totals = predicted.at("memory_by_stage_bytes"),
                         &purposes = predicted.at("memory_by_purpose_bytes");
    for (std::size_t stage = 0; stage < totals.size(); ++stage)
      peak = std::max(peak, totals[stage].get<double>() - purposes[stage].value("software", 0.0));
    EXPECT_NEAR(ran.result().at("memory_peak_bytes").get<double>(), peak, 0.02 * peak) << name;
  }
}

TEST_F(Loop, ResumesWhereItStopped) {
  const std::string file = plan("serial", "{micro_batch: 4}", "1");
  ASSERT_EQ(orrery({"train", file, "--run", path("whole"), "--steps", "4"}).exit_code, 0);
  ASSERT_EQ(orrery({"train", file, "--run", path("parts"), "--steps", "2"}).exit_code, 0);
  const Ran refused = orrery({"train", file, "--run", path("parts"), "--steps", "4", "--json"});
  EXPECT_EQ(refused.exit_code, 3) << "a used directory";
  EXPECT_NE(refused.out.find("E0640"), std::string::npos) << refused.out;
  EXPECT_EQ(orrery({"train", file, "--run", path("parts"), "--resume", "--overwrite"}).exit_code, 2);
  const Ran rest = orrery({"train", file, "--run", path("parts"), "--steps", "4", "--resume", "--json"});
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(rest.result().at("steps"), 4);
  const auto losses = [&](const std::string& run) {
    std::vector<double> out;
    std::istringstream lines(text_of(fs::path(path(run)) / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      out.push_back(nlohmann::json::parse(line).at("loss").get<double>());
    return out;
  };
  EXPECT_EQ(losses("parts"), losses("whole"));
}

TEST_F(Loop, AnInterruptEndsTheStepSavesAndExitsWith130) {
  const std::string file = plan("serial", "{micro_batch: 4}", "1");
  const fs::path run = path("stopped");
  const Ran stopped = orrery({"train", file, "--run", run.string(), "--steps", "1000000", "--json"},
                             {{}, {}, {}, run / "metrics.jsonl"});
  ASSERT_EQ(stopped.exit_code, 130) << stopped.err;
  EXPECT_EQ(stopped.result().at("completed"), false);
  const std::int64_t done = stopped.result().at("steps");
  ASSERT_GE(done, 1);
  const Ran rest =
      orrery({"train", file, "--run", run.string(), "--steps", std::to_string(done + 2), "--resume", "--json"});
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(rest.result().at("completed"), true);
  EXPECT_EQ(rest.result().at("steps"), done + 2);
}

TEST_F(Loop, SavesAsOftenAsAsked) {
  const std::string file = plan("serial", "{micro_batch: 4}", "1");
  const Ran ran = orrery({"train", file, "--run", path("run"), "--steps", "5", "--checkpoint-every", "2"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(fs::exists(fs::path(path("run")) / "checkpoints" / "step-000004"));
  EXPECT_TRUE(fs::exists(fs::path(path("run")) / "checkpoints" / "step-000005")) << "the end is always saved";
  EXPECT_FALSE(fs::exists(fs::path(path("run")) / "checkpoints" / "step-000002")) << "only the newest two are kept";
}

TEST_F(Loop, CalibratesOnSomeRunsJudgesByOthersAndReports) {
  if (::sysconf(_SC_NPROCESSORS_ONLN) < 2) GTEST_SKIP() << "two ranks would share a core";
  for (const auto& [name, bounds, ranks] :
       std::vector<std::array<std::string, 3>>{{"serial", "{micro_batch: 2}", "1"},
                                               {"data2", "{data: 2, micro_batch: 2}", "2"},
                                               {"held", "{tensor: 2, micro_batch: 2}", "2"},
                                               {"held-too", "{data: 2, micro_batch: 1}", "2"}}) {
    const Ran ran = orrery({"train", plan(name, bounds, ranks), "--run", path(name + "-run"), "--steps", "4"});
    ASSERT_EQ(ran.exit_code, 0) << name << ran.err;
  }
  const std::string calibration = path("calibration.yaml");
  const Ran fit = orrery({"calibrate", path("serial-run"), path("data2-run"), "--hold-out", path("held-run"),
                          "--hold-out=" + path("held-too-run"), "-o", calibration, "--json"});
  ASSERT_EQ(fit.exit_code, 0) << fit.err;
  const nlohmann::json result = fit.result();
  expect_keys(result, {"parameters", "error_before", "error_after", "held_out_error_after"});
  ASSERT_FALSE(result.at("parameters").empty());
  for (const nlohmann::json& one : result.at("parameters"))
    expect_keys(one, {"name", "before", "after", "unit", "source"});
  // That a fit lowers the error is shown on timelines made from known coefficients (tests/sim/validate/fit_test.cpp):
  // four steps on a busy machine prove nothing of the kind.
  EXPECT_GT(result.at("error_before").get<double>(), 0);
  EXPECT_GT(result.at("error_after").get<double>(), 0);
  EXPECT_TRUE(result.at("held_out_error_after").is_number());
  EXPECT_THAT(text_of(calibration), HasSubstr("data2-run"));
  EXPECT_THAT(text_of(calibration), Not(HasSubstr("held"))) << "a run held out is no source of a fitted number";

  EXPECT_EQ(orrery({"simulate", path("held.yaml"), "--calibration", calibration}).exit_code, 0);

  const std::string html = path("report.html");
  const std::string job = scratch_.file("job.yaml", kJob);
  const Ran report =
      orrery({"report", path("serial-run"), path("data2-run"), "--hold-out", path("held-run"), "--hold-out",
              path("held-too-run"), "--job", job, "--calibration", calibration, "-o", html, "--json"});
  ASSERT_EQ(report.exit_code, 0) << report.err;
  EXPECT_EQ(report.result().at("runs").size(), 4U);

  // The file knows what it was fitted to, whatever the flags say and from wherever the run is named.
  const Ran lie =
      orrery({"report", "held-too-run", "--hold-out", "data2-run", "--calibration", calibration, "-o", html, "--json"},
             {scratch_.path(), {}, {}});
  ASSERT_EQ(lie.exit_code, 0) << lie.err;
  ASSERT_EQ(lie.result().at("runs").size(), 2U);
  EXPECT_EQ(lie.result().at("runs")[0].at("used_in_fit"), false);
  EXPECT_EQ(lie.result().at("runs")[1].at("used_in_fit"), true);
  const nlohmann::json said = lie.envelope().at("diagnostics");
  EXPECT_TRUE(std::any_of(said.begin(), said.end(), [](const auto& one) { return one.at("code") == "F02"; }));
  // Three steps after the first are few, and a warning comes exactly when the fit is no better.
  EXPECT_THAT(result.at("notes").dump(), HasSubstr("steadier"));
  const nlohmann::json warned = fit.envelope().at("diagnostics");
  EXPECT_EQ(std::any_of(warned.begin(), warned.end(), [](const auto& one) { return one.at("code") == "F03"; }),
            result.at("error_after").get<double>() >= result.at("error_before").get<double>());
  EXPECT_THAT(text_of(html), HasSubstr("<html"));
}

TEST_F(Loop, ARunThatDidNotFinishIsLeftOut) {
  const std::string file = plan("serial", "{micro_batch: 4}", "1");
  for (const char* run : {"whole", "cut"})
    ASSERT_EQ(orrery({"train", file, "--run", path(run), "--steps", "3"}).exit_code, 0);
  fs::remove(path("cut") + "/completed.json");
  const Ran fit = orrery({"calibrate", path("whole"), path("cut"), "-o", path("c.yaml"), "--json"});
  ASSERT_EQ(fit.exit_code, 0) << fit.err;
  EXPECT_THAT(fit.result().at("notes").dump(), HasSubstr("cut is left out"));
  const Ran report = orrery({"report", path("whole"), path("cut"), "-o", path("r.html"), "--json"});
  ASSERT_EQ(report.exit_code, 0) << report.err;
  EXPECT_THAT(report.envelope().at("diagnostics").dump(), HasSubstr("cut is left out"));
  const Ran none = orrery({"calibrate", path("cut"), "-o", path("c.yaml")});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.err, HasSubstr("E0207"));
}

TEST_F(Loop, ARunDirectoryThatIsNoneIsBadInput) {
  const Ran ran = orrery({"calibrate", scratch_.path(), "-o", path("c.yaml")});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("plan.yaml"));
}

TEST_F(Loop, MissingTrainingDataIsNamed) {
  const std::string file = plan("serial", "{micro_batch: 4}", "1");
  fs::remove(scratch_.path() / "text.txt");
  const Ran ran = orrery({"train", file, "--run", path("run")});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("E0611"));
  EXPECT_THAT(ran.err, HasSubstr("text.txt"));
  EXPECT_THAT(ran.err, Not(HasSubstr("R0005")));
}

TEST_F(Loop, WithoutMpiexecTheEnvironmentIsToBlame) {
  const std::string file = plan("serial", "{micro_batch: 4}", "1");
  EXPECT_EQ(orrery({"train", file, "--run", path("run")}, {{}, {"PATH=/nonexistent"}, {}}).exit_code, 6);
}

}  // namespace loop_test
}  // namespace orrery::tests

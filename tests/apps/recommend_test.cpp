// A recommendation model through the binaries: planned, simulated, trained on two ranks, and held to the serial run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/apps/command.h"

namespace orrery::tests {
namespace recommend_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kModel =
    "family: dlrm\ndense_features: 2\nembedding_dim: 8\ntables: [{rows: 40}, {rows: 9, pooling: mean, multi_hot: 2}]\n"
    "bottom_mlp: [8, 8]\ntop_mlp: [8, 1]\n";
constexpr const char* kJob =
    "model: model.yaml\ncluster: localhost-2\nbatch: 16\n"
    "plan: {embedding: {sharding: row, forward: fp32}}\n"
    "training: {steps: 6, data: clicks.tsv, optimizer: {name: rowwise_adagrad, learning_rate: 2e-2},\n"
    "  evaluation: {data: clicks.tsv, every: 3, batches: 2}}\n";

class LoopOfClicks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(fs::path(ORRERY_BINARY).parent_path() / "orrery-worker")) GTEST_SKIP() << "the worker is not built";
    scratch_.file("model.yaml", kModel);
    scratch_.file("clicks.tsv", clicks());
    job_ = scratch_.file("job.yaml", kJob);
  }
  static std::string clicks() {
    std::string text;
    for (int i = 0; i < 64; ++i) {
      const auto field = [&](int times) { return "\t" + std::to_string(i * times % 10); };
      text += std::to_string(i % 3 == 0 ? 1 : 0) + field(7) + field(3) + field(11) + field(13) + field(17) + "\n";
    }
    return text;
  }
  std::string path(const std::string& name) const { return (scratch_.path() / name).string(); }
  Scratch scratch_;
  std::string job_;
};

TEST_F(LoopOfClicks, IsPlannedSimulatedTrainedAndEqualToItsSerialRun) {
  const Ran model = orrery({"model", path("model.yaml"), "--json"});
  ASSERT_EQ(model.exit_code, 0) << model.err;
  EXPECT_EQ(model.result().at("family"), "dlrm");
  EXPECT_EQ(model.result().at("parameters"), 24 + 72 + (8 + 3) * 8 + 8 + 9 + 49 * 8);
  const Ran planned = orrery({"plan", job_, "--json", "-o", path("plan.yaml")});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const nlohmann::json best = planned.result().at("plans").at(0);
  ASSERT_EQ(best.at("tables").size(), 2U);
  expect_keys(best.at("tables").at(0), {"table", "rows", "sharding", "place", "compute_s", "communication_s", "bytes"});
  EXPECT_EQ(best.at("tables").at(0).at("place"), "row 0-1");
  EXPECT_THAT(orrery({"plan", job_}).out, HasSubstr("emb_l.1.weight"));
  const Ran simulated = orrery({"simulate", path("plan.yaml"), "--json"});
  ASSERT_EQ(simulated.exit_code, 0) << simulated.err;
  EXPECT_GT(simulated.result().at("step_time_s").get<double>(), 0);
  const Ran trained = orrery({"train", path("plan.yaml"), "--run", path("run"), "--verify-serial", "--json"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(trained.result().at("completed"), true);
  EXPECT_EQ(trained.result().at("serial").at("equal"), true);
  const std::string metrics = text_of(fs::path(path("run")) / "metrics.jsonl");
  EXPECT_THAT(metrics, HasSubstr("\"held_out_auc\":"));
  const Ran saved = orrery({"train", path("plan.yaml"), "--run", path("saved"), "--json"});
  ASSERT_EQ(saved.exit_code, 0) << saved.err;
  const Ran more = orrery({"train", path("plan.yaml"), "--run", path("saved"), "--resume", "--steps", "8", "--json"});
  EXPECT_EQ(more.exit_code, 0) << more.err;
}

TEST_F(LoopOfClicks, AParameterServerTrainsAndIsResumedWhereNoStepInFlightHasReadOlderRows) {
  for (const bool stale : {false, true}) {
    const std::string staleness = stale ? "1" : "0", name = "stale-" + staleness;
    std::string job = kJob;
    job.replace(job.find("plan: {"), 7, "plan: {staleness: " + staleness + ", ");
    const std::string plan = path(name + ".plan.yaml"), run = path(name);
    const Ran planned = orrery({"plan", scratch_.file(name + ".yaml", job), "-o", plan});
    ASSERT_EQ(planned.exit_code, 0) << planned.err;
    EXPECT_THAT(planned.err, HasSubstr("P36"));
    EXPECT_THAT(text_of(plan), HasSubstr("staleness: " + staleness));
    EXPECT_EQ(orrery({"simulate", plan}).exit_code, 0);
    const Ran trained = orrery({"train", plan, "--run", run, "--json"});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    EXPECT_THAT(text_of(fs::path(run) / "metrics.jsonl"), HasSubstr("\"held_out_auc\":"));
    const Ran more = orrery({"train", plan, "--run", run, "--resume", "--steps", "8"});
    EXPECT_EQ(more.exit_code, stale ? 3 : 0) << more.err;
    EXPECT_EQ(more.err.find("E0670") != std::string::npos, stale) << more.err;
    EXPECT_THAT(orrery({"train", plan, "--run", path(name + "-serial"), "--verify-serial"}).err, HasSubstr("P94"));
  }
}

TEST_F(LoopOfClicks, ABadLineIsRefusedBeforeAStepByFileLineAndColumn) {
  ASSERT_EQ(orrery({"plan", job_, "-o", path("plan.yaml")}).exit_code, 0);
  scratch_.file("clicks.tsv", clicks() + "1\t2\t3\t4\n");
  const Ran cut = orrery({"train", path("plan.yaml"), "--run", path("cut")});
  EXPECT_EQ(cut.exit_code, 3);
  EXPECT_THAT(cut.err, HasSubstr("E0660"));
  EXPECT_THAT(cut.err, HasSubstr("clicks.tsv:65:"));
  scratch_.file("clicks.tsv", "0\tnan\t3\t4\t5\t6\n" + clicks());
  const Ran nan = orrery({"train", path("plan.yaml"), "--run", path("nan")});
  EXPECT_EQ(nan.exit_code, 3);
  EXPECT_THAT(nan.err, HasSubstr("clicks.tsv:1:3"));
  EXPECT_FALSE(fs::exists(fs::path(path("nan")) / "metrics.jsonl"));
}

/// What each step of a run lost, as printed.
std::vector<std::string> losses_of(const std::string& run) {
  std::vector<std::string> out;
  std::istringstream lines(text_of(fs::path(run) / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) out.push_back(nlohmann::json::parse(line).at("loss").dump());
  return out;
}

TEST_F(LoopOfClicks, BadLinesAreCountedWhereTheJobSkipsThem) {
  const std::string job = scratch_.file(
      "skips.yaml", std::string(kJob).replace(std::string(kJob).find("steps: 6"), 8, "steps: 6, bad_lines: skip"));
  ASSERT_EQ(orrery({"plan", job_, "-o", path("plan.yaml")}).exit_code, 0);
  const Ran sound = orrery({"train", path("plan.yaml"), "--run", path("sound"), "--json"});
  ASSERT_EQ(sound.exit_code, 0) << sound.err;
  EXPECT_FALSE(sound.result().contains("bad_lines"));
  ASSERT_EQ(orrery({"plan", job, "-o", path("skips-plan.yaml")}).exit_code, 0);
  scratch_.file("clicks.tsv", "0\tnan\t3\t4\t5\t6\n" + clicks() + "1\t2\n");
  const Ran skips = orrery({"train", path("skips-plan.yaml"), "--run", path("skips"), "--json"});
  ASSERT_EQ(skips.exit_code, 0) << skips.err;
  EXPECT_EQ(skips.result().at("bad_lines"), 2);
  EXPECT_THAT(skips.out, HasSubstr("E0663"));
  EXPECT_THAT(text_of(fs::path(path("skips")) / "metrics.jsonl"), HasSubstr("\"bad_lines\":2"));
  EXPECT_EQ(losses_of(path("skips")), losses_of(path("sound"))) << "the samples that remain are the same";
}

// 16 samples of one index and of two: a step looks up at most 16 rows of 40, and all 9 of the other; rows of 32 bytes
// and a state.
TEST_F(LoopOfClicks, TablesBehindACacheTrainToTheSameLossesAndSayHowOftenTheyWereThere) {
  ASSERT_EQ(orrery({"plan", job_, "-o", path("plan.yaml")}).exit_code, 0);
  ASSERT_EQ(orrery({"train", path("plan.yaml"), "--run", path("plain")}).exit_code, 0);
  std::string job = kJob;
  job.replace(job.find("sharding: row"), 13,
              "placement: [whole 0, whole 1], tiers: [host 720 B, nvme 324 B], skew: 0.5");
  const std::string cached = scratch_.file("cached.yaml", job);
  const Ran planned = orrery({"plan", cached, "--json", "-o", path("cached-plan.yaml")});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const nlohmann::json best = planned.result().at("plans").at(0), table = best.at("tables").at(0);
  EXPECT_EQ(table.at("tier"), "host");
  EXPECT_EQ(table.at("bytes"), 40 * 36);
  EXPECT_EQ(table.at("cache_bytes"), 720);
  EXPECT_GT(table.at("hit_rate").get<double>(), 0.5) << "the cache's share of the rows is the worst";
  EXPECT_LT(table.at("hit_rate").get<double>(), 1);
  EXPECT_GT(table.at("fetched_bytes").get<double>(), 0);
  EXPECT_GE(best.at("memory_by_tier_bytes").at("host").get<double>(), 40 * 36);
  EXPECT_GE(best.at("memory_by_tier_bytes").at("nvme").get<double>(), 9 * 36);
  EXPECT_THAT(orrery({"plan", cached}, Where{.environment = {"COLUMNS=200", "LANG=C.UTF-8"}}).out,
              HasSubstr("hit rate"));
  const Ran trained = orrery({"train", path("cached-plan.yaml"), "--run", path("cached"), "--verify-serial", "--json"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(trained.result().at("serial").at("equal"), true);
  std::istringstream lines(text_of(fs::path(path("cached")) / "metrics.jsonl"));
  double lookups = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json use = nlohmann::json::parse(line).at("table_cache").at("emb_l.0.weight");
    EXPECT_EQ(use.at("lookups"), 16);
    EXPECT_LE(use.at("hits"), 16);
    lookups += use.at("lookups").get<double>();
  }
  EXPECT_EQ(lookups, 6 * 16);
  EXPECT_EQ(losses_of(path("cached")), losses_of(path("plain"))) << "where a row lives changes nothing";
  ASSERT_EQ(orrery({"train", path("cached-plan.yaml"), "--run", path("saved")}).exit_code, 0);
  const Ran resumed =
      orrery({"train", path("cached-plan.yaml"), "--run", path("saved"), "--resume", "--steps", "8", "--json"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  ASSERT_EQ(orrery({"report", path("cached"), "-o", path("report.html")}).exit_code, 0);
  EXPECT_THAT(text_of(fs::path(path("report.html"))), HasSubstr("Caches of tables, measured"));
}

TEST_F(LoopOfClicks, ACacheThatDoesNotSuitIsRefusedWithItsLineAndWhatIsNeeded) {
  const auto refused = [&](const std::string& tiers) {
    std::string job = kJob;
    job.replace(job.find("sharding: row"), 13, "placement: [whole 0, whole 1], tiers: " + tiers);
    return orrery({"plan", scratch_.file("bad.yaml", job)});
  };
  const Ran unknown = refused("[host 720 B, tape]");
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("E0127"));
  EXPECT_THAT(unknown.err, HasSubstr("bad.yaml:4:"));
  const Ran small = refused("[host 360 B, device]");
  EXPECT_EQ(small.exit_code, 4);
  EXPECT_THAT(small.out + small.err, HasSubstr("576 B"));
  EXPECT_THAT(small.out + small.err, HasSubstr("bad.yaml:4: "));
  const Ran large = refused("[device, host 1 MiB]");
  EXPECT_THAT(large.out + large.err, HasSubstr("larger than"));
}

TEST_F(LoopOfClicks, RecordsTrainAsTheirLinesDo) {
  std::string bytes;
  std::istringstream lines(clicks());
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    int at = 0;
    for (std::string field; std::getline(fields, field, '\t'); ++at) {
      const std::int32_t value = std::stoi(field, nullptr, at < 3 ? 10 : 16);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  scratch_.file("clicks.bin", bytes);
  std::string job = kJob;
  for (std::size_t at; (at = job.find("clicks.tsv")) != std::string::npos;) job.replace(at, 10, "clicks.bin");
  ASSERT_EQ(orrery({"plan", job_, "-o", path("plan.yaml")}).exit_code, 0);
  ASSERT_EQ(orrery({"plan", scratch_.file("rows.yaml", job), "-o", path("rows-plan.yaml")}).exit_code, 0);
  const Ran beyond = orrery({"train", path("rows-plan.yaml"), "--run", path("rows")});
  EXPECT_EQ(beyond.exit_code, 3) << "a table of nine rows has no row 9";
  EXPECT_THAT(beyond.err, HasSubstr("clicks.bin:"));
  job.insert(job.find("steps: 6"), "categories: hashed, ");
  ASSERT_EQ(orrery({"plan", scratch_.file("binary.yaml", job), "-o", path("binary-plan.yaml")}).exit_code, 0);
  ASSERT_EQ(orrery({"train", path("plan.yaml"), "--run", path("lines")}).exit_code, 0);
  ASSERT_EQ(orrery({"train", path("binary-plan.yaml"), "--run", path("records")}).exit_code, 0);
  EXPECT_EQ(losses_of(path("records")), losses_of(path("lines")));
}

TEST_F(LoopOfClicks, TheBenchmarksArgumentsMakeAModelAndAJobThatTrain) {
  const std::string arguments =
      "--arch-sparse-feature-size=8 --arch-mlp-bot=2-16-8 --arch-mlp-top=8-1 --arch-embedding-size=40-9-12 "
      "--data-generation=dataset --raw-data-file=clicks.tsv --loss-function=bce --mini-batch-size=16 --num-batches=4 "
      "--learning-rate=0.1 --data-randomize=none";
  const Ran made = orrery({"init", path("dlrm.yaml"), "--dlrm", arguments, "--cluster", "localhost-2"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(text_of(fs::path(path("dlrm-model.yaml"))), HasSubstr("family: dlrm"));
  const Ran planned = orrery({"plan", path("dlrm.yaml"), "-o", path("plan.yaml")});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Ran trained = orrery({"train", path("plan.yaml"), "--run", path("run"), "--json"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(trained.result().at("steps"), 4);
  EXPECT_EQ(orrery({"init", path("dlrm.yaml"), "--dlrm", arguments}).exit_code, 2) << "it already exists";
  const Ran unknown = orrery({"init", path("other.yaml"), "--dlrm", arguments + " --arch-mlp-bto=3"});
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("`--arch-mlp-bto`"));
  for (const char* nothing : {"", "  "}) {
    const Ran empty = orrery({"init", path("other.yaml"), "--dlrm", nothing});
    EXPECT_EQ(empty.exit_code, 2);
    EXPECT_THAT(empty.err, HasSubstr("--dlrm: the value is empty"));
  }
  EXPECT_FALSE(fs::exists(path("other.yaml")));
}

TEST_F(LoopOfClicks, ADifferenceFromTheSerialRunNamesWhatIsRoundedOnTheWay) {
  std::string job = kJob;
  job.replace(job.find("forward: fp32"), 13, "forward: int8, backward: bf16");
  ASSERT_EQ(orrery({"plan", scratch_.file("rounded.yaml", job), "-o", path("rounded-plan.yaml")}).exit_code, 0);
  const Ran ran = orrery({"train", path("rounded-plan.yaml"), "--run", path("rounded"), "--verify-serial", "--json"});
  EXPECT_EQ(ran.exit_code, 5) << ran.err;
  EXPECT_FALSE(ran.result().at("serial").at("equal").get<bool>());
  EXPECT_EQ(ran.result().at("serial").at("rounded"), "embedding.forward: int8, embedding.backward: bf16");
}

TEST(ClickJob, OfThreeKeysIsTrainedWithRowWiseAdagrad) {
  const Scratch scratch;
  const std::string three = "model: tiny-dlrm\ncluster: localhost-2\nbatch: 256\n";
  const Ran ran = orrery({"plan", scratch.file("job.yaml", three), "-o", (scratch.path() / "plan.yaml").string()});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const std::string plan = text_of(scratch.path() / "plan.yaml");
  EXPECT_THAT(plan, HasSubstr("rowwise_adagrad"));
  const Ran decays = orrery({"plan", scratch.file("decays.yaml", three + "training: {optimizer: {name: adamw}}\n")});
  EXPECT_NE(decays.exit_code, 0);
  EXPECT_THAT(decays.err, HasSubstr("weight_decay"));
}

TEST_F(LoopOfClicks, WhatItHasNotIsRefusedByName) {
  const auto refused = [&](const std::string& from, const std::string& to, int code) {
    std::string text = kJob;
    text.replace(text.find(from), from.size(), to);
    const Ran ran = orrery({"plan", scratch_.file("other.yaml", text)});
    EXPECT_EQ(ran.exit_code, code) << ran.err;
    return ran.err;
  };
  EXPECT_THAT(refused("rowwise_adagrad", "adamw, weight_decay: 0", 4), HasSubstr("P134"));
  EXPECT_THAT(refused("steps: 6,", "steps: 6, clip_norm: 1.0,", 3), HasSubstr("E0662"));
  EXPECT_THAT(refused("sharding: row", "placement: [\"row 0-1\", \"whole 7\"]", 4), HasSubstr("ranks below 2"));
  EXPECT_THAT(refused("sharding: row", "placement: [\"row 0-1\", \"half\"]", 3), HasSubstr("E0126"));
  EXPECT_THAT(refused("steps: 6,", "steps: 6, bad_lines: keep,", 3), HasSubstr("other.yaml:5:"));
  EXPECT_THAT(refused("rowwise_adagrad", "adam, weight_decay: 0.1", 3), HasSubstr("E0121"));
}

// -- samples that are drawn

std::string drawing(const std::string& training) {
  return "model: model.yaml\ncluster: localhost-2\nbatch: 16\nplan: {embedding: {sharding: row, forward: fp32}}\n"
         "training: {steps: 6, " +
         training + ", optimizer: {name: rowwise_adagrad, learning_rate: 2e-2}}\n";
}

TEST_F(LoopOfClicks, SamplesThatAreDrawnTrainResumeAndAreJudgedByTheirClickModel) {
  const std::string job = scratch_.file(
      "drawn.yaml", drawing("data: {generate: {samples: 80, seed: 7}}, evaluation: {every: 3, batches: 20}"));
  fs::remove(scratch_.path() / "clicks.tsv");
  ASSERT_EQ(orrery({"plan", job, "-o", path("drawn-plan.yaml")}).exit_code, 0);
  EXPECT_THAT(text_of(path("drawn-plan.yaml")), HasSubstr("data: {generate: {samples: 80, seed: 7}}"));
  const Ran trained = orrery({"train", path("drawn-plan.yaml"), "--run", path("drawn"), "--verify-serial", "--json"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(trained.result().at("serial").at("equal"), true);
  const double auc = trained.result().at("held_out_auc").get<double>(),
               best = trained.result().at("best_auc").get<double>();
  EXPECT_GT(best, 0.7);
  EXPECT_LT(best, 1);
  EXPECT_GT(auc, 0);
  EXPECT_LT(auc, best) << "after six steps";
  EXPECT_THAT(trained.out + trained.err, HasSubstr("E0614")) << "96 samples of 80";

  const Ran first = orrery({"train", path("drawn-plan.yaml"), "--run", path("stopped"), "--steps", "4"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr(" at best"));
  const Ran more = orrery({"train", path("drawn-plan.yaml"), "--run", path("stopped"), "--resume", "--steps", "6"});
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_THAT(more.err, Not(HasSubstr("E0628")));
  EXPECT_EQ(losses_of(path("stopped")), losses_of(path("drawn")));

  const std::string other = scratch_.file(
      "other.yaml", drawing("data: {generate: {samples: 80, seed: 8}}, evaluation: {every: 3, batches: 20}"));
  ASSERT_EQ(orrery({"plan", other, "-o", path("other-plan.yaml")}).exit_code, 0);
  const Ran changed = orrery({"train", path("other-plan.yaml"), "--run", path("stopped"), "--resume", "--steps", "8"});
  EXPECT_EQ(changed.exit_code, 0) << changed.err;
  EXPECT_THAT(changed.err, HasSubstr("E0628")) << "other samples than the run has seen";
}

TEST_F(LoopOfClicks, TheBenchmarksRandomDataIsDrawn) {
  const Ran made = orrery({"init", path("random.yaml"), "--cluster", "localhost-2", "--dlrm",
                           "--arch-sparse-feature-size=8 --arch-mlp-bot=2-16-8 --arch-mlp-top=8-1 "
                           "--arch-embedding-size=40-9-12 --loss-function=bce --mini-batch-size=16 --num-batches=4"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(text_of(path("random.yaml")), HasSubstr("data: {generate: {samples: 64, seed: 123}}"));
  ASSERT_EQ(orrery({"plan", path("random.yaml"), "-o", path("random-plan.yaml")}).exit_code, 0);
  const Ran trained = orrery({"train", path("random-plan.yaml"), "--run", path("random"), "--json"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(trained.result().at("steps"), 4);
  EXPECT_FALSE(trained.result().contains("best_auc")) << "nothing is evaluated";
}

TEST_F(LoopOfClicks, SamplesAreDrawnForRecommendationModelsAlone) {
  const std::string job = scratch_.file("tokens.yaml",
                                        "model: tiny-gpt\ncluster: localhost-2\nbatch: 16\nsequence: 32\n"
                                        "training: {data: {generate: {samples: 80}}}\n");
  const Ran refused = orrery({"plan", job});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("E0664"));
  EXPECT_THAT(refused.err, HasSubstr("tokens.yaml:5:18"));
}

}  // namespace recommend_test
}  // namespace orrery::tests

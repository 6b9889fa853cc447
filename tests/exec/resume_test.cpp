// Runs that go on: bit for bit on the same plan, in the same order of data, and through another plan; checkpoints that
// are written behind the steps; evaluation in the records.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "exec/engine/thread_transport.h"
#include "exec/files/files.h"
#include "exec/launch/saving.h"
#include "exec/run/run.h"
#include "exec/state/checkpoint.h"
#include "exec/state/checkpoint_files.h"
#include "plan/lower/lower.h"
#include "tests/exec/runs.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace resume_test {

namespace fs = std::filesystem;
using testing::Trial;

class Resume : public testing::RunFolder {};

// Scales of fp8 are made of the values at hand: there is nothing of them to save.
TEST_F(Resume, InEightBitsIsBitwise) {
  Trial narrow = trial();
  narrow.spec.numerics.precision = models::DType::fp8;
  go(narrow, "whole", 4);
  go(narrow, "parts", 2);
  go(narrow, "parts", 4, [](RunOptions& o) { o.resume = true; });
  const auto whole = lines("whole"), parts = lines("parts");
  ASSERT_EQ(parts.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(parts[i].at("loss"), whole[i].at("loss")) << "step " << i + 1;
}

/// A device that has no such precision, as one rank of several may be; nothing runs on it.
class Lacking final : public Backend {
 public:
  [[nodiscard]] std::string refusal(models::DType precision) const override {
    return precision == models::DType::fp8 ? "this device has no fp8" : "";
  }
  [[nodiscard]] std::string name() const override { return "lacking"; }
  [[nodiscard]] std::string device_name() const override { return "lacking"; }
  [[nodiscard]] std::byte* allocate_arena(std::int64_t) override { throw Failure("no arena"); }
  void copy_to_device(std::byte*, std::span<const std::byte>) override {}
  void copy_to_host(std::span<std::byte>, const std::byte*) override {}
  void run(const models::Op&, std::span<const Operand>, std::span<const Operand>, std::span<const ElementRange>,
           const StepContext&) override {}
  void synchronise() override {}
  [[nodiscard]] Mark mark() override { return 0; }
  [[nodiscard]] double seconds_between(Mark, Mark) override { return 0; }
};

TEST(Precisions, ThatOneRanksDeviceLacksAreRefusedByAll) {
  Trial trial = testing::golden_trial("constant");
  trial.spec.mesh.data = 2;
  trial.spec.numerics.precision = models::DType::fp8;
  const plan::Plan plan = testing::plan_of(trial);
  const plan::Schedule schedule = plan::lower(plan);
  const Waiter waiter(wait_policy(2, 1, std::chrono::seconds(60)));
  ThreadWorld world(2);
  std::vector<std::string> said(2);
  testing::in_threads(
      2,
      [&](int rank) {
        const auto transport = world.transport(rank);
        const auto backend = rank == 1 ? std::unique_ptr<Backend>(std::make_unique<Lacking>()) : make_cpu_backend(1);
        const auto done = run(plan, trial.training, schedule, *backend, *transport, waiter, {});
        if (!done) said[static_cast<std::size_t>(rank)] = base::render(done.error(), false);
      },
      [&](const std::string& why) { world.abort(why); });
  for (const std::string& one : said) {
    EXPECT_NE(one.find("E0623"), std::string::npos) << one;
    EXPECT_NE(one.find("this device has no fp8"), std::string::npos) << one;
  }
}

TEST_F(Resume, OnTheSamePlanIsBitwiseInShuffledOrder) {
  go(trial(), "whole", 6);
  go(trial(), "parts", 2);
  go(trial(), "parts", 6, [](RunOptions& o) { o.resume = true; });
  const auto whole = lines("whole"), parts = lines("parts");
  ASSERT_EQ(parts.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(parts[i].at("loss"), whole[i].at("loss")) << "step " << i + 1;
    EXPECT_EQ(parts[i].at("gradient_norm"), whole[i].at("gradient_norm")) << "step " << i + 1;
  }
  int files = 0;
  for (const auto& entry : fs::directory_iterator(checkpoint("whole", "step-000006"))) {
    EXPECT_EQ(read_file(entry.path(), 1 << 26),
              read_file(checkpoint("parts", "step-000006") / entry.path().filename(), 1 << 26))
        << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 5) << "four ranks and the manifest";
}

TEST_F(Resume, OnAnotherPlanGoesOnWithTheSameTokens) {
  go(trial(), "whole", 6);
  go(trial(), "parts", 3);
  Trial other = trial();
  other.spec.mesh.pipeline = 1, other.spec.mesh.data = 1, other.spec.mesh.tensor = 2, other.spec.states.zero_stage = 0,
  other.spec.shape.micro_batch = 4;
  go(other, "parts", 6, [](RunOptions& o) { o.resume = true; });
  const auto whole = lines("whole"), parts = lines("parts");
  for (std::size_t i = 0; i < 6; ++i) {
    const double expected = whole[i].at("loss");
    EXPECT_NEAR(parts[i].at("loss").get<double>(), expected, 1e-5 * expected) << "step " << i + 1;
  }
}

// Six steps of eight sequences, or three and then six of four: the same sequences, and no word of it.
TEST_F(Resume, WithAnotherBatchGoesOnAtTheNextSequence) {
  Trial large = trial();
  large.training.optimizer.learning_rate = 0;  // a loss says which sequences were read, and nothing else
  large.training.schedule = {};
  Trial small = large;
  small.spec.shape.batch /= 2;
  small.spec.shape.micro_batch = 1;
  go(large, "whole", 6);
  go(large, "parts", 3);
  for (const auto& event : go(small, "parts", 7, [](RunOptions& o) { o.resume = true; }))
    EXPECT_NE(event.value("code", ""), "E0628");
  for (const auto& event : go(large, "parts", 8, [](RunOptions& o) { o.resume = true; }))
    EXPECT_NE(event.value("code", ""), "E0628");
  const auto whole = lines("whole"), parts = lines("parts");
  const auto loss = [](const nlohmann::json& line) { return line.at("loss").get<double>(); };
  ASSERT_EQ(parts.size(), 8U);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_NEAR((loss(parts[3 + 2 * i]) + loss(parts[4 + 2 * i])) / 2, loss(whole[3 + i]), 1e-6 * loss(whole[3 + i]));
  EXPECT_NEAR(loss(parts[7]), loss(whole[5]), 1e-6 * loss(whole[5])) << "and back to the first batch";
  EXPECT_NE(loss(whole[3]), loss(whole[4]));
}

TEST_F(Resume, WithOtherDataSaysSo) {
  go(trial(), "run", 2);
  const auto warned = [&](const Trial& other, std::int64_t steps) {
    for (const auto& event : go(other, "run", steps, [](RunOptions& o) { o.resume = true; }))
      if (event.at("event") == "diagnostic" && event.at("code") == "E0628")
        return event.at("message").get<std::string>();
    return std::string();
  };
  EXPECT_EQ(warned(trial(), 3), "");
  Trial other = trial();
  other.training.seed = 9;
  EXPECT_NE(warned(other, 4).find("another seed"), std::string::npos);
  other.training.order = plan::DataOrder::sequential;
  EXPECT_NE(warned(other, 6).find("another order"), std::string::npos);
}

TEST_F(Resume, CheckpointsOfEveryStepAreWrittenWhileTrainingGoesOn) {
  const auto events = go(trial(), "run", 6, [](RunOptions& o) {
    o.checkpoint_every = 1;
    o.keep = 3;
  });
  std::vector<std::int64_t> saved;
  for (const auto& event : events)
    if (event.at("event") == "checkpoint") saved.push_back(event.at("step"));
  EXPECT_EQ(saved, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_FALSE(fs::exists(checkpoint("run", "step-000003")));
  for (const char* step : {"step-000004", "step-000005", "step-000006"})
    EXPECT_NO_THROW(CheckpointReader(checkpoint("run", step)).check_files()) << step;
  go(trial(), "plain", 6);
  EXPECT_EQ(lines("run").back().at("loss"), lines("plain").back().at("loss"));
}

TEST_F(Resume, WhatCheckpointsTookIsToldByEventsMetricsAndTheRecord) {
  const auto events = go(trial(), "run", 5, [](RunOptions& o) { o.checkpoint_every = 2; });
  double pause = 0, write = 0, bytes = 0;
  std::vector<nlohmann::json> saved;
  for (const auto& event : events)
    if (event.at("event") == "checkpoint") saved.push_back(event);
  ASSERT_EQ(saved.size(), 3U);
  for (const auto& one : saved) {
    pause += one.at("pause_s").get<double>();
    write += one.at("write_s").get<double>();
    bytes += one.at("bytes").get<double>();
    EXPECT_GT(one.at("pause_s").get<double>(), 0);
    EXPECT_GT(one.at("write_s").get<double>(), 0);
    EXPECT_GE(one.at("durable_s").get<double>(), one.at("write_s").get<double>());
  }
  double files = 0;
  for (const auto& entry : fs::directory_iterator(checkpoint("run", "step-000005")))
    if (entry.path().extension() == ".safetensors") files += static_cast<double>(entry.file_size());
  EXPECT_EQ(saved.back().at("bytes").get<double>(), files);

  const auto metrics = lines("run");
  ASSERT_EQ(metrics.size(), 5U);
  double shown = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    shown += metrics[i].value("checkpoint_pause_s", 0.0);
    if (i == 3) continue;  // whether the first one was committed by then is a matter of time
    EXPECT_EQ(metrics[i].contains("checkpoint_pause_s"), i == 2 || i == 4) << "step " << i + 1;
  }
  const auto record = read_completion(folder_ / "run");
  ASSERT_TRUE(record);
  const SavedTotals& sums = record->checkpoints;
  EXPECT_EQ(sums.count, 3);
  EXPECT_DOUBLE_EQ(sums.pause_s, pause);
  EXPECT_DOUBLE_EQ(sums.write_s, write);
  EXPECT_EQ(sums.bytes, bytes);
  EXPECT_DOUBLE_EQ(sums.pause_s, sums.copy_s + sums.wait_s + sums.commit_s);
  EXPECT_LT(sums.largest_rank_bytes, bytes);
  EXPECT_LT(shown, pause) << "the last one's stands in the record alone";

  const auto none = go(trial(), "none", 2, [](RunOptions& o) { o.checkpoint = false; });
  EXPECT_EQ(read_completion(folder_ / "none")->checkpoints.count, 0);
  EXPECT_FALSE(lines("none").back().contains("checkpoint_pause_s"));
}

TEST(Savings, AreThoseOfTheSlowestRank) {
  const SavedCheckpoint saved =
      join_savings({pack_saving({1, 5, 0, 0.25, 100}), pack_saving({2, 4, 0.5, 0.125, 300}), pack_saving({})});
  EXPECT_EQ(saved.slowest.pause(), 2.75);
  EXPECT_EQ(saved.slowest.write, 5);
  EXPECT_EQ(saved.bytes, 400);
  EXPECT_EQ(saved.slowest.bytes, 300);
  SavedTotals sums;
  sums.add(saved);
  sums.add(saved);
  EXPECT_EQ(sums.count, 2);
  EXPECT_EQ(sums.pause_s, 5.5);
  EXPECT_EQ(sums.largest_rank_bytes, 600);
  EXPECT_EQ(saved_message(20, 1.5e9, 0.25, 2),
            "checkpoint saved at step 20: 1.40 GiB, training held up for 250 ms, "
            "durable after 2.00 s");
  EXPECT_EQ(saved_message(20, 0, 0, 0), "checkpoint saved at step 20");
}

TEST_F(Resume, HeldOutLossStandsInTheRecordsWhereItIsDue) {
  Trial evaluated = trial();
  evaluated.training.evaluation = plan::Evaluation{evaluated.training.data, 2, 1};
  const auto events = go(evaluated, "run", 5);
  const auto records = lines("run");
  ASSERT_EQ(records.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_EQ(records[i].contains("held_out_loss"), i == 1 || i == 3 || i == 4) << "step " << i + 1;
  EXPECT_LT(records[4].at("held_out_loss").get<double>(), records[1].at("held_out_loss").get<double>());
  int told = 0;
  for (const auto& event : events) told += event.at("event") == "evaluation" ? 1 : 0;
  EXPECT_EQ(told, 3);
  go(trial(), "plain", 5);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(records[i].at("loss"), lines("plain")[i].at("loss"));
}

TEST_F(Resume, TextIsEncodedByTheJobsTokenizer) {
  Trial text = trial();
  text.model.vocab = 1024;
  fs::create_directories(folder_ / "text");
  std::string words;
  for (int i = 0; i < 600; ++i) words += "the planets turn with it, and the Earth turns; ";
  write_atomically(folder_ / "text/a.txt", words);
  text.training.data = (folder_ / "text").string();
  text.training.evaluation = plan::Evaluation{(folder_ / "text/a.txt").string(), 3, 1};
  text.training.tokenizer = std::string(ORRERY_SOURCE_DIR) + "/tests/golden/bpe";
  go(text, "run", 3);
  EXPECT_TRUE(fs::exists(folder_ / "run/tokens/train.idx"));
  const auto records = lines("run");
  EXPECT_NEAR(records[0].at("loss").get<double>(), std::log(1024), 0.3);
  EXPECT_LT(records[2].at("loss").get<double>(), records[0].at("loss").get<double>());
  text.model.vocab = 64;
  try {
    go(text, "small", 3);
    FAIL() << "a vocabulary of 64 was enough";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("E0618"), std::string::npos) << error.what();
  }
}

}  // namespace resume_test
}  // namespace orrery::exec

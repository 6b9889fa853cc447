// A run is stopped, resumed, killed, starved, or badly asked for.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "exec/files/files.h"
#include "plan/lower/lower.h"
#include "plan/schedule/place.h"
#include "tests/mpi/mpi_support.h"

namespace orrery::exec {
namespace lifetime_test {

using testing::Folder;
using testing::Line;
using testing::Trial;

Trial small_trial() {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.spec.mesh.data = 2;
  trial.spec.states.zero_stage = 1;
  return trial;
}

std::vector<std::string> losses(const std::filesystem::path& run) {
  std::vector<std::string> out;
  for (const Line& line : testing::read_metrics(run)) out.push_back(line.loss_text);
  return out;
}

/// Processes of the worker that train into `run`.
std::vector<int> workers_of(const std::filesystem::path& run) {
  std::vector<int> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream in(entry.path() / "cmdline");
    std::string command((std::istreambuf_iterator<char>(in)), {});
    if (command.rfind(ORRERY_WORKER, 0) == 0 && command.find(run.string()) != std::string::npos)
      out.push_back(std::stoi(name));
  }
  return out;
}

TEST(Resume, GoesOnBitForBit) {
  const Trial trial = small_trial();
  const Folder whole_folder, parts_folder;
  const TrainCommand whole = testing::command_for(trial, whole_folder);
  ASSERT_EQ(supervise(whole, {}, nullptr).end, RunEnd::completed);
  TrainCommand part = testing::command_for(trial, parts_folder);
  part.steps = 7;
  ASSERT_EQ(supervise(part, {}, nullptr).end, RunEnd::completed);
  part.steps = 20;
  part.resume = true;
  const RunOutcome outcome = supervise(part, {}, nullptr);
  ASSERT_EQ(outcome.end, RunEnd::completed) << outcome.reason << outcome.error_tail;
  EXPECT_EQ(outcome.completion->resumed_from, 7);
  EXPECT_EQ(losses(part.run), losses(whole.run));
}

TEST(Resume, ReadsTheCheckpointOfAnotherPlan) {
  Trial trial = small_trial();
  const Folder folder;
  TrainCommand command = testing::command_for(trial, folder);
  command.steps = 10;
  ASSERT_EQ(supervise(command, {}, nullptr).end, RunEnd::completed);
  trial.spec.mesh.data = 1;
  trial.spec.states.zero_stage = 0;
  trial.spec.mesh.tensor = 2;
  command = testing::command_for(trial, folder);
  command.resume = true;
  const RunOutcome outcome = supervise(command, {}, nullptr);
  ASSERT_EQ(outcome.end, RunEnd::completed) << outcome.reason << outcome.error_tail;
  const testing::Outcome serial = testing::train(testing::golden_trial("cosine_clipped"));
  const std::vector<Line> lines = testing::read_metrics(command.run);
  ASSERT_EQ(lines.size(), 20U);
  for (std::size_t i = 0; i < lines.size(); ++i)
    EXPECT_NEAR(lines[i].loss, serial.steps[i].loss, 1e-5 * serial.steps[i].loss);
}

TEST(Resume, RefusesADamagedCheckpoint) {
  const Trial trial = small_trial();
  const Folder folder;
  TrainCommand command = testing::command_for(trial, folder);
  command.steps = 3;
  ASSERT_EQ(supervise(command, {}, nullptr).end, RunEnd::completed);
  {
    std::fstream file(command.run / "checkpoints/step-000003/rank-00001.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-5, std::ios::end);
    file.put('x');
  }
  command.steps = 6;
  command.resume = true;
  const RunOutcome outcome = supervise(command, {}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::failed);
  EXPECT_NE(outcome.reason.find("rank-00001.safetensors: damaged"), std::string::npos) << outcome.reason;
}

TEST(Start, RefusesAModelThatSeesWhatItShouldPredict) {
  Trial trial = small_trial();
  trial.model.causal = false;
  const Folder folder;
  const TrainCommand command = testing::command_for(trial, folder);
  const RunOutcome outcome = supervise(command, {}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::failed);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_NE(outcome.reason.find("not causal"), std::string::npos) << outcome.reason;
  EXPECT_FALSE(std::filesystem::exists(command.run / "plan.yaml"));
}

TEST(Start, InAUsedDirectoryBeginsAnewOnlyWhenToldTo) {
  Trial trial = small_trial();
  const Folder folder;
  TrainCommand command = testing::command_for(trial, folder);
  command.steps = 5;
  command.dump_gradients = {1};
  ASSERT_EQ(supervise(command, {}, nullptr).end, RunEnd::completed);
  trial.training.seed += 1;
  command = testing::command_for(trial, folder);
  command.steps = 3;
  const RunOutcome refused = supervise(command, {}, nullptr);
  EXPECT_EQ(refused.exit_code, 3);
  ASSERT_FALSE(refused.diagnostics.empty()) << refused.reason;
  EXPECT_EQ(refused.diagnostics[0].code, "E0640");
  EXPECT_EQ(losses(command.run).size(), 5U);
  command.overwrite = true;
  ASSERT_EQ(supervise(command, {}, nullptr).end, RunEnd::completed);
  command.overwrite = false;
  EXPECT_FALSE(std::filesystem::exists(command.run / "gradients"));
  const std::vector<std::string> begun = losses(command.run);
  command.steps = 6;
  command.resume = true;
  const RunOutcome outcome = supervise(command, {}, nullptr);
  ASSERT_EQ(outcome.end, RunEnd::completed) << outcome.reason << outcome.error_tail;
  EXPECT_EQ(outcome.completion->resumed_from, 3);
  const std::vector<std::string> all = losses(command.run);
  ASSERT_EQ(all.size(), 6U);
  EXPECT_TRUE(std::equal(begun.begin(), begun.end(), all.begin()));
  EXPECT_NEAR(outcome.completion->first_loss, std::stod(all.front()), 1e-8);
}

TEST(Start, ThatFailsLeavesTheDirectoryAsItWas) {
  Trial trial = small_trial();
  const Folder folder;
  TrainCommand command = testing::command_for(trial, folder);
  command.steps = 2;
  ASSERT_EQ(supervise(command, {}, nullptr).end, RunEnd::completed);
  const auto stored = [&] { return read_file(command.run / "plan.yaml", 1 << 20); };
  const std::string before = stored();
  trial.training.initial_weights = folder.path() / "no-such.safetensors";
  (void)testing::command_for(trial, folder);  // writes the plan
  command.overwrite = true;
  const RunOutcome bad = supervise(command, {}, nullptr);
  EXPECT_EQ(bad.end, RunEnd::failed);
  EXPECT_EQ(bad.exit_code, 3);
  ASSERT_FALSE(bad.diagnostics.empty());
  EXPECT_EQ(bad.diagnostics[0].code, "E0601");
  EXPECT_EQ(stored(), before);
  EXPECT_TRUE(read_completion(command.run));
  EXPECT_TRUE(std::filesystem::exists(command.run / "timeline.json"));
  trial.training.initial_weights.clear();
  trial.model.norm_epsilon *= 2;
  (void)testing::command_for(trial, folder);
  command.overwrite = false;
  command.resume = true;
  command.steps = 4;
  const RunOutcome other = supervise(command, {}, nullptr);
  EXPECT_EQ(other.exit_code, 3);
  ASSERT_FALSE(other.diagnostics.empty()) << other.reason;
  EXPECT_EQ(other.diagnostics[0].code, "E0625");
  EXPECT_NE(other.diagnostics[0].message.find("another model: norm_epsilon 1e-05, not 2e-05"), std::string::npos)
      << other.diagnostics[0].message;
  EXPECT_EQ(stored(), before);
}

TEST(Start, InADirectoryWhereAnotherTrainsIsRefused) {
  const Trial trial = small_trial();
  const Folder folder;
  TrainCommand command = testing::command_for(trial, folder);
  command.steps = 2;
  std::filesystem::create_directories(command.run);
  {
    const FileLock other = lock_file(command.run / "lock");
    ASSERT_TRUE(other.held());
    const RunOutcome outcome = supervise(command, {}, nullptr);
    EXPECT_EQ(outcome.exit_code, 3);
    ASSERT_FALSE(outcome.diagnostics.empty()) << outcome.reason;
    EXPECT_EQ(outcome.diagnostics[0].code, "E0626");
    EXPECT_FALSE(std::filesystem::exists(command.run / "plan.yaml"));
  }
  EXPECT_EQ(supervise(command, {}, nullptr).end, RunEnd::completed);
}

TEST(Start, WarnsOfAResumeWithoutACheckpointAndOfShortData) {
  Trial trial = small_trial();
  const Folder folder;
  std::ofstream(folder.path() / "short.txt") << std::string(100, '!');
  trial.training.data = folder.path() / "short.txt";
  TrainCommand command = testing::command_for(trial, folder);
  command.steps = 2;
  command.resume = true;
  const RunOutcome outcome = supervise(command, {}, nullptr);
  ASSERT_EQ(outcome.end, RunEnd::completed) << outcome.reason << outcome.error_tail;
  std::vector<std::string> codes;
  for (const base::Diagnostic& one : outcome.diagnostics) {
    codes.push_back(one.code);
    EXPECT_EQ(one.severity, base::Severity::warning);
  }
  EXPECT_EQ(codes, (std::vector<std::string>{"E0614", "E0627"}));
}

TEST(Start, NamesTheFileOfATokenOutsideTheVocabulary) {
  Trial trial = small_trial();
  const Folder folder;
  std::ofstream(folder.path() / "odd.txt") << std::string(100000, '\xff');
  trial.training.data = folder.path() / "odd.txt";
  const RunOutcome outcome = supervise(testing::command_for(trial, folder), {}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::failed);
  EXPECT_EQ(outcome.exit_code, 3);
  ASSERT_FALSE(outcome.diagnostics.empty()) << outcome.reason;
  EXPECT_EQ(outcome.diagnostics[0].code, "E0613");
  EXPECT_EQ(outcome.diagnostics[0].where.file, trial.training.data);
}

TEST(Checkpoints, AreSavedByTimeAndBySteps) {
  const Trial trial = small_trial();
  const Folder folder;
  TrainCommand command = testing::command_for(trial, folder);
  command.steps = 4;
  command.overwrite = true;
  std::vector<std::string> said;
  const RunWatchers watchers{{}, [&](const std::string& text) {
                               const std::size_t end = text.find(':');  // behind it stands what it took
                               EXPECT_NE(text.find("training held up for"), std::string::npos) << text;
                               said.push_back(text.substr(0, end));
                             }};
  command.checkpoint_interval = std::chrono::seconds(0);
  ASSERT_EQ(supervise(command, watchers, nullptr).end, RunEnd::completed);
  ASSERT_GE(said.size(), 2U);
  EXPECT_EQ(said[0], "checkpoint saved at step 1");
  said.clear();
  command.checkpoint_interval = std::chrono::seconds(60);
  ASSERT_EQ(supervise(command, watchers, nullptr).end, RunEnd::completed);
  EXPECT_EQ(said, (std::vector<std::string>{"checkpoint saved at step 4"}));
  said.clear();
  command.checkpoint_every = 3;
  ASSERT_EQ(supervise(command, watchers, nullptr).end, RunEnd::completed);
  EXPECT_EQ(said, (std::vector<std::string>{"checkpoint saved at step 3", "checkpoint saved at step 4"}));
}

TEST(Resume, OfAFinishedRunIsRefusedAndKeepsItsRecord) {
  const Trial trial = small_trial();
  const Folder folder;
  TrainCommand command = testing::command_for(trial, folder);
  command.steps = 2;
  ASSERT_EQ(supervise(command, {}, nullptr).end, RunEnd::completed);
  command.resume = true;
  const RunOutcome outcome = supervise(command, {}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::failed);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.reason, "the run has already done 2 steps, but 2 were asked for");
  ASSERT_TRUE(read_completion(command.run));
  EXPECT_TRUE(read_completion(command.run)->completed);
}

TEST(Determinism, TwoRunsOverFourRanksAreBitwiseEqual) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.spec.mesh.data = 4;
  std::vector<std::string> first;
  LogicalTensors gradients;
  for (const bool again : {false, true}) {
    const Folder folder;
    TrainCommand command = testing::command_for(trial, folder);
    command.dump_gradients = {20};
    command.checkpoint = false;
    ASSERT_EQ(supervise(command, {}, nullptr).end, RunEnd::completed);
    const LogicalTensors now = testing::read_tensors(command.run / "gradients/step-000020.safetensors");
    if (!again) {
      first = losses(command.run);
      gradients = now;
      continue;
    }
    EXPECT_EQ(losses(command.run), first);
    for (const auto& [name, tensor] : gradients) EXPECT_EQ(tensor.values, now.at(name).values) << name;
  }
}

TEST(Stop, FinishesTheStepSavesAndSaysSo) {
  Trial trial = small_trial();
  trial.training.steps = 100000;
  const Folder folder;
  const TrainCommand command = testing::command_for(trial, folder);
  std::atomic<bool> stop{false};
  const RunOutcome outcome =
      supervise(command, {[&](const StepReport& step) { stop = stop || step.step >= 5; }, {}}, &stop);
  ASSERT_EQ(outcome.end, RunEnd::stopped) << outcome.reason << outcome.error_tail;
  EXPECT_FALSE(outcome.completion->completed);
  EXPECT_GE(outcome.completion->steps, 5);
  EXPECT_TRUE(std::filesystem::exists(command.run / "timeline.json"));
  EXPECT_FALSE(std::filesystem::is_empty(command.run / "checkpoints"));
}

TEST(Failure, OfARankIsNotSuccess) {
  Trial trial = small_trial();
  trial.training.steps = 100000;
  const Folder folder;
  const TrainCommand command = testing::command_for(trial, folder);
  bool killed = false;
  const auto kill_one = [&](const StepReport& step) {
    if (step.step < 3 || killed) return;
    const std::vector<int> workers = workers_of(command.run);
    ASSERT_EQ(workers.size(), 2U);
    kill(workers.back(), SIGKILL);
    killed = true;
  };
  const RunOutcome outcome = supervise(command, {kill_one, {}}, nullptr);
  EXPECT_TRUE(killed);
  EXPECT_EQ(outcome.end, RunEnd::failed);
  EXPECT_FALSE(outcome.completion);
  EXPECT_FALSE(outcome.reason.empty());
}

TEST(Failure, ARankThatHangsIsNamedByTheOthers) {
  Trial trial = small_trial();
  trial.training.steps = 100000;
  const Folder folder;
  TrainCommand command = testing::command_for(trial, folder);
  command.deadline = std::chrono::seconds(2);
  std::vector<int> workers;
  const auto freeze_one = [&](const StepReport& step) {
    if (step.step < 3 || !workers.empty()) return;
    workers = workers_of(command.run);
    ASSERT_EQ(workers.size(), 2U);
    kill(workers.back(), SIGSTOP);
  };
  const RunOutcome outcome = supervise(command, {freeze_one, {}}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::failed);
  EXPECT_NE(outcome.reason.find("waited more than 2.0 s"), std::string::npos) << outcome.reason << outcome.error_tail;
}

TEST(BadInput, IsSaidOnceWithItsPlace) {
  Trial trial = small_trial();
  trial.training.data = "/nowhere/tokens.bin";
  const Folder folder;
  const RunOutcome outcome = supervise(testing::command_for(trial, folder), {}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::failed);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_NE(outcome.reason.find("/nowhere/tokens.bin"), std::string::npos) << outcome.reason;
}

TEST(BadInput, ATokenOutsideTheVocabularyNamesFileAndByte) {
  Trial trial = small_trial();
  const Folder folder;
  trial.training.data = (folder.path() / "text.txt").string();
  std::ofstream(trial.training.data) << std::string(300, '!') + "z" + std::string(300, '!');
  const RunOutcome outcome = supervise(testing::command_for(trial, folder), {}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::failed);
  EXPECT_NE(outcome.reason.find("text.txt: token 122 at byte 300 is outside the vocabulary of 64"), std::string::npos)
      << outcome.reason;
}

TEST(Supervisor, SaysWhenThereIsNoLauncher) {
  const Folder folder;
  TrainCommand command = testing::command_for(small_trial(), folder);
  command.launcher = "no-such-mpiexec";
  const RunOutcome outcome = supervise(command, {}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::not_started);
  EXPECT_NE(outcome.reason.find("no-such-mpiexec"), std::string::npos);
}

/// Predicted memory against what the kernel says is resident: a model of 48 M parameters, 4 values each: 770 MB.
TEST(SlowMemory, ResidentGrowthAgreesWithThePredictionForALargeModel) {
  Trial trial = testing::golden_trial("constant");
  models::Model& m = trial.model;
  m.layers = 6;
  m.hidden = 768;
  m.heads = m.kv_heads = 12;
  m.head_dim = 64;
  m.ffn_hidden = 3072;
  m.max_sequence = 64;
  trial.training.initial_weights.clear();
  for (const int data : {1, 2}) {
    trial.spec.mesh.data = data;
    trial.spec.states.zero_stage = data - 1;
    const Folder folder;
    TrainCommand command = testing::command_for(trial, folder);
    command.steps = 2;
    command.checkpoint = false;
    const RunOutcome outcome = supervise(command, {}, nullptr);
    ASSERT_EQ(outcome.end, RunEnd::completed) << outcome.reason << outcome.error_tail;
    const Line last = testing::read_metrics(command.run).back();
    const plan::Schedule schedule = plan::lower(testing::plan_of(trial));
    for (std::size_t rank = 0; rank < last.resident_growth.size(); ++rank) {
      const auto predicted = static_cast<double>(plan::place(schedule.class_of(static_cast<int>(rank))).arena_bytes);
      std::printf(
          "[ memory   ] data %d rank %zu: predicted %.1f MB, arena %.1f MB, resident growth %.1f MB, outside the arena "
          "%.1f MB\n",
          data, rank, predicted / 1e6, static_cast<double>(last.arena_peak[rank]) / 1e6,
          static_cast<double>(last.resident_growth[rank]) / 1e6, static_cast<double>(last.outside_peak[rank]) / 1e6);
      EXPECT_GE(predicted, 300e6);
      EXPECT_NEAR(static_cast<double>(last.resident_growth[rank]), predicted, 0.1 * predicted);
    }
  }
}

}  // namespace lifetime_test
}  // namespace orrery::exec

// The supervisor against launchers that lie, hang, babble or die; no MPI needed.
#include "exec/launch/supervise.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "exec/events.h"
#include "exec/files/files.h"
#include "exec/launch/process_tree.h"

namespace orrery::exec {
namespace supervise_test {

namespace fs = std::filesystem;

class Supervisor : public ::testing::Test {
 protected:
  Supervisor() : folder_(fs::temp_directory_path() / ("orrery-supervise-" + std::to_string(getpid()))) {
    fs::create_directories(folder_ / "run");
  }
  ~Supervisor() override { fs::remove_all(folder_); }

  /// A command whose launcher is this shell script; its arguments are mpiexec's.
  TrainCommand command(const std::string& script) {
    const fs::path launcher = folder_ / "launcher";
    std::ofstream(launcher) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(launcher, fs::perms::owner_all);
    std::ofstream(folder_ / "worker") << "";
    TrainCommand c;
    c.launcher = launcher;
    c.worker = folder_ / "worker";
    c.plan = "plan.yaml";
    c.run = folder_ / "run";
    c.start_timeout = c.step_timeout = std::chrono::seconds(60);
    return c;
  }
  fs::path folder_;
};

const char* const kRecord =
    "while [ \"$1\" != --run-id ]; do shift; done\n"
    "cat > %RUN%/completed.json <<END\n"
    "{\"format_version\":\"1.0\",\"run_id\":\"$2\",\"completed\":true,\"steps\":3,\"resumed_from\":0,\"first_loss\":2,"
    "\"final_loss\":1,"
    "\"step_time_s\":0.5,\"tokens_per_s\":10,\"memory_peak_bytes\":7,\"backend\":\"cpu\",\"device\":\"d\",\"ranks\":1,"
    "\"threads\":1,"
    "\"oversubscribed\":false}\nEND\n";

std::string recording(const fs::path& run, const std::string& before, const std::string& after) {
  std::string script = kRecord;
  script.replace(script.find("%RUN%"), 5, run.string());
  return before + "\n" + script + after;
}

TEST_F(Supervisor, TellsTheWorkerThatNothingNeedRepeatOnlyWhenAsked) {
  TrainCommand c = command("echo \"orrery-worker: $*\" >&2; exit 1");
  EXPECT_EQ(supervise(c, {}, nullptr).reason.find("--no-repeat"), std::string::npos);
  c.repeat = false;
  EXPECT_NE(supervise(c, {}, nullptr).reason.find("--no-repeat"), std::string::npos);
}

TEST_F(Supervisor, TellsTheWorkerToOverwriteOnlyWhenAsked) {
  TrainCommand c = command("echo \"orrery-worker: $*\" >&2; exit 1");
  EXPECT_EQ(supervise(c, {}, nullptr).reason.find("--overwrite"), std::string::npos);
  c.overwrite = true;
  EXPECT_NE(supervise(c, {}, nullptr).reason.find("--overwrite"), std::string::npos);
}

TEST_F(Supervisor, DoesNotBelieveAnExitCodeOfZero) {
  const RunOutcome outcome = supervise(command("exit 0"), {}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::failed);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.reason.find("without finishing"), std::string::npos);
}

TEST_F(Supervisor, DoesNotBelieveTheRecordOfAnEarlierRun) {
  Completion old;
  old.run_id = "another";
  old.completed = true;
  write_atomically(folder_ / "run/completed.json", write_completion(old));
  const RunOutcome outcome = supervise(command("exit 0"), {}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::failed);
  EXPECT_FALSE(outcome.completion);
}

TEST_F(Supervisor, BelievesTheRunsOwnRecordWhateverTheExitCode) {
  const RunOutcome outcome = supervise(command(recording(folder_ / "run", "", "exit 9")), {}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::completed) << outcome.reason << outcome.error_tail;
  EXPECT_EQ(outcome.exit_code, 9);
  EXPECT_EQ(outcome.completion->steps, 3);
}

TEST_F(Supervisor, PassesOnProgressAndLetsNoiseBe) {
  const std::string events =
      "echo '{\"event\":\"started\",\"oversubscribed\":true,\"ranks\":4,\"threads\":1}'\n"
      "echo 'not an event'\necho '{\"event\":17}'\necho '[1,2'\n"
      "echo '{\"event\":\"kernels\",\"choices\":[{\"operator\":\"attention\",\"kernel\":\"own\",\"reason\":\"no "
      "cuDNN\"}]}'\n"
      "echo '{\"event\":\"step\",\"step\":2,\"steps\":3,\"loss\":1.5,\"step_time_s\":0.25}'\n"
      "printf '{\"event\":\"checkpoint\",\"step\":3}'";  // cut short: no line end
  std::vector<StepReport> steps;
  std::vector<std::string> messages;
  const RunOutcome outcome = supervise(command(events),
                                       {[&](const StepReport& step) { steps.push_back(step); },
                                        [&](const std::string& text) { messages.push_back(text); }},
                                       nullptr);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].step, 2);
  EXPECT_EQ(steps[0].loss, 1.5);
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_NE(messages[0].find("timings mean nothing"), std::string::npos);
  EXPECT_EQ(messages[1], "attention by own: no cuDNN");
  EXPECT_EQ(messages[2], "checkpoint saved at step 3");
  EXPECT_NE(outcome.error_tail.find("not an event"), std::string::npos);
}

TEST_F(Supervisor, TakesTheWorkersOwnSentenceAsTheReason) {
  const RunOutcome outcome =
      supervise(command("echo noise >&2; echo 'orrery-worker: error[E0611]: no such file' >&2; echo more >&2; exit 3"),
                {}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::failed);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.reason, "no such file");
  EXPECT_EQ(outcome.error_tail, "noise\nmore\n");
}

TEST_F(Supervisor, LeavesOutThatRanksWereMadeToAbort) {
  const RunOutcome outcome = supervise(
      command("echo 'orrery-worker: rank 2: step 3, layer 1: no room' >&2\n"
              "echo 'Abort(1) on node 2 (rank 2 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - "
              "process 2' >&2\n"
              "echo 'Abort(15) on node 0: other things' >&2\nexit 1"),
      {}, nullptr);
  EXPECT_EQ(outcome.reason, "rank 2: step 3, layer 1: no room");
  EXPECT_EQ(outcome.error_tail, "Abort(15) on node 0: other things\n");
}

TEST_F(Supervisor, KeepsTheSentenceOfOneRankWhenManySpeak) {
  const RunOutcome outcome = supervise(
      command("echo 'orrery-worker: rank 1: lost rank 0' >&2; echo 'orrery-worker: rank 2: lost rank 0' >&2; exit 1"),
      {}, nullptr);
  EXPECT_EQ(outcome.reason, "rank 1: lost rank 0");
  EXPECT_EQ(outcome.error_tail, "");
}

TEST_F(Supervisor, PassesOnDiagnosticsOnce) {
  base::Diagnostic said{base::Severity::error, "E0611", {"data.txt", 3, 4, 2}, "no \"such\" file", "look", "the line"};
  const std::string line = "echo '" + diagnostic_event(said).dump() + "'; ";
  const RunOutcome outcome =
      supervise(command(line + line + "echo '{\"event\":\"diagnostic\",\"code\":7}'; exit 3"), {}, nullptr);
  EXPECT_EQ(outcome.diagnostics, base::Diagnostics{said});
  EXPECT_EQ(outcome.reason, said.message);
  EXPECT_EQ(outcome.error_tail, "");
}

TEST_F(Supervisor, KeepsOnlyTheEndOfALongError) {
  const RunOutcome outcome = supervise(command("seq 1 200000 >&2; exit 1"), {}, nullptr);
  EXPECT_LE(outcome.error_tail.size(), std::size_t{16} << 10);
  EXPECT_NE(outcome.error_tail.find("200000\n"), std::string::npos);
}

TEST_F(Supervisor, KillsARunThatNeverStarts) {
  TrainCommand c = command("sleep 1000");
  c.start_timeout = std::chrono::seconds(1);
  const auto begin = std::chrono::steady_clock::now();
  const RunOutcome outcome = supervise(c, {}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::timed_out);
  EXPECT_EQ(outcome.exit_code, 128 + 9);
  EXPECT_NE(outcome.reason.find("did not start"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST_F(Supervisor, KillsARunThatStopsMakingProgress) {
  TrainCommand c = command("echo '{\"event\":\"started\"}'; sleep 1000");
  c.step_timeout = std::chrono::seconds(1);
  const RunOutcome outcome = supervise(c, {}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::timed_out);
  EXPECT_NE(outcome.reason.find("no progress"), std::string::npos);
}

TEST_F(Supervisor, PassesOnARequestToStop) {
  std::atomic<bool> stop{false};
  const RunOutcome outcome = supervise(
      command(
          "trap 'exit 7' TERM; echo '{\"event\":\"started\",\"oversubscribed\":true}'; while :; do sleep 0.05; done"),
      {{}, [&](const std::string&) { stop = true; }}, &stop);
  EXPECT_EQ(outcome.end, RunEnd::failed);
  EXPECT_TRUE(outcome.exit_code == 7 || outcome.exit_code == 128 + 15) << outcome.exit_code;
}

TEST_F(Supervisor, EndsARunThatHasNotBegunToTrainAsSoonAsItIsAskedToStop) {
  const std::atomic<bool> stop{true};
  const RunOutcome outcome = supervise(command("trap '' TERM INT; sleep 1000"), {}, &stop);
  EXPECT_EQ(outcome.end, RunEnd::stopped);
  EXPECT_NE(outcome.reason.find("before the first step"), std::string::npos) << outcome.reason;
}

TEST_F(Supervisor, EndsRanksThatDoNotSaveWithinTheGrace) {
  std::atomic<bool> stop{false};
  TrainCommand c =
      command("trap '' TERM; echo '{\"event\":\"started\",\"oversubscribed\":true}'; while :; do sleep 0.05; done");
  c.grace = std::chrono::seconds(1);
  const RunOutcome outcome = supervise(c, {{}, [&](const std::string&) { stop = true; }}, &stop);
  EXPECT_EQ(outcome.end, RunEnd::timed_out);
  EXPECT_NE(outcome.reason.find("within the grace period of 1 s"), std::string::npos) << outcome.reason;
}

TEST_F(Supervisor, LeavesNoProcessWhateverSessionItMadeItsOwn) {
  const RunOutcome outcome =
      supervise(command("setsid sleep 1000 & echo $! > " + (folder_ / "child").string() + "; exit 1"), {}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::failed);
  int child = 0;
  std::ifstream(folder_ / "child") >> child;
  ASSERT_GT(child, 0);
  EXPECT_EQ(state_of_process(child), '\0');
}

TEST_F(Supervisor, SaysWhatIsMissing) {
  TrainCommand c = command("exit 0");
  c.launcher = "no-such-launcher-anywhere";
  EXPECT_EQ(supervise(c, {}, nullptr).end, RunEnd::not_started);
  c = command("exit 0");
  c.worker = folder_ / "no-worker";
  const RunOutcome outcome = supervise(c, {}, nullptr);
  EXPECT_EQ(outcome.end, RunEnd::not_started);
  EXPECT_NE(outcome.reason.find("no-worker"), std::string::npos);
}

TEST(Completion, IsReadBackAndNothingElseIs) {
  const fs::path folder = fs::temp_directory_path() / ("orrery-completion-" + std::to_string(getpid()));
  fs::create_directories(folder);
  EXPECT_FALSE(read_completion(folder));
  Completion record;
  record.run_id = "id";
  record.completed = true;
  record.steps = 20;
  record.final_loss = 3.25;
  record.checkpoints = {2, 0.5, 0.25, 0.125, 0.125, 3, 4e9, 1e9};
  write_atomically(folder / "completed.json", write_completion(record));
  const auto read = read_completion(folder);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->steps, 20);
  EXPECT_EQ(read->final_loss, 3.25);
  EXPECT_EQ(read->checkpoints.count, 2);
  EXPECT_EQ(read->checkpoints.pause_s, 0.5);
  EXPECT_EQ(read->checkpoints.wait_s, 0.125);
  EXPECT_EQ(read->checkpoints.write_s, 3);
  EXPECT_EQ(read->checkpoints.bytes, 4e9);
  for (const char* bad :
       {"", "{}", "[]", "{\"format_version\":\"9\"}", "{\"format_version\":\"1.0\",\"completed\":\"yes\"}"}) {
    write_atomically(folder / "completed.json", bad);
    EXPECT_FALSE(read_completion(folder)) << bad;
  }
  fs::remove_all(folder);
}

}  // namespace supervise_test
}  // namespace orrery::exec

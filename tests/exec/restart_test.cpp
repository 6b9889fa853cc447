// Starting again: from the newest checkpoint, and not for ever. Launchers here are scripts.
#include "exec/launch/restart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace orrery::exec {
namespace restart_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class Restarts : public ::testing::Test {
 protected:
  Restarts() : folder_(fs::temp_directory_path() / ("orrery-restart-" + std::to_string(getpid()))) {
    fs::create_directories(folder_ / "run");
    policy_.first_pause = std::chrono::milliseconds(1);
  }
  ~Restarts() override { fs::remove_all(folder_); }

  /// Each start runs the script with its number in $n and leaves its arguments in starts.
  TrainCommand command(const std::string& script) {
    const fs::path launcher = folder_ / "launcher";
    std::ofstream(launcher) << "#!/bin/sh\necho \"$*\" >> " << (folder_ / "starts").string() << "\nn=$(wc -l < "
                            << (folder_ / "starts").string() << ")\n"
                            << script << "\n";
    fs::permissions(launcher, fs::perms::owner_all);
    std::ofstream(folder_ / "worker") << "";
    TrainCommand c;
    c.launcher = launcher;
    c.worker = folder_ / "worker";
    c.plan = "plan.yaml";
    c.run = folder_ / "run";
    return c;
  }
  std::vector<std::string> starts() const {
    std::ifstream in(folder_ / "starts");
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }
  fs::path folder_;
  RestartPolicy policy_;
};

constexpr const char* kProgress =
    "echo '{\"event\":\"started\"}'\necho \"{\\\"event\\\":\\\"checkpoint\\\",\\\"step\\\":$n}\"\n";

TEST_F(Restarts, ResumeFromTheSecondStartOnAndAreCounted) {
  policy_.most = 3;
  const RestartedOutcome outcome =
      supervise_with_restarts(command(std::string(kProgress) + "exit 1"), policy_, {}, nullptr);
  EXPECT_EQ(outcome.last.end, RunEnd::failed);
  EXPECT_EQ(outcome.failures.size(), 3U);
  const std::vector<std::string> all = starts();
  ASSERT_EQ(all.size(), 4U);
  EXPECT_THAT(all[0], Not(HasSubstr("--resume")));
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_THAT(all[i], HasSubstr("--resume"));
}

TEST_F(Restarts, LeaveALineEachOfWhatTheyCost) {
  policy_.most = 2;
  const std::string started = "echo \"{\\\"event\\\":\\\"started\\\",\\\"resumed_from\\\":$((n * 10 - 10))}\"\n";
  const std::string saved = "echo \"{\\\"event\\\":\\\"checkpoint\\\",\\\"step\\\":$((n * 10))}\"\n";
  (void)supervise_with_restarts(command(started + saved + "sleep 0.2; exit 1"), policy_, {}, nullptr);
  std::ifstream in(folder_ / "run" / "restarts.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 2U) << "the third start was not followed by another";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(lines[i].at("from_step"), 10 * i);
    EXPECT_EQ(lines[i].at("checkpoint_step"), 10 * i + 10);
    EXPECT_GT(lines[i].at("ran_s").get<double>(), 0.15);
    EXPECT_FALSE(lines[i].at("reason").get<std::string>().empty());
  }
}

TEST_F(Restarts, ThatNeverTrainedLeaveTheDirectoryAsItIs) {
  policy_.most = 1;
  (void)supervise_with_restarts(command("exit 1"), policy_, {}, nullptr);
  EXPECT_FALSE(fs::exists(folder_ / "run" / "restarts.jsonl"));
}

TEST_F(Restarts, OfAStartThatNeverBeganToTrainAskForTheSameAgain) {
  policy_.most = 1;
  (void)supervise_with_restarts(command("exit 1"), policy_, {}, nullptr);
  ASSERT_EQ(starts().size(), 2U);
  EXPECT_THAT(starts()[1], Not(HasSubstr("--resume")));
}

TEST_F(Restarts, EndWhereNoneBringsANewCheckpoint) {
  policy_.most = 100;
  policy_.without_progress = 3;
  const RestartedOutcome outcome =
      supervise_with_restarts(command("echo '{\"event\":\"started\"}'\nexit 1"), policy_, {}, nullptr);
  EXPECT_EQ(starts().size(), 3U);
  EXPECT_THAT(outcome.last.reason, HasSubstr("3 starts in a row made no new checkpoint"));
}

TEST_F(Restarts, AreNotTriedWithoutBeingAskedForOrAfterARequestToStop) {
  (void)supervise_with_restarts(command(std::string(kProgress) + "exit 1"), policy_, {}, nullptr);
  EXPECT_EQ(starts().size(), 1U);
  policy_.most = 5;
  const std::atomic<bool> stop{true};
  (void)supervise_with_restarts(command("sleep 5; exit 1"), policy_, {}, &stop);
  EXPECT_LE(starts().size(), 2U);
}

TEST_F(Restarts, SayEachTimeWhyAndWhen) {
  policy_.most = 1;
  std::vector<std::string> said;
  (void)supervise_with_restarts(command("echo 'orrery-worker: the disk is full' >&2; exit 1"), policy_,
                                {{}, [&](const std::string& text) { said.push_back(text); }}, nullptr);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said[0], HasSubstr("the disk is full\nrestart 1 of 1"));
}

}  // namespace restart_test
}  // namespace orrery::exec

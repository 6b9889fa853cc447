// The line between supervisor and ranks, the recorder behind it, and what they say of a rank that is gone.
#include "exec/launch/lifeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "exec/launch/diagnose.h"
#include "exec/launch/process_tree.h"

namespace orrery::exec {
namespace lifeline_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr std::chrono::seconds kLong{20};  // far more than anything here takes

/// A child process that plays a rank; its exit is by _exit, so that nothing of the test's runs twice.
template <class Plays>
int rank_process(const std::string& mark, int rank, Plays plays) {
  const int child = fork();
  if (child != 0) return child;
  setenv(kRunMark, mark.c_str(), 1);
  setenv("PMI_RANK", std::to_string(rank).c_str(), 1);
  static Recorder recorder;
  static std::atomic<bool> stop{false};
  static std::unique_ptr<Lifeline> line;
  line = Lifeline::connect(recorder, [] { stop = true; });
  plays(*line, recorder, stop);
  _exit(0);
}

class Lines : public ::testing::Test {
 protected:
  Lines() : mark_("test-" + std::to_string(getpid()) + "-" + std::to_string(counter_++)), lines_(mark_) {}
  ~Lines() override {
    for (const int child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }
  template <class Plays>
  int rank(int number, Plays plays) {
    children_.push_back(rank_process(mark_, number, plays));
    return children_.back();
  }
  bool until(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + kLong;
    while (!done() && std::chrono::steady_clock::now() < end) {
      lines_.serve([this](const std::string& line) { events_.push_back(line); });
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return done();
  }
  const RankLine* line_of(int rank) const {
    for (const auto& line : lines_.ranks())
      if (line->rank == rank) return line.get();
    return nullptr;
  }
  bool gone(int rank) const { return line_of(rank) && line_of(rank)->gone; }

  static inline int counter_ = 0;
  std::string mark_;
  Lifelines lines_;
  std::vector<int> children_;
  std::vector<std::string> events_;
};

TEST_F(Lines, CarryEventsAndWhatARankSaysOfItsEnd) {
  rank(3, [](Lifeline& line, Recorder&, auto&) {
    line.say("{\"event\":\"step\"}");
    line.fails("the disk\nis full");
    line.done(1);
  });
  ASSERT_TRUE(until([&] { return gone(3); }));
  EXPECT_EQ(events_, (std::vector<std::string>{"{\"event\":\"step\"}"}));
  EXPECT_EQ(line_of(3)->failure, "the disk is full");
  EXPECT_FALSE(line_of(3)->late);
  EXPECT_EQ(line_of(3)->done_with, 1);
}

TEST_F(Lines, AskRanksToStopThoseThatComeLaterToo) {
  const auto waits = [](Lifeline& line, Recorder&, std::atomic<bool>& stop) {
    while (!stop) usleep(1000);
    line.done(0);
  };
  rank(0, waits);
  ASSERT_TRUE(until([&] { return line_of(0) != nullptr; }));
  lines_.stop();
  rank(1, waits);
  ASSERT_TRUE(until([&] { return gone(0) && gone(1); }));
  EXPECT_EQ(line_of(1)->done_with, 0);
}

TEST_F(Lines, NameARankThatIsKilledAndTheMessageItWasIn) {
  const int victim = rank(1, [](Lifeline&, Recorder& recorder, auto&) {
    recorder.enter(RankPhase::training);
    recorder.begin_step(17);
    recorder.began(recorder.name_message("all_reduce over group \"data\""), 2);
    for (;;) pause();
  });
  ASSERT_TRUE(
      until([&] { return line_of(1) && line_of(1)->recorder.readable() && line_of(1)->recorder.read(9).step; }));
  kill(victim, SIGKILL);
  ASSERT_TRUE(until([&] { return gone(1); }));
  EXPECT_EQ(who_died(lines_, {0, SIGKILL}),
            "rank 1 was killed by signal 9 (SIGKILL) in training step 17, during all_reduce over group \"data\", "
            "micro-batch 2");
  EXPECT_THAT(who_died(lines_, {}), HasSubstr("rank 1 ended without a message"));
}

TEST_F(Lines, TellARankThatCallsExitFromOneThatTheLauncherEnds) {
  rank(0, [](Lifeline&, Recorder&, auto&) {
    for (;;) pause();
  });
  ASSERT_TRUE(until([&] { return line_of(0) != nullptr; }));
  rank(1, [](Lifeline& line, Recorder&, auto&) { line.exits(0); });
  ASSERT_TRUE(until([&] { return gone(1); }));
  kill(children_[0], SIGKILL);
  ASSERT_TRUE(until([&] { return gone(0); }));
  EXPECT_EQ(who_died(lines_, {9, 0}), "rank 1 ended with exit code 0 before the run was done while starting");
}

TEST_F(Lines, OfARunThatIsDoneNameNobody) {
  rank(0, [](Lifeline& line, Recorder&, auto&) {
    line.done(0);
    line.exits(0);
  });
  ASSERT_TRUE(until([&] { return gone(0); }));
  EXPECT_THAT(who_died(lines_, {0}), IsEmpty());
}

TEST_F(Lines, NameARankThatIsStopped) {
  const int victim = rank(0, [](Lifeline&, Recorder& recorder, auto&) {
    recorder.begin_step(4);
    for (;;) pause();
  });
  ASSERT_TRUE(
      until([&] { return line_of(0) && line_of(0)->recorder.readable() && line_of(0)->recorder.read(0).step; }));
  kill(victim, SIGSTOP);
  ASSERT_TRUE(until([&] { return state_of_process(victim) == 'T'; }));
  EXPECT_THAT(who_holds_up(look_at(lines_, 10)), HasSubstr("is stopped by a signal in training step 4"));
}

TEST(Rank, WhoseSupervisorGoesEndsAtOnce) {
  const std::string mark = "test-orphan-" + std::to_string(getpid());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const int supervisor = fork();
  if (supervisor == 0) {
    // The rank is made first: it must not hold the supervisor's sockets, as no program that is started does.
    int listening[2];
    if (pipe(listening) != 0) _exit(2);
    char word = 0;
    const int rank = fork();
    if (rank == 0) {
      if (read(listening[0], &word, 1) != 1) _exit(2);
      setenv(kRunMark, mark.c_str(), 1);
      Recorder recorder;
      const auto line = Lifeline::connect(recorder, [] {});
      for (;;) pause();
    }
    const Lifelines lines(mark);
    if (write(listening[1], &word, 1) != 1 || write(ends[1], &rank, sizeof rank) != sizeof rank) _exit(2);
    for (;;) pause();
  }
  int rank = 0;
  ASSERT_EQ(read(ends[0], &rank, sizeof rank), static_cast<ssize_t>(sizeof rank));
  usleep(50'000);
  kill(supervisor, SIGKILL);
  waitpid(supervisor, nullptr, 0);
  int status = 0;
  ASSERT_EQ(waitpid(rank, &status, 0), rank);  // hangs, and so fails, when the rank lives on
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST(Rank, ThatFindsNoSupervisorEndsAndEndsTheLauncherThatStartedIt) {
  const int launcher = fork();
  if (launcher == 0) {
    rank_process("test-nobody-" + std::to_string(getpid()), 1, [](Lifeline&, Recorder&, auto&) { _exit(7); });
    for (;;) pause();
  }
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST(Recorders, KeepTheNewestMessagesAndWhatARankWaitsFor) {
  Recorder recorder;
  const RecorderView view(dup(recorder.descriptor()));
  ASSERT_TRUE(view.readable());
  const int gather = recorder.name_message("all_gather"), send = recorder.name_message("send to rank 1");
  recorder.begin_step(2);
  for (int i = 0; i < 5000; ++i) recorder.began(gather, i);
  recorder.ended(send, 7);
  recorder.waits_for("rank 0: a barrier");
  const Recorded read = view.read(3);
  EXPECT_EQ(read.step, 2);
  EXPECT_EQ(read.waiting_for, "rank 0: a barrier");
  ASSERT_EQ(read.last.size(), 3U);
  EXPECT_EQ(read.last[0].what, "all_gather");
  EXPECT_EQ(read.last[0].micro_batch, 4998);
  EXPECT_EQ(read.last[2].what, "send to rank 1");
  EXPECT_TRUE(read.last[2].ended);
  recorder.waits_no_more();
  EXPECT_THAT(view.read(0).waiting_for, IsEmpty());
  EXPECT_LE(view.read(1 << 20).last.size(), 2048U);
}

TEST(Recorders, ThatAreNoneAreNotRead) {
  EXPECT_FALSE(RecorderView(-1).readable());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_FALSE(RecorderView(ends[0]).readable());
  EXPECT_THAT(RecorderView(ends[1]).read(5).last, IsEmpty());
}

RankAtFailure at(int rank, char state, std::int64_t step, const std::string& waiting) {
  RankAtFailure out;
  out.rank = rank;
  out.process = 100 + rank;
  out.state = state;
  out.recorded.step = step;
  out.recorded.waiting_for = waiting;
  return out;
}

TEST(Diagnosis, OfADeadlineNamesWhoDoesNotCome) {
  EXPECT_THAT(who_holds_up({at(0, 'S', 5, "rank 0: all_reduce"), at(1, 'R', 5, "")}),
              StartsWith("rank 1 (process 101)"));
  EXPECT_EQ(who_holds_up({at(0, 'S', 5, "rank 0: all_reduce"), at(1, 'S', 5, "rank 1: a barrier")}),
            "each rank waits for another: waits for rank 0: all_reduce; waits for rank 1: a barrier");
  EXPECT_THAT(who_holds_up({at(0, 'S', 5, ""), at(1, 'R', 5, "")}), IsEmpty()) << "nobody waits";
}

TEST(Diagnosis, ReadsTheLaunchersListOfExitCodes) {
  EXPECT_EQ(wait_statuses_in("[mpiexec@node] Exit codes: [node] 0,1792,9"), (std::vector<int>{0, 1792, 9}));
  EXPECT_EQ(wait_statuses_in("[mpiexec@a] Exit codes: [a1] 0,6 [b2] 9"), (std::vector<int>{0, 6, 9}));
  EXPECT_THAT(wait_statuses_in("Exit codes: 1"), IsEmpty());
  EXPECT_THAT(wait_statuses_in("[mpiexec@a] Exit codes: [a"), IsEmpty());
}

TEST(Processes, OfARunAreFoundByTheirMarkAndEndedStoppedOrNot) {
  const std::string mark = "test-tree-" + std::to_string(getpid());
  int child = 0;
  {
    const ProcessTree tree(mark);
    child = fork();
    if (child == 0) {
      setenv(kRunMark, mark.c_str(), 1);
      execlp("sleep", "sleep", "1000", nullptr);
      _exit(127);
    }
    while (tree.members().empty()) usleep(1000);
    EXPECT_EQ(tree.members(), std::vector<int>{child});
    kill(child, SIGSTOP);
    EXPECT_TRUE(tree.end());
    EXPECT_THAT(tree.members(), IsEmpty());
  }
  EXPECT_EQ(state_of_process(child), '\0') << "it was waited for";
}

TEST(Processes, ThatEndWhileTheyAreLookedAtAreGone) {
  std::atomic<int> watched{getpid()};
  std::atomic<bool> done{false};
  std::thread watcher([&] {
    while (!done) static_cast<void>(state_of_process(watched));
  });
  for (int i = 0; i < 500; ++i) {
    const int child = fork();
    if (child == 0) _exit(0);
    watched = child;
    waitpid(child, nullptr, 0);  // from here on a look at its open file says that there is no such process
    EXPECT_EQ(state_of_process(child), '\0');
  }
  done = true;
  watcher.join();
}

}  // namespace lifeline_test
}  // namespace orrery::exec

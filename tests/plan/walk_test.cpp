// The rules of a schedule, one by one, and the walk that follows them.
#include "plan/schedule/walk.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "plan/schedule/check.h"

namespace orrery::plan {
namespace walk_test {

// Buffer 0 has an instance for each micro-batch, buffer 1 one.
RankClass two_buffers() {
  RankClass c;
  c.buffers.resize(2);
  c.buffers[0].per_micro_batch = true;
  for (Buffer& buffer : c.buffers) buffer.elements = 4;
  return c;
}

constexpr BufferId kFirst(0), kSecond(1);

Step step_of(StepKind kind, std::vector<BufferId> reads, std::vector<BufferId> writes,
             Stream stream = Stream::compute) {
  Step step;
  step.kind = kind;
  step.stream = stream;
  step.reads = std::move(reads);
  step.writes = std::move(writes);
  return step;
}

bool conflict_of(const Step& a, std::int32_t batch_a, const Step& b, std::int32_t batch_b) {
  const RankClass c = two_buffers();
  const BufferUses first{&c, &a, batch_a}, second{&c, &b, batch_b};
  EXPECT_EQ(conflict_between(first, second), conflict_between(second, first));
  return conflict_between(first, second);
}

TEST(Waits, StepsConflictWhereOneWritesWhatTheOtherUses) {
  const Step reads = step_of(StepKind::compute, {kSecond}, {}), writes = step_of(StepKind::send, {}, {kSecond});
  const Step elsewhere = step_of(StepKind::send, {}, {kFirst});
  EXPECT_FALSE(conflict_of(reads, 0, reads, 1));
  EXPECT_TRUE(conflict_of(reads, 0, writes, 1));
  EXPECT_TRUE(conflict_of(writes, 0, writes, 1));
  EXPECT_FALSE(conflict_of(reads, 0, elsewhere, 0));
}

TEST(Waits, InstancesOfOtherMicroBatchesAreOtherMemory) {
  const Step reads = step_of(StepKind::compute, {kFirst}, {}), writes = step_of(StepKind::recv, {}, {kFirst});
  EXPECT_TRUE(conflict_of(reads, 3, writes, 3));
  EXPECT_FALSE(conflict_of(reads, 3, writes, 2));
}

TEST(Waits, BirthAndAComputeStepsDeathTakeTheMemory) {
  const Step reads = step_of(StepKind::send, {kSecond}, {});
  Step born = step_of(StepKind::recv, {}, {}), freed = step_of(StepKind::compute, {}, {});
  born.births = freed.deaths = {kSecond};
  EXPECT_TRUE(conflict_of(reads, 0, born, 0));
  EXPECT_TRUE(conflict_of(reads, 0, freed, 0));
}

// Its memory is handed out at once, so all that computes waits for it, even what touches nothing of it.
TEST(Waits, ComputeWaitsForAMessageThatFreesMemory) {
  const RankClass c = two_buffers();
  const Step message = step_of(StepKind::send, {kSecond}, {}), compute = step_of(StepKind::compute, {kFirst}, {kFirst});
  const BufferUses sent{&c, &message, 0}, computed{&c, &compute, 0};
  EXPECT_TRUE(compute_waits(computed, sent, true));
  EXPECT_FALSE(compute_waits(computed, sent, false));
}

TEST(Waits, AnEntryRunsUnlessItOpensALaterStepOrBelongsBeyondTheEnd) {
  Entry entry;
  entry.ahead = 2;
  EXPECT_TRUE(runs(entry, 5, 8, false));
  EXPECT_FALSE(runs(entry, 6, 8, false));
  entry.opening = true;
  EXPECT_FALSE(runs(entry, 5, 8, false));
  EXPECT_TRUE(runs(entry, 5, 8, true));
}

// Messages end when the test says so.
struct OneRank : WalkingRank<WalkedMessage> {};
class Script : public Walker<Script, OneRank> {
 public:
  explicit Script(std::vector<Step> steps) : Walker(1), class_(two_buffers()) {
    class_.blocks.resize(1);
    class_.blocks[0].steps = std::move(steps);
    for (Step& step : class_.blocks[0].steps) step.part = std::string(1, next_++);
    class_.program.push_back({0, 0});
    rank_.rank_class = &class_;
  }
  std::string go(std::set<std::string> ended = {}) {
    ended_ = std::move(ended);
    log_.clear();
    advance(rank_);
    return log_ + (finished(rank_) ? "." : "");
  }

  static WalkedMessage message(OneRank& /*rank*/, const Visit& visit) {
    WalkedMessage message;
    static_cast<Visit&>(message) = visit;
    return message;
  }
  void start(OneRank& /*rank*/, const WalkedMessage& message) { log_ += message.step->part + "! "; }
  bool ends(OneRank& /*rank*/, const WalkedMessage& message) { return ended_.count(message.step->part) > 0; }
  void compute(OneRank& /*rank*/, const Visit& visit) { log_ += visit.step->part + " "; }

 private:
  RankClass class_;
  OneRank rank_;
  std::set<std::string> ended_;
  std::string log_;
  char next_ = 'a';
};

TEST(Walker, ComputesUntilItNeedsAMessageAndEndsWithTheLastOne) {
  Script script({step_of(StepKind::recv, {}, {kSecond}, Stream::pipeline_recv),
                 step_of(StepKind::compute, {kFirst}, {kFirst}), step_of(StepKind::compute, {kSecond}, {}),
                 step_of(StepKind::send, {kSecond}, {}, Stream::pipeline_send)});
  EXPECT_EQ(script.go(), "a! b ");
  EXPECT_EQ(script.go(), "");
  EXPECT_EQ(script.go({"a"}), "c d! ");
  EXPECT_EQ(script.go({"d"}), ".");
}

TEST(Walker, MessagesOfAStreamFollowOneAnother) {
  Script script({step_of(StepKind::send, {kFirst}, {}, Stream::data),
                 step_of(StepKind::send, {kSecond}, {}, Stream::data),
                 step_of(StepKind::send, {kSecond}, {}, Stream::pipeline_send)});
  EXPECT_EQ(script.go(), "a! c! ");
  EXPECT_EQ(script.go({"a"}), "b! ");
}

TEST(Walker, AMessageWaitsForWhatAnotherStreamBringsIt) {
  Script script({step_of(StepKind::recv, {}, {kSecond}, Stream::pipeline_recv),
                 step_of(StepKind::send, {kSecond}, {}, Stream::pipeline_send)});
  EXPECT_EQ(script.go(), "a! ");
  EXPECT_EQ(script.go({"a"}), "b! ");
}

TEST(Walker, AMessageWaitsForMemoryThatAnotherStreamStillReads) {
  Script script({step_of(StepKind::copy, {kSecond}, {}, Stream::to_host),
                 step_of(StepKind::recv, {}, {kSecond}, Stream::pipeline_recv)});
  EXPECT_EQ(script.go(), "a! ");
  EXPECT_EQ(script.go({"a"}), "b! ");
}

// Two stages that pass a buffer on; each sends what it has, unless it first receives.
Schedule passed_on(bool second_receives_first) {
  Schedule schedule;
  schedule.spec.mesh.pipeline = 2;
  for (const int stage : {0, 1}) {
    RankClass c;
    c.stage = StageId(stage);
    c.representative = stage;
    c.count = 1;
    c.buffers.resize(1);
    c.buffers[0].persistent = true;
    c.buffers[0].elements = 4;
    Step recv = step_of(StepKind::recv, {}, {kFirst}, Stream::pipeline_recv);
    Step send = step_of(StepKind::send, {kFirst}, {}, Stream::pipeline_send);
    recv.peer = send.peer = stage == 0 ? 1 : -1;
    send.tag = stage;
    recv.tag = 1 - stage;
    recv.target = send.source = {kFirst, 0, 4};
    const bool receives_first = stage == 0 || second_receives_first;
    c.blocks.push_back({"pass", receives_first ? std::vector{recv, send} : std::vector{send, recv}});
    c.program.push_back({0, 0});
    schedule.classes.push_back(std::move(c));
  }
  return schedule;
}

TEST(Checker, FindsMessagesThatWaitForOneAnotherWithoutAnyCompute) {
  EXPECT_TRUE(check(passed_on(false)).empty());
  const base::Diagnostics found = check(passed_on(true));
  ASSERT_EQ(found.size(), 2U);
  for (const base::Diagnostic& d : found) EXPECT_EQ(d.code, "S10");
}

}  // namespace walk_test
}  // namespace orrery::plan

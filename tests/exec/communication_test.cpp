// Queues of messages: order within a stream, dependencies across streams, and what compute waits for.
#include "exec/communication.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "exec/failure.h"

namespace orrery::exec {
namespace {

/// Requests that end when the test says so.
class Script : public ::testing::Test {
 protected:
  struct Scripted : Request {
    explicit Scripted(const bool& done) : done_(done) {}
    bool test() override { return done_; }
    const bool& done_;
  };

  void submit(const std::string& name, plan::Stream stream, std::vector<Touch> touches, bool frees = false) {
    communication.submit(
        stream, std::move(touches), frees,
        [this, name] {
          log += name + "! ";
          return std::make_unique<Scripted>(done[name]);
        },
        {nullptr, [this, name] { log += name + ". "; }}, [name] { return name; });
  }
  Touch part(int from, int to, bool writes) { return {memory + from, to - from, writes}; }
  /// Whether compute with these touches would have to wait.
  bool waits(const std::vector<Touch>& touches) {
    try {
      communication.wait_for(touches);
      return false;
    } catch (const Failure&) {
      return true;
    }
  }

  std::byte memory[100] = {};
  std::map<std::string, bool> done;
  std::string log;
  Waiter waiter{
      WaitPolicy{1, 0, std::chrono::nanoseconds(1000), std::chrono::nanoseconds(1000), std::chrono::milliseconds(5)}};
  Communication communication{waiter};
};

TEST_F(Script, AStreamRunsOneAfterTheOther) {
  submit("a", plan::Stream::data, {part(0, 10, true)});
  submit("b", plan::Stream::data, {part(20, 30, true)});
  EXPECT_EQ(log, "a! ");
  done["a"] = true;
  communication.progress();
  EXPECT_EQ(log, "a! a. b! ");
}

TEST_F(Script, StreamsRunBesideEachOtherUnlessTheyTouchTheSameMemory) {
  submit("a", plan::Stream::data, {part(0, 10, true)});
  submit("b", plan::Stream::tensor, {part(20, 30, true)});
  submit("c", plan::Stream::pipeline_send, {part(5, 8, false)});   // sends what `a` writes
  submit("d", plan::Stream::pipeline_recv, {part(20, 22, true)});  // writes what `b` still uses
  EXPECT_EQ(log, "a! b! ");
  done["a"] = done["b"] = true;
  communication.progress();
  EXPECT_NE(log.find("c!"), std::string::npos);
  EXPECT_NE(log.find("d!"), std::string::npos);
}

TEST_F(Script, TwoReadersOfOneBufferDoNotWaitForEachOther) {
  submit("a", plan::Stream::data, {part(0, 10, false)});
  submit("b", plan::Stream::pipeline_send, {part(0, 10, false)});
  EXPECT_EQ(log, "a! b! ");
}

TEST_F(Script, ComputeWaitsForWhatItTouchesAndNothingElse) {
  submit("a", plan::Stream::pipeline_send, {part(0, 10, false)});
  EXPECT_FALSE(waits({part(10, 20, true)}));
  EXPECT_FALSE(waits({part(0, 10, false)})) << "a message's source may be read";
  EXPECT_TRUE(waits({part(9, 20, true)})) << "but not written";
  done["a"] = true;
  EXPECT_FALSE(waits({part(9, 20, true)}));
  EXPECT_TRUE(communication.idle());
}

TEST_F(Script, ComputeWaitsForMessagesThatFreeMemory) {
  submit("a", plan::Stream::pipeline_send, {part(0, 10, false)}, true);
  EXPECT_THROW(communication.wait_for_freeing(), Failure);
  done["a"] = true;
  EXPECT_NO_THROW(communication.wait_for_freeing());
}

TEST_F(Script, AWaitThatIsTooLongNamesAllThatIsPending) {
  submit("first", plan::Stream::data, {part(0, 10, true)});
  submit("second", plan::Stream::data, {part(0, 10, true)});
  try {
    communication.wait_for_all();
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("first; second (not started)"), std::string::npos) << failure.what();
  }
}

// -- a progress thread ----------------------------------------------------------------------------------------------

struct Flagged : Request {
  explicit Flagged(std::atomic<bool>& flag) : done(flag) {}
  bool test() override { return done; }
  std::atomic<bool>& done;
};

const Waiter& patient() {
  static const Waiter waiter{WaitPolicy{}};
  return waiter;
}

TEST(ProgressThread, FinishesAndStartsStepsWhileNobodyAsks) {
  std::atomic<bool> first{false}, second{false}, started{false}, finished{false};
  Communication communication(patient(), Communication::Progress::thread);
  communication.submit(
      plan::Stream::data, {}, false, [&] { return std::make_unique<Flagged>(first); }, {}, [] { return "first"; });
  communication.submit(
      plan::Stream::data, {}, false, [&] { return std::make_unique<Flagged>(second); },
      {[&] { started = true; }, [&] { finished = true; }}, [] { return "second"; });
  EXPECT_FALSE(started);
  first = true;
  while (!started) std::this_thread::yield();
  second = true;
  while (!finished) std::this_thread::yield();
  communication.wait_for_all();
  EXPECT_TRUE(communication.idle());
}

TEST(ProgressThread, AFailureThereIsThrownWhereTheRankAsksNext) {
  static std::atomic<bool> down{false};
  struct Broken : Request {
    bool test() override {
      if (down) throw Failure("the link is down");
      return false;
    }
  };
  Communication communication(patient(), Communication::Progress::thread);
  communication.submit(
      plan::Stream::data, {}, false, [] { return std::make_unique<Broken>(); }, {}, [] { return "a message"; });
  down = true;
  EXPECT_THROW(communication.wait_for_all(), Failure);
}

TEST(ProgressThread, EndsWithMessagesStillUnderWay) {
  std::atomic<bool> never{false};
  Communication communication(patient(), Communication::Progress::thread);
  communication.submit(
      plan::Stream::data, {}, false, [&] { return std::make_unique<Flagged>(never); }, {}, [] { return "lost"; });
}

}  // namespace
}  // namespace orrery::exec

// Queues of messages: order within a stream, dependencies across streams, and what compute waits for.
#include "exec/engine/communication.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "exec/failure.h"

namespace orrery::exec {
namespace communication_test {

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
        [this, name](const Points&) {
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

// -- messages of a device --------------------------------------------------------------------------------------------

/// A queue that remembers what was put behind what: points are numbers of messages.
class Queued : public ::testing::Test {
 protected:
  struct Numbered : Point {
    Numbered(int of, const bool& over) : number(of), passed_(over) {}
    [[nodiscard]] bool passed() const override { return passed_; }
    int number;
    const bool& passed_;
  };
  struct Ended : Request {
    explicit Ended(std::shared_ptr<const Point> at) : end(std::move(at)) {}
    bool test() override {
      ADD_FAILURE() << "nobody asks after a message of the device's";
      return true;
    }
    [[nodiscard]] Points ends() const override { return {end}; }
    std::shared_ptr<const Point> end;
  };
  struct OfHost : Request {
    explicit OfHost(const bool& done) : done_(done) {}
    bool test() override { return done_; }
    const bool& done_;
  };

  /// Message `number`, behind compute that has the point 100 + number.
  void submit(int number, plan::Stream stream, std::vector<Touch> touches, bool queues = true, bool frees = false,
              bool host_memory = false) {
    communication.submit(
        stream, std::move(touches), frees,
        [this, number, queues](const Points& behind) -> std::unique_ptr<Request> {
          log += std::to_string(number) + "(";
          for (const auto& point : behind) log += std::to_string(dynamic_cast<const Numbered&>(*point).number) + " ";
          log += ") ";
          if (!queues) return std::make_unique<OfHost>(over[number]);
          return std::make_unique<Ended>(std::make_shared<Numbered>(number, over[number]));
        },
        {}, [number] { return std::to_string(number); },
        {std::make_shared<Numbered>(100 + number, over[100 + number]), queues, host_memory});
  }
  Touch part(int from, int to, bool writes) { return {memory + from, to - from, writes}; }

  std::byte memory[100] = {};
  std::map<int, bool> over;
  std::string log;
  Waiter waiter{
      WaitPolicy{1, 0, std::chrono::nanoseconds(1000), std::chrono::nanoseconds(1000), std::chrono::milliseconds(5)}};
  Communication communication{waiter, Communication::Progress::inlined, [this](const Point& point) {
                                log += "compute behind " + std::to_string(dynamic_cast<const Numbered&>(point).number) +
                                       " ";
                              }};
};

TEST_F(Queued, StartAtOnceBehindComputeTheirStreamAndWhatTheyConflictWith) {
  submit(1, plan::Stream::data, {part(0, 10, true)});
  submit(2, plan::Stream::data, {part(20, 30, true)});
  submit(3, plan::Stream::pipeline_send, {part(5, 8, false)});
  submit(4, plan::Stream::tensor, {part(50, 60, true)});
  EXPECT_EQ(log, "1(101 ) 2(1 102 ) 3(1 103 ) 4(104 ) ");
}

TEST_F(Queued, ComputeIsOrderedBehindWhatItTouchesOnce) {
  submit(1, plan::Stream::data, {part(0, 10, true)});
  submit(2, plan::Stream::tensor, {part(20, 30, false)});
  log.clear();
  communication.wait_for({part(20, 30, false)});
  EXPECT_EQ(log, "") << "two readers";
  communication.wait_for({part(5, 6, false)});
  communication.wait_for({part(5, 6, false)});
  EXPECT_EQ(log, "compute behind 1 ");
  communication.wait_for_all();
  EXPECT_EQ(log, "compute behind 1 compute behind 2 ");
  EXPECT_TRUE(communication.idle());
}

TEST_F(Queued, ComputeThatIsBehindAMessageIsBehindThoseBeforeItOnItsStream) {
  submit(1, plan::Stream::data, {part(0, 10, true)});
  submit(2, plan::Stream::data, {part(20, 30, true)});
  log.clear();
  communication.wait_for({part(20, 30, true)});
  communication.wait_for({part(0, 10, true)});
  EXPECT_EQ(log, "compute behind 2 ");
}

TEST_F(Queued, ComputeIsOrderedBehindMessagesThatFreeMemory) {
  submit(1, plan::Stream::data, {part(0, 10, true)});
  submit(2, plan::Stream::tensor, {part(20, 30, false)}, true, true);
  log.clear();
  communication.wait_for_freeing();
  EXPECT_EQ(log, "compute behind 2 ");
}

TEST_F(Queued, TheHostItselfWaitsForTheEnd) {
  submit(1, plan::Stream::data, {part(0, 10, true)});
  EXPECT_THROW(communication.wait_for({part(0, 10, false)}, Communication::Who::host), Failure);
  over[1] = true;
  EXPECT_NO_THROW(communication.wait_for({part(0, 10, false)}, Communication::Who::host));
}

TEST_F(Queued, AMessageOfTheHostWaitsForComputeAndForMessagesOfTheDevice) {
  submit(1, plan::Stream::data, {part(0, 10, true)});
  submit(2, plan::Stream::to_host, {part(0, 10, false)}, false);
  submit(3, plan::Stream::tensor, {part(20, 30, true)});
  submit(4, plan::Stream::to_host, {part(40, 50, false)}, false);
  EXPECT_EQ(log, "1(101 ) 3(103 ) ");
  over[102] = over[1] = true;
  communication.progress();
  EXPECT_EQ(log, "1(101 ) 3(103 ) 2(102 ) ") << "and 4 waits for 2, its stream's";
  over[104] = over[2] = true;
  communication.progress();
  EXPECT_NE(log.find("4(104 )"), std::string::npos) << log;
}

TEST_F(Queued, AMessageOfTheDeviceWaitsForTheHostsBeforeItStarts) {
  submit(1, plan::Stream::from_host, {part(0, 10, true)}, false);
  submit(2, plan::Stream::data, {part(0, 10, true)});
  EXPECT_EQ(log, "");
  over[101] = true;
  communication.progress();
  EXPECT_EQ(log, "1(101 ) ");
  over[1] = true;
  communication.wait_for({part(0, 10, true)});
  EXPECT_EQ(log, "1(101 ) 2(102 ) compute behind 2 ");
}

// Compute of the device is behind the copy; the host, which could write to that memory at once, is not.
TEST_F(Queued, ACopyOfTheDevicesIsThereForTheHostUntilItHasPassed) {
  submit(1, plan::Stream::from_host, {part(0, 10, false)}, true, true, true);
  log.clear();
  communication.wait_for_freeing();
  communication.wait_for({part(0, 10, true)});
  EXPECT_EQ(log, "compute behind 1 ");
  EXPECT_TRUE(communication.conflicts({part(0, 10, true)}));
  EXPECT_THROW(communication.wait_for({part(0, 10, true)}, Communication::Who::host), Failure);
  submit(2, plan::Stream::data, {part(0, 10, true)});
  EXPECT_EQ(log, "compute behind 1 2(102 ) ") << "behind compute that is behind it";
  over[1] = true;
  communication.wait_for({part(0, 10, true)}, Communication::Who::device);
  communication.progress();
  EXPECT_TRUE(communication.idle());
}

// Compute that is ordered behind the reduction later is not what the sum on the host, submitted before, waits for.
TEST_F(Queued, AMessageOfTheHostThatIsHereAlreadyWaitsForTheEndItself) {
  submit(1, plan::Stream::data, {part(0, 10, true)});
  submit(2, plan::Stream::to_host, {part(0, 10, false)}, false);
  over[102] = true;
  communication.wait_for({part(0, 10, false)});
  EXPECT_EQ(log, "1(101 ) compute behind 1 ");
  communication.progress();
  EXPECT_EQ(log, "1(101 ) compute behind 1 ") << "2 reads what 1 has not written";
  over[1] = true;
  communication.progress();
  EXPECT_EQ(log, "1(101 ) compute behind 1 2(102 ) ");
}

TEST_F(Queued, NeitherIsAMessageOfTheDeviceThatWaitsForTheHostBehindComputeThatIsOrderedLater) {
  submit(1, plan::Stream::from_host, {part(0, 10, true)});
  submit(2, plan::Stream::to_nvme, {part(20, 30, true)}, false);
  submit(3, plan::Stream::data, {part(0, 10, false), part(20, 30, false)});
  over[102] = true;
  communication.progress();
  communication.wait_for({part(0, 10, false)});
  over[2] = true;
  communication.progress();
  EXPECT_EQ(log, "1(101 ) 2(102 ) compute behind 1 3(1 103 ) ");
}

TEST_F(Queued, ATraceSaysWhatWaitedForWhat) {
  Communication::Trace first, second, third;
  communication.trace_into(&first);
  submit(1, plan::Stream::data, {part(0, 10, true)});
  communication.trace_into(&second);
  submit(2, plan::Stream::tensor, {part(0, 10, false)});
  communication.trace_into(&third);
  communication.wait_for({part(0, 10, true)});
  communication.trace_into(nullptr);
  EXPECT_EQ(first.behind, std::vector<std::int64_t>{});
  EXPECT_EQ(second.submitted, std::vector<std::int64_t>{1});
  EXPECT_EQ(second.behind, std::vector<std::int64_t>{0});
  EXPECT_EQ(third.ordered, (std::vector<std::int64_t>{1, 0}));
  EXPECT_FALSE(first.host || second.host);
}

TEST_F(Queued, ForgottenMessagesNeverWere) {
  submit(1, plan::Stream::data, {part(0, 10, true)});
  const std::int64_t number = communication.next_number();
  submit(2, plan::Stream::data, {part(20, 30, true)}, true, true);
  communication.forget_from(number);
  log.clear();
  communication.wait_for_freeing();
  communication.wait_for_all();
  EXPECT_EQ(log, "compute behind 1 ");
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
      plan::Stream::data, {}, false, [&](const Points&) { return std::make_unique<Flagged>(first); }, {},
      [] { return "first"; });
  communication.submit(
      plan::Stream::data, {}, false, [&](const Points&) { return std::make_unique<Flagged>(second); },
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
      plan::Stream::data, {}, false, [](const Points&) { return std::make_unique<Broken>(); }, {},
      [] { return "a message"; });
  down = true;
  EXPECT_THROW(communication.wait_for_all(), Failure);
}

TEST(ProgressThread, EndsWithMessagesStillUnderWay) {
  std::atomic<bool> never{false};
  Communication communication(patient(), Communication::Progress::thread);
  communication.submit(
      plan::Stream::data, {}, false, [&](const Points&) { return std::make_unique<Flagged>(never); }, {},
      [] { return "lost"; });
}

}  // namespace communication_test
}  // namespace orrery::exec

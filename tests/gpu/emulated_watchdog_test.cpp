// The watchdog, with operations and communicators that do as the test says: hangs, errors, late ends.
#include "exec/cuda/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>

#include "exec/failure.h"

namespace orrery::exec::gpu_test {
namespace emulated_watchdog_test {

using cuda::Watchdog;

struct Flag : Point {
  [[nodiscard]] bool passed() const override { return raised; }
  std::atomic<bool> raised{false};
};

class Watched : public ::testing::Test {
 protected:
  std::unique_ptr<Watchdog> make(double deadline_s) {
    return std::make_unique<Watchdog>(Watchdog::Hooks{[this] { return ill ? std::string("NCCL: a peer is gone") : ""; },
                                                      [this](const std::string& why) {
                                                        const std::lock_guard guard(telling);
                                                        told.push_back(why);
                                                        EXPECT_EQ(aborts, 0)
                                                            << "an abort may block: whoever is to know knows before";
                                                      },
                                                      [this] { ++aborts; }},
                                      deadline_s, std::chrono::milliseconds(1));
  }
  static std::string failure_of(const Watchdog& dog) {
    for (int i = 0; i < 10'000; ++i) {
      try {
        dog.check();
      } catch (const Failure& failure) {
        return failure.what();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return "no failure";
  }
  static void wait_until(const std::function<bool()>& done) {
    for (int i = 0; i < 10'000 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  std::atomic<bool> ill{false};
  std::atomic<int> aborts{0};
  std::mutex telling;
  std::vector<std::string> told;
  std::shared_ptr<Flag> begin = std::make_shared<Flag>(), end = std::make_shared<Flag>();
};

TEST_F(Watched, OperationsThatEndAreForgotten) {
  const auto dog = make(100);
  dog->add("all-reduce", begin, end);
  begin->raised = end->raised = true;
  wait_until([&] { return dog->watched() == 0; });
  EXPECT_EQ(dog->watched(), 0U);
  EXPECT_NO_THROW(dog->check());
  EXPECT_EQ(aborts, 0);
}

TEST_F(Watched, AnOperationThatHangsEndsEverything) {
  const auto dog = make(0.02);
  dog->add("all-reduce over group \"data\"", begin, end);
  dog->add("send to rank 3", std::make_shared<Flag>(), std::make_shared<Flag>());
  begin->raised = true;
  const std::string why = failure_of(*dog);
  EXPECT_NE(why.find("all-reduce over group \"data\": not done within 0.02 s; 1 more are queued"), std::string::npos)
      << why;
  wait_until([&] { return aborts > 0; });
  EXPECT_EQ(aborts, 1);
}

// A queue may be long: what has not begun is not late.
TEST_F(Watched, AnOperationThatHasNotBegunHasNoDeadline) {
  const auto dog = make(0.01);
  dog->add("all-reduce", begin, end);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_NO_THROW(dog->check());
}

TEST_F(Watched, ACommunicatorsErrorEndsEverythingOnce) {
  const auto dog = make(0);
  ill = true;
  EXPECT_EQ(failure_of(*dog), "NCCL: a peer is gone");
  EXPECT_THROW(dog->give_up("what follows from it"), Failure);
  EXPECT_EQ(failure_of(*dog), "NCCL: a peer is gone") << "the first reason stays";
  wait_until([&] { return aborts > 0; });
  EXPECT_EQ(aborts, 1);
  EXPECT_EQ(told, std::vector<std::string>{"NCCL: a peer is gone"});
}

TEST_F(Watched, WithoutADeadlineOperationsMayTakeTheirTime) {
  const auto dog = make(0);
  dog->add("all-reduce", begin, end);
  begin->raised = true;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_NO_THROW(dog->check());
}

// A rank that learns of a failure ends the communicators as it leaves, and that may block.
TEST_F(Watched, TheReasonIsToldBeforeTheRankThrowsIt) {
  std::atomic<bool> telling_now{false}, may_go_on{false};
  Watchdog dog({[this] { return ill ? std::string("NCCL: a peer is gone") : ""; },
                [&](const std::string&) {
                  telling_now = true;
                  wait_until([&] { return may_go_on.load(); });
                },
                [this] { ++aborts; }},
               0, std::chrono::milliseconds(1));
  ill = true;
  wait_until([&] { return telling_now.load(); });
  EXPECT_NO_THROW(dog.check());
  may_go_on = true;
  EXPECT_EQ(failure_of(dog), "NCCL: a peer is gone");
}

TEST_F(Watched, GivingUpThrowsTheReason) {
  const auto dog = make(0);
  EXPECT_THROW(dog->give_up("rank 2 does not answer"), Failure);
  EXPECT_EQ(failure_of(*dog), "rank 2 does not answer");
  EXPECT_EQ(told, std::vector<std::string>{"rank 2 does not answer"});
  EXPECT_EQ(aborts, 1);
}

}  // namespace emulated_watchdog_test
}  // namespace orrery::exec::gpu_test

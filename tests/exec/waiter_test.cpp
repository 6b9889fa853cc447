// Waiting: prompt where cores suffice, asleep where they do not, never for ever.
#include "exec/engine/waiter.h"

#include <gtest/gtest.h>

#include <ctime>

#include "exec/failure.h"

namespace orrery::exec {
namespace waiter_test {

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

TEST(Waiter, ReturnsAtOnceWhenDone) {
  int calls = 0;
  Waiter(wait_policy(1, 2, std::chrono::seconds(1))).until([&] { return ++calls == 1; }, [] { return std::string(); });
  EXPECT_EQ(calls, 1);
}

TEST(Waiter, SleepsWhereThreadsOutnumberCores) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  const double before = cpu_seconds();
  Waiter(wait_policy(4, 2, std::chrono::seconds(10)))
      .until([&] { return std::chrono::steady_clock::now() >= end; }, [] { return std::string(); });
  EXPECT_LT(cpu_seconds() - before, 0.1) << "half of the time or more was spent polling";
}

TEST(Waiter, NapsSoonerWhereThreadsOutnumberCores) {
  EXPECT_LT(wait_policy(3, 2, {}).spins, wait_policy(2, 2, {}).spins);
  EXPECT_EQ(wait_policy(3, 2, {}).yields, 0);
}

TEST(Waiter, FailsAtTheDeadlineAndSaysForWhatItWaited) {
  const Waiter waiter(wait_policy(4, 2, std::chrono::milliseconds(50)));
  try {
    waiter.until([] { return false; }, [] { return std::string("rank 3: all_reduce over group \"data\""); });
    FAIL() << "it returned";
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("rank 3: all_reduce over group \"data\""), std::string::npos);
  }
}

TEST(Waiter, HasNoDeadlineWhenItIsZero) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
  EXPECT_NO_THROW(Waiter(wait_policy(4, 2, {}))
                      .until([&] { return std::chrono::steady_clock::now() >= end; }, [] { return std::string(); }));
}

}  // namespace waiter_test
}  // namespace orrery::exec

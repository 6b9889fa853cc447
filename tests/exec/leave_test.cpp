// A process that has to end ends, and sooner if it can by itself.
#include "exec/run/leave.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace orrery::exec {
namespace leave_test {

TEST(Leaving, EndsAProcessThatIsBlocked) {
  EXPECT_EXIT(
      {
        leave_within(std::chrono::milliseconds(50), 6);
        for (;;) pause();
      },
      ::testing::ExitedWithCode(6), "");
}

TEST(Leaving, HoldsUpNobodyWhoEndsByHimself) {
  EXPECT_EXIT(
      {
        leave_within(std::chrono::hours(1), 6);
        _exit(3);
      },
      ::testing::ExitedWithCode(3), "");
}

}  // namespace leave_test
}  // namespace orrery::exec

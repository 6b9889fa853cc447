/// Message times of CPU ranks by hand.
#include "cost/network/messages.h"

#include <gtest/gtest.h>

#include <vector>

#include "cost/prices/pricing.h"
#include "tests/cost/support.h"

namespace orrery::cost {
namespace messages_test {

Calibration round_numbers() {
  Calibration c;
  for (const char* operation : {"all_reduce", "all_gather", "reduce_scatter", "send"}) {
    c.set(std::string("network.") + operation + ".latency", 1e-6, "test");
    c.set(std::string("network.") + operation + ".bandwidth", 1e9, "test");
  }
  return c;
}

TEST(MpiCollectives, PayRoundsOfLatencyAndTheirShareOfTheVector) {
  const Calibration c = round_numbers();
  using plan::CollectiveKind;
  // Four ranks: 2 rounds and 3/4 of the vector, all-reduce twice that.
  EXPECT_DOUBLE_EQ(mpi_collective_time(c, CollectiveKind::all_gather, base::Bytes{4e6}, 4).value, 2e-6 + 3e6 / 1e9);
  EXPECT_DOUBLE_EQ(mpi_collective_time(c, CollectiveKind::reduce_scatter, base::Bytes{4e6}, 4).value, 2e-6 + 3e6 / 1e9);
  EXPECT_DOUBLE_EQ(mpi_collective_time(c, CollectiveKind::all_reduce, base::Bytes{4e6}, 4).value, 4e-6 + 6e6 / 1e9);
  // Three ranks need as many rounds as four.
  EXPECT_DOUBLE_EQ(mpi_collective_time(c, CollectiveKind::all_gather, base::Bytes{3e6}, 3).value, 2e-6 + 2e6 / 1e9);
  EXPECT_DOUBLE_EQ(mpi_send_time(c, base::Bytes{5e6}).value, 1e-6 + 5e6 / 1e9);
  // Each rank sends what it has to the next.
  EXPECT_DOUBLE_EQ(mpi_collective_time(c, CollectiveKind::ring_shift, base::Bytes{5e6}, 4).value, 1e-6 + 5e6 / 1e9);
}

TEST(MpiCollectives, OfOtherKindsAreMadeOfThese) {
  const Calibration c = round_numbers();
  const auto time = [&](Operation o) { return mpi_operation_time(c, o, base::Bytes{4e6}, 4).value; };
  EXPECT_DOUBLE_EQ(time(Operation::all_gather), 2e-6 + 3e6 / 1e9);
  EXPECT_DOUBLE_EQ(time(Operation::broadcast), 5e-6 + 6e6 / 1e9);
  EXPECT_DOUBLE_EQ(time(Operation::reduce), 4e-6 + 6e6 / 1e9);
  EXPECT_DOUBLE_EQ(time(Operation::all_to_all), 3e-6 + 3e6 / 1e9);
  EXPECT_DOUBLE_EQ(time(Operation::send), 1e-6 + 4e6 / 1e9);
}

TEST(Pricing, AddsTheHostsShareOfAMessageWhereItWorksInline) {
  const auto cluster = testing::cpu_cluster(4);
  const Pricing pricing(cluster, testing::cpu_stack(), {round_numbers()});
  const std::vector<int> members = {0, 1, 2, 3};
  EXPECT_DOUBLE_EQ(pricing.collective_time(plan::CollectiveKind::all_gather, base::Bytes{4e6}, members).value,
                   2e-6 + 3e6 / 1e9 + 2e-6);
  Stack queued = testing::cpu_stack();
  queued.host_inline = false;
  const Pricing behind(cluster, queued, {round_numbers()});
  EXPECT_DOUBLE_EQ(behind.send_time(base::Bytes{5e6}, 0, 1).value, 1e-6 + 5e6 / 1e9);
}

}  // namespace messages_test
}  // namespace orrery::cost

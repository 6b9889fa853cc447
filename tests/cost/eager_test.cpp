/// What an eager framework adds to messages of a tensor group: the host's calls, and hops between nodes.
#include <gtest/gtest.h>

#include <numeric>

#include "cost/prices/pricing.h"
#include "tests/clusters/support.h"

namespace orrery::cost {
namespace {

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Pricing pricing(const std::vector<Parameter>& numbers) {
  Stack stack;
  stack.name = "eager";
  stack.parameters = numbers;
  return Pricing(std::make_shared<clusters::Cluster>(clusters::testing::catalog("hgx-h100-1024")), stack);
}

double seconds(const Pricing& p, int ranks, plan::Stream stream = plan::Stream::tensor) {
  return p.collective_time(plan::CollectiveKind::all_gather, base::Bytes{1 << 25}, first_ranks(ranks), stream).value;
}

TEST(EagerMessages, TakeAHopMoreForEachRankWhereTheGroupLeavesItsNode) {
  const Pricing bare = pricing({}), hops = pricing({{"stack.tensor_hop_time", 50e-6, Unit::seconds, "test"}});
  EXPECT_EQ(seconds(hops, 8), seconds(bare, 8)) << "within a node";
  EXPECT_NEAR(seconds(hops, 16) - seconds(bare, 16), 15 * 50e-6, 1e-12);
  EXPECT_EQ(seconds(hops, 16, plan::Stream::data), seconds(bare, 16, plan::Stream::data)) << "of tensor groups alone";
}

TEST(EagerMessages, CostTheHostACallAndInAPipelineMoreForEachRank) {
  const Pricing p = pricing({{"stack.host_message_time", 200e-6, Unit::seconds, "test"},
                             {"stack.pipeline_message_time", 100e-6, Unit::seconds, "test"}});
  EXPECT_DOUBLE_EQ(p.message_host_time(8, false).value, 200e-6);
  EXPECT_DOUBLE_EQ(p.message_host_time(8, true).value, 1000e-6);
  EXPECT_EQ(p.message_host_time(1, true).value, 0);
  EXPECT_EQ(pricing({}).message_host_time(8, true).value, 0);
}

}  // namespace
}  // namespace orrery::cost

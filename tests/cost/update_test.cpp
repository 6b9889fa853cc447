// Updates bucket by bucket: what Muon's wait for, worked by hand.
#include "cost/estimate/update.h"

#include <gtest/gtest.h>

#include "plan/spec/optimizers.h"

namespace orrery::cost {
namespace {

// Two buckets of directions 1, their meeting 2, an update of 4 and a gather of parameters of 8 behind each: the second
// meeting waits for the first gather, from 7 to 15, and ends at 17; its update at 21, and its gather at 29.
TEST(UpdateChain, LetsDirectionsMeetBehindTheGatherOfTheBucketBefore) {
  UpdateChain chain;
  chain.add({2, 1, 2, 4, 8});
  const auto [update, gather] = chain.times(true);
  EXPECT_DOUBLE_EQ(update, 21);
  EXPECT_DOUBLE_EQ(gather, 8);
  const auto [alone, behind] = chain.times(false);
  EXPECT_DOUBLE_EQ(alone, 2 * (1 + 2 + 4));
  EXPECT_DOUBLE_EQ(behind, 2 * 8);
}

TEST(UpdateChain, HidesGathersBehindUpdatesThatWaitForNothing) {
  UpdateChain chain;
  chain.add({3, 0, 0, 4, 3});
  const auto [update, gather] = chain.times(true);
  EXPECT_DOUBLE_EQ(update, 12);
  EXPECT_DOUBLE_EQ(gather, 3) << "the last one alone shows";
}

TEST(MuonUpdate, OfABucketHasADirectionStepTheProductsOfTheBusiestShardAndAGatherOfAllPieces) {
  plan::WholeMatrices whole;
  whole.rest = 64;
  whole.matrices = {{64, 256, 16, 32, 2, 1}, {320, 256, 32, 16, 1, 2}};
  BucketSize bucket;
  bucket.elements = 576, bucket.shard = 288;
  bucket.whole = &whole;
  plan::PlanSpec spec;
  spec.optimizer = plan::OptimizerKind::muon;
  spec.data = spec.tensor = 2;
  spec.zero_stage = 1;
  const UpdateOps ops = update_ops(bucket, bucket.shard, spec);
  ASSERT_EQ(ops.directions.size(), 1U);
  EXPECT_EQ(ops.directions.front().m, 288);
  EXPECT_EQ(ops.gathered, 2 * 576) << "of both tensor ranks";
  ASSERT_EQ(ops.products.size(), 2U);
  EXPECT_EQ(ops.update.k, 64) << "with a second moment";
  // Elements 64 to 320 and 320 to 576 in shards of 288: the second has something of both.
  EXPECT_EQ(ops.products[0].expected, 1);
  EXPECT_EQ(ops.products[1].expected, 1);
  constexpr auto kType = models::DType::fp32;
  EXPECT_EQ(state_bytes(bucket, 288, spec, 8), arena_bytes(288, kType) + arena_bytes(64, kType));
}

}  // namespace
}  // namespace orrery::cost

// Updates bucket by bucket: what Muon's wait for, and the bytes of blocks, reductions and states, worked by hand.
#include "cost/estimate/update.h"

#include <gtest/gtest.h>

#include "cost/estimate/fold.h"

namespace orrery::cost {
namespace update_test {

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

TEST(BlockLives, LastFromTheFirstUseToTheLast) {
  BlockLives block;
  const int small = block.buffer(100), large = block.buffer(1000);
  (void)block.buffer(5000);
  block.use(small, block.step(true));
  const int meeting = block.step(false);
  block.use(small, meeting);
  block.use(large, meeting);
  block.use(large, block.step(true));
  const int last = block.step(true);
  block.live(last, last, 1050);
  EXPECT_EQ(scratch_bytes({block.take()}).alive, 1100) << "both at the message, and nothing of what no step uses";
}

TEST(BlockLives, LastUntilTheRunBehindTheOneThatHidesTheirCopy) {
  BlockLives block;
  std::vector<int> runs;
  for (int run = 0; run < 4; ++run) runs.push_back(block.step(true)), block.run(runs.back(), runs.back());
  for (const int run : runs) {
    const int one = block.buffer(256);
    block.use(one, run);
    block.leave(one);
  }
  EXPECT_EQ(scratch_bytes({block.take()}).alive, 2 * 256) << "of a run and of the one before it";
}

// 64 values of two replicas in 16 bits: 64 that are sent and 64 pieces, while the next bucket's wait for their sum.
TEST(ReductionBytes, OfBucketsOneBehindTheOtherAreThoseOfTwo) {
  plan::PlanSpec spec;
  spec.mesh.data = 2;
  spec.compression.gradients = plan::GradientCompression::bf16;
  BucketSize bucket;
  bucket.elements = 4096, bucket.shard = 2048;
  const double half = arena_bytes(4096, models::DType::bf16);
  EXPECT_EQ(reduction_bytes({bucket}, spec).packed, 2 * half);
  bucket.count = 8;
  EXPECT_EQ(reduction_bytes({bucket}, spec).packed, 3 * half) << "the one before waits to be widened";
  spec.compression.gradients = plan::GradientCompression::none;
  EXPECT_EQ(reduction_bytes({bucket}, spec).packed, 0) << "in place";
  spec.states.zero_stage = 1;
  EXPECT_EQ(reduction_bytes({bucket}, spec).packed, arena_bytes(2048, models::DType::fp32)) << "one shard at a time";
}

TEST(StateBytes, AreOfMastersMomentsAndNothingThatThePlanLacks) {
  plan::PlanSpec spec;
  BucketSize bucket;
  bucket.elements = bucket.shard = 1024;
  constexpr auto kType = models::DType::fp32;
  const double one = arena_bytes(1024, kType);
  EXPECT_EQ(state_bytes(bucket, spec, 8), 2 * one);
  EXPECT_EQ(state_bytes(bucket, spec, 4), one) << "a framework that keeps both moments in 16 bits";
  spec.numerics.precision = models::DType::bf16;
  EXPECT_EQ(state_bytes(bucket, spec, 8), 3 * one);
  plan::WholeMatrices whole;
  whole.rest = 256;
  whole.matrices = {{256, 768, 32, 24, 1, 1}};
  bucket.whole = &whole;
  spec.states.optimizer = plan::OptimizerKind::muon;
  EXPECT_EQ(state_bytes(bucket, spec, 8), 2 * one + arena_bytes(256, kType));
}

}  // namespace update_test
}  // namespace orrery::cost

/// What an eager framework adds to messages of a tensor group: the host's calls, and hops between nodes.
#include <gtest/gtest.h>

#include <numeric>

#include "cost/prices/operators.h"
#include "cost/prices/pricing.h"
#include "tests/clusters/support.h"

namespace orrery::cost {
namespace eager_test {

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

TEST(EagerMessages, OfGradientsAreHalfWhereTheSoftwareSendsThemIn16Bits) {
  using enum models::DType;
  const Pricing half = pricing({{"stack.reduces_half", 1, Unit::number, "test"}});
  const base::Bytes message{1 << 20};
  const auto sent = [&](const Pricing& p, plan::Phase phase, models::DType kept, models::DType precision) {
    return p.as_reduced(message, phase, kept, precision).value / message.value;
  };
  EXPECT_EQ(sent(half, plan::Phase::gradient_reduce, fp32, bf16), 0.5);
  EXPECT_EQ(sent(half, plan::Phase::gradient_reduce, fp32, fp8), 0.5);
  EXPECT_EQ(sent(half, plan::Phase::gradient_reduce, fp16, fp16), 1) << "kept in 16 bits";
  EXPECT_EQ(sent(half, plan::Phase::gradient_reduce, fp32, fp32), 1) << "nothing is in 16 bits";
  EXPECT_EQ(sent(half, plan::Phase::parameter_gather, fp32, bf16), 1);
  EXPECT_EQ(sent(pricing({}), plan::Phase::gradient_reduce, fp32, bf16), 1);
}

TEST(EagerMessages, OfWholeGradientsAreSentDuringBackwardWhereTheyAreNotPartitioned) {
  Stack stack;
  stack.overlap_whole = true;
  EXPECT_TRUE(stack.reduces_early(0));
  EXPECT_FALSE(stack.reduces_early(1)) << "an optimizer that partitions states reduces after it";
  stack.overlap_gradients = true;
  EXPECT_TRUE(stack.reduces_early(1));
}

TEST(EagerOperators, MoveMoreWhereNormsAndAdaptersAreComposed) {
  models::Op norm;
  norm.kind = models::OpKind::rms_norm;
  norm.dtype = models::DType::bf16;
  norm.n = 1 << 16;
  norm.m = 1 << 12;
  const Pricing fused = pricing({}), composed = pricing({{"stack.norm_passes", 9, Unit::number, "test"}});
  EXPECT_NEAR(composed.op_time(norm).value / fused.op_time(norm).value, 9, 1e-9);
  models::Op adapter;
  adapter.kind = models::OpKind::matmul;
  adapter.dtype = models::DType::bf16;
  adapter.m = 1 << 14;
  adapter.n = 1 << 12;
  adapter.k = 16;
  adapter.trans_b = adapter.accumulate = true;
  EXPECT_TRUE(ends_adapter(adapter));
  const Pricing apart = pricing({{"stack.adapter_bytes", 15, Unit::number, "test"},
                                 {"stack.host_op_time", 10e-6, Unit::seconds, "test"},
                                 {"stack.adapter_calls", 1, Unit::number, "test"}});
  EXPECT_GT(apart.op_time(adapter).value, 2 * fused.op_time(adapter).value);
  EXPECT_DOUBLE_EQ(apart.host_time({&adapter, 1}).value, 20e-6);
  adapter.k = adapter.n;
  EXPECT_FALSE(ends_adapter(adapter)) << "a product of a block";
  EXPECT_EQ(apart.op_time(adapter).value, fused.op_time(adapter).value);
}

TEST(EagerOperators, MoveLogitsMoreWhereTheLossIsComposed) {
  models::Op loss;
  loss.dtype = models::DType::bf16;
  loss.n = 1 << 13;
  loss.m = 1 << 17;
  const Pricing fused = pricing({}), composed = pricing({{"stack.loss_passes", 4.5, Unit::number, "test"}});
  double one = 0, several = 0;
  for (const models::OpKind kind :
       {models::OpKind::softmax_max, models::OpKind::softmax_sum, models::OpKind::cross_entropy_grad}) {
    loss.kind = kind;
    one += fused.op_time(loss).value;
    several += composed.op_time(loss).value;
  }
  EXPECT_NEAR(several / one, 4.5, 1e-9);
  loss.kind = models::OpKind::gelu;
  EXPECT_EQ(composed.op_time(loss).value, fused.op_time(loss).value) << "no part of the loss";
}

TEST(EagerOperators, MakeMuonsDirectionsOrthogonalIn16BitsUnlessTheStackSaysFp32) {
  models::Op op;
  op.kind = models::OpKind::newton_schulz;
  op.dtype = models::DType::fp32;
  op.m = 4096;
  op.n = 4096;
  const double half = pricing({}).op_time(op).value;
  const double full = pricing({{"stack.orthogonal_half", 0, Unit::number, "test"}}).op_time(op).value;
  EXPECT_GT(full, 4 * half) << "fp32 has no tensor cores";
}

}  // namespace eager_test
}  // namespace orrery::cost

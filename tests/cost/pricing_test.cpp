// Prices are remembered by what they depend on, and by all of that.
#include "cost/prices/pricing.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/operators/operators.h"
#include "tests/cost/support.h"

namespace orrery::cost {
namespace pricing_test {

using models::Op;
using models::OpKind;

Op plain(OpKind kind) {
  Op op;
  op.kind = kind;
  op.m = 64, op.n = 48, op.k = 32, op.batch = 2, op.sequence = 24;
  op.heads = 4, op.kv_heads = 2, op.head_dim = 16, op.vocab = 64;
  op.ssm = {.state = 8, .taps = 4, .chunk = 8, .norm_groups = 1};
  op.slots = 4, op.experts = 8, op.chosen = 2, op.capacity = 16, op.run = 4;
  op.in.assign(8, 0), op.out.assign(4, 0);
  return op;
}

TEST(Pricing, OfAnOperatorDoesNotDependOnWhatWasPricedBefore) {
  const std::vector<std::pair<const char*, std::function<void(Op&)>>> changes = {
      {"m", [](Op& op) { op.m *= 3; }},
      {"n", [](Op& op) { op.n *= 3; }},
      {"k", [](Op& op) { op.k *= 3; }},
      {"batch", [](Op& op) { op.batch *= 3; }},
      {"sequence", [](Op& op) { op.sequence *= 3; }},
      {"context", [](Op& op) { op.context = 2; }},
      {"heads", [](Op& op) { op.heads *= 2; }},
      {"kv_heads", [](Op& op) { op.kv_heads *= 2; }},
      {"head_dim", [](Op& op) { op.head_dim *= 2; }},
      {"run", [](Op& op) { op.run *= 2; }},
      {"capacity", [](Op& op) { op.capacity *= 2; }},
      {"slots", [](Op& op) { op.slots *= 2; }},
      {"experts", [](Op& op) { op.experts *= 2; }},
      {"chosen", [](Op& op) { op.chosen *= 2; }},
      {"expected", [](Op& op) { op.expected = 0.5; }},
      {"window", [](Op& op) { op.window = 4; }},
      {"ring step", [](Op& op) { op.ring_step = 1; }},
      {"state", [](Op& op) { op.ssm.state *= 2; }},
      {"taps", [](Op& op) { op.ssm.taps *= 2; }},
      {"chunk", [](Op& op) { op.ssm.chunk *= 2; }},
      {"norm groups", [](Op& op) { op.ssm.norm_groups *= 2; }},
      {"delta", [](Op& op) { op.ssm.delta = true; }},
      {"rotary", [](Op& op) { op.rotary = 8; }},
      {"rule", [](Op& op) { op.rule = models::UpdateRule::adagrad; }},
      {"function", [](Op& op) { op.function = models::Function::gelu; }},
      {"causal", [](Op& op) { op.causal = true; }},
      {"flash", [](Op& op) { op.flash = true; }},
      {"rounded", [](Op& op) { op.rounded = true; }},
      {"accumulate", [](Op& op) { op.accumulate = true; }},
      {"dropout", [](Op& op) { op.dropout = 0.1; }},
      {"stochastic", [](Op& op) { op.stochastic = true; }},
      {"dtype", [](Op& op) { op.dtype = models::DType::bf16; }},
  };
  const auto cluster = testing::cpu_cluster(2);
  const Pricing one(cluster, testing::cpu_stack());
  int told_apart = 0;
  for (int kind = 0; kind < static_cast<int>(models::kOpKinds); ++kind) {
    const Op before = plain(static_cast<OpKind>(kind));
    const double first = one.op_time(before).value;
    for (const auto& [what, change] : changes) {
      Op op = before;
      change(op);
      const double alone = Pricing(cluster, testing::cpu_stack()).op_time(op).value;
      EXPECT_EQ(one.op_time(op).value, alone) << models::name_of(before.kind) << ", " << what;
      told_apart += alone != first ? 1 : 0;
    }
  }
  EXPECT_GT(told_apart, 200) << "the test has no power where nothing changes a price";
}

// Two fifths of a tensor group's message take no time, and gradients travel in half of their bits.
TEST(Pricing, SaysWhichShareOfAMessageTakesTime) {
  const auto cluster = testing::cpu_cluster(2);
  cluster->devices.front().kind = clusters::DeviceKind::gpu;
  Stack stack = testing::cpu_stack();
  stack.parameters.push_back({"stack.tensor_hidden", 0.4, Unit::number, "test"});
  stack.parameters.push_back({"stack.data_share", 2, Unit::number, "test"});
  stack.parameters.push_back({"stack.exchange_share", 0.5, Unit::number, "test"});
  const Pricing pricing(cluster, stack, {});
  using Kind = plan::CollectiveKind;
  EXPECT_DOUBLE_EQ(pricing.seen_share(Kind::all_gather, plan::Stream::tensor), 0.6);
  EXPECT_DOUBLE_EQ(pricing.seen_share(Kind::all_reduce, plan::Stream::data), 0.5);
  EXPECT_DOUBLE_EQ(pricing.seen_share(Kind::all_to_all, plan::Stream::exchange), 1) << "slower, but all of it";
  EXPECT_DOUBLE_EQ(Pricing(testing::cpu_cluster(2), stack, {}).seen_share(Kind::all_gather, plan::Stream::tensor), 1)
      << "measured on CPU ranks";
}

}  // namespace pricing_test
}  // namespace orrery::cost

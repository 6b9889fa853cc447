/// A probe's times, made from known coefficients, give those prices back.
#include "cost/fit/probe_fit.h"

#include <gtest/gtest.h>

#include "cost/prices/pricing.h"
#include "exec/probe/workload.h"
#include "models/layers/expand.h"
#include "tests/clusters/support.h"
#include "tests/cost/support.h"

namespace orrery::cost {
namespace probe_fit_test {

models::Model model_of(std::int64_t width) {
  models::Model m;
  m.layers = 1;
  m.hidden = width;
  m.heads = m.kv_heads = 4;
  m.head_dim = width / 4;
  m.ffn_hidden = 4 * width;
  m.vocab = 1024;
  m.max_sequence = 256;
  return m;
}

/// What prices of several ranks hold beyond those of one rank alone.
double longer(const Pricing& pricing) {
  return (1 + pricing.jitter()) * (1 + pricing.neighbour_slowdown());
}

/// Operators of whole layers in several sizes and messages over two ranks, timed by `truth` alone on one rank.
Probed probed_by(const Pricing& truth) {
  Probed out;
  int workload = 0;
  for (const std::int64_t width : {64, 256, 1024}) {
    for (const std::int64_t tokens : {32, 256}) {
      for (const auto kind : {models::LayerKind::block, models::LayerKind::head}) {
        const models::ExpandOptions options{.batch = 2, .sequence = tokens};
        const models::LayerProgram program = models::expand(model_of(width), kind, 0, options);
        for (const auto* parts : {&program.forward, &program.backward})
          for (const models::Part& part : *parts)
            for (const models::Op& op : part.ops)
              out.operators.push_back({workload, op, 1, truth.op_time(op).value / longer(truth)});
      }
      ++workload;
    }
  }
  const std::vector<int> pair = {0, 1};
  for (double bytes = 1024; bytes < 1e8; bytes *= 4) {
    for (const auto kind :
         {plan::CollectiveKind::all_reduce, plan::CollectiveKind::all_gather, plan::CollectiveKind::reduce_scatter}) {
      // A stack that works inline adds its dispatch, which no message holds.
      const double dispatch = truth.calibration().get("stack.dispatch_overhead", 0);
      out.messages.push_back(
          {false, kind, 2, bytes, truth.collective_time(kind, base::Bytes{bytes}, pair).value - dispatch});
    }
    const double dispatch = truth.calibration().get("stack.dispatch_overhead", 0);
    out.messages.push_back({true, {}, 2, bytes, truth.send_time(base::Bytes{bytes}, 0, 1).value - dispatch});
  }
  out.neighbour_slowdown = 0.11;
  out.rank_jitter = 0.07;
  return out;
}

Calibration known() {
  Calibration c;
  c.name = "truth";
  c.set("device.matmul.fp32.efficiency", 0.55, "test");
  c.set("device.matmul.operand_bandwidth", 33e9, "test");
  c.set("device.vector.activation.rate", 12e9, "test");
  c.set("device.vector.normalisation_grad.rate", 19e9, "test");
  c.set("device.attention.efficiency", 0.31, "test");
  c.set("device.attention.grad_efficiency", 0.27, "test");
  c.set("network.all_reduce.latency", 9e-6, "test");
  c.set("network.all_reduce.bandwidth", 1.5e9, "test");
  c.set("network.send.bandwidth", 8e9, "test");
  c.set("stack.rank_jitter", 0.3, "test");
  return c;
}

FitOptions options() {
  FitOptions out;
  out.date = "2026-01-02";
  out.name = "probed";
  return out;
}

TEST(ProbeFit, FindsThePricesThatMadeTheTimes) {
  const auto cluster = testing::cpu_cluster(2);
  const Pricing truth(cluster, testing::cpu_stack(), {known()}), before(cluster, testing::cpu_stack());
  const Probed probed = probed_by(truth);
  const auto fitted = fit_probe(probed, before, options());
  ASSERT_TRUE(fitted) << base::render(fitted.error(), false);
  EXPECT_GT(fitted->result.error_before, 0.1);
  EXPECT_LT(fitted->result.error_after, 0.02);
  const Pricing after(cluster, testing::cpu_stack(), {fitted->calibration});
  for (const ProbedOperator& one : probed.operators)
    EXPECT_NEAR(after.op_time(one.op).value / longer(after), one.seconds, 0.06 * one.seconds)
        << models::name_of(one.op.kind);
  EXPECT_NEAR(fitted->calibration.at("network.all_reduce.latency"), 9e-6, 5e-7);
  EXPECT_NEAR(fitted->calibration.at("network.all_reduce.bandwidth"), 1.5e9, 5e7);
  EXPECT_NEAR(fitted->calibration.at("network.send.bandwidth"), 8e9, 3e8);
}

TEST(ProbeFit, SaysWhereEachCoefficientComesFromAndLeavesTheRestAlone) {
  const auto cluster = testing::cpu_cluster(2);
  const Pricing before(cluster, testing::cpu_stack());
  const auto fitted = fit_probe(probed_by(before), before, options());
  ASSERT_TRUE(fitted);
  EXPECT_EQ(fitted->calibration.device, "test-core");
  EXPECT_EQ(fitted->calibration.network, "shared-memory");
  EXPECT_EQ(fitted->calibration.stack, "test-stack");
  for (const auto& [name, parameter] : fitted->calibration.parameters)
    EXPECT_NE(parameter.source.find("measured 2026-01-02"), std::string::npos) << name;
  for (const char* unseen : {"stack.step_overhead", "stack.dispatch_overhead", "device.vector.optimizer.rate",
                             "device.matmul.bf16.efficiency"})
    EXPECT_FALSE(fitted->calibration.has(unseen)) << unseen;
  EXPECT_DOUBLE_EQ(fitted->calibration.at("stack.rank_jitter"), 0.07);
  EXPECT_DOUBLE_EQ(fitted->calibration.at("device.neighbour_slowdown"), 0.11);
  EXPECT_FALSE(fitted->calibration.has("network.spill_size")) << "the curve of these messages does not bend";
}

TEST(ProbeFit, FindsWhereTheCurveOfMessagesBends) {
  const auto cluster = testing::cpu_cluster(2);
  Calibration bent = known();
  bent.set("network.spill_size", 1 << 22, "test");
  for (const char* operation : {"all_reduce", "all_gather", "reduce_scatter", "send"})
    bent.set(std::string("network.") + operation + ".spill_bandwidth", 0.7e9, "test");
  const Pricing truth(cluster, testing::cpu_stack(), {bent}), before(cluster, testing::cpu_stack());
  const auto fitted = fit_probe(probed_by(truth), before, options());
  ASSERT_TRUE(fitted);
  EXPECT_DOUBLE_EQ(fitted->calibration.at("network.spill_size"), 1 << 22);
  EXPECT_NEAR(fitted->calibration.at("network.all_reduce.spill_bandwidth"), 0.7e9, 0.05e9);
  const Pricing after(cluster, testing::cpu_stack(), {fitted->calibration});
  const std::vector<int> pair = {0, 1};
  const double large = 500e6;  // far beyond what was measured
  const auto time = [&](const Pricing& p) {
    return p.collective_time(plan::CollectiveKind::all_reduce, base::Bytes{large}, pair).value;
  };
  EXPECT_NEAR(time(after), time(truth), 0.05 * time(truth));
}

TEST(ProbeFit, OneWildTimeInTwentyDoesNotMoveTheRest) {
  const auto cluster = testing::cpu_cluster(2);
  const Pricing truth(cluster, testing::cpu_stack(), {known()}), before(cluster, testing::cpu_stack());
  const Probed clean = probed_by(truth);
  Probed wild = clean;
  for (std::size_t i = 0; i < wild.operators.size(); i += 20) wild.operators[i].seconds *= 8;
  const auto fitted = fit_probe(wild, before, options());
  ASSERT_TRUE(fitted);
  const Pricing after(cluster, testing::cpu_stack(), {fitted->calibration});
  double predicted = 0, told = 0;
  for (const ProbedOperator& one : clean.operators) {
    predicted += after.op_time(one.op).value / longer(after);
    told += one.seconds;
  }
  EXPECT_NEAR(predicted, told, 0.05 * told);
}

TEST(ProbeFit, WithoutMessagesAndOtherRanksNothingIsSaidOfThem) {
  const auto cluster = testing::cpu_cluster(1);
  const Pricing before(cluster, testing::cpu_stack());
  Probed probed = probed_by(Pricing(testing::cpu_cluster(2), testing::cpu_stack()));
  probed.messages.clear();
  probed.neighbour_slowdown = probed.rank_jitter = std::nullopt;
  const auto fitted = fit_probe(probed, before, options());
  ASSERT_TRUE(fitted);
  for (const auto& [name, parameter] : fitted->calibration.parameters) EXPECT_NE(name.rfind("network.", 0), 0U) << name;
  EXPECT_FALSE(fitted->calibration.has("stack.rank_jitter"));
}

/// What a worker's probe of one H200 would say, by known prices.
TEST(ProbeFit, OfAGpuFindsProductsMemoryAttentionAndCopies) {
  const auto cluster = std::make_shared<const clusters::Cluster>(clusters::testing::catalog("hgx-h200"));
  Stack stack;
  stack.name = "orrery-cuda";
  stack.parameters = {{"stack.op_overhead", 4e-6, Unit::seconds, "test"}};
  const Pricing before(cluster, stack);
  Calibration known;
  known.name = "truth";
  for (const auto& [name, factor] : {std::pair{"device.matmul.bf16.efficiency", 0.8},
                                     {"device.matmul.fp16.efficiency", 0.7},
                                     {"device.matmul.k_half", 2.0},
                                     {"device.memory.efficiency", 0.9},
                                     {"device.attention.efficiency", 0.5},
                                     {"device.attention.grad_efficiency", 0.6},
                                     {"stack.op_overhead", 0.6},
                                     {"network.copy.efficiency", 0.7}})
    known.set(name, before.calibration().get(name, 1) * factor, "test");
  const Pricing truth(cluster, stack, {known});
  Probed probed;
  int number = 0;
  for (const exec::Workload& w : exec::standard_workloads(std::int64_t{4} << 30, exec::ProbedDevice::gpu)) {
    for (const models::Op& op : w.ops)
      probed.operators.push_back({number, op, 1, truth.op_time(op).value / longer(truth)});
    ++number;
  }
  for (double bytes = 1 << 16; bytes <= 1 << 26; bytes *= 4)
    for (const bool to_host : {true, false})
      probed.copies.push_back(
          {to_host, bytes,
           truth.copy_time(to_host ? plan::Stream::to_host : plan::Stream::from_host, base::Bytes{bytes}).value});
  const auto fitted = fit_probe(probed, before, options());
  ASSERT_TRUE(fitted) << base::render(fitted.error(), false);
  EXPECT_LT(fitted->result.error_after, 0.02);
  EXPECT_LT(fitted->result.error_after, fitted->result.error_before);
  const Pricing after(cluster, stack, {fitted->calibration});
  for (const ProbedOperator& one : probed.operators)
    EXPECT_NEAR(after.op_time(one.op).value / longer(after), one.seconds, 0.05 * one.seconds)
        << models::name_of(one.op.kind) << " " << one.op.m << " " << one.op.n << " " << one.op.k;
  // A model whose layers were not among them.
  const models::ExpandOptions unseen{.batch = 8, .sequence = 1024, .dtype = models::DType::bf16};
  double predicted = 0, told = 0;
  const models::LayerProgram block = models::expand(model_of(768), models::LayerKind::block, 0, unseen);
  for (const auto* parts : {&block.forward, &block.backward})
    for (const models::Part& part : *parts)
      for (const models::Op& op : part.ops) {
        predicted += after.op_time(op).value;
        told += truth.op_time(op).value;
      }
  EXPECT_NEAR(predicted, told, 0.02 * told);
  const base::Bytes large{1e9};
  EXPECT_NEAR(after.copy_time(plan::Stream::to_host, large).value, truth.copy_time(plan::Stream::to_host, large).value,
              0.03 * truth.copy_time(plan::Stream::to_host, large).value);
  EXPECT_EQ(fitted->calibration.device, cluster->device().name);
  EXPECT_EQ(fitted->calibration.stack, "orrery-cuda");
}

TEST(ProbeFit, RefusesAProbeOfNothing) {
  const Pricing before(testing::cpu_cluster(2), testing::cpu_stack());
  const auto fitted = fit_probe({}, before, options());
  ASSERT_FALSE(fitted);
  EXPECT_EQ(fitted.error().front().code, "F04");
}

}  // namespace probe_fit_test
}  // namespace orrery::cost

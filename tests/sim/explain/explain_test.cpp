// What explains a prediction: variations, sensitivities and operators, each against the replay that it is about.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/parameters/habits.h"
#include "cost/parameters/parameters.h"
#include "models/layers/counts.h"
#include "sim/explain/operators.h"
#include "sim/explain/sensitivity.h"
#include "sim/explain/what_if.h"
#include "sim/simulate.h"
#include "tests/sim/search/search_support.h"

namespace orrery::sim {
namespace explain_test {

plan::PlanSpec split(int data, int tensor, int pipeline) {
  plan::PlanSpec spec;
  spec.mesh.data = data;
  spec.mesh.tensor = tensor;
  spec.mesh.pipeline = pipeline;
  spec.shape.batch = 64;
  spec.shape.sequence = 1024;
  spec.numerics.precision = models::DType::bf16;
  return spec;
}

Question question(const plan::PlanSpec& spec) {
  Question q{testing::model("gpt2-124m"),
             testing::cluster("selene", 16),
             {},
             spec,
             testing::stack("megatron-core"),
             {},
             {},
             nullptr,
             1};
  q.job.batch = spec.shape.batch;
  q.job.sequence = spec.shape.sequence;
  q.job.precision = spec.numerics.precision;
  return q;
}

double step_of(const Question& q, const std::vector<cost::Calibration>& over = {}) {
  const auto made = plan::make_plan(q.model, q.cluster, q.spec);
  EXPECT_TRUE(made.has_value());
  return simulate(*made, cost::Pricing(q.cluster, q.stacks.named(), over), {.spans = false}).prediction.step_time_s;
}

bool always(const std::string& what) {
  return !what.empty();
}

TEST(OtherMachines, SayWhichSizeIsTheNextUsefulOne) {
  const auto of = [](const plan::PlanSpec& spec) {
    return with_other_machines(question(spec), [](const std::string&) { return true; }).front();
  };
  const cost::Variation idle = of(split(4, 2, 2));
  EXPECT_EQ(idle.change, "one more node");
  EXPECT_EQ(idle.refusal, "6 replicas do not share a batch of 64 equally; next useful size 32");
  plan::PlanSpec divided = split(4, 2, 2);
  divided.shape.batch = 96;
  EXPECT_TRUE(of(divided).refusal.empty()) << "six replicas share 96 equally";
  plan::PlanSpec interleaved = split(4, 2, 2);
  interleaved.shape.batch = 80, interleaved.shape.micro_batch = 2, interleaved.stages.virtual_stages = 2;
  EXPECT_EQ(of(interleaved).refusal, "6 replicas do not share a batch of 80 equally; next useful size 40")
      << "eight would share it, but not in rounds of two micro-batches of two";
}

TEST(Sensitivities, AreReplaysWithOneNumberChanged) {
  const Question q = question(split(4, 2, 2));
  const double own = step_of(q);
  const std::vector<cost::Sensitivity> all = sensitivities(q, 8, always);
  ASSERT_GT(all.size(), 3U);
  EXPECT_LE(all.size(), 8U);
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_GE(all[i - 1].swing(), all[i].swing());
  int machines = 0, coefficients = 0;
  for (const cost::Sensitivity& one : all) {
    EXPECT_FALSE(one.source.empty()) << one.what;
    const auto known = cost::known_parameter(one.what);
    if (!known) {
      ++machines;
      EXPECT_GE(one.less_s, own * (1 - 1e-9)) << one.what << ": a slower machine is no faster";
      EXPECT_LE(one.more_s, own * (1 + 1e-9)) << one.what;
      continue;
    }
    ++coefficients;
    const cost::Pricing prices(q.cluster, q.stacks.named(), {});
    cost::Calibration less;
    less.name = "less";
    less.set(one.what, std::max(known->low, prices.calibration().at(one.what) / cost::kSensitivityFactor), "test");
    EXPECT_NEAR(step_of(q, {less}), one.less_s, 1e-12) << one.what;
  }
  EXPECT_GT(machines, 0);
  EXPECT_GT(coefficients, 0);
}

TEST(Sensitivities, OfANumberThatMovesNothingAreNotListed) {
  const std::vector<cost::Sensitivity> all = sensitivities(question(split(16, 1, 1)), 40, always);
  for (const cost::Sensitivity& one : all) EXPECT_GT(one.swing(), 0) << one.what;
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = i + 1; j < all.size(); ++j)
      EXPECT_FALSE(all[i].less_s == all[j].less_s && all[i].more_s == all[j].more_s)
          << all[i].what << " and " << all[j].what << " say the same";
}

TEST(Sensitivities, StopWhenAsked) {
  int asked = 0;
  const auto once = [&](const std::string&) { return ++asked < 2; };
  EXPECT_LE(sensitivities(question(split(4, 2, 2)), 8, once).size(), 1U);
}

TEST(Neighbours, DifferInOneStepAndSayWhyThereIsNone) {
  const Question q = question(split(4, 2, 2));
  const auto all = neighbours(q, always);
  ASSERT_GT(all.size(), 5U);
  for (const cost::Variation& one : all) {
    if (!one.prediction) {
      EXPECT_FALSE(one.code.empty()) << one.change;
      continue;
    }
    EXPECT_FALSE(one.prediction->spec == q.spec) << one.change;
    EXPECT_EQ(one.prediction->spec.mesh.ranks(), 16) << one.change;
    EXPECT_GT(one.prediction->step_time_s, 0) << one.change;
  }
}

TEST(OtherMachines, HaveNICsTwiceAsFast) {
  const auto faster = machine_with(*testing::cluster("selene", 16), {{"node.nics.bandwidth", "50 GB/s"}});
  ASSERT_TRUE(faster.has_value());
  EXPECT_DOUBLE_EQ(faster->shape->node.nic_bandwidth.value, 50e9);
  EXPECT_FALSE(machine_with(*testing::cluster("selene", 16), {{"node.no_such_key", "1"}}).has_value());
}

TEST(Operators, OfAStepHaveTheModelsFlopsAndTheReplaysTime) {
  const Question q = question(split(4, 2, 2));
  const auto made = plan::make_plan(q.model, q.cluster, q.spec);
  ASSERT_TRUE(made.has_value());
  const cost::Pricing pricing(q.cluster, q.stacks.named(), {});
  const plan::Schedule schedule = cost::lower_for(*made, q.stacks.named());
  const cost::Operators operators = operators_of(schedule, pricing, cost::mean_share(*made));
  const cost::Breakdown breakdown = simulate(*made, schedule, pricing, {.spans = false}).prediction.breakdown;
  double flops = 0, seconds = 0;
  for (const cost::OperatorRow& row : operators.rows) {
    EXPECT_GT(row.count, 0) << row.name;
    if (row.phase != "forward" && row.phase != "backward") continue;
    if (row.name == "matmul" || row.name.find("attention") != std::string::npos) flops += row.flops;
    seconds += row.seconds;
  }
  const double model = models::flops_per_step(*q.model, q.spec.shape.batch, q.spec.shape.sequence) / 16;
  EXPECT_NEAR((flops + operators.masked_flops) / model, 1, 0.06)
      << "but for the padded vocabulary and what flash computes again";
  EXPECT_LE(seconds, (breakdown.forward + breakdown.backward) * (1 + 1e-9)) << "issuing and jitter come on top";
  EXPECT_GT(seconds, 0.3 * (breakdown.forward + breakdown.backward))
      << "though issuing takes most, of a model so small";
  EXPECT_GT(operators.masked_flops, 0) << "GPT-2's attention is causal";
  EXPECT_DOUBLE_EQ(operators.peak_flops, 312e12);
}

}  // namespace explain_test
}  // namespace orrery::sim

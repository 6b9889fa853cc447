// Contention and imbalance in the replay's breakdown, worked by hand; and neither where nothing is shared and all ranks
// have the same to do.
#include <gtest/gtest.h>

#include <span>
#include <utility>

#include "plan/lower/lower.h"
#include "sim/simulate.h"
#include "tests/plan/samples.h"
#include "tests/sim/small_clusters.h"

namespace orrery::sim {
namespace causes_test {

double sum_of(const cost::Breakdown& b) {
  return b.forward + b.backward + b.recompute + b.optimizer + b.bubble + b.imbalance + b.overhead + b.exposed();
}

// -- stages ---------------------------------------------------------------------------------------------------------

/// An operator takes a second and a jitter; nothing else takes time, but messages a little.
cost::Pricing a_second_an_operator(const plan::Plan& plan) {
  cost::Stack stack;
  stack.name = "bare";
  stack.parameters.push_back({"stack.op_overhead", 1, cost::Unit::seconds, "test"});
  for (const char* name : {"stack.dispatch_overhead", "stack.step_overhead"})
    stack.parameters.push_back({name, 0, cost::Unit::seconds, "test"});
  stack.parameters.push_back({"stack.context_memory", 0, cost::Unit::bytes, "test"});
  return cost::Pricing(std::make_shared<clusters::Cluster>(plan.cluster()), std::move(stack));
}

models::Op small() {
  models::Op op;
  op.kind = models::OpKind::relu;
  op.n = op.m = 1;
  return op;
}

/// Two stages whose passes are so many operators each, and nothing besides.
plan::Schedule of_operators(const plan::Plan& plan, const std::vector<std::size_t>& forward,
                            const std::vector<std::size_t>& backward) {
  plan::Schedule schedule = plan::lower(plan);
  for (plan::RankClass& c : schedule.classes) {
    const auto stage = c.stage.index();
    for (plan::Block& block : c.blocks) {
      bool begun[2] = {false, false};  // of a pass the first segment has all its operators
      for (plan::Step& step : block.steps) {
        if (step.kind != plan::StepKind::compute) continue;
        step.ops.clear();
        const bool is_backward = step.phase == plan::Phase::backward;
        if (step.phase != plan::Phase::forward && !is_backward) continue;
        if (std::exchange(begun[is_backward ? 1 : 0], true)) continue;
        step.ops.assign((is_backward ? backward : forward)[stage], small());
      }
    }
  }
  return schedule;
}

/// Four micro-batches. Times are in operators.
cost::Prediction two_stages(const std::vector<std::size_t>& forward, const std::vector<std::size_t>& backward) {
  plan::PlanSpec spec;
  spec.mesh.pipeline = 2, spec.shape.batch = 4, spec.shape.micro_batch = 1, spec.shape.sequence = 16;
  const plan::Plan plan = samples::make(spec);
  const cost::Pricing pricing = a_second_an_operator(plan);
  cost::Prediction p = simulate(plan, of_operators(plan, forward, backward), pricing).prediction;
  const models::Op op = small();
  const double time = pricing.compute_time(std::span(&op, 1)).value;
  cost::Breakdown& b = p.breakdown;
  for (double* one : {&p.step_time_s, &b.forward, &b.backward, &b.recompute, &b.optimizer, &b.tensor_communication,
                      &b.data_communication, &b.pipeline_communication, &b.bubble, &b.imbalance, &b.contention})
    *one /= time;
  return p;
}

constexpr double kMessages = 0.01;  // what messages, norms and losses may take of these steps, in operators

// Passes of 1 + 2 on the first stage and 2 + 4 on the second: the step is 4 x 6 + 3. The first stage works for 12, 12
// less than the second, and the rest of its waiting is 3; the second waits 1 for its first input, and 2 for the first
// stage's end.
TEST(Causes, OfUnequalStagesTheBusiestMakesTheOthersWait) {
  const cost::Prediction p = two_stages({1, 2}, {2, 4});
  EXPECT_NEAR(p.step_time_s, 27, kMessages);
  EXPECT_NEAR(p.breakdown.forward + p.breakdown.backward, (12 + 24) / 2.0, kMessages);
  EXPECT_NEAR(p.breakdown.imbalance, (12 + 0) / 2.0, kMessages);
  EXPECT_NEAR(p.breakdown.bubble, 3, kMessages);
  EXPECT_NEAR(p.bubble_fraction, (6 + 3) / 27.0, 1e-3) << "both are waiting for another stage";
  EXPECT_NEAR(sum_of(p.breakdown) / p.step_time_s, 1, 1e-9);
}

TEST(Causes, OfEqualStagesThereIsNoImbalance) {
  const cost::Prediction p = two_stages({2, 2}, {4, 4});
  EXPECT_NEAR(p.step_time_s, 4 * 6 + 6, kMessages);
  EXPECT_EQ(p.breakdown.imbalance, 0);
  EXPECT_EQ(p.breakdown.contention, 0) << "ranks of a CPU's share nothing that is modelled";
  EXPECT_NEAR(p.breakdown.bubble, 6, kMessages);
}

// Stages that differ in one pass and make up for it in the other have equal work: their waiting is bubble.
TEST(Causes, IsNoImbalanceWhereTheStepsWorkIsEqual) {
  const cost::Prediction p = two_stages({1, 2}, {4, 3});
  EXPECT_EQ(p.breakdown.imbalance, 0);
  EXPECT_GT(p.breakdown.bubble, 0);
}

// -- links ----------------------------------------------------------------------------------------------------------

/// Two groups of two replicas, over nodes of two devices with so many NICs; nothing overlaps.
cost::Prediction two_data_groups(int nics, bool overlaps = false, bool every_rank = false) {
  testing::SmallCluster c;
  c.nics = nics, c.pcie_switches = nics;
  models::Model model = samples::tiny_gpt(4, 1024);
  model.heads = model.kv_heads = 8;
  model.head_dim = model.hidden / 8;
  model.max_sequence = 64;
  plan::PlanSpec spec;
  spec.mesh.data = 2, spec.mesh.tensor = 2, spec.shape.batch = 4, spec.shape.sequence = 64,
  spec.numerics.vocab_multiple = 1;
  auto made = plan::make_plan(std::make_shared<models::Model>(std::move(model)), testing::make(c), spec);
  ENSURE(made.has_value(), "{}", base::render(made.error(), false));
  const cost::Pricing pricing(std::make_shared<clusters::Cluster>(made->cluster()),
                              testing::stack_that_overlaps(overlaps));
  return simulate(*made, pricing, {.every_rank = every_rank}).prediction;
}

cost::CommunicationRow data_row(const cost::Prediction& p) {
  cost::CommunicationRow all;
  for (const cost::CommunicationRow& row : p.communication)
    if (row.dimension == "data") {
      all.bytes += row.bytes;
      all.time_s += row.time_s;
      all.exposed_s += row.exposed_s;
      all.contention_s += row.contention_s;
    }
  return all;
}

// With a NIC for each device the two groups do not meet. With one for both, each has half of it, and what its gradients
// take longer is contention. All else stays as it was.
TEST(Causes, OfTwoTransfersThroughOneLinkTheSharingIsContention) {
  const cost::Prediction apart = two_data_groups(2), shared = two_data_groups(1);
  EXPECT_EQ(apart.breakdown.contention, 0);
  EXPECT_EQ(apart.breakdown.imbalance, 0);
  const double alone = data_row(apart).time_s, together = data_row(shared).time_s;
  const double nic = 100e9 / 8 * 0.96;  // of which large collectives reach this share
  EXPECT_NEAR(together, 2 * data_row(shared).bytes / nic, 0.1 * together) << "latencies come on top";
  EXPECT_LT(alone, 0.8 * together);
  EXPECT_NEAR(shared.breakdown.contention, together - alone, 1e-9);
  EXPECT_NEAR(data_row(shared).contention_s, together - alone, 1e-9);
  EXPECT_NEAR(data_row(shared).exposed_s, together, 1e-9) << "contention is exposed too";
  EXPECT_NEAR(shared.breakdown.data_communication, apart.breakdown.data_communication, 1e-9);
  EXPECT_NEAR(shared.step_time_s - apart.step_time_s, shared.breakdown.contention, 1e-9);
  EXPECT_NEAR(shared.exposed_communication_s, shared.breakdown.exposed(), 1e-12);
  EXPECT_NEAR(sum_of(shared.breakdown) / shared.step_time_s, 1, 1e-9);
  EXPECT_EQ(shared.breakdown.imbalance, 0);
}

TEST(Causes, AreThoseOfTheReplayOfEveryRank) {
  const cost::Breakdown folded = two_data_groups(1).breakdown, each = two_data_groups(1, false, true).breakdown;
  EXPECT_NEAR(folded.contention, each.contention, 1e-9);
  EXPECT_NEAR(folded.data_communication, each.data_communication, 1e-9);
}

// -- loads ----------------------------------------------------------------------------------------------------------

/// A mixture on 32 H100, whose fullest rank gets so many times the mean's tokens.
cost::Prediction mixture(double imbalance) {
  auto model = std::make_shared<models::Model>(*testing::model("qwen3-30b-a3b"));
  model->layers = 4;
  cost::Stack stack = testing::stack("megatron-lm");
  stack.memory = {};
  const cost::Pricing pricing(testing::cluster("hgx-h100-1024", 32), stack);
  plan::PlanSpec spec;
  spec.mesh.data = 32, spec.mesh.expert = 16, spec.shape.batch = 64, spec.shape.sequence = 4096,
  spec.states.zero_stage = 1;
  spec.numerics.flash = true;
  spec.numerics.precision = models::DType::bf16;
  spec.tokens.bound = spec.tokens.imbalance = imbalance;
  const auto made = plan::make_plan(model, pricing.shared_cluster(), spec);
  ENSURE(made.has_value(), "{}", base::render(made.error(), false));
  return simulate(*made, pricing, {.spans = false}).prediction;
}

// The mean rank computes and sends what it would of even loads; the rest of the step it waits for the fullest.
TEST(Causes, OfUnevenExpertsTheFullestMakesTheOthersWait) {
  const cost::Prediction even = mixture(1), uneven = mixture(1.5);
  const auto passes = [](const cost::Prediction& p) { return p.breakdown.forward + p.breakdown.backward; };
  EXPECT_EQ(even.breakdown.imbalance, 0);
  EXPECT_GT(uneven.breakdown.imbalance, 0.02 * uneven.step_time_s);
  EXPECT_NEAR(passes(uneven) / passes(even), 1, 1e-3);
  EXPECT_NEAR(uneven.breakdown.exchange_communication / even.breakdown.exchange_communication, 1, 0.03)
      << "messages of other sizes reach another bandwidth";
  EXPECT_NEAR(uneven.step_time_s - even.step_time_s,
              uneven.breakdown.imbalance + uneven.breakdown.contention - even.breakdown.contention,
              0.01 * uneven.step_time_s);
  EXPECT_NEAR(sum_of(uneven.breakdown) / uneven.step_time_s, 1, 1e-9);
  EXPECT_GT(uneven.exposed_communication_s, uneven.breakdown.exposed()) << "messages of the fullest rank are exposed";
}

}  // namespace causes_test
}  // namespace orrery::sim

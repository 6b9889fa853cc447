// Where the replay says that a step's time goes, against what its schedule's steps cost one by one.
#include <gtest/gtest.h>

#include <map>

#include "plan/lower/lower.h"
#include "sim/simulate.h"
#include "tests/plan/samples.h"

namespace orrery::sim {
namespace breakdown_test {

cost::Stack stack(double overhead = 0) {
  cost::Stack stack;
  stack.name = "bare";
  for (const char* name : {"stack.op_overhead", "stack.dispatch_overhead"})
    stack.parameters.push_back({name, 0, cost::Unit::seconds, "test"});
  stack.parameters.push_back({"stack.step_overhead", overhead, cost::Unit::seconds, "test"});
  stack.parameters.push_back({"stack.context_memory", 0, cost::Unit::bytes, "test"});
  return stack;
}

cost::Pricing pricing(const plan::Plan& plan, cost::Stack software = stack()) {
  return cost::Pricing(std::make_shared<clusters::Cluster>(plan.cluster()), std::move(software));
}

plan::PlanSpec spec(int data, int tensor, int pipeline, int zero = 0) {
  plan::PlanSpec s;
  s.mesh.data = data, s.mesh.tensor = tensor, s.mesh.pipeline = pipeline, s.states.zero_stage = zero;
  s.shape.micro_batch = 1, s.shape.batch = 8, s.shape.sequence = 16;
  return s;
}

/// Seconds of compute by phase on the mean rank, step by step of the schedule.
std::map<plan::Phase, double> computed(const plan::Schedule& schedule, const cost::Pricing& prices) {
  std::map<plan::Phase, double> out;
  const auto classes = static_cast<double>(schedule.classes.size());  // one for each stage, of equally many ranks
  for (const plan::RankClass& c : schedule.classes)
    for (const plan::Entry& entry : c.program)
      for (const plan::Step& step : c.blocks[static_cast<std::size_t>(entry.block)].steps)
        if (step.kind == plan::StepKind::compute) out[step.phase] += prices.compute_time(step).value / classes;
  return out;
}

TEST(Breakdown, OfComputeIsTheSumOfItsSteps) {
  for (const auto recompute : {plan::Recompute::none, plan::Recompute::full}) {
    plan::PlanSpec s = spec(1, 1, 2);
    s.recomputation.what = recompute;
    const plan::Plan plan = samples::make(s);
    const plan::Schedule schedule = plan::lower(plan);
    const cost::Pricing prices = pricing(plan);
    std::map<plan::Phase, double> by = computed(schedule, prices);
    const cost::Breakdown b = simulate(plan, schedule, prices).prediction.breakdown;
    constexpr double kRounding = 1e-9;  // picoseconds a step
    EXPECT_NEAR(b.forward, by[plan::Phase::forward] + by[plan::Phase::input], kRounding);
    EXPECT_NEAR(b.backward, by[plan::Phase::backward], kRounding);
    EXPECT_NEAR(b.recompute, by[plan::Phase::recompute], kRounding);
    EXPECT_GT(b.backward, b.forward);
    EXPECT_EQ(b.recompute > 0, recompute == plan::Recompute::full);
  }
}

// Nothing overlaps: all that a rank's messages take is exposed, under the dimension that they belong to.
TEST(Breakdown, BooksMessagesUnderTheirDimension) {
  const struct {
    int data, tensor, pipeline;
    double cost::Breakdown::*mine;
  } cases[] = {{2, 1, 1, &cost::Breakdown::data_communication},
               {1, 2, 1, &cost::Breakdown::tensor_communication},
               {1, 1, 2, &cost::Breakdown::pipeline_communication}};
  for (const auto& one : cases) {
    const plan::Plan plan = samples::make(spec(one.data, one.tensor, one.pipeline));
    const cost::Prediction p = simulate(plan, pricing(plan)).prediction;
    double sent = 0;  // beside what all ranks agree on, which is data's
    for (const cost::CommunicationRow& row : p.communication)
      if (row.dimension == (one.data > 1 ? "data" : one.tensor > 1 ? "tensor" : "pipeline")) sent += row.exposed_s;
    EXPECT_GT(sent, 0);
    EXPECT_GE(p.breakdown.*one.mine, sent * (1 - 1e-9));
    for (double cost::Breakdown::*part :
         {&cost::Breakdown::tensor_communication, &cost::Breakdown::pipeline_communication})
      EXPECT_TRUE(part == one.mine || p.breakdown.*part == 0) << one.data << one.tensor << one.pipeline;
    EXPECT_GT(p.breakdown.*one.mine, 0);
  }
}

TEST(Breakdown, HasTheHostsShareOfAStepOnce) {
  const plan::Plan plan = samples::make(spec(2, 1, 2));
  const cost::Prediction without = simulate(plan, pricing(plan)).prediction;
  const cost::Prediction with = simulate(plan, pricing(plan, stack(0.25))).prediction;
  EXPECT_DOUBLE_EQ(with.breakdown.overhead, 0.25);
  EXPECT_NEAR(with.step_time_s - without.step_time_s, 0.25, 1e-9);
}

// Each of 8 micro-batches sums its activations twice in each of 4 layers on its way forward, and twice backward.
TEST(Communication, CountsEveryMicroBatch) {
  const plan::Plan plan = samples::make(spec(1, 2, 1));
  const cost::Prediction p = simulate(plan, pricing(plan)).prediction;
  std::int64_t sums = 0;
  for (const cost::CommunicationRow& row : p.communication)
    if (row.dimension == "tensor") sums += row.count;
  EXPECT_GE(sums, 8 * 4 * 4);
}

// nccl-tests: of an all-reduce each link carries 2 (n - 1)/n of the vector, of its two halves (n - 1)/n.
TEST(Communication, HasTheBusBandwidthOfItsOperation) {
  for (const int zero : {0, 1})
    for (const int ranks : {2, 4}) {
      const plan::Plan plan = samples::make(spec(ranks, 1, 1, zero));
      for (const cost::CommunicationRow& row : simulate(plan, pricing(plan)).prediction.communication) {
        if (row.dimension != "data") continue;
        const double n = ranks, factor = row.operation == "all_reduce" ? 2 * (n - 1) / n : (n - 1) / n;
        EXPECT_NEAR(row.bus_bandwidth, factor * row.bytes / row.time_s, 1e-6 * row.bus_bandwidth)
            << row.operation << " over " << ranks;
      }
    }
}

// Software that overlaps exposes less, and what it exposes is no more than what it takes.
TEST(Overlap, HidesWhatTheSoftwareCanAndNothingElse) {
  plan::PlanSpec s = spec(2, 1, 1, 2);  // ZeRO-2 reduces behind every layer
  const plan::Plan plan = samples::make(s, samples::tiny_gpt(8, 128));
  cost::Stack apart = stack(), beside = stack();
  beside.overlap_data = true;
  const cost::Prediction slow = simulate(plan, pricing(plan, apart)).prediction;
  const cost::Prediction fast = simulate(plan, pricing(plan, beside)).prediction;
  const auto whole = [](const cost::Prediction& p) {
    double time = 0, exposed = 0;
    for (const cost::CommunicationRow& row : p.communication)
      if (row.dimension == "data") time += row.time_s, exposed += row.exposed_s;
    return std::make_pair(time, exposed);
  };
  EXPECT_NEAR(whole(slow).second / whole(slow).first, 1, 1e-6) << "nothing is hidden";
  EXPECT_LT(whole(fast).second, 0.9 * whole(fast).first);
  EXPECT_LT(fast.step_time_s, slow.step_time_s);
}

// The head's stage has the logits of 4,096 words.
TEST(Memory, PeaksOnTheStageThatNeedsMost) {
  for (const std::int64_t vocab : {8, 4096}) {
    const plan::Plan plan = samples::make(spec(1, 1, 2), samples::tiny_gpt(4, 32, vocab));
    const cost::Prediction p = simulate(plan, pricing(plan)).prediction;
    ASSERT_EQ(p.memory.size(), 2U);
    EXPECT_EQ(p.memory[1].total > p.memory[0].total, vocab == 4096);
    EXPECT_DOUBLE_EQ(p.memory_peak_bytes, std::max(p.memory[0].total, p.memory[1].total));
  }
}

}  // namespace breakdown_test
}  // namespace orrery::sim

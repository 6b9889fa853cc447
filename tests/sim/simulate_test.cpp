// The replay against hand-worked pipelines and the properties it must keep.
#include "sim/simulate.h"

#include <gtest/gtest.h>

#include "cost/estimate/estimate.h"
#include "plan/lower/lower.h"
#include "plan/schedule/place.h"
#include "tests/plan/samples.h"

namespace orrery::sim {
namespace simulate_test {

cost::Stack bare_stack() {
  cost::Stack stack;
  stack.name = "bare";
  for (const char* name : {"stack.op_overhead", "stack.dispatch_overhead", "stack.step_overhead"})
    stack.parameters.push_back({name, 0, cost::Unit::seconds, "test"});
  stack.parameters.push_back({"stack.context_memory", 0, cost::Unit::bytes, "test"});
  return stack;
}

cost::Pricing pricing(const plan::Plan& plan, cost::Stack stack = bare_stack()) {
  return cost::Pricing(std::make_shared<clusters::Cluster>(plan.cluster()), std::move(stack));
}

TEST(Simulate, EverySplitAccountsForItsWholeStep) {
  for (const auto& [name, spec] : samples::splits()) {
    const plan::Plan plan = samples::make(spec);
    const cost::Prediction p = simulate(plan, pricing(plan)).prediction;
    const cost::Breakdown& b = p.breakdown;
    const double sum = b.forward + b.backward + b.recompute + b.optimizer + b.tensor_communication +
                       b.data_communication + b.pipeline_communication + b.bubble + b.imbalance + b.contention +
                       b.overhead;
    EXPECT_NEAR(sum / p.step_time_s, 1, 1e-9) << name;
    EXPECT_GT(p.mfu, 0) << name;
  }
}

TEST(Simulate, BubbleOfEqualStagesIsTheTextbookFraction) {
  // (p-1)/(m+p-1), Huang et al. 2019 section 2.2; messages and the ends are made small against 32 wide blocks.
  models::Model model = samples::tiny_gpt(32, 512, 8);
  for (plan::Order order : {plan::Order::gpipe, plan::Order::one_f_one_b})
    for (int stages : {2, 4}) {
      plan::PlanSpec spec;
      spec.mesh.pipeline = stages;
      spec.stages.order = order;
      spec.shape.batch = 8;
      const plan::Plan plan = samples::make(spec, model);
      auto cluster = std::make_shared<clusters::Cluster>(plan.cluster());
      cost::Calibration fast = cost::defaults(*cluster);
      for (auto& [name, parameter] : fast.parameters)
        if (name.rfind("network.", 0) == 0 && parameter.unit == cost::Unit::seconds) parameter.value = 0;
      cluster->intra.bandwidth = base::BytesPerSecond{1e15};
      const Simulation s = simulate(plan, cost::Pricing(cluster, bare_stack(), {fast}));
      const double compute = s.prediction.breakdown.forward + s.prediction.breakdown.backward;
      const double pipelined = compute + s.prediction.breakdown.bubble;
      EXPECT_NEAR(s.prediction.breakdown.bubble / pipelined, (stages - 1) / (8.0 + stages - 1), 0.02) << stages;
    }
}

TEST(Simulate, AStageThatIsAnEmbeddingAloneSendsWhatItsTensorGroupSums) {
  // With rotary positions nothing is computed between the sum and the message to the next stage, so that nothing of
  // the first stage's own waits for it.
  models::Model model = samples::tiny_gpt();
  model.positions = models::Positions::rope;
  for (const std::vector<std::int64_t>& split : {std::vector<std::int64_t>{0, 4}, {2, 2}})
    for (const bool overlaps : {false, true}) {
      plan::PlanSpec spec;
      spec.mesh.tensor = spec.mesh.pipeline = 2;
      spec.stages.layers_per_stage = split;
      const plan::Plan plan = samples::make(spec, model);
      cost::Stack stack = bare_stack();
      stack.overlap_tensor = overlaps;
      const cost::Pricing prices = pricing(plan, stack);
      const cost::Prediction p = simulate(plan, prices).prediction;
      EXPECT_GT(p.step_time_s, 0);
      cost::Estimator estimator(std::make_shared<models::Model>(model), prices);
      EXPECT_NEAR(estimator.estimate(plan).step_time / p.step_time_s, 1, 0.1) << split[0] << overlaps;
    }
}

TEST(Simulate, IsDeterministicToTheByte) {
  const plan::Plan plan = samples::make(samples::splits().back().second);
  const plan::Schedule schedule = plan::lower(plan);
  const std::string a = plan::write_timeline(simulate(plan, pricing(plan)).timeline, schedule);
  EXPECT_EQ(a, plan::write_timeline(simulate(plan, pricing(plan)).timeline, schedule));
}

TEST(Simulate, SpansOfAStreamDoNotOverlapAndWaitForTheirPeers) {
  for (const auto& [name, spec] : samples::splits()) {
    const plan::Plan plan = samples::make(spec);
    const plan::Schedule schedule = plan::lower(plan);
    const Simulation s = simulate(plan, schedule, pricing(plan));
    std::int64_t steps = 0;
    std::map<std::pair<int, plan::Stream>, double> busy_until;
    for (const plan::Span& span : s.timeline.spans) {
      const plan::RankClass& c = schedule.class_of(span.rank);
      const plan::Entry& entry = c.program[static_cast<std::size_t>(span.at.entry)];
      const plan::Step& step =
          c.blocks[static_cast<std::size_t>(entry.block)].steps[static_cast<std::size_t>(span.at.step)];
      EXPECT_LE(span.ready, span.start + 1e-12) << name;
      EXPECT_LE(span.start, span.end) << name;
      double& until = busy_until[{span.rank, step.stream}];
      EXPECT_GE(span.start, until - 1e-12) << name << " " << step.part;
      until = span.end;
      ++steps;
    }
    EXPECT_EQ(steps, schedule.steps()) << name;
  }
}

TEST(Simulate, MorePipelineStagesHoldFewerMicroBatchesTowardsTheEnd) {
  plan::PlanSpec spec;
  spec.mesh.pipeline = 4;
  spec.shape.batch = 8;
  const plan::Plan plan = samples::make(spec);
  const cost::Prediction p = simulate(plan, pricing(plan)).prediction;
  ASSERT_EQ(p.memory.size(), 4u);
  EXPECT_GT(p.memory[1].total, p.memory[2].total);
}

TEST(Simulate, ZeroReducesMemoryStageByStage) {
  double before = 1e30;
  for (int zero : {0, 1, 2, 3}) {
    plan::PlanSpec spec;
    spec.mesh.data = 4;
    spec.states.zero_stage = zero;
    // A model whose states outweigh its activations.
    const plan::Plan plan = samples::make(spec, samples::tiny_gpt(8, 256));
    const double peak = simulate(plan, pricing(plan)).prediction.memory_peak_bytes;
    EXPECT_LT(peak, before) << zero;
    before = peak;
  }
}

}  // namespace simulate_test
}  // namespace orrery::sim

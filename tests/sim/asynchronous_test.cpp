// Pipelines that never drain, replayed: a step without bubble, what a flush and a tied table would cost, and a
// breakdown that adds up.
#include <gtest/gtest.h>

#include <algorithm>

#include "cost/estimate/estimate.h"
#include "plan/lower/lower.h"
#include "sim/simulate.h"
#include "tests/plan/samples.h"

namespace orrery::sim {
namespace asynchronous_test {

using plan::Order;

cost::Stack bare_stack() {
  cost::Stack stack;
  stack.name = "bare";
  for (const char* name : {"stack.op_overhead", "stack.dispatch_overhead", "stack.step_overhead"})
    stack.parameters.push_back({name, 0, cost::Unit::seconds, "test"});
  stack.parameters.push_back({"stack.context_memory", 0, cost::Unit::bytes, "test"});
  return stack;
}

// Wide blocks and a tiny vocabulary: the ends weigh next to nothing. Messages take no time.
struct Wide {
  explicit Wide(Order order, int stages, bool tied, std::int64_t micro_batch) : model(samples::tiny_gpt(16, 512, 8)) {
    model.tied_embeddings = tied;
    spec.mesh.pipeline = stages;
    spec.stages.order = order;
    spec.shape.batch = 32;
    spec.shape.micro_batch = micro_batch;
  }
  [[nodiscard]] cost::Prediction simulated(cost::Estimate* estimate = nullptr) const {
    const plan::Plan plan = samples::make(spec, model);
    auto cluster = std::make_shared<clusters::Cluster>(plan.cluster());
    cost::Calibration fast = cost::defaults(*cluster);
    for (auto& [name, parameter] : fast.parameters)
      if (name.rfind("network.", 0) == 0 && parameter.unit == cost::Unit::seconds) parameter.value = 0;
    cluster->intra.bandwidth = base::BytesPerSecond{1e15};
    const cost::Pricing pricing(cluster, bare_stack(), {fast});
    if (estimate) *estimate = cost::Estimator(std::make_shared<models::Model>(model), pricing).estimate(plan);
    return simulate(plan, pricing).prediction;
  }
  models::Model model;
  plan::PlanSpec spec;
};

TEST(SimulateAsynchronous, AStepOfEqualStagesHasNoBubble) {
  for (const int stages : {2, 4})
    for (const Order order : {Order::pipedream, Order::pipedream_2bw}) {
      const Wide wide(order, stages, false, order == Order::pipedream ? 32 : 4);
      cost::Estimate closed;
      const cost::Prediction p = wide.simulated(&closed);
      // Stages stop for their updates one after another, with no more micro-batches under way than keep them busy: what
      // a stop delays of 2BW's comes round again.
      const double most = order == Order::pipedream ? 0.01 : 0.02;
      EXPECT_LT(p.bubble_fraction, most) << plan::describe(p.spec);
      EXPECT_LT(closed.bubble / closed.step_time, most) << plan::describe(p.spec);
    }
}

TEST(SimulateAsynchronous, TakesWhatAFlushedPipelineComputes) {
  const cost::Prediction flushed = Wide(Order::one_f_one_b, 4, false, 4).simulated();
  const cost::Prediction asynchronous = Wide(Order::pipedream_2bw, 4, false, 4).simulated();
  EXPECT_NEAR(flushed.bubble_fraction, 3.0 / 11, 0.04);
  EXPECT_NEAR(asynchronous.breakdown.forward, flushed.breakdown.forward, 1e-6 * flushed.breakdown.forward);
  EXPECT_NEAR(asynchronous.breakdown.backward, flushed.breakdown.backward, 1e-6 * flushed.breakdown.backward);
  EXPECT_LT(asynchronous.step_time_s, flushed.step_time_s);
  EXPECT_GT(asynchronous.memory_peak_bytes, flushed.memory_peak_bytes);
}

TEST(SimulateAsynchronous, ATiedTableMakesTheLastStageWaitForTheFirst) {
  const cost::Prediction free = Wide(Order::pipedream, 4, false, 32).simulated();
  const cost::Prediction tied = Wide(Order::pipedream, 4, true, 32).simulated();
  EXPECT_GT(tied.step_time_s, 1.5 * free.step_time_s);
}

TEST(SimulateAsynchronous, AccountsForItsWholeStepAndCountsItsMessages) {
  for (const bool tied : {true, false})
    for (const Order order : {Order::pipedream, Order::pipedream_vertical, Order::pipedream_2bw}) {
      Wide wide(order, 4, tied, order == Order::pipedream_2bw ? 4 : 32);
      wide.spec.shape.batch = 64;
      wide.spec.mesh.data = 2;
      const cost::Prediction p = wide.simulated();
      const cost::Breakdown& b = p.breakdown;
      const double sum = b.forward + b.backward + b.recompute + b.optimizer + b.tensor_communication +
                         b.data_communication + b.pipeline_communication + b.bubble + b.imbalance + b.contention +
                         b.overhead;
      EXPECT_NEAR(sum / p.step_time_s, 1, 1e-6) << plan::describe(p.spec);
      for (const cost::CommunicationRow& row : p.communication) {
        if (row.dimension != "pipeline" || row.operation != "send") continue;
        // Three boundaries, both ways, on four stages: 6/4 of the micro-batches for the mean rank.
        const std::int64_t m = order == Order::pipedream_2bw ? 8 : 1;
        EXPECT_EQ(row.count, (m * 6 + 3) / 4) << plan::describe(p.spec);
      }
    }
}

TEST(SimulateAsynchronous, SpansAreThoseOfOneStep) {
  const Wide wide(Order::pipedream, 4, false, 32);
  const plan::Plan plan = samples::make(wide.spec, wide.model);
  const plan::Schedule schedule = plan::lower(plan);
  const cost::Pricing pricing(std::make_shared<clusters::Cluster>(plan.cluster()), bare_stack());
  const Simulation s = simulate(plan, schedule, pricing);
  for (const plan::RankClass& c : schedule.classes) {
    std::int64_t steps = 0;
    for (const plan::Entry& entry : c.program)
      if (!entry.opening)
        steps += static_cast<std::int64_t>(c.blocks[static_cast<std::size_t>(entry.block)].steps.size());
    EXPECT_EQ(std::count_if(s.timeline.spans.begin(), s.timeline.spans.end(),
                            [&](const plan::Span& span) { return span.rank == c.representative; }),
              steps)
        << "stage " << c.stage.number();
  }
}

TEST(SimulateAsynchronous, EveryRankByItselfIsTheSame) {
  Wide wide(Order::pipedream_2bw, 2, true, 4);
  wide.spec.mesh.data = 2;
  const plan::Plan plan = samples::make(wide.spec, wide.model);
  const cost::Pricing pricing(std::make_shared<clusters::Cluster>(plan.cluster()), bare_stack());
  EXPECT_EQ(simulate(plan, pricing).prediction.step_time_s,
            simulate(plan, pricing, {.every_rank = true}).prediction.step_time_s);
}

}  // namespace asynchronous_test
}  // namespace orrery::sim

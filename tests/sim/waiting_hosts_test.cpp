/// What a host does while it waits, and what it waits for.
#include <gtest/gtest.h>

#include "cost/estimate/estimate.h"
#include "plan/lower/lower.h"
#include "sim/shared_links.h"
#include "sim/simulate.h"
#include "tests/sim/search/search_support.h"
#include "tests/sim/small_clusters.h"

namespace orrery::sim {
namespace waiting_hosts_test {

plan::Plan planned(const std::shared_ptr<const models::Model>& model,
                   const std::shared_ptr<const clusters::Cluster>& cluster, const plan::PlanSpec& spec) {
  auto made = plan::make_plan(model, cluster, spec);
  if (!made) throw std::runtime_error(base::render(made.error(), false));
  return *std::move(made);
}

/// A mixture whose balancing loss all stages sum between the last forward pass and the first backward one.
plan::Plan balanced(plan::PlanSpec spec) {
  auto model = std::make_shared<models::Model>(*testing::model("tiny-moe"));
  model->layers = 4;
  model->experts.aux_coefficient = 0.01;
  spec.stages.order = plan::Order::gpipe;
  spec.shape.batch = 4 * spec.mesh.data;
  spec.shape.sequence = 32;
  spec.numerics.vocab_multiple = 1;
  return planned(model, testing::cluster("localhost-4"), spec);
}

TEST(WaitingHosts, JoinASumThatAnotherStageWaitsFor) {
  // The first stage waits for a gradient, which the second computes once both have summed what the layers counted. If
  // its tensor group or its experts meet first in the backward pass, nothing of its own waits for that sum by then.
  std::vector<plan::PlanSpec> specs(3);
  specs[0].mesh.pipeline = 2, specs[0].mesh.tensor = 2;
  specs[1].mesh.pipeline = 2, specs[1].mesh.context = 2, specs[1].mesh.expert = 2;
  specs[2].mesh.pipeline = 2, specs[2].mesh.data = 2;
  const auto cluster = testing::cluster("localhost-4");
  for (const plan::PlanSpec& spec : specs) {
    const plan::Plan plan = balanced(spec);
    const double apart = simulate(plan, cost::Pricing(cluster, testing::stack("orrery-cpu"))).prediction.step_time_s;
    const double beside =
        simulate(plan, cost::Pricing(cluster, testing::stack("orrery-cpu-overlap"))).prediction.step_time_s;
    EXPECT_GT(apart, beside) << plan::describe(spec) << ": messages that advance only while their rank waits";
    EXPECT_LT(apart, 2 * beside) << plan::describe(spec);
  }
}

/// Steps that ended before their host could have issued them: it waits for what another stage sends, then issues.
int issued_too_early(const plan::Plan& plan, const cost::Pricing& pricing) {
  const plan::Schedule schedule = plan::lower(plan);
  const Simulation s = simulate(plan, schedule, pricing, {.every_micro_batch = true});
  std::map<std::tuple<int, plan::BufferId, int>, double> received;  // rank, buffer, micro-batch
  int early = 0, read = 0;
  for (const plan::Span& span : s.timeline.spans) {
    const plan::RankClass& c = schedule.class_of(span.rank);
    const plan::Entry entry = c.program[static_cast<std::size_t>(span.at.entry)];
    const plan::Step& step =
        c.blocks[static_cast<std::size_t>(entry.block)].steps[static_cast<std::size_t>(span.at.step)];
    if (step.kind == plan::StepKind::recv)
      for (const plan::BufferId buffer : step.writes) received[{span.rank, buffer, span.micro_batch}] = span.end;
    if (step.kind != plan::StepKind::compute) continue;
    for (const plan::BufferId buffer : step.reads) {
      const auto found = received.find({span.rank, buffer, span.micro_batch});
      if (found == received.end()) continue;
      ++read;
      if (span.end < found->second + pricing.host_time(step.ops).value - 1e-9) ++early;
      received.erase(found);  // the first that reads it waits
    }
  }
  EXPECT_GT(read, 20);
  return early;
}

TEST(WaitingHosts, IssueWhatReadsAMessageOnceItHasCome) {
  // The host is the slower: were it not for messages, it would have issued a pass long before its turn.
  const auto cluster = testing::cluster("dgx-a100", 8);
  cost::Stack stack = testing::stack("orrery-cuda");
  stack.parameters.push_back({"stack.host_op_time", 500e-6, cost::Unit::seconds, "test"});
  const cost::Pricing pricing(cluster, stack);
  for (const plan::Order order : {plan::Order::zb_h1, plan::Order::zb_h2, plan::Order::one_f_one_b})
    for (const int chunks : {1, 2}) {
      if (chunks > 1 && order != plan::Order::one_f_one_b) continue;
      plan::PlanSpec spec;
      spec.mesh.pipeline = 4, spec.mesh.data = 2;
      spec.stages.order = order, spec.stages.virtual_stages = chunks;
      spec.shape.batch = 16, spec.shape.sequence = 1024;
      spec.numerics.precision = models::DType::bf16;
      spec.numerics.flash = true;
      EXPECT_EQ(issued_too_early(planned(testing::model("gpt2-124m"), cluster, spec), pricing), 0)
          << plan::name_of(order) << " " << chunks;
    }
}

/// Closed form over replay, less 1.
double deviation(const plan::Plan& plan, const std::shared_ptr<const models::Model>& model, const cost::Stack& stack) {
  const cost::Pricing pricing(std::make_shared<clusters::Cluster>(plan.cluster()), stack);
  const double closed = cost::Estimator(model, pricing, shared_links(pricing)).time(plan).step_time;
  return closed / simulate(plan, pricing, {.spans = false}).prediction.step_time_s - 1;
}

/// ZeRO over 16 GPUs of two nodes.
plan::PlanSpec sharded(int zero) {
  plan::PlanSpec spec;
  spec.mesh.data = 16, spec.states.zero_stage = zero;
  spec.shape.batch = 32, spec.shape.sequence = 1024;
  spec.numerics.precision = models::DType::bf16;
  spec.numerics.flash = true;
  return spec;
}

TEST(WaitingHosts, HaveNoLeadOverTheDeviceWhenAStepBegins) {
  // The host issues forward passes too slowly. Backward ones wait for reductions, which the host does not: so it is
  // behind in the first forward pass alone.
  const auto model = testing::model("gpt2-1558m");
  const auto cluster = testing::cluster("mi300x", 16);
  cost::Stack stack = testing::stack("torchtitan-2024");
  stack.memory = {};
  for (const int zero : {2, 3})
    EXPECT_NEAR(deviation(planned(model, cluster, sharded(zero)), model, stack), 0, 0.01) << zero;
}

TEST(ReductionsBeside, WaitForTheStepThatAddsUpTheOneBefore) {
  const auto model = testing::model("gpt2-1558m");
  const auto cluster = testing::cluster("hgx-h100-roce", 16);
  cost::Stack stack = testing::stack("torchtitan-2024");
  stack.memory = {};
  std::erase_if(stack.parameters, [](const auto& p) { return p.name == "stack.host_op_time"; });
  stack.parameters.push_back({"stack.reduce_beside", 1, cost::Unit::number, "test"});
  for (const int zero : {2, 3})
    EXPECT_NEAR(deviation(planned(model, cluster, sharded(zero)), model, stack), 0, 0.03) << zero;
}

}  // namespace waiting_hosts_test
}  // namespace orrery::sim

/// Where the closed form says that a step's time goes: by hand, and by the bubble of the textbook.
#include <gtest/gtest.h>

#include "cost/estimate/estimate.h"
#include "cost/estimate/stage_times.h"
#include "tests/cost/support.h"
#include "tests/plan/samples.h"

namespace orrery::cost {
namespace breakdown_test {

StageTimes stage(double forward, double backward) {
  StageTimes t;
  t.input = 0.25;
  t.forward = forward, t.recompute = 0.5, t.backward = backward;
  t.begin = 1, t.reduce = 5, t.keep = 2, t.norm = 3, t.update = 4, t.gather = 6;
  return t;
}

// Three stages and four micro-batches. Of each part the mean: four of what a micro-batch takes, one of what a step
// does.
TEST(Breakdown, IsTheMeanOverStagesOfAllMicroBatches) {
  const std::vector<StageTimes> stages = {stage(1, 2), stage(2, 4), stage(3, 6)};
  PipelineResult passes;
  passes.transfer = {0.75, 1.5, 0.75};
  passes.reduced = {0, 0, 1.5};
  passes.late_forward = {0, 0.375, 0}, passes.late_backward = {0.75, 0, 0};
  const auto at = [](plan::Stream stream) { return static_cast<std::size_t>(stream); };
  passes.exposed.resize(3);
  for (auto& one : passes.exposed) {
    one[at(plan::Stream::tensor)] = 0.25, one[at(plan::Stream::context)] = 0.25;
    one[at(plan::Stream::data)] = 1, one[at(plan::Stream::exchange)] = 0;
    one[at(plan::Stream::to_host)] = 0.0625, one[at(plan::Stream::from_nvme)] = 0.0625;
  }
  const Breakdown b = breakdown_of(stages, passes, {.norm = 0.5, .loss = 0.25, .embedding = 3}, 4, 100, 7);
  EXPECT_DOUBLE_EQ(b.forward, 4 * (2 + 0.25) + 0.125);
  EXPECT_DOUBLE_EQ(b.recompute, 4 * 0.5);
  EXPECT_DOUBLE_EQ(b.backward, 4 * 4 + 0.25);
  EXPECT_DOUBLE_EQ(b.optimizer, 1 + 2 + 3 + 4);
  EXPECT_DOUBLE_EQ(b.tensor_communication, 0.5);
  // The tied table's gradients meet on the first and on the last of the three.
  EXPECT_DOUBLE_EQ(b.data_communication, 1 + 0.5 + 5 + 6 + 0.5 + 0.25 + 3 * 2.0 / 3);
  EXPECT_DOUBLE_EQ(b.pipeline_communication, 1);
  EXPECT_DOUBLE_EQ(b.copies, 0.125);
  EXPECT_DOUBLE_EQ(b.overhead, 7);
  // Of four micro-batches the last stage computes 9, the mean one 6: for the difference the others wait.
  EXPECT_DOUBLE_EQ(b.imbalance, 4 * (9 - 6));
  EXPECT_DOUBLE_EQ(b.bubble, 100 - (9.125 + 2 + 16.25 + 10 + 0.5 + 15.25 + 1 + 0.125 + 7) - b.imbalance);
  const Breakdown full = breakdown_of(stages, passes, {}, 4, 10, 7);
  EXPECT_EQ(full.bubble + full.imbalance, 0) << "rounding makes no negative time";
  EXPECT_EQ(breakdown_of({stage(1, 2), stage(1, 2)}, passes, {}, 4, 100, 7).imbalance, 0) << "equal stages";
}

Stack bare_stack() {
  Stack stack = testing::cpu_stack();
  for (Parameter& parameter : stack.parameters) parameter.value = 0;
  return stack;
}

Prediction predicted(const plan::Plan& plan, Stack stack = bare_stack()) {
  auto cluster = std::make_shared<clusters::Cluster>(plan.cluster());
  cluster->intra = {"shared-memory", base::BytesPerSecond{1e15}, base::Seconds{0}};
  Calibration fast = defaults(*cluster);
  for (auto& [name, parameter] : fast.parameters)
    if (name.rfind("network.", 0) == 0 && parameter.unit == Unit::seconds) parameter.value = 0;
  const Pricing pricing(cluster, std::move(stack), {fast});
  return Estimator(std::make_shared<models::Model>(plan.model()), pricing).predict(plan);
}

plan::Plan pipeline(int stages, plan::Order order = plan::Order::one_f_one_b) {
  plan::PlanSpec spec;
  spec.mesh.pipeline = stages, spec.stages.order = order, spec.shape.batch = 8;
  return samples::make(spec, samples::tiny_gpt(32, 512, 8));
}

double parts(const Breakdown& b) {
  return b.forward + b.backward + b.recompute + b.optimizer + b.tensor_communication + b.data_communication +
         b.pipeline_communication + b.copies + b.bubble + b.imbalance + b.overhead;
}

// (p - 1)/(m + p - 1) of the passes, Huang et al. 2019, section 2.2; the ends are small against 32 wide blocks.
TEST(Breakdown, HasTheBubbleOfTheTextbook) {
  for (const plan::Order order : {plan::Order::gpipe, plan::Order::one_f_one_b})
    for (const int stages : {2, 4}) {
      const Prediction p = predicted(pipeline(stages, order));
      const Breakdown& b = p.breakdown;
      EXPECT_NEAR(b.bubble / (b.forward + b.backward + b.bubble), (stages - 1) / (8.0 + stages - 1), 0.02) << stages;
      EXPECT_DOUBLE_EQ(p.bubble_fraction, (b.bubble + b.imbalance) / p.step_time_s);
    }
  EXPECT_NEAR(predicted(pipeline(1)).bubble_fraction, 0, 1e-12);
}

TEST(Breakdown, LeavesNothingOfTheStepOut) {
  for (const auto& [name, spec] : samples::splits()) {
    const plan::Plan plan = samples::make(spec);
    const Pricing pricing(std::make_shared<clusters::Cluster>(plan.cluster()), testing::cpu_stack());
    const Prediction p = Estimator(std::make_shared<models::Model>(plan.model()), pricing).predict(plan);
    EXPECT_NEAR(parts(p.breakdown) / p.step_time_s, 1, 1e-9) << name;
    const Breakdown& b = p.breakdown;
    EXPECT_DOUBLE_EQ(p.exposed_communication_s,
                     b.tensor_communication + b.data_communication + b.pipeline_communication + b.copies)
        << name;
    EXPECT_EQ(b.tensor_communication > 0, spec.mesh.tensor > 1 || spec.mesh.context > 1) << name;
    if (spec.recomputation.what != plan::Recompute::selective) {  // of which a flash kernel leaves nothing
      EXPECT_EQ(b.recompute > 0, spec.recomputation.what == plan::Recompute::full) << name;
    }
    EXPECT_TRUE(spec.mesh.data == 1 || b.data_communication > 0) << name;
    EXPECT_TRUE(spec.mesh.pipeline == 1 || b.pipeline_communication > 0) << name;
  }
}

TEST(Breakdown, OfFullRecomputationHasEveryBlocksForwardPassAgain) {
  plan::PlanSpec spec;
  spec.shape.batch = 8, spec.recomputation.what = plan::Recompute::full;
  const models::Model deep = samples::tiny_gpt(32, 512, 8);
  const Breakdown again = predicted(samples::make(spec, deep)).breakdown;
  // Of a block's two products behind the attention the last is read by nobody: 8 of its 24 C^2 need not be repeated.
  EXPECT_GT(again.recompute, 0.6 * again.forward);
  EXPECT_LT(again.recompute, again.forward);
}

TEST(Breakdown, HasTheHostsShareOfAStepOnce) {
  const plan::Plan plan = pipeline(2);
  Stack stack = bare_stack();
  const Prediction without = predicted(plan, stack);
  for (Parameter& parameter : stack.parameters)
    if (parameter.name == "stack.step_overhead") parameter.value = 0.25;
  const Prediction with = predicted(plan, stack);
  EXPECT_DOUBLE_EQ(with.breakdown.overhead, 0.25);
  EXPECT_NEAR(with.step_time_s - without.step_time_s, 0.25, 1e-9);
}

// The head's stage has the logits of 4,096 words, the first one more micro-batches of little.
TEST(Memory, PeaksOnTheStageThatNeedsMost) {
  plan::PlanSpec spec;
  spec.mesh.pipeline = 2, spec.shape.batch = 4;
  models::Model model = samples::tiny_gpt(4, 32, 4096);
  const plan::Plan plan = samples::make(spec, model);
  const Pricing pricing(std::make_shared<clusters::Cluster>(plan.cluster()), bare_stack());
  Estimator estimator(std::make_shared<models::Model>(model), pricing);
  const double first = estimator.memory(plan, plan::kFirstStage).total(),
               last = estimator.memory(plan, plan::StageId(1)).total();
  ASSERT_GT(last, first);
  EXPECT_DOUBLE_EQ(estimator.memory_peak(plan), last);
  EXPECT_EQ(estimator.estimate(plan).worst_stage, plan::StageId(1));
}

}  // namespace breakdown_test
}  // namespace orrery::cost

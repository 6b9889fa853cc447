// The optimizer's steps, divided between device and host.
#include "plan/lower/offload_divide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/lower/class_builder.h"

namespace orrery::plan {
namespace offload_divide_test {

using models::DType;
using models::OpKind;
using ::testing::ElementsAre;

/// States and gradients on the host, values and a scalar on the device.
struct Divided {
  ClassBuilder build;
  BufferId gradients = on(Space::host, "gradients", Purpose::gradients);
  BufferId master = on(Space::host, "master", Purpose::optimizer_states);
  BufferId values = on(Space::device, "values", Purpose::parameters);
  BufferId made = on(Space::device, "made", Purpose::activations);

  BufferId on(Space space, const char* name, Purpose purpose) {
    const BufferId b = build.buffer(name, purpose, DType::fp32, 8, true);
    build.result().buffers[b].space = space;
    return b;
  }
  models::Op op(OpKind kind, BufferId in, BufferId out) {
    return build.flat(kind, DType::fp32, 8, {build.view(build.whole(in))}, {build.view(build.whole(out))});
  }
  std::vector<Step> steps(Phase phase, std::vector<models::Op> ops) {
    build.open("block");
    Step& step = build.compute(phase, "update", std::move(ops));
    step.births = {made};
    step.deaths = {values};
    divide_steps(build.result(), build.result().blocks.back());
    return build.result().blocks.back().steps;
  }
};

std::vector<std::string> kinds(const std::vector<Step>& steps) {
  std::vector<std::string> out;
  for (const Step& s : steps) out.push_back(s.kind == StepKind::copy ? "copy" : s.on_host ? "host" : "device");
  return out;
}

TEST(DividedSteps, AStepIsCutWhereTheMemoryOfItsOperatorsChanges) {
  Divided d;
  const auto steps = d.steps(Phase::optimizer,
                             {d.op(OpKind::accumulate_into, d.gradients, d.master),
                              d.op(OpKind::convert, d.master, d.gradients), d.op(OpKind::convert, d.made, d.values)});
  EXPECT_THAT(kinds(steps), ElementsAre("host", "device"));
  EXPECT_EQ(steps[0].ops.size(), 2U);
  EXPECT_THAT(steps[0].reads, ElementsAre(d.gradients, d.master));
  EXPECT_THAT(steps[1].writes, ElementsAre(d.values));
}

TEST(DividedSteps, TheFirstPartHasTheBirthsAndTheLastOneTheDeaths) {
  Divided d;
  const auto steps = d.steps(Phase::optimizer, {d.op(OpKind::accumulate_into, d.gradients, d.master),
                                                d.op(OpKind::convert, d.made, d.values)});
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_THAT(steps[0].births, ElementsAre(d.made));
  EXPECT_TRUE(steps[0].deaths.empty());
  EXPECT_TRUE(steps[1].births.empty());
  EXPECT_THAT(steps[1].deaths, ElementsAre(d.values));
}

TEST(DividedSteps, WhatTheDeviceAddsToTheHostsSumsIsACopyBetweenMemories) {
  Divided d;
  const auto steps = d.steps(Phase::optimizer, {d.op(OpKind::accumulate_into, d.made, d.gradients)});
  ASSERT_THAT(kinds(steps), ElementsAre("copy"));
  EXPECT_EQ(steps[0].stream, Stream::to_host);
  EXPECT_TRUE(steps[0].accumulate);
  EXPECT_EQ(steps[0].source.buffer, d.made);
  EXPECT_EQ(steps[0].target.buffer, d.gradients);
}

TEST(DividedSteps, PassesOverLayersStayWhole) {
  Divided d;
  const auto steps = d.steps(
      Phase::backward, {d.op(OpKind::accumulate_into, d.made, d.gradients), d.op(OpKind::convert, d.made, d.values)});
  EXPECT_THAT(kinds(steps), ElementsAre("device"));
  EXPECT_EQ(steps[0].ops.size(), 2U);
}

TEST(DividedSteps, AStepThatTouchesNothingElsewhereStaysWhole) {
  Divided d;
  EXPECT_THAT(kinds(d.steps(Phase::optimizer, {d.op(OpKind::convert, d.made, d.values)})), ElementsAre("device"));
}

}  // namespace offload_divide_test
}  // namespace orrery::plan

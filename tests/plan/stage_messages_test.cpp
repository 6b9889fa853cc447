// Messages between pipeline stages: who gets them, and that both ends name them alike.
#include "plan/lower/stage_messages.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "tests/plan/samples.h"

namespace orrery::plan {
namespace stage_messages_test {

Plan staged(int stages, int virtual_stages, Order order = Order::one_f_one_b) {
  PlanSpec spec;
  spec.mesh.pipeline = stages;
  spec.stages.virtual_stages = virtual_stages;
  spec.stages.order = order;
  return samples::make(spec, samples::tiny_gpt(8));
}

/// The peer's stage and the tag of the one message that `write` writes.
template <class Write>
std::pair<int, int> message(const Plan& plan, int stage, const Write& write) {
  ClassBuilder build;
  StageMessages messages(plan, StageId(stage), build);
  build.open("block");
  write(messages, messages.buffer("boundary"));
  const Step& step = build.result().blocks[0].steps.at(0);
  return {stage + step.peer, step.tag};
}

using Ends = std::multiset<std::tuple<int, int, int>>;  ///< sender, receiver, tag

void expect_pairs(const Plan& plan) {
  Ends sent, received;
  for (const Phase phase : {Phase::forward, Phase::backward})
    for (int stage = 0; stage < plan.spec().mesh.pipeline; ++stage)
      for (int chunk = 0; chunk < plan.spec().stages.virtual_stages; ++chunk) {
        const bool forward = phase == Phase::forward;
        if (plan.spec().sends(StageId(stage), chunk, forward)) {
          const auto [to, tag] = message(plan, stage, [&](StageMessages& m, BufferId b) { m.send(b, phase, chunk); });
          sent.insert({stage, to, tag});
        }
        if (plan.spec().receives(StageId(stage), chunk, forward)) {
          const auto [from, tag] =
              message(plan, stage, [&](StageMessages& m, BufferId b) { m.receive(b, phase, chunk); });
          received.insert({from, stage, tag});
        }
      }
  EXPECT_EQ(sent, received);
  EXPECT_EQ(sent.size(), std::set(sent.begin(), sent.end()).size()) << "two messages that only their order tells apart";
}

TEST(StageMessages, EachHasAReceiverThatNamesItAlike) {
  expect_pairs(staged(4, 1));
  expect_pairs(staged(2, 1));
}

TEST(StageMessages, BehindTheLastStageOfAnInterleavedPipelineComesTheFirstWithItsNextChunk) {
  const Plan plan = staged(4, 2);
  expect_pairs(plan);
  const auto send = [](StageMessages& m, BufferId b) { m.send(b, Phase::forward, 0); };
  EXPECT_EQ(message(plan, 3, send).first, 0);
  const auto receive = [](StageMessages& m, BufferId b) { m.receive(b, Phase::forward, 1); };
  EXPECT_EQ(message(plan, 0, receive).first, 3);
}

TEST(StageMessages, TheSecondChunkOfAFoldedPipelineGoesBackUpTheStages) {
  const Plan plan = staged(4, 2, Order::zb_v);
  expect_pairs(plan);
  const auto send = [](int chunk) {
    return [chunk](StageMessages& m, BufferId b) { m.send(b, Phase::forward, chunk); };
  };
  EXPECT_EQ(message(plan, 1, send(0)).first, 2);
  EXPECT_EQ(message(plan, 1, send(1)).first, 0);
}

TEST(StageMessages, HaveTheRowsOfOneRank) {
  PlanSpec spec;
  spec.mesh.pipeline = spec.mesh.tensor = 2;
  spec.shape.micro_batch = 2;
  const auto elements = [&] {
    const Plan plan = samples::make(spec);
    ClassBuilder build;
    const BufferId b = StageMessages(plan, kFirstStage, build).buffer("boundary");
    return build.result().buffers[b].elements;
  };
  EXPECT_EQ(elements(), 2 * 16 * 32);
  spec.mesh.sequence_parallel = true;
  EXPECT_EQ(elements(), 16 * 32);
}

}  // namespace stage_messages_test
}  // namespace orrery::plan

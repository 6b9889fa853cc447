// Passes beside each other: the parts of a forward and a backward pass take turns, so that the messages of each travel
// while the other computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/index.h"
#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "plan/schedule/orders.h"
#include "plan/schedule/rehearse.h"
#include "plan/schedule/waits.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace beside_test {

using base::at;

PlanSpec of_order(Order order, int pipeline, int data, int tensor, int expert) {
  PlanSpec spec;
  spec.stages.order = order;
  spec.stages.virtual_stages = 2;
  spec.mesh.pipeline = pipeline, spec.mesh.data = data, spec.mesh.tensor = tensor, spec.mesh.expert = expert;
  spec.shape.micro_batch = 2;
  spec.shape.batch = 2L * data * 4 * pipeline;
  return spec;
}

models::Model mixture(std::int64_t layers = 8) {
  models::Model model = samples::tiny_gpt(layers, 32, 16);
  model.experts = {.count = 4, .chosen = 2, .hidden = 16};
  return model;
}

std::string findings(const Schedule& schedule) {
  return base::render(check(schedule), false);
}

bool of_layer(const Step& step) {
  return step.kind == StepKind::collective && step.phase != Phase::gradient_reduce &&
         (step.stream == Stream::tensor || step.stream == Stream::exchange || step.stream == Stream::context);
}

/// A step of a rank's program.
struct Walked {
  const Step* step;
  Entry entry;
};
std::vector<Walked> steps_of(const RankClass& c) {
  std::vector<Walked> out;
  for (const Entry& entry : c.program)
    for (const Step& step : c.blocks[at(entry.block)].steps) out.push_back({&step, entry});
  return out;
}

/// Messages of layers, and those of them behind which another micro-batch computes before anything waits for them.
struct Counted {
  int all = 0, hidden = 0;
};
Counted hidden_in(const RankClass& c) {
  const std::vector<Walked> steps = steps_of(c);
  Counted out;
  for (std::size_t m = 0; m < steps.size(); ++m) {
    if (!of_layer(*steps[m].step)) continue;
    ++out.all;
    const BufferUses message{&c, steps[m].step, steps[m].entry.micro_batch};
    for (std::size_t s = m + 1; s < steps.size(); ++s) {
      if (steps[s].step->kind != StepKind::compute) continue;
      const BufferUses compute{&c, steps[s].step, steps[s].entry.micro_batch};
      if (compute_waits(compute, message, !steps[m].step->deaths.empty())) break;
      if (steps[s].entry.micro_batch == steps[m].entry.micro_batch) continue;
      ++out.hidden;
      break;
    }
  }
  return out;
}

TEST(PairParts, TakeTurnsEvenly) {
  const auto told = [](std::int32_t forward, std::int32_t backward) {
    std::string out;
    for (const PairPart& part : in_turn(forward, backward))
      out += (part.backward ? 'b' : 'f') + std::to_string(part.part);
    return out;
  };
  EXPECT_EQ(told(1, 1), "f0b0");
  EXPECT_EQ(told(3, 3), "f0b0f1b1f2b2");
  EXPECT_EQ(told(1, 3), "b0f0b1b2");
  EXPECT_EQ(told(4, 2), "f0b0f1f2b1f3");
  EXPECT_EQ(told(2, 5), "b0f0b1b2b3f1b4");
}

TEST(Beside, TakesThePairsOfThePublishedOrder) {
  for (const Order order : {Order::dualpipe, Order::dualpipe_v})
    for (const int stages : {2, 4, 8}) {
      const auto alone = zero_bubble(order, stages, 6 * stages),
                 beside = zero_bubble(order, stages, 6 * stages, true, true);
      for (int s = 0; s < stages; ++s) {
        const auto& moves = beside[at(s)];
        std::size_t pairs = 0;
        for (std::size_t i = 0; i < moves.size(); ++i) {
          if (!moves[i].beside) continue;
          ++pairs;
          EXPECT_EQ(moves[i].kind, Move::Kind::forward);
          EXPECT_EQ(moves.at(i + 1).kind, Move::Kind::backward);
          EXPECT_NE(moves[i].chunk, moves[i + 1].chunk);
        }
        EXPECT_GT(pairs, 0U);
        const auto passes = [](std::vector<Move> all) {
          std::erase_if(all, [](const Move& move) {
            return move.kind != Move::Kind::forward && move.kind != Move::Kind::backward &&
                   move.kind != Move::Kind::weights;
          });
          for (Move& move : all) move.beside = false;
          return all;
        };
        EXPECT_EQ(passes(moves), passes(alone[at(s)])) << "messages move, passes do not";
        EXPECT_TRUE(std::ranges::none_of(alone[at(s)], &Move::beside));
      }
    }
}

TEST(Beside, HidesEveryMessageOfAPairBehindTheOtherPass) {
  for (const Order order : {Order::dualpipe, Order::dualpipe_v})
    for (const bool experts : {false, true}) {
      const PlanSpec spec = of_order(order, 2, experts ? 2 : 1, experts ? 1 : 2, experts ? 2 : 1);
      const Schedule schedule = lower(samples::make(spec, mixture()));
      EXPECT_EQ(findings(schedule), "") << describe(spec);
      for (const RankClass& c : schedule.classes) {
        const Counted counted = hidden_in(c);
        EXPECT_GT(2 * counted.hidden, counted.all) << describe(spec) << ": " << counted.hidden;
      }
      PlanSpec whole = spec;
      whole.stages.order = Order::zb_v;
      for (const RankClass& c : lower(samples::make(whole, mixture())).classes) EXPECT_EQ(hidden_in(c).hidden, 0);
    }
}

TEST(Beside, KeepsPassesWholeThatHaveNothingToHide) {
  for (const Order order : {Order::dualpipe, Order::dualpipe_v}) {
    const Schedule schedule = lower(samples::make(of_order(order, 2, 2, 1, 1), mixture()));
    for (const RankClass& c : schedule.classes)
      for (const Block& block : c.blocks) EXPECT_EQ(block.name.find('/'), std::string::npos) << block.name;
  }
}

TEST(Beside, IsSoundInEveryMeshAndForEveryNumberOfMicroBatches) {
  for (const Order order : {Order::dualpipe, Order::dualpipe_v})
    for (const int pipeline : {2, 4})
      for (const int passes : {2, 4, 6, 8, 16, 32})
        for (const auto& [data, tensor, expert] : {std::tuple(2, 1, 2), {1, 2, 1}, {2, 2, 2}, {4, 1, 2}})
          for (const bool early : {false, true}) {
            PlanSpec spec = of_order(order, pipeline, data, tensor, expert);
            spec.shape.batch = 2L * data * passes;
            spec.states.overlap_gradients = early, spec.states.zero_stage = data > 1 ? 1 : 0;
            spec.mesh.sequence_parallel = tensor > 1;
            if (early) spec.recomputation.what = Recompute::full;
            const Plan plan = samples::make(spec, mixture(2L * pipeline));
            const Schedule schedule = lower(plan);
            ASSERT_EQ(findings(schedule), "") << describe(spec) << passes;
            if (passes > 8) continue;
            EXPECT_EQ(base::render(rehearse(schedule), false), "") << describe(spec) << passes;
          }
}

// A message that freed what it read would hold up every step of the other pass.
TEST(Beside, MessagesOfLayersFreeNothingBetweenParts) {
  const Schedule schedule = lower(samples::make(of_order(Order::dualpipe_v, 2, 2, 1, 2), mixture()));
  for (const RankClass& c : schedule.classes)
    for (const Block& block : c.blocks) {
      if (block.name.find('/') == std::string::npos) continue;
      for (const Step& step : block.steps)
        EXPECT_TRUE(!of_layer(step) || &step == &block.steps.back() || step.deaths.empty()) << block.name;
    }
}

// The checker must see a part that reads what has not come yet.
TEST(Beside, PartsInTheWrongOrderAreFound) {
  Schedule schedule = lower(samples::make(of_order(Order::dualpipe, 2, 2, 1, 2), mixture()));
  RankClass& c = schedule.classes[kFirstStage];
  for (std::size_t e = 0; e + 1 < c.program.size(); ++e) {
    const Entry one = c.program[e], next = c.program[e + 1];
    if (one.micro_batch != next.micro_batch || next.block != one.block + 1 ||
        c.blocks[at(next.block)].name.find('/') == std::string::npos)
      continue;
    c.program.set(e, next), c.program.set(e + 1, one);
    break;
  }
  EXPECT_NE(findings(schedule), "");
}

}  // namespace beside_test
}  // namespace orrery::plan

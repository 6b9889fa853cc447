// Passes beside each other: the parts of a forward and a backward pass take turns, so that the messages of each travel
// while the other computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/index.h"
#include "plan/lower/beside.h"
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

/// Whether another micro-batch computes between a layer's message and the first step that waits for it.
bool hidden(const RankClass& c, const std::vector<Walked>& steps, std::size_t m) {
  const BufferUses message{&c, steps[m].step, steps[m].entry.micro_batch};
  for (std::size_t s = m + 1; s < steps.size(); ++s) {
    if (steps[s].step->kind != StepKind::compute) continue;
    const BufferUses compute{&c, steps[s].step, steps[s].entry.micro_batch};
    if (compute_waits(compute, message, !steps[m].step->deaths.empty())) return false;
    if (steps[s].entry.micro_batch != steps[m].entry.micro_batch) return true;
  }
  return false;
}

/// A pass through a chunk.
struct Pass {
  std::size_t first = 0, last = 0;  ///< of all steps
  std::set<std::int32_t> parts = {};
  std::set<std::int32_t> bare = {};  ///< parts with a message of a layer that nothing hides
  int messages = 0, hidden = 0;      ///< of its layers
  bool only_sends_first = false;     ///< its first part does not compute, and hides nothing
};
std::vector<Pass> passes_of(const RankClass& c) {
  const std::vector<Walked> steps = steps_of(c);
  std::map<std::pair<std::string, std::int32_t>, Pass> by_name;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const std::string& block = c.blocks[at(steps[s].entry.block)].name;
    const auto [found, is_new] = by_name.try_emplace({block.substr(0, block.find('/')), steps[s].entry.micro_batch});
    Pass& pass = found->second;
    if (is_new) pass.first = s;
    pass.last = s;
    pass.parts.insert(steps[s].entry.block);
    if (pass.parts.size() == 1)
      pass.only_sends_first = std::ranges::none_of(c.blocks[at(steps[s].entry.block)].steps,
                                                   [](const Step& step) { return step.kind == StepKind::compute; });
    if (!of_layer(*steps[s].step)) continue;
    ++pass.messages;
    if (hidden(c, steps, s))
      ++pass.hidden;
    else
      pass.bare.insert(steps[s].entry.block);
  }
  std::vector<Pass> out;
  for (auto& [name, pass] : by_name) out.push_back(std::move(pass));
  std::ranges::sort(out, {}, &Pass::first);
  return out;
}
/// Passes that take turns.
std::vector<std::pair<Pass, Pass>> pairs_of(const RankClass& c) {
  const std::vector<Pass> passes = passes_of(c);
  std::vector<std::pair<Pass, Pass>> out;
  for (std::size_t i = 0; i + 1 < passes.size(); ++i)
    if (passes[i + 1].first < passes[i].last) out.emplace_back(passes[i], passes[i + 1]);
  return out;
}

// Forward and backward passes that the published code runs as one: deepseek-ai/DualPipe, dualpipev.py, steps 4 and 5,
// for at least 2 p micro-batches; on the last stage the first of them is two passes after all. DualPipe (dualpipe.py)
// is that of half the stages with half of the micro-batches, from both ends.
std::size_t published_pairs(Order order, int stage, int stages, int micro_batches) {
  if (order == Order::dualpipe) {
    stage = std::min(stage, stages - 1 - stage);
    stages /= 2, micro_batches /= 2;
  }
  const int step_4 = micro_batches - 2 * stages + stage + 1, step_5 = stages - stage - 1;
  return static_cast<std::size_t>(2 * step_4 - (step_5 == 0 ? 1 : 0) + step_5);
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
        EXPECT_EQ(pairs, published_pairs(order, s, stages, 6 * stages)) << s << " of " << stages;
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

using Changed = std::pair<const char*, std::function<void(PlanSpec&)>>;
std::vector<Changed> kinds_of_messages() {
  const auto experts = [](PlanSpec& s) { s.mesh.data = s.mesh.expert = 2; };
  return {
      {"tensor", [](PlanSpec& s) { s.mesh.tensor = 2; }},
      {"rows over tensor", [](PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
      {"context", [](PlanSpec& s) { s.mesh.context = 2; }},
      {"expert", experts},
      {"expert over context", [](PlanSpec& s) { s.mesh.context = s.mesh.expert = 2; }},
      {"experts split over data", [](PlanSpec& s) { s.mesh.data = s.mesh.expert_tensor = 2; }},
      {"whole experts over tensor",
       [](PlanSpec& s) {
         s.mesh.data = s.mesh.tensor = 2, s.mesh.expert = 4, s.mesh.expert_tensor = 1;
         s.mesh.sequence_parallel = true;
       }},
      {"tokens in fewer bits",
       [=](PlanSpec& s) {
         experts(s);
         s.tokens.dispatch = models::TokenCodec::fp8, s.tokens.combine = models::TokenCodec::bf16;
       }},
      {"gradients in bf16",
       [=](PlanSpec& s) {
         experts(s);
         s.compression.gradients = GradientCompression::bf16;
       }},
      {"PowerSGD",
       [=](PlanSpec& s) {
         experts(s);
         s.compression.gradients = GradientCompression::powersgd;
       }},
      {"recomputed",
       [=](PlanSpec& s) {
         experts(s);
         s.recomputation.what = Recompute::full;
       }},
  };
}

// A message lies between two parts of its pass. Where the other pass has fewer parts, some have none between them.
TEST(Beside, HidesEveryMessageOfAPairThatTheOtherPassHasAPartFor) {
  constexpr int kStages = 2, kMicroBatches = 8;
  for (const Order order : {Order::dualpipe, Order::dualpipe_v})
    for (const auto& [name, change] : kinds_of_messages()) {
      PlanSpec spec = of_order(order, kStages, 1, 1, 1);
      change(spec);
      if (spec.stages.mirrors() && spec.compression.gradients != GradientCompression::none) continue;  // P79
      spec.shape.batch = std::int64_t{2} * spec.mesh.data * kMicroBatches;
      const Schedule schedule = lower(samples::make(spec, mixture()));
      EXPECT_EQ(findings(schedule), "") << name;
      for (std::size_t stage = 0; stage < schedule.classes.size(); ++stage) {
        const auto pairs = pairs_of(schedule.classes[stage]);
        EXPECT_EQ(pairs.size(), published_pairs(order, static_cast<int>(stage), kStages, kMicroBatches)) << name;
        for (const auto& [one, other] : pairs)
          for (const auto& [pass, beside] : {std::pair(&one, &other), {&other, &one}}) {
            const int without = static_cast<int>(pass->parts.size()) - 1 - static_cast<int>(beside->parts.size());
            EXPECT_GT(pass->messages, 0) << name;
            EXPECT_LE(pass->bare.size(), static_cast<std::size_t>(std::max(without, 0) + beside->only_sends_first))
                << name << ": " << pass->hidden << " of " << pass->messages << " messages hidden";
          }
      }
      spec.stages.order = Order::zb_v;
      for (const RankClass& c : lower(samples::make(spec, mixture())).classes) {
        EXPECT_TRUE(pairs_of(c).empty());
        for (const Pass& pass : passes_of(c)) EXPECT_EQ(pass.hidden, 0) << name;
      }
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

// The first micro-batch's pass takes the places of the others' parts, one by one.
TEST(BesideDeathTest, APassMustBeDividedAsTheOneItReplaces) {
  Schedule schedule = lower(samples::make(of_order(Order::zb_v, 2, 2, 1, 2), mixture()));
  RankClass& c = schedule.classes[kFirstStage];
  const auto begins = [&](std::size_t e, const char* name) {
    return c.blocks[at(c.program[e].block)].name.starts_with(name);
  };
  std::size_t pair = 0;
  while (!begins(pair, "forward") || !begins(pair + 1, "backward")) ASSERT_LT(++pair + 1, c.program.size());
  const std::int32_t backward = c.program[pair + 1].block, of = c.blocks[at(backward)].variant_of;
  RankClass sound = c;
  run_beside(sound, {pair});
  EXPECT_GT(sound.blocks.size(), c.blocks.size());
  for (Block& block : c.blocks)
    if (block.variant_of == (of < 0 ? backward : of)) std::erase_if(block.steps, of_layer);
  EXPECT_DEATH(run_beside(c, {pair}), "has 1 parts, what it replaces [2-9]");
}

}  // namespace beside_test
}  // namespace orrery::plan

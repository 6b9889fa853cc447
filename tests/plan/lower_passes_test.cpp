// The passes alone are those of the whole step.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/operators/operators.h"
#include "plan/lower/lower.h"
#include "tests/plan/samples.h"
#include "tests/plan/told.h"

namespace orrery::plan {
namespace lower_passes_test {

/// The blocks between the begin and the end of a step, and their variants.
std::vector<std::string> passes(const RankClass& c) {
  std::vector<std::string> out;
  for (const Block& block : c.blocks) {
    if (block.name == "begin" || block.name == "finish" || block.name == "elsewhere") continue;
    for (std::size_t i = 0; i < block.steps.size(); ++i) out.push_back(block.name + " " + told(c, block.steps, i));
  }
  return out;
}

/// Those of some chunks alone.
std::vector<std::string> of_chunks(const std::vector<std::string>& all, const std::vector<bool>& chunks) {
  std::vector<std::string> out;
  for (const std::string& step : all) {
    const std::string name = step.substr(0, step.find(' '));
    for (std::size_t c = 0; c < chunks.size(); ++c)
      if (chunks[c] &&
          (name.ends_with("." + std::to_string(c)) || name.find("." + std::to_string(c) + ".") != std::string::npos))
        out.push_back(step);
  }
  return out;
}

std::vector<std::int64_t> all_blocks(const Plan& plan, StageId stage, int chunk) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < plan.chunk_layers(stage, chunk); ++i) out.push_back(i);
  return out;
}

TEST(LowerPasses, GivesTheBlocksBetweenBeginAndEndOfTheWholeStep) {
  int plans = 0;
  for (const Space activations : {Space::device, Space::host})
    for (const Space states : {Space::device, Space::host})
      for (const Space parameters : {Space::device, Space::host})
        for (const int zero : {0, 1, 2, 3})
          for (const Recompute recompute : {Recompute::none, Recompute::full})
            for (const bool early : {false, true}) {
              PlanSpec spec;
              spec.mesh.data = 2, spec.mesh.pipeline = 2;
              spec.states.zero_stage = zero, spec.states.overlap_gradients = early;
              spec.offload.activations = activations, spec.offload.optimizer = states;
              spec.offload.parameters = parameters, spec.recomputation.what = recompute;
              spec.shape.batch = 8;
              const auto plan = samples::try_make(spec);
              if (!plan) continue;  // a combination that is refused
              ++plans;
              SCOPED_TRACE(describe(spec));
              const Schedule whole = lower(*plan);
              for (int s = 0; s < 2; ++s) {
                const StageId stage(s);
                const LoweredPasses alone = lower_passes(*plan, stage, {}, {{all_blocks(*plan, stage, 0)}, {true}});
                ASSERT_EQ(alone.schedule.classes.size(), 1U);
                EXPECT_EQ(passes(alone.schedule.classes.front()), passes(whole.classes[stage.index()]));
              }
            }
  EXPECT_GT(plans, 50);
}

// Activations of the chunk's top layers stay where its backward pass follows its forward pass at once, which the passes
// over other chunks decide.
TEST(LowerPasses, GivesOneChunkAsItIsAmongTheOthers) {
  for (const auto& [order, virtual_stages] :
       {std::pair{Order::one_f_one_b, 2}, {Order::one_f_one_b, 3}, {Order::dualpipe, 2}}) {
    PlanSpec spec;
    spec.mesh.pipeline = 2, spec.stages.order = order, spec.stages.virtual_stages = virtual_stages;
    spec.offload.activations = Space::host;
    spec.shape.batch = 8;
    const Plan plan = samples::make(spec, samples::tiny_gpt(12));
    const Schedule whole = lower(plan);
    const auto moves = moves_of(plan.spec(), plan.micro_batches());
    for (int s = 0; s < 2; ++s)
      for (int c = 0; c < virtual_stages; ++c) {
        const StageId stage(s);
        std::vector<bool> chunks(static_cast<std::size_t>(virtual_stages), false);
        chunks[static_cast<std::size_t>(c)] = true;
        std::vector<std::vector<std::int64_t>> blocks(chunks.size());
        blocks[static_cast<std::size_t>(c)] = all_blocks(plan, stage, c);
        const LoweredPasses alone = lower_passes(plan, stage, moves[stage.index()], {blocks, chunks});
        const std::vector<std::string> expected = of_chunks(passes(whole.classes[stage.index()]), chunks);
        ASSERT_FALSE(expected.empty());
        EXPECT_EQ(passes(alone.schedule.classes.front()), expected)
            << describe(spec) << ", stage " << s << ", chunk " << c;
      }
  }
}

/// What operators see, which `told` leaves out: the window of attention.
std::vector<std::int64_t> windows(const RankClass& c) {
  std::vector<std::int64_t> out;
  for (const Block& block : c.blocks)
    for (const Step& step : block.steps)
      for (const models::Op& op : step.ops)
        if (models::attends(op)) out.push_back(op.window);
  return out;
}

TEST(LowerPasses, AreTheSameWhereLayersShareTheirPrograms) {
  models::Model model = samples::tiny_gpt(6);
  model.window = 8, model.window_period = 3;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    PlanSpec spec;
    spec.mesh.data = 2, spec.states.zero_stage = 3, spec.offload.activations = Space::host;
    spec.recomputation.what = recompute;
    if (recompute != Recompute::none) spec.recomputation.layers = 4;
    const Plan plan = samples::make(spec, model);
    const SomeLayers all = {{all_blocks(plan, kFirstStage, 0)}, {true}};
    const LoweredPasses each = lower_passes(plan, kFirstStage, {}, all, {.recompute_operators = true});
    const LoweredPasses shared =
        lower_passes(plan, kFirstStage, {}, all, {.recompute_operators = true, .shares_programs = true});
    const RankClass &a = each.schedule.classes.front(), &b = shared.schedule.classes.front();
    EXPECT_EQ(passes(b), passes(a)) << describe(spec);
    const std::vector<std::int64_t> seen = windows(a);
    EXPECT_EQ(windows(b), seen);
    EXPECT_TRUE(std::ranges::count(seen, 0) > 0 && std::ranges::count(seen, 8) > 0) << "layers of two kinds";
    ASSERT_EQ(b.buffers.size(), a.buffers.size());
    for (const BufferId i : a.buffers.keys())
      EXPECT_EQ(b.buffers[i].bytes(), a.buffers[i].bytes()) << a.buffers[i].name;
  }
}

TEST(LowerPasses, LeavesOutTheLayersThatAreNotAskedFor) {
  PlanSpec spec;
  spec.offload.activations = Space::host;
  const Plan plan = samples::make(spec, samples::tiny_gpt(12));
  const LoweredPasses few = lower_passes(plan, kFirstStage, {}, {{{0, 5, 11}}, {true}});
  const LoweredPasses all = lower_passes(plan, kFirstStage, {}, {{all_blocks(plan, kFirstStage, 0)}, {true}});
  const auto steps = [](const LoweredPasses& passes) {
    return passes.schedule.classes.front()
        .blocks[static_cast<std::size_t>(passes.blocks.at({Move::Kind::forward, 0}))]
        .steps;
  };
  EXPECT_LT(steps(few).size(), steps(all).size());
  std::vector<std::int32_t> layers;
  for (const Step& step : steps(few))
    if (step.layer && (layers.empty() || layers.back() != step.layer.number()) && step.kind == StepKind::compute &&
        !step.ops.empty())
      layers.push_back(step.layer.number());
  EXPECT_EQ(layers, (std::vector<std::int32_t>{0, 5, 11}));
}

}  // namespace lower_passes_test
}  // namespace orrery::plan

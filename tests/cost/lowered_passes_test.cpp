/// Passes of which a few layers are lowered are those of which all are.
#include "cost/estimate/lowered_passes.h"

#include <gtest/gtest.h>

#include <memory>

#include "cost/estimate/offload.h"
#include "cost/estimate/stage_layers.h"
#include "tests/cost/support.h"
#include "tests/plan/samples.h"

namespace orrery::cost {
namespace lowered_passes_test {

using plan::Space;

/// Layers by number, as a chunk has them: equal numbers are equal layers.
std::vector<const LayerCosts*> layers(const std::vector<int>& kinds) {
  static const std::vector<LayerCosts> all(10);
  std::vector<const LayerCosts*> out;
  for (const int kind : kinds) out.push_back(&all[static_cast<std::size_t>(kind)]);
  return out;
}

TEST(FewLayers, AreAllWhereFewAreEqual) {
  const FewLayers few = few_of(layers({0, 1, 1, 1, 1, 2}), 1);
  EXPECT_EQ(few.kept.size(), 6U);
  EXPECT_EQ(few.times, 0);
}

TEST(FewLayers, StandForTheOthersByTheirPeriod) {
  std::vector<int> equal = {0}, turns = {0};
  for (int i = 0; i < 40; ++i) equal.push_back(1), turns.push_back(1 + i % 3);
  equal.push_back(5), turns.push_back(5);
  for (const auto& [kinds, period] : {std::pair{equal, std::size_t{1}}, {turns, std::size_t{3}}}) {
    const FewLayers few = few_of(layers(kinds), 1);
    EXPECT_EQ(few.period, period);
    EXPECT_EQ(few.kept.size() + few.period * static_cast<std::size_t>(few.times), kinds.size());
    std::vector<int> filled;  // with what the gap stands for
    for (std::size_t i = 0; i < few.kept.size(); ++i) {
      if (i == few.gap)
        for (std::size_t left = 0; left < few.period * static_cast<std::size_t>(few.times); ++left)
          filled.push_back(filled[filled.size() - few.period]);
      filled.push_back(kinds[few.kept[i]]);
    }
    EXPECT_EQ(filled, kinds);
    EXPECT_LT(few.kept.size(), 20U);
  }
}

void expect_equal(const PassProgram& a, const PassProgram& b, const char* name) {
  EXPECT_EQ(a.steps.size(), b.steps.size()) << name;
  EXPECT_TRUE(a.steps == b.steps) << name;
  EXPECT_EQ(a.input, b.input) << name;
  EXPECT_EQ(a.freed, b.freed) << name;
  EXPECT_EQ(a.sent, b.sent) << name;
  EXPECT_EQ(a.reach, b.reach) << name;
}

/// The passes of a stage's chunk whose copies run so many layers ahead, of which as many are lowered as that wants.
ChunkPrograms programs(const plan::Plan& plan, const models::Model& model, plan::StageId stage, int chunk, int ahead) {
  const auto cluster = std::make_shared<const clusters::Cluster>(plan.cluster());
  const Pricing pricing(cluster, testing::cpu_stack());
  StageLayers layers(model, pricing, nullptr, make_layer_store());
  StepEnds ends(pricing);
  StageGroups groups = stage_groups(plan, stage);
  groups.lockstep = {&pricing, nullptr, plan.spec().mesh.ranks_per_stage()};
  MovesMemo memo;
  const auto moves = patterns_of(plan.spec(), plan.micro_batches(), memo);
  const PassSurroundings around{plan.spec(), pricing, ends, groups};
  return lowered_passes({plan, stage, chunk, (*moves)[stage.index()], ahead}, layers.chunks(plan, stage, Asked::priced),
                        around);
}

TEST(LoweredPasses, OfFewLayersAreThoseOfAll) {
  int plans = 0;
  for (const bool turns : {false, true})
    for (const Space activations : {Space::device, Space::host})
      for (const Space states : {Space::device, Space::host})
        for (const Space parameters : {Space::device, Space::host})
          for (const int zero : {0, 2, 3})
            for (const int prefetch : {1, 2})
              for (const plan::Order order : {plan::Order::one_f_one_b, plan::Order::zb_h1}) {
                plan::PlanSpec spec;
                spec.mesh.data = 2, spec.mesh.tensor = 2, spec.mesh.pipeline = 2, spec.stages.order = order;
                spec.states.zero_stage = zero, spec.shape.batch = 16;
                spec.offload = {activations, states, parameters, prefetch};
                spec.recomputation.what = prefetch == 2 ? plan::Recompute::full : plan::Recompute::none;
                models::Model model = samples::tiny_gpt(36);
                if (turns) model.window = 8, model.window_period = 3;
                const auto plan = samples::try_make(spec, model);
                if (!plan || !spec.offload.any()) continue;
                ++plans;
                SCOPED_TRACE(plan::describe(spec));
                for (int s = 0; s < 2; ++s) {
                  const ChunkPrograms few = programs(*plan, model, plan::StageId(s), 0, prefetch);
                  const ChunkPrograms all = programs(*plan, model, plan::StageId(s), 0, 100);
                  expect_equal(few.forward, all.forward, "forward");
                  expect_equal(few.backward, all.backward, "backward");
                  expect_equal(few.weights, all.weights, "weights");
                  expect_equal(few.first_backward, all.first_backward, "first backward");
                  expect_equal(few.last_backward, all.last_backward, "last backward");
                }
              }
  EXPECT_GT(plans, 20);
}

}  // namespace lowered_passes_test
}  // namespace orrery::cost

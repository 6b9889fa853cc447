/// How layers are given to stages and chunks, and what is refused.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace stages_test {

std::string findings(const Schedule& schedule) {
  return base::render(check(schedule), false);
}

TEST(MakePlan, CountsEmbeddingAndHeadAsLayersWhenAsked) {
  PlanSpec spec;
  spec.mesh.pipeline = 12;  // BLOOM-176B: 70 layers and two ends on 12 stages
  spec.stages.ends_as_layers = true;
  spec.shape.batch = 12;
  const Plan plan = samples::make(spec, samples::tiny_gpt(70));
  EXPECT_EQ(plan.layers(StageId(0)), 5);
  EXPECT_EQ(plan.layers(StageId(11)), 5);
  for (int s = 1; s < 11; ++s) EXPECT_EQ(plan.layers(StageId(s)), 6) << s;
  spec.stages.ends_as_layers = false;
  EXPECT_EQ(samples::make(spec, samples::tiny_gpt(70)).layers(StageId(0)), 5);
  EXPECT_EQ(samples::make(spec, samples::tiny_gpt(72)).layers(StageId(0)), 6);
  spec.stages.ends_as_layers = true;
  EXPECT_EQ(samples::make(spec, samples::tiny_gpt(72)).layers(StageId(0)), 5);
}

TEST(MakePlan, GivesEmbeddingAndHeadStagesOfTheirOwn) {
  PlanSpec spec;
  spec.mesh.pipeline = 24;  // the zero-bubble paper's: 22 layers on 24 stages
  spec.stages.ends_as_layers = true;
  spec.shape.batch = 24;
  const Plan plan = samples::make(spec, samples::tiny_gpt(22));
  EXPECT_EQ(plan.layers(StageId(0)), 0);
  EXPECT_EQ(plan.layers(StageId(23)), 0);
  for (int s = 1; s < 23; ++s) EXPECT_EQ(plan.layers(StageId(s)), 1) << s;
  for (const Order order : {Order::one_f_one_b, Order::gpipe, Order::zb_h1, Order::zb_h2}) {
    spec.stages.order = order;
    EXPECT_EQ(findings(lower(samples::make(spec, samples::tiny_gpt(22)))), "") << name_of(order);
  }
  spec.stages.order = Order::zb_v, spec.mesh.pipeline = 12, spec.stages.virtual_stages = 2;
  EXPECT_EQ(findings(lower(samples::make(spec, samples::tiny_gpt(22)))), "");
}

TEST(MakePlan, RefusesAStageWithNothingAtAll) {
  const auto codes = [](std::vector<std::int64_t> layers, bool ends, int pipeline) {
    PlanSpec spec;
    spec.mesh.pipeline = pipeline;
    spec.shape.batch = 8;
    spec.stages.layers_per_stage = std::move(layers);
    spec.stages.ends_as_layers = ends;
    std::set<std::string> found;
    const auto made = make_plan(std::make_shared<models::Model>(samples::tiny_gpt(4)),
                                std::make_shared<clusters::Cluster>(samples::cpu_cluster(pipeline)), spec);
    if (!made)
      for (const base::Diagnostic& d : made.error()) found.insert(d.code);
    return found;
  };
  EXPECT_EQ(codes({2, 0, 2}, false, 3), std::set<std::string>{"P06"});
  EXPECT_EQ(codes({0, 4, 0}, false, 3), std::set<std::string>{});
  EXPECT_EQ(codes({}, false, 6), std::set<std::string>{"P06"});
  EXPECT_EQ(codes({}, true, 6), std::set<std::string>{});
  EXPECT_EQ(codes({}, true, 7), std::set<std::string>{"P06"});
}

TEST(MakePlan, RefusesInterleavingWithoutAPipelineOrRounds) {
  const auto codes = [](PlanSpec spec) {
    std::set<std::string> found;
    const auto made = make_plan(std::make_shared<models::Model>(samples::tiny_gpt()),
                                std::make_shared<clusters::Cluster>(samples::cpu_cluster(spec.mesh.ranks())), spec);
    if (!made)
      for (const base::Diagnostic& d : made.error()) found.insert(d.code);
    return found;
  };
  PlanSpec spec;
  spec.shape.batch = 3;
  spec.stages.virtual_stages = 2;
  EXPECT_EQ(codes(spec), std::set<std::string>{"P17"});
  spec.mesh.pipeline = 2;
  EXPECT_EQ(codes(spec), std::set<std::string>{"P18"});
  spec.shape.batch = 4;
  EXPECT_EQ(codes(spec), std::set<std::string>{});
  spec.stages.virtual_stages = 3;
  EXPECT_EQ(codes(spec), std::set<std::string>{"P06"});
  spec.stages.virtual_stages = 1;
  spec.mesh.sequence_parallel = true;
  spec.recomputation.layers = 1;
  EXPECT_EQ(codes(spec), (std::set<std::string>{"P14", "P16"}));
}

TEST(Stages, OnlyWholeCheckpointsOfATensorGroupAreDivided) {
  const auto codes = [](const PlanSpec& spec) {
    std::set<std::string> found;
    const auto plan = samples::try_make(spec);
    if (plan) return found;
    for (const base::Diagnostic& one : plan.error()) found.insert(one.code);
    return found;
  };
  PlanSpec spec;
  spec.recomputation.partition_checkpoints = true;
  spec.mesh.tensor = 2;
  EXPECT_EQ(codes(spec), std::set<std::string>{"P166"}) << "nothing is recomputed";
  spec.recomputation.what = Recompute::full;
  EXPECT_EQ(codes(spec), std::set<std::string>{});
  spec.mesh.sequence_parallel = true;
  EXPECT_EQ(codes(spec), std::set<std::string>{"P166"}) << "rows are divided already";
  spec.mesh.sequence_parallel = false;
  spec.mesh.tensor = 1;
  EXPECT_EQ(codes(spec), std::set<std::string>{"P166"});
  spec.mesh.tensor = 2;
  spec.compression.activations = ActivationEncoding::fp8;
  EXPECT_EQ(codes(spec), std::set<std::string>{"P167"});
  spec.compression.activations = ActivationEncoding::none;
  spec.mesh.pipeline = 2;
  spec.stages.order = Order::pipedream_2bw;
  EXPECT_EQ(codes(spec), std::set<std::string>{"P167"});
}

}  // namespace stages_test
}  // namespace orrery::plan

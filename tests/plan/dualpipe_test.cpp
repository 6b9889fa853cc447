// DualPipe: a model that stands twice over the stages, fed from both ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "plan/lower/experts.h"
#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "plan/schedule/orders.h"
#include "plan/schedule/partners.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace dualpipe_test {

PlanSpec of_stages(int pipeline, std::int64_t micro_batches = 8) {
  PlanSpec spec;
  spec.stages.order = Order::dualpipe;
  spec.mesh.pipeline = pipeline;
  spec.stages.virtual_stages = 2;
  spec.shape.micro_batch = 2;
  spec.shape.batch = 2 * micro_batches;
  return spec;
}

std::string findings(const Schedule& schedule) {
  return base::render(check(schedule), false);
}

// Table 2 of the report: the activations of p + 1 micro-batches, where a chunk is a whole stage.
TEST(DualPipe, HoldsTheActivationsOfOneMicroBatchMoreThanThereAreStages) {
  for (const int stages : {2, 4, 8, 16}) {
    const auto moves = zero_bubble(Order::dualpipe, stages, 5 * stages + stages % 4);
    for (const std::vector<Move>& stage : moves) {
      int now = 0, most = 0;
      for (const Move& m : stage) {
        now += m.kind == Move::Kind::forward ? 1 : m.kind == Move::Kind::weights ? -1 : 0;
        most = std::max(most, now);
      }
      EXPECT_EQ(most, stages + 1);
    }
  }
}

TEST(DualPipe, TakesHalfOfTheMicroBatchesFromEitherEnd) {
  const auto moves = zero_bubble(Order::dualpipe, 4, 8);
  for (const std::vector<Move>& stage : moves)
    for (const Move& m : stage) EXPECT_EQ(m.chunk, m.micro_batch >= 4 ? 1 : 0);
  for (const auto& [rank, chunk] : {std::pair(0, 0), std::pair(3, 1)})
    EXPECT_EQ(moves[static_cast<std::size_t>(rank)].front().chunk, chunk) << "who begins, begins its own end";
}

// Rank 0 of two: F F, three times F B F B, B B.
TEST(PairedShare, IsOfPassesBesideOneOfTheOtherDirection) {
  EXPECT_DOUBLE_EQ(paired_share(of_stages(2), kFirstStage, 8), 12.0 / 16);
  PlanSpec spec;
  spec.mesh.pipeline = 4;
  EXPECT_DOUBLE_EQ(paired_share(spec, kFirstStage, 8), 10.0 / 16) << "three forwards come first, three backwards last";
  EXPECT_DOUBLE_EQ(paired_share(spec, StageId(3), 8), 14.0 / 16) << "a micro-batch is no partner of itself";
  EXPECT_EQ(paired_share(spec, StageId(3), 1), 0);
  spec.stages.order = Order::gpipe;
  EXPECT_DOUBLE_EQ(paired_share(spec, kFirstStage, 8), 2.0 / 16) << "where it turns";
  spec.stages.order = Order::pipedream;
  EXPECT_EQ(paired_share(spec, kFirstStage, 8), 1) << "it never drains";
}

TEST(PairedShare, GrowsWithTheMicroBatchesOfDualPipe) {
  for (int stage = 0; stage < 16; ++stage) {
    const double few = paired_share(of_stages(16, 32), StageId(stage), 32),
                 many = paired_share(of_stages(16, 120), StageId(stage), 120);
    EXPECT_LT(few, many);
    EXPECT_GT(many, 0.8);
    EXPECT_LT(many, 0.95);
  }
}

TEST(DualPipe, IsSoundForEveryNumberOfPairs) {
  for (const int pipeline : {2, 4, 6, 8})
    for (const int micro_batches : {2, 4, 6, 8, 16, 32})
      for (const bool early : {false, true}) {
        PlanSpec spec = of_stages(pipeline, micro_batches);
        spec.states.overlap_gradients = early;
        const Schedule schedule = lower(samples::make(spec, samples::tiny_gpt(2 * pipeline, 8, 16)));
        EXPECT_EQ(findings(schedule), "") << pipeline << " stages, " << micro_batches;
      }
}

TEST(DualPipe, IsSoundWithShardsSubGroupsAndSequences) {
  for (const int zero : {0, 1})
    for (const bool early : {false, true}) {
      PlanSpec spec = of_stages(4);
      spec.mesh.data = spec.mesh.tensor = 2, spec.mesh.context = 2;
      spec.states.zero_stage = zero, spec.states.zero_group = zero > 0 ? 2 : 0;
      spec.mesh.sequence_parallel = true, spec.states.overlap_gradients = early;
      spec.shape.micro_batch = 1, spec.shape.batch = 16;
      EXPECT_EQ(findings(lower(samples::make(spec, samples::tiny_gpt(8)))), "") << describe(spec);
    }
}

TEST(DualPipe, PutsAStageOnTwoMirroredRanksThatAddUpItsGradients) {
  PlanSpec spec = of_stages(4);
  spec.stages.layers_per_stage = {1, 2, 3, 1};
  const Plan plan = samples::make(spec, samples::tiny_gpt(7));
  EXPECT_EQ(plan.layers(StageId(0)), 2);
  EXPECT_EQ(plan.layers(StageId(1)), 5);
  EXPECT_EQ(plan.first_layer(StageId(1), 1), 3) << "the third stage of the model is the second rank's second chunk";
  const Schedule schedule = lower(plan);
  EXPECT_EQ(findings(schedule), "");
  ASSERT_EQ(schedule.groups[0].name, "data");
  for (const auto& [rank, pair] : {std::pair(0, std::vector<int>{0, 3}), std::pair(2, std::vector<int>{1, 2})})
    EXPECT_EQ(schedule.groups[0].members(rank), pair);
  EXPECT_EQ(schedule.groups[0].size(), 2);
  for (const Group& group : schedule.groups) EXPECT_NE(group.name, "embedding") << "both ends have both tables";
  const auto names = [&](int stage) {
    std::multiset<std::pair<std::string, std::int64_t>> out;
    for (const Bucket& b : schedule.classes[static_cast<std::size_t>(stage)].buckets) out.insert({b.name, b.elements});
    return out;
  };
  EXPECT_EQ(names(0), names(3));
  EXPECT_EQ(names(1), names(2));
}

// Each parameter stands on two ranks, and its square belongs to the norm once.
TEST(DualPipe, CountsEveryParameterOnceInTheNorm) {
  const Schedule schedule = lower(samples::make(of_stages(4), samples::tiny_gpt(8)));
  std::map<std::string, std::pair<int, int>> seen;  // copies, and those that count
  for (const RankClass& c : schedule.classes)
    for (const Bucket& b : c.buckets)
      for (const ParameterRange& r : b.ranges) {
        ++seen[r.name].first;
        seen[r.name].second += r.counts_in_norm ? 1 : 0;
      }
  for (const auto& [name, counts] : seen) {
    EXPECT_EQ(counts.first, 2) << name;
    EXPECT_EQ(counts.second, 1) << name;
  }
}

// Stage s and its mirror image add up what their experts did, so both list layers in the model's order; experts are
// reduced over their own replicas and the mirror image; of the choice's biases one copy is saved.
TEST(DualPipe, TakesMixturesOfExperts) {
  models::Model model = samples::tiny_gpt(8);
  model.experts = {.count = 4, .chosen = 2, .hidden = 16, .balance_bias = true, .bias_rate = 0.01};
  for (const int zero : {0, 1})
    for (const int data : {2, 4})
      for (const bool early : {false, true}) {
        PlanSpec spec = of_stages(4);
        spec.mesh.data = data, spec.mesh.expert = 2;
        spec.shape.batch = 8 * spec.shape.micro_batch * data;
        spec.states.zero_stage = zero, spec.states.overlap_gradients = early;
        const Schedule schedule = lower(samples::make(spec, model));
        EXPECT_EQ(findings(schedule), "") << describe(spec);
        std::map<std::string, int> saved;
        for (const RankClass& c : schedule.classes) {
          EXPECT_TRUE(std::is_sorted(c.expert_layers.begin(), c.expert_layers.end())) << c.stage.number();
          EXPECT_EQ(c.expert_layers, schedule.classes[StageId(3 - c.stage.number())].expert_layers);
          for (const ParameterRange& range : expert_bias_ranges(c)) saved[range.name] += range.counts_in_norm ? 1 : 0;
          std::set<std::string> reduced;  // over the mirror image
          for (const Block& block : c.blocks)
            for (const Step& step : block.steps) {
              if (step.kind != StepKind::collective || !step.bucket.exists()) continue;
              const std::vector<int> members = schedule.groups[step.group].members(c.stage.number() * data);
              if (members.back() / data == 3 - c.stage.number() || members.front() / data == 3 - c.stage.number())
                reduced.insert(c.buckets[step.bucket].name);
            }
          for (const Bucket& bucket : c.buckets) EXPECT_TRUE(reduced.contains(bucket.name)) << bucket.name;
        }
        EXPECT_EQ(saved.size(), 8U);
        for (const auto& [name, copies] : saved) EXPECT_EQ(copies, 1) << name;
      }
}

// What recomputation saves would wait for the weights' gradients: of s micro-batches in ZB-H1's stage s.
TEST(Orders, WeightsDoNotWaitWhereBlocksAreRecomputed) {
  for (const Order order : {Order::zb_h1, Order::zb_h2, Order::zb_v, Order::dualpipe_v, Order::dualpipe}) {
    PlanSpec spec;
    spec.stages.order = order;
    spec.mesh.pipeline = 4;
    spec.stages.virtual_stages = spec.stages.folds() ? 2 : 1;
    const auto most_waiting = [&](Recompute what) {
      spec.recomputation.what = what;
      int most = 0;
      for (const std::vector<Move>& stage : moves_of(spec, 16)) {
        int now = 0, passes = 0;
        for (const Move& m : stage) {
          now += m.kind == Move::Kind::backward ? 1 : m.kind == Move::Kind::weights ? -1 : 0;
          passes += m.kind == Move::Kind::weights ? 1 : 0;
          most = std::max(most, now);
        }
        EXPECT_EQ(passes, spec.stages.folds() && order != Order::dualpipe ? 32 : 16) << name_of(order);
      }
      return most;
    };
    EXPECT_GT(most_waiting(Recompute::none), 1) << name_of(order);
    EXPECT_EQ(most_waiting(Recompute::full), 1) << name_of(order);
    spec.shape.batch = 16;
    EXPECT_EQ(findings(lower(samples::make(spec, samples::tiny_gpt(8, 8, 16)))), "") << name_of(order);
  }
}

TEST(MakePlan, RefusesAMirroredPipelineThatCannotBe) {
  const auto code = [](PlanSpec spec) {
    const auto made = samples::try_make(spec, samples::tiny_gpt(8));
    return made ? std::string() : made.error().front().code;
  };
  EXPECT_EQ(code(of_stages(4)), "");
  EXPECT_EQ(code(of_stages(3)), "P42");
  EXPECT_EQ(code(of_stages(4, 7)), "P43");
  PlanSpec spec = of_stages(4);
  spec.stages.virtual_stages = 1;
  EXPECT_EQ(code(spec), "P23");
  spec = of_stages(4);
  spec.mesh.data = 2, spec.states.zero_stage = 2;
  EXPECT_EQ(code(spec), "P24");
}

}  // namespace dualpipe_test
}  // namespace orrery::plan

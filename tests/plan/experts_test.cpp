// Mixtures whose experts no token could reach with the job's shape, and whose balancing loss an order cannot wait for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <tuple>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "plan/spec/recommender_rules.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace experts_test {

using ::testing::HasSubstr;

models::Model mixture_of(std::int64_t count, double capacity_factor = 0) {
  models::Model m = samples::tiny_gpt();
  m.experts = {.count = count, .chosen = 2, .hidden = 16, .capacity_factor = capacity_factor};
  return m;
}

PlanSpec shaped(std::int64_t micro_batch, std::int64_t sequence, int expert = 1) {
  PlanSpec spec;
  spec.mesh.data = spec.mesh.expert = expert;
  spec.shape = {.batch = 8, .micro_batch = micro_batch, .sequence = sequence};
  return spec;
}

std::string refusal(const PlanSpec& spec, const models::Model& model) {
  const auto made = samples::try_make(spec, model);
  return made ? "" : base::render(made.error(), false);
}

TEST(Experts, AreNoMoreThanTheTokensOfAMicroBatch) {
  EXPECT_EQ(refusal(shaped(1, 8), mixture_of(8)), "");
  EXPECT_EQ(refusal(shaped(2, 4), mixture_of(8)), "");
  const std::string found = refusal(shaped(1, 4), mixture_of(16));
  EXPECT_THAT(found, HasSubstr("error[P129]: 16 experts, but a micro-batch has 4 tokens for them"));
  EXPECT_THAT(found, HasSubstr("micro_batch: 4, a sequence of 16, or fewer experts"));
  EXPECT_EQ(refusal(shaped(1, 4, 4), mixture_of(16)), "") << "four ranks bring their tokens together";
  PlanSpec parts = shaped(1, 8, 2);
  parts.mesh.data = 1, parts.mesh.context = 2;
  EXPECT_EQ(refusal(parts, mixture_of(8)), "") << "each has the other half of a sequence";
  EXPECT_THAT(refusal(parts, mixture_of(16)), HasSubstr("a micro-batch has 8 tokens"));
}

TEST(Experts, AreDescribedWhereOtherRanksThanTheTensorGroupSplitThem) {
  PlanSpec spec = shaped(2, 8, 2);
  EXPECT_EQ(describe(spec), "data 2 x expert 2, micro-batch 2");
  spec.mesh.expert_tensor = 2;
  EXPECT_EQ(describe(spec), "data 2 x expert 2, each expert over 2 ranks, micro-batch 2");
  spec.mesh.tensor = 2;
  EXPECT_EQ(describe(spec), "data 2 x tensor 2 x expert 2, micro-batch 2") << "that is the tensor group";
  spec.mesh.expert_tensor = 1;
  EXPECT_EQ(describe(spec), "data 2 x tensor 2 x expert 2, each expert over 1 rank, micro-batch 2");
}

TEST(Experts, HaveRoomForAToken) {
  EXPECT_EQ(refusal(shaped(2, 8), mixture_of(16, 1)), "");
  const std::string found = refusal(shaped(4, 4), mixture_of(16, 0.25));
  EXPECT_THAT(found,
              HasSubstr("error[P118]: capacity_factor 0.25 gives an expert room for 0.12 tokens of a sequence of 4"));
  EXPECT_THAT(found, HasSubstr("a sequence of 32 or more, or a model with capacity_factor: 2 or more, or 0"));
  EXPECT_EQ(refusal(shaped(4, 4), mixture_of(16)), "") << "without a limit none is dropped";
}

TEST(Experts, AreDividedAmongRanksThatNestWithSubGroupsAndNodes) {
  PlanSpec spec = shaped(1, 16);
  spec.mesh.data = 8, spec.states.zero_stage = 1;
  for (const int expert : {1, 2, 4, 8})
    for (const int group : {2, 4, 8}) {
      spec.mesh.expert = expert, spec.states.zero_group = group;
      EXPECT_EQ(refusal(spec, mixture_of(8)), "") << expert << " by " << group;
      const Holders experts = spec.holders(true);
      EXPECT_EQ(experts.count, 8 / expert);
      EXPECT_EQ(experts.shards, std::max(1, group / expert));
      EXPECT_EQ(experts.sub_groups(), group >= expert ? 8 / group : 8 / expert);
      EXPECT_EQ(spec.squares_experts_apart(), expert > group) << expert << " by " << group;
    }
  spec.mesh.data = 12, spec.shape.batch = 12, spec.mesh.expert = 4, spec.states.zero_group = 6;
  EXPECT_THAT(refusal(spec, mixture_of(8)),
              HasSubstr("error[P126]: zero_group 6: the 6 ranks of a sub-group and the 4 among which a layer's experts "
                        "are divided do not divide one another"));
  spec.states.zero_group = 0, spec.states.zero_stage = 0;
  spec.compression.gradients = GradientCompression::bf16, spec.compression.group = 6;
  EXPECT_THAT(refusal(spec, mixture_of(8)), HasSubstr("error[P126]: compression.group 6"));
  spec.compression.group = 4;
  EXPECT_EQ(refusal(spec, mixture_of(8)), "");
}

// Each rank has exactly one part of every parameter, whoever holds the rest.
TEST(Experts, HaveShardsThatNoTwoRanksOfASubGroupShare) {
  models::Model m = mixture_of(8);
  PlanSpec spec = shaped(1, 16);
  spec.mesh.data = 4, spec.mesh.tensor = 2, spec.mesh.sequence_parallel = true, spec.states.zero_stage = 2;
  for (const int expert_tensor : {0, 1, 4, 8})
    for (const int expert : {1, 2, 4}) {
      spec.mesh.expert = expert, spec.mesh.expert_tensor = expert_tensor;
      if (spec.mesh.expert_places() % expert != 0) continue;
      const Plan plan = samples::make(spec, m);
      EXPECT_EQ(base::render(check(lower(plan)), false), "");
      std::set<std::tuple<int, int, int>> places;
      for (int rank = 0; rank < 8; ++rank) {
        const Holders experts = spec.holders(true);
        places.insert({spec.mesh.expert_index(rank), experts.part(rank), experts.shard(rank)});
      }
      EXPECT_EQ(places.size(), 8U) << expert << " of tensor " << expert_tensor;
    }
}

TEST(Experts, AreSplitOverAnyDivisorOfAStagesRanks) {
  PlanSpec spec = shaped(1, 16);
  spec.mesh.data = 3, spec.mesh.tensor = 4, spec.mesh.sequence_parallel = true, spec.shape.batch = 6;
  models::Model m = mixture_of(8);
  m.experts.hidden = 24;
  for (const int ways : {0, 1, 2, 3, 4, 6, 12}) {
    spec.mesh.expert_tensor = ways;
    EXPECT_EQ(refusal(spec, m), "") << ways;
    EXPECT_EQ(spec.holders(true).ways, ways > 0 ? ways : 4);
  }
  spec.mesh.expert_tensor = 8;
  EXPECT_THAT(refusal(spec, m), HasSubstr("error[P119]: expert_tensor 8 does not divide the 12 ranks of data 3 x "
                                          "context 1 x tensor 4"));
  spec.mesh.expert_tensor = 2, spec.mesh.expert = 4;
  EXPECT_THAT(refusal(spec, m), HasSubstr("error[P122]: expert 4 must divide the ranks of data 3 x context 1 x tensor "
                                          "4 / expert_tensor 2, which are 6"));
  spec.mesh.expert = 2, m.experts.hidden = 25;
  EXPECT_THAT(refusal(spec, m), HasSubstr("error[P123]: expert_tensor 2 does not divide an expert's width of 25"));
  m.experts.hidden = 24, m.experts.capacity_factor = 2;
  EXPECT_THAT(refusal(spec, m), HasSubstr("error[P125]"));
  m.experts.capacity_factor = 0, spec.mesh.sequence_parallel = false;
  EXPECT_THAT(refusal(spec, m), HasSubstr("error[P120]"));
}

TEST(BalancingLoss, IsPredictedOfEachMicroBatchAndExecutedOverTheWholeStep) {
  models::Model m = mixture_of(4);
  m.experts.aux_coefficient = 0.01;
  PlanSpec spec = shaped(1, 16);
  spec.mesh.pipeline = 2;
  const auto refused = [&](const Plan& plan) {
    return base::render(refused_execution(plan.model(), plan.cluster(), plan.spec()), false);
  };
  for (const Order order : {Order::one_f_one_b, Order::zb_h1, Order::gpipe}) {
    spec.stages.order = order;
    const Plan plan = samples::make(spec, m);
    EXPECT_EQ(base::render(check(lower(plan)), false), "") << name_of(order);
    if (order == Order::gpipe)
      EXPECT_EQ(refused(plan), "");
    else
      EXPECT_THAT(refused(plan), HasSubstr("error[P124]: the balancing loss covers all tokens of a step"));
  }
  spec.stages.order = Order::one_f_one_b, spec.shape.micro_batch = 8;
  EXPECT_EQ(refused(samples::make(spec, m)), "") << "one micro-batch is the step";
  m.experts.aux_coefficient = 0, spec.shape.micro_batch = 1;
  EXPECT_EQ(refused(samples::make(spec, m)), "");
}

TEST(SparseMixer, IsPredictedAndNotExecuted) {
  models::Model m = mixture_of(4);
  const auto refused = [&] {
    const Plan plan = samples::make(shaped(1, 16), m);
    return base::render(refused_execution(plan.model(), plan.cluster(), plan.spec()), false);
  };
  EXPECT_EQ(refused(), "");
  m.experts.scores = models::Scores::sparse_mixer;
  EXPECT_THAT(refused(), HasSubstr("error[E0669]: " + m.name + "'s routers draw experts while they train"));
}

TEST(Execution, OfAttentionToChosenTokensIsRefused) {
  models::Model m = mixture_of(4);
  m.indexer = {.heads = 2, .width = 8, .chosen = 4};
  const std::string said = base::render(refused_execution(m, samples::cpu_cluster(2), shaped(1, 16)), false);
  EXPECT_THAT(said, HasSubstr("error[E0669]: " + m.name + "'s attention reads only tokens that an indexer chooses"));
  EXPECT_THAT(said, HasSubstr("without `indexer` the same layers train"));
}

TEST(Execution, OfWhatHasNoOperatorIsRefusedByName) {
  const models::Model plain = mixture_of(4);
  const auto refused = [&](const std::function<void(models::Model&)>& change) {
    models::Model m = plain;
    change(m);
    return base::render(refused_execution(m, samples::cpu_cluster(2), shaped(1, 16)), false);
  };
  EXPECT_EQ(refused([](models::Model&) {}), "");
  EXPECT_THAT(refused([](models::Model& m) { m.layer_inputs = {.width = 8, .vocab = 64}; }),
              HasSubstr("'s layers have inputs of their own, which is predicted, and not executed"));
  EXPECT_THAT(refused([](models::Model& m) { m.shared_keys.layers = 1; }),
              HasSubstr("'s last layers read keys and values of others, which is predicted, and not executed"));
  EXPECT_THAT(refused([](models::Model& m) { m.streams.count = 4; }),
              HasSubstr("'s several residual streams are predicted, and not executed"));
  EXPECT_THAT(refused([](models::Model& m) { m.experts.hashed = 1; }),
              HasSubstr("'s experts are scored by roots of softplus, chosen by ids, or limited"));
  EXPECT_THAT(refused([](models::Model& m) { m.experts.limit = 7; }),
              HasSubstr("'s experts are scored by roots of softplus, chosen by ids, or limited"));
}

TEST(Execution, OfWhatOnlyCpuRanksComputeIsRefusedOnGpus) {
  clusters::Cluster cluster = samples::cpu_cluster(2);
  models::Model m = samples::tiny_gpt();
  const auto refused = [&] { return base::render(refused_execution(m, cluster, shaped(1, 16)), false); };
  m.norm_weight = m.norm_bias = false;
  EXPECT_EQ(refused(), "");
  cluster.devices.front().kind = clusters::DeviceKind::gpu;
  EXPECT_THAT(refused(), HasSubstr("error[E0669]: norms without weights are predicted on GPUs"));
  m.norm_weight = true;
  EXPECT_EQ(refused(), "");
  m.activation = models::Activation::xielu;
  EXPECT_THAT(refused(), HasSubstr("error[E0669]: xIELU is predicted on GPUs"));
  m.activation = models::Activation::gelu, m.attention_gate = true;
  EXPECT_THAT(refused(), HasSubstr("error[E0669]: gates of attention's output are predicted on GPUs"));
  m.attention_gate = false, m.attention_sinks = true;
  EXPECT_THAT(refused(), HasSubstr("error[E0669]: attention sinks are predicted on GPUs"));
  m.attention_sinks = false, m.ssm = {.heads = 4, .width = 4, .groups = 1, .state = 4};
  m.pattern = {{models::Mixer::mamba, models::Feed::mlp}};
  EXPECT_THAT(refused(), HasSubstr("error[E0669]: state spaces are predicted on GPUs"));
  cluster.devices.front().kind = clusters::DeviceKind::cpu;
  EXPECT_EQ(refused(), "");
}

}  // namespace experts_test
}  // namespace orrery::plan

// The end of a step by optimizer and precision: sound on every split, its messages counted, its states no more than
// asked for.
#include "plan/lower/lower_optimizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "plan/lower/buckets.h"
#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace lower_optimizer_test {

using models::DType;

constexpr OptimizerKind kKinds[] = {OptimizerKind::adamw,     OptimizerKind::sgd,        OptimizerKind::lamb,
                                    OptimizerKind::adafactor, OptimizerKind::adamw_8bit, OptimizerKind::muon};

TEST(LoweredOptimizer, IsSoundOnEverySplitInEveryPrecision) {
  for (const auto& [name, split] : samples::splits())
    for (const OptimizerKind kind : kKinds)
      for (const auto& [precision, rounding] :
           {std::pair(DType::fp32, Rounding::nearest), std::pair(DType::bf16, Rounding::nearest),
            std::pair(DType::fp16, Rounding::nearest), std::pair(DType::bf16, Rounding::stochastic)}) {
        PlanSpec spec = split;
        spec.states.optimizer = kind;
        spec.numerics.precision = precision;
        spec.numerics.rounding = rounding;
        spec.states.momentum = rounding == Rounding::nearest;
        const base::Diagnostics faults = check(lower(samples::make(spec)));
        EXPECT_TRUE(faults.empty()) << name << ", " << describe(spec) << "\n" << base::render(faults, false);
      }
}

struct Message {
  std::string group;
  std::int64_t elements = 0;
  bool operator==(const Message&) const = default;
};

/// What the optimizer sums up in the first stage, beside the norm of the gradients.
std::vector<Message> messages(const PlanSpec& spec) {
  const Schedule schedule = lower(samples::make(spec));
  std::vector<Message> out;
  for (const Step& step : schedule.classes[0].blocks[samples::kFinish].steps)
    if (step.kind == StepKind::collective && step.phase == Phase::optimizer && step.target.elements > 1)
      out.push_back({schedule.groups[step.group].name, step.target.elements});
  return out;
}

PlanSpec split(OptimizerKind kind, int data, int tensor, int zero) {
  PlanSpec spec;
  spec.states.optimizer = kind;
  spec.mesh.data = data;
  spec.mesh.tensor = tensor;
  spec.states.zero_stage = zero;
  return spec;
}

// Two tables and two vectors outside four blocks of 16: three weights and biases of attention's inputs, and one of each
// behind; two of each of the MLP; two norms.
constexpr std::int64_t kParameters = 2 + 2 + 4 * 16;

TEST(LoweredOptimizer, LambSumsTwoNormsOfEachParameterWhereItIsInParts) {
  constexpr OptimizerKind kLamb = OptimizerKind::lamb;
  EXPECT_EQ(messages(split(kLamb, 1, 1, 0)), std::vector<Message>{});
  EXPECT_EQ(messages(split(kLamb, 2, 1, 0)), std::vector<Message>{}) << "replicas have whole parameters";
  EXPECT_EQ(messages(split(kLamb, 1, 2, 0)), (std::vector<Message>{{"tensor", 2 * kParameters}}));
  EXPECT_EQ(messages(split(kLamb, 2, 1, 3)), (std::vector<Message>{{"data", 2 * kParameters}}));
  EXPECT_EQ(messages(split(kLamb, 2, 2, 1)), (std::vector<Message>{{"parts", 2 * kParameters}}));
}

TEST(LoweredOptimizer, LambSumsNormsOfShardsUnderAnAsynchronousOrderToo) {
  PlanSpec spec = split(OptimizerKind::lamb, 2, 1, 1);
  spec.mesh.pipeline = 2;
  spec.stages.order = Order::pipedream_2bw;
  const auto meets = [](const PlanSpec& of) {
    const Schedule schedule = lower(samples::make(of));
    for (const Block& block : schedule.classes[0].blocks)
      for (const Step& step : block.steps)
        if (step.kind == StepKind::collective && step.phase == Phase::optimizer && step.target.elements > 1)
          return true;
    return false;
  };
  EXPECT_TRUE(meets(spec));
  spec.states.zero_stage = 0;
  EXPECT_FALSE(meets(spec)) << "replicas have whole parameters";
}

TEST(LoweredOptimizer, AdafactorSumsFactorsOverShardsAndWhatMeetsOverTheTensorGroup) {
  constexpr OptimizerKind kAdafactor = OptimizerKind::adafactor;
  const std::vector<Message> alone = messages(split(kAdafactor, 2, 1, 1));
  ASSERT_EQ(alone.size(), 2U);
  // 1 + rows + columns of each matrix (tables 64 x 32 and 16 x 32; blocks of width 32), vectors as they are.
  const std::int64_t matrices = (1 + 64 + 32) + (1 + 16 + 32) + 4 * (4 * (1 + 32 + 32) + 2 * (1 + 128 + 32));
  const std::int64_t vectors = 2 * 32 + 4 * (4 * 32 + 128 + 32 + 4 * 32);
  EXPECT_EQ(alone[0], (Message{"data", matrices + vectors}));
  EXPECT_EQ(alone[1], (Message{"data", 2 * kParameters}));
  const std::vector<Message> both = messages(split(kAdafactor, 2, 2, 2));
  ASSERT_EQ(both.size(), 3U);
  EXPECT_EQ(both[1].group, "tensor");
  // The token table and all of a block's matrices are split: their sums, and 32 across each split.
  EXPECT_EQ(both[1].elements, (1 + 32) * (1 + 4 * 6));
  EXPECT_EQ(both[2], (Message{"parts", 2 * kParameters}));
}

TEST(LoweredOptimizer, MuonGathersTheDirectionsOfABlockWhereItsMatricesAreInParts) {
  constexpr OptimizerKind kMuon = OptimizerKind::muon;
  EXPECT_EQ(messages(split(kMuon, 1, 1, 0)), std::vector<Message>{});
  EXPECT_EQ(messages(split(kMuon, 2, 1, 0)), std::vector<Message>{}) << "replicas have whole matrices";
  const std::int64_t matrices = 12 * 32 * 32, vectors = 13 * 32;  // of a block of width 32
  const std::int64_t padded = round_up(matrices + vectors, 2 * kParameterAlignment);
  EXPECT_EQ(messages(split(kMuon, 2, 1, 3)), std::vector<Message>(4, {"data", padded}));
  for (const auto& [zero, group] : {std::pair(0, "tensor"), std::pair(1, "parts")}) {
    const std::vector<Message> both = messages(split(kMuon, 2, 2, zero));
    ASSERT_EQ(both.size(), 4U) << "one a block, none of embedding and head";
    for (const Message& one : both) {
      EXPECT_EQ(one.group, group);
      EXPECT_GE(one.elements, matrices + vectors) << "of both tensor ranks";
      EXPECT_LT(one.elements, matrices + 3 * vectors);
    }
  }
}

TEST(LoweredOptimizer, MuonIsRefusedByNameWhereItIsNotBuilt) {
  const auto refused = [](const std::function<void(PlanSpec&)>& change) {
    PlanSpec spec;
    spec.states.optimizer = OptimizerKind::muon;
    spec.shape.batch = 8, spec.shape.sequence = 16;
    change(spec);
    const auto plan = samples::try_make(spec);
    return plan ? std::string() : plan.error().front().code;
  };
  EXPECT_EQ(refused([](PlanSpec&) {}), "");
  EXPECT_EQ(refused([](PlanSpec& s) { s.stages.order = Order::pipedream_2bw, s.mesh.pipeline = 2; }), "P160");
  EXPECT_EQ(refused([](PlanSpec& s) {
              s.mesh.data = 4, s.compression.gradients = GradientCompression::bf16, s.compression.group = 2;
            }),
            "P161");
  EXPECT_EQ(refused([](PlanSpec& s) { s.mesh.data = 2, s.states.staleness = 0; }), "P84");
  EXPECT_EQ(refused([](PlanSpec& s) { s.offload.optimizer = Space::host; }), "P55");
}

TEST(LoweredOptimizer, EightBitShardsEndWithABlockAndTablesOfTheInputKeepThirtyTwo) {
  const Schedule schedule = lower(samples::make(split(OptimizerKind::adamw_8bit, 2, 1, 1)));
  const RankClass& c = schedule.classes[0];
  for (const Bucket& bucket : c.buckets) {
    EXPECT_EQ(bucket.shard_elements() % models::kQuantisedBlock, 0) << bucket.name;
    const bool bytes = c.buffers[bucket.first_moment].dtype == DType::uint8;
    EXPECT_EQ(bytes, !bucket.embedding) << bucket.name;
    EXPECT_EQ(bytes, bucket.first_scale.exists()) << bucket.name;
    for (const ParameterRange& range : bucket.ranges)
      if (range.name.find(".k.") == std::string::npos && range.name.find(".v.") == std::string::npos) {
        EXPECT_EQ(range.offset % models::kQuantisedBlock, 0) << range.name;
      }
  }
}

TEST(LoweredOptimizer, ReplicasAskOneAnotherWhetherAnFp16StepIsSkipped) {
  const auto flags = [](int zero) {
    PlanSpec spec = split(OptimizerKind::adamw, 2, 1, zero);
    spec.numerics.precision = DType::fp16;
    const Schedule schedule = lower(samples::make(spec));
    int found = 0;
    for (const Step& step : schedule.classes[0].blocks[samples::kFinish].steps)
      if (step.kind == StepKind::collective && step.target.buffer == schedule.classes[0].scaling) {
        EXPECT_EQ(step.reduce, Reduce::maximum);
        EXPECT_EQ(step.target, (View{schedule.classes[0].scaling, 3, 1}));
        ++found;
      }
    return found;
  };
  EXPECT_EQ(flags(0), 1);
  EXPECT_EQ(flags(1), 0) << "all ranks have summed one norm";
}

TEST(LoweredOptimizer, StochasticRoundingIsOfBf16Alone) {
  PlanSpec spec;
  spec.numerics.rounding = Rounding::stochastic;
  const auto plan = samples::try_make(spec);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().front().code, "P50");
}

}  // namespace lower_optimizer_test
}  // namespace orrery::plan

// Training in 16 bits, with products in fp8 and in tf32: near fp32, the same on every split of the model as far as
// rounding lets it be, in the bytes that the schedule says; fp16 skips what overflows, by one decision of all ranks.
#include <gtest/gtest.h>

#include <cmath>

#include "exec/engine/half.h"
#include "plan/lower/lower.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace precision_test {

using models::DType;
using testing::Outcome;
using testing::Trial;

Trial trial_in(DType precision, plan::Rounding rounding = plan::Rounding::nearest) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.spec.numerics.precision = precision;
  trial.spec.numerics.rounding = rounding;
  return trial;
}

const Outcome& serial_in(DType precision, plan::Rounding rounding = plan::Rounding::nearest) {
  static std::map<std::pair<DType, plan::Rounding>, Outcome> outcomes;
  const auto key = std::make_pair(precision, rounding);
  const auto found = outcomes.find(key);
  if (found != outcomes.end()) return found->second;
  return outcomes.emplace(key, testing::train(trial_in(precision, rounding))).first->second;
}

void expect_memory_as_predicted(const Outcome& outcome) {
  for (std::size_t rank = 0; rank < outcome.memory.size(); ++rank) {
    const auto predicted = static_cast<double>(outcome.placements[rank].arena_bytes);
    EXPECT_NEAR(static_cast<double>(outcome.memory[rank].peak_extent), predicted, 0.02 * predicted) << "rank " << rank;
    EXPECT_EQ(outcome.memory[rank].peak_live, outcome.placements[rank].peak_live_bytes) << "rank " << rank;
  }
}

// IEEE 754 binary16: 10 bits of fraction, 2^-24 the least, 65504 the largest.
TEST(Halves, RoundToNearestEvenAndEndInInfinity) {
  EXPECT_EQ(to_fp16(1), 0x3c00);
  EXPECT_EQ(to_fp16(-2), 0xc000);
  EXPECT_EQ(to_fp16(1 + 0x1p-11F), 0x3c00);
  EXPECT_EQ(to_fp16(1 + 3 * 0x1p-11F), 0x3c02);
  EXPECT_EQ(to_fp16(0x1p-24F), 1);
  EXPECT_EQ(to_fp16(0x1p-25F), 0);
  EXPECT_EQ(to_fp16(3 * 0x1p-25F), 2);
  EXPECT_EQ(to_fp16(65519), 0x7bff);
  EXPECT_EQ(to_fp16(65520), 0x7c00);
  EXPECT_EQ(to_fp16(-INFINITY), 0xfc00);
  EXPECT_TRUE(std::isnan(from_fp16(to_fp16(NAN))));
}

// An array has its eights by the processor where it can; what is left over one by one.
TEST(Halves, OfAnArrayAreThoseOneByOne) {
  std::vector<std::uint16_t> all(65536), back(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    std::vector<float> values(all.size());
    widen(dtype, reinterpret_cast<const std::byte*>(all.data()), values);
    narrow(dtype, values, reinterpret_cast<std::byte*>(back.data()));
    for (std::size_t i = 0; i < all.size(); ++i) {
      const float one = dtype == DType::bf16 ? from_bf16(all[i]) : from_fp16(all[i]);
      ASSERT_EQ(std::isnan(values[i]), std::isnan(one)) << i;
      if (std::isnan(one)) continue;
      ASSERT_EQ(values[i], one) << i;
      ASSERT_EQ(back[i], all[i]) << i;
      ASSERT_EQ(dtype == DType::bf16 ? to_bf16(one) : to_fp16(one), all[i]) << i;
    }
    std::vector<float> between(all.size() - 1);
    for (std::size_t i = 0; i < between.size(); ++i) between[i] = 0.5F * values[i] + 0.4999F * values[i + 1];
    narrow(dtype, between, reinterpret_cast<std::byte*>(back.data()));
    for (std::size_t i = 0; i < between.size(); ++i) {
      if (std::isnan(between[i])) continue;
      ASSERT_EQ(dtype == DType::bf16 ? to_bf16(between[i]) : to_fp16(between[i]), back[i]) << between[i];
    }
  }
}

TEST(Precision, SixteenBitsTrainNearThirtyTwo) {
  const Outcome& full = serial_in(DType::fp32);
  for (const auto& [precision, rounding, bound] :
       {std::tuple(DType::bf16, plan::Rounding::nearest, 5e-3), std::tuple(DType::fp16, plan::Rounding::nearest, 2e-3),
        std::tuple(DType::bf16, plan::Rounding::stochastic, 1e-2)}) {
    const Outcome& narrow = serial_in(precision, rounding);
    const double distance = testing::loss_distance(narrow, full);
    std::printf("[ errors   ] %s %s: loss %.1e from fp32\n", models::name_of(precision), plan::name_of(rounding),
                distance);
    EXPECT_LE(distance, bound);
    EXPECT_GT(distance, 1e-7) << "not in 16 bits";
    expect_memory_as_predicted(narrow);
  }
}

struct Case {
  const char* name;
  void (*set)(plan::PlanSpec&);
};

const Case kCases[] = {
    {"data_2", [](plan::PlanSpec& s) { s.mesh.data = 2; }},
    {"tensor_2", [](plan::PlanSpec& s) { s.mesh.tensor = 2; }},
    {"tensor_2_sequence_recompute",
     [](plan::PlanSpec& s) {
       s.mesh.tensor = 2, s.mesh.sequence_parallel = true, s.recomputation.what = plan::Recompute::full;
     }},
    {"pipeline_2", [](plan::PlanSpec& s) { s.mesh.pipeline = 2; }},
    {"zero_1", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }},
    {"zero_2", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }},
    {"zero_3_data_4", [](plan::PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 3; }},
    {"context_2", [](plan::PlanSpec& s) { s.mesh.context = 2; }},
    {"zero_1_tensor_2_pipeline_2",
     [](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.tensor = 2, s.mesh.pipeline = 2, s.states.zero_stage = 1; }},
};

using Setting = std::tuple<DType, plan::Rounding>;
class SplitIn : public ::testing::TestWithParam<std::tuple<Setting, Case>> {};

// Partial sums are rounded to 16 bits where they meet, and where a sum is cut they are others: bounds are a few units
// of the last place of the type.
TEST_P(SplitIn, SixteenBitsIsNearSerialInSixteenBits) {
  const auto& [setting, one] = GetParam();
  const auto& [precision, rounding] = setting;
  Trial trial = trial_in(precision, rounding);
  one.set(trial.spec);
  const Outcome split = testing::train(trial);
  const Outcome& serial = serial_in(precision, rounding);
  const double loss = testing::loss_distance(split, serial);
  const double gradient = testing::relative_distance(split.gradients.at(0), serial.gradients.at(0));
  std::printf("[ errors   ] %s %s %-28s loss %.1e  gradient at step 1 %.1e\n", models::name_of(precision),
              plan::name_of(rounding), one.name, loss, gradient);
  EXPECT_LE(loss, precision == DType::bf16 ? 5e-3 : 1e-3);
  EXPECT_LE(gradient, precision == DType::bf16 ? 2e-2 : 3e-3);
  expect_memory_as_predicted(split);
}

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<Setting, Case>>& tested) {
  const auto& [setting, one] = tested.param;
  return std::string(models::name_of(std::get<0>(setting))) + "_" + plan::name_of(std::get<1>(setting)) + "_" +
         one.name;
}

INSTANTIATE_TEST_SUITE_P(Plans, SplitIn,
                         ::testing::Combine(::testing::Values(Setting{DType::bf16, plan::Rounding::nearest},
                                                              Setting{DType::fp16, plan::Rounding::nearest},
                                                              Setting{DType::bf16, plan::Rounding::stochastic}),
                                            ::testing::ValuesIn(kCases)),
                         name_of_case);

// With fp8 only block products are rounded further; with tf32 all products, in fp32 tensors.
TEST(Precision, EightBitProductsTrainNearSixteenAndTf32NearThirtyTwo) {
  const double fp8 = testing::loss_distance(serial_in(DType::fp8), serial_in(DType::bf16));
  const double tf32 = testing::loss_distance(serial_in(DType::tf32), serial_in(DType::fp32));
  std::printf("[ errors   ] loss: fp8 %.1e from bf16, tf32 %.1e from fp32\n", fp8, tf32);
  EXPECT_LE(fp8, 2e-2);
  EXPECT_GT(fp8, 1e-4) << "not in 8 bits";
  EXPECT_LE(tf32, 1e-3);
  EXPECT_GT(tf32, 1e-7) << "not in tf32";
  expect_memory_as_predicted(serial_in(DType::fp8));
  expect_memory_as_predicted(serial_in(DType::tf32));
  EXPECT_GT(serial_in(DType::fp8).placements[0].arena_bytes, serial_in(DType::bf16).placements[0].arena_bytes)
      << "rounded operands have memory";
  EXPECT_EQ(serial_in(DType::tf32).placements[0].arena_bytes, serial_in(DType::fp32).placements[0].arena_bytes);
}

/// `whole`: every product's operands are those of the serial run, of the same micro-batch, so that they are rounded
/// alike. Where ranks have parts of matrices, sums of bf16 meet in another order, one in 2^9 apart; a value that lies
/// between two codes of 8 bits may then take the other, an eighth away, and after a few layers the two runs are rounded
/// as if by themselves: as far apart as fp8 is from bf16, and no farther.
struct EightBitCase {
  const char* name;
  bool whole;
  void (*set)(plan::PlanSpec&);
};

class SplitInEightBits : public ::testing::TestWithParam<EightBitCase> {};

TEST_P(SplitInEightBits, IsNearSerialInEightBits) {
  Trial trial = trial_in(DType::fp8);
  GetParam().set(trial.spec);
  const Outcome split = testing::train(trial);
  const Outcome& serial = serial_in(DType::fp8);
  const double loss = testing::loss_distance(split, serial);
  const double gradient = testing::relative_distance(split.gradients.at(0), serial.gradients.at(0));
  const double last = testing::relative_distance(split.gradients.at(19), serial.gradients.at(19));
  const double rounding = testing::relative_distance(serial.gradients.at(0), serial_in(DType::bf16).gradients.at(0));
  std::printf("[ errors   ] fp8 %-28s loss %.1e  gradient at step 1 %.1e  at step 20 %.1e; fp8 from bf16 %.1e\n",
              GetParam().name, loss, gradient, last, rounding);
  EXPECT_LE(gradient, GetParam().whole ? 1e-5 : rounding);
  EXPECT_LE(last, GetParam().whole ? 1e-4 : 2e-1);
  EXPECT_LE(loss, 5e-3);
  expect_memory_as_predicted(split);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, SplitInEightBits,
    ::testing::Values(EightBitCase{"data_2", true, [](plan::PlanSpec& s) { s.mesh.data = 2; }},
                      EightBitCase{"zero_3_data_4", true,
                                   [](plan::PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 3; }},
                      EightBitCase{"pipeline_2", true, [](plan::PlanSpec& s) { s.mesh.pipeline = 2; }},
                      EightBitCase{"zero_bubble_recompute", true,
                                   [](plan::PlanSpec& s) {
                                     s.mesh.pipeline = 2, s.stages.order = plan::Order::zb_h1,
                                     s.recomputation.what = plan::Recompute::full;
                                   }},
                      EightBitCase{"tensor_2", false, [](plan::PlanSpec& s) { s.mesh.tensor = 2; }},
                      EightBitCase{"tensor_2_sequence_recompute", false,
                                   [](plan::PlanSpec& s) {
                                     s.mesh.tensor = 2, s.mesh.sequence_parallel = true,
                                     s.recomputation.what = plan::Recompute::full;
                                   }},
                      EightBitCase{"context_2", false, [](plan::PlanSpec& s) { s.mesh.context = 2; }}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(LossScaling, SkipsUntilGradientsFitAndAllRanksSkipTogether) {
  for (const auto set : {+[](plan::PlanSpec&) {}, +[](plan::PlanSpec& s) { s.mesh.data = 2; },
                         +[](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.tensor = 2, s.states.zero_stage = 3; },
                         +[](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.mesh.data = 2, s.states.zero_stage = 1; }}) {
    Trial trial = trial_in(DType::fp16);
    trial.training.loss_scaling = {std::ldexp(1.0, 30), 4, 4};
    trial.gradients_at = {};
    set(trial.spec);
    const Outcome outcome = testing::train(trial);
    std::size_t first = 0;
    while (first < outcome.steps.size() && outcome.steps[first].skipped) ++first;
    ASSERT_GT(first, 0U) << "2^30 must overflow";
    ASSERT_LT(first, 12U) << "and be found too large";
    for (std::size_t i = 0; i <= first; ++i) {
      EXPECT_EQ(outcome.steps[i].loss_scale, std::ldexp(1.0, 30 - 2 * static_cast<int>(i)));
      EXPECT_TRUE(std::isfinite(outcome.steps[i].loss));
    }
    EXPECT_TRUE(std::isfinite(outcome.steps[first].gradient_norm));
    // Four steps later it has grown again.
    EXPECT_EQ(outcome.steps[first + 4].loss_scale, 4 * outcome.steps[first].loss_scale);
    EXPECT_LT(outcome.steps.back().loss, outcome.steps.front().loss);
  }
}

TEST(LossScaling, AStepThatIsSkippedChangesNothing) {
  Trial trial = trial_in(DType::fp16);
  trial.training.loss_scaling.initial = std::ldexp(1.0, 60);
  trial.training.loss_scaling.factor = 1.0001;
  trial.spec.mesh.data = 2;
  trial.gradients_at = {};
  trial.steps = 3;
  const Outcome outcome = testing::train(trial);
  for (const StepResult& step : outcome.steps) EXPECT_TRUE(step.skipped);
  trial.steps = 0;
  EXPECT_EQ(testing::relative_distance(outcome.weights, testing::train(trial).weights), 0);
}

// Masters, copies, shards and skipped steps of every optimizer: what compute reads is what it would be in fp32,
// rounded.
TEST(Precision, EveryOptimizerTrainsInSixteenBitsOnEveryKindOfShard) {
  using plan::OptimizerKind;
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::lamb, OptimizerKind::adafactor,
                                   OptimizerKind::adamw_8bit, OptimizerKind::muon}) {
    Trial trial = trial_in(DType::fp32);
    trial.training.optimizer.kind = kind;
    trial.training.optimizer.learning_rate = kind == OptimizerKind::adamw_8bit ? 3e-3 : 2e-2;
    trial.gradients_at = {};
    trial.spec.mesh.data = trial.spec.mesh.tensor = 2;
    trial.spec.states.zero_stage = 1;
    trial.steps = 8;
    const Outcome full = testing::train(trial);
    for (const auto& [precision, rounding] :
         {std::pair(DType::bf16, plan::Rounding::nearest), std::pair(DType::fp16, plan::Rounding::nearest),
          std::pair(DType::bf16, plan::Rounding::stochastic)})
      for (const int zero : {1, 3}) {
        SCOPED_TRACE(std::string(plan::name_of(kind)) + " " + models::name_of(precision) + " " +
                     plan::name_of(rounding) + ", ZeRO " + std::to_string(zero));
        Trial narrow = trial;
        narrow.spec.numerics.precision = precision;
        narrow.spec.numerics.rounding = rounding;
        narrow.spec.states.zero_stage = zero;
        const Outcome outcome = testing::train(narrow);
        EXPECT_LE(testing::loss_distance(outcome, full), 1e-2);
        expect_memory_as_predicted(outcome);
        if (precision != DType::fp16) continue;
        narrow.training.loss_scaling = {std::ldexp(1.0, 40), 100, 1024};
        const Outcome late = testing::train(narrow);
        EXPECT_TRUE(late.steps.front().skipped);
        EXPECT_FALSE(late.steps.back().skipped);
        EXPECT_TRUE(std::isfinite(late.steps.back().loss) && late.steps.back().loss < late.steps.front().loss);
      }
  }
}

TEST(StochasticRounding, HasNoMastersAndDrawsTheSameForAnyShard) {
  Trial trial = trial_in(DType::bf16, plan::Rounding::stochastic);
  trial.steps = 1;
  trial.gradients_at = {};
  const Outcome serial = testing::train(trial);
  for (const auto set : {+[](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; },
                         +[](plan::PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 1; },
                         +[](plan::PlanSpec& s) { s.mesh.pipeline = 2; }}) {
    Trial split = trial;
    set(split.spec);
    const Outcome outcome = testing::train(split);
    std::size_t different = 0, all = 0;
    for (const auto& [name, tensor] : serial.weights)
      for (std::size_t i = 0; i < tensor.values.size(); ++i, ++all)
        different += tensor.values[i] != outcome.weights.at(name).values[i] ? 1 : 0;
    // A sum of gradients that differs in its last bit now and then falls to the other side of a drawn bound.
    EXPECT_LT(static_cast<double>(different), 0.02 * static_cast<double>(all));
  }
  const plan::Schedule schedule = plan::lower(testing::plan_of(trial));
  for (const plan::Buffer& buffer : schedule.classes.front().buffers)
    EXPECT_EQ(buffer.name.find("master"), std::string::npos) << buffer.name;
}

}  // namespace precision_test
}  // namespace orrery::exec

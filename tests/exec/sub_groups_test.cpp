// ZeRO whose states are partitioned within sub-groups of the replicas: equal to the serial run, in the bytes of ZeRO's
// table with the sub-group in the replicas' place, and by one decision of all of them.
#include <gtest/gtest.h>

#include "models/dtype.h"
#include "plan/lower/buckets.h"
#include "plan/lower/lower.h"
#include "plan/outline/outline.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace sub_groups_test {

using plan::OptimizerKind;
using testing::Outcome;
using testing::Trial;

struct Case {
  const char* name;
  void (*set)(plan::PlanSpec&);
};

const Outcome& serial_of(OptimizerKind kind = OptimizerKind::adamw) {
  static std::map<OptimizerKind, Outcome> outcomes;
  const auto found = outcomes.find(kind);
  if (found != outcomes.end()) return found->second;
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.training.optimizer.kind = kind;
  return outcomes.emplace(kind, testing::train(trial)).first->second;
}

/// Weights are not compared: a bias whose gradient is nought but for rounding moves by a whole Adam step either way.
void expect_serial(const Outcome& split, const Outcome& serial, double bound = 1e-5) {
  EXPECT_LE(testing::loss_distance(split, serial), bound);
  EXPECT_LE(testing::relative_distance(split.gradients.at(0), serial.gradients.at(0)), bound);
  EXPECT_LE(testing::relative_distance(split.gradients.at(19), serial.gradients.at(19)), bound);
  for (std::size_t i = 0; i < serial.steps.size(); ++i)
    EXPECT_NEAR(split.steps[i].gradient_norm, serial.steps[i].gradient_norm, bound * serial.steps[i].gradient_norm)
        << "step " << i + 1 << ": a shard counts twice or not at all";
  for (std::size_t rank = 0; rank < split.memory.size(); ++rank) {
    const auto predicted = static_cast<double>(split.placements[rank].arena_bytes);
    EXPECT_NEAR(static_cast<double>(split.memory[rank].peak_extent), predicted, 0.02 * predicted) << "rank " << rank;
    EXPECT_EQ(split.memory[rank].peak_live, split.placements[rank].peak_live_bytes) << "rank " << rank;
  }
}

class SubGroups : public ::testing::TestWithParam<Case> {};

TEST_P(SubGroups, TrainEqualToSerialInLossGradientsAndMemory) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.spec.mesh.data = 4, trial.spec.states.zero_group = 2;
  GetParam().set(trial.spec);
  expect_serial(testing::train(trial), serial_of());
}

INSTANTIATE_TEST_SUITE_P(
    Plans, SubGroups,
    ::testing::Values(
        Case{"zero_1", [](plan::PlanSpec& s) { s.states.zero_stage = 1; }},
        Case{"zero_2", [](plan::PlanSpec& s) { s.states.zero_stage = 2; }},
        Case{"zero_3", [](plan::PlanSpec& s) { s.states.zero_stage = 3; }},
        Case{"zero_1_overlapped",
             [](plan::PlanSpec& s) { s.states.zero_stage = 1, s.states.overlap_gradients = true; }},
        Case{"zero_2_overlapped",
             [](plan::PlanSpec& s) { s.states.zero_stage = 2, s.states.overlap_gradients = true; }},
        Case{"zero_3_overlapped_recompute",
             [](plan::PlanSpec& s) {
               s.states.zero_stage = 3, s.states.overlap_gradients = true, s.recomputation.what = plan::Recompute::full;
             }},
        Case{"zero_1_tensor_2_sequence",
             [](plan::PlanSpec& s) { s.states.zero_stage = 1, s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
        Case{
            "zero_2_pipeline_2_overlapped",
            [](plan::PlanSpec& s) { s.states.zero_stage = 2, s.mesh.pipeline = 2, s.states.overlap_gradients = true; }},
        Case{"zero_3_tensor_2_sequence",
             [](plan::PlanSpec& s) { s.states.zero_stage = 3, s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
        // The ring of a sequence is a sub-group.
        Case{"zero_3_context_2_data_2",
             [](plan::PlanSpec& s) { s.states.zero_stage = 3, s.mesh.context = s.mesh.data = 2; }},
        Case{"zero_2_all_of_four_are_one",
             [](plan::PlanSpec& s) { s.states.zero_stage = 2, s.states.zero_group = 4; }}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(SubGroups, OptimizersThatLookAtWholeTensorsLookWithinTheirSubGroup) {
  for (const OptimizerKind kind :
       {OptimizerKind::lamb, OptimizerKind::adafactor, OptimizerKind::adamw_8bit, OptimizerKind::muon}) {
    SCOPED_TRACE(plan::name_of(kind));
    Trial trial = testing::golden_trial("cosine_clipped");
    trial.training.optimizer.kind = kind;
    trial.spec.mesh.data = 4, trial.spec.states.zero_group = 2, trial.spec.states.zero_stage = 2;
    // What is quantised, or divided by a root of small squares, keeps less of a rounding.
    expect_serial(testing::train(trial), serial_of(kind), kind == OptimizerKind::adamw_8bit ? 1e-3 : 1e-4);
  }
}

// Each sub-group has the norm of its own copy of the gradients: what one sees, all must skip.
TEST(SubGroups, SkipAStepThatOverflowsByOneDecision) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.spec.numerics.precision = models::DType::fp16;
  trial.training.loss_scaling.initial = 16777216;
  trial.steps = 16;
  trial.gradients_at = {};
  Trial split = trial;
  split.spec.mesh.data = 4, split.spec.states.zero_group = 2, split.spec.states.zero_stage = 1;
  const Outcome one = testing::train(trial), four = testing::train(split);
  std::int64_t skipped = 0;
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_EQ(one.steps[i].skipped, four.steps[i].skipped) << "step " << i + 1;
    skipped += one.steps[i].skipped ? 1 : 0;
  }
  EXPECT_GT(skipped, 0) << "nothing overflowed";
  EXPECT_LT(skipped, 16);
  EXPECT_LE(testing::loss_distance(four, one), 2e-3);
}

// -- ZeRO's table
// ------------------------------------------------------------------------------------------------------

/// What a rank's arena holds between steps is what lasts: its model states, and a few scalars.
Trial wide_trial() {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.training.initial_weights.clear();
  trial.model.hidden = 64;
  trial.model.head_dim = 16;
  trial.model.ffn_hidden = 256;
  trial.model.layers = 4;
  trial.steps = 1;
  trial.gradients_at = {};
  return trial;
}

// Rajbhandari et al. 2020, table 1, with what is kept here: bytes of a parameter, of its gradient and of its states,
// K = 8 of AdamW in fp32 and 12 with masters. N_d is the sub-group's size where states are partitioned in one.
TEST(ModelStates, MeasuredOnEveryRankAreZerosTable) {
  for (const models::DType precision : {models::DType::fp32, models::DType::bf16})
    for (const int zero : {0, 1, 2, 3})
      for (const int group : zero == 0 ? std::vector<int>{0} : std::vector<int>{0, 2}) {
        Trial trial = wide_trial();
        trial.spec.numerics.precision = precision;
        trial.spec.mesh.data = 4, trial.spec.states.zero_stage = zero, trial.spec.states.zero_group = group;
        SCOPED_TRACE(std::string(models::name_of(precision)) + ", " + plan::describe(trial.spec));
        const Outcome outcome = testing::train(trial);
        double parameters = 0;
        const plan::StageParameters stage = plan::stage_parameters(testing::plan_of(trial), plan::kFirstStage);
        for (const plan::Bucket& bucket : stage.buckets)
          for (const plan::ParameterRange& range : bucket.ranges) parameters += static_cast<double>(range.elements);
        const double p = static_cast<double>(models::size_of(precision)),
                     g = static_cast<double>(models::size_of(plan::gradient_dtype(precision))),
                     k = precision == models::DType::fp32 ? 8 : 12, n = group > 0 ? group : 4;
        const double table[] = {p + g + k, p + g + k / n, p + (g + k) / n, (p + g + k) / n};
        for (const ArenaUse& use : outcome.memory)
          EXPECT_NEAR(static_cast<double>(use.current) / parameters, table[zero], 0.01 * table[zero]);
      }
}

}  // namespace sub_groups_test
}  // namespace orrery::exec

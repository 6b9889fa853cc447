// Plans that divide checkpoints over the tensor group give the numbers of those that do not, bit for bit, in the memory
// that was predicted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/lower/lower.h"
#include "tests/exec/families.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace partition_checkpoints_test {

using testing::Outcome;
using testing::Trial;

struct Case {
  const char* name;
  void (*set)(plan::PlanSpec&);
  bool llama = false;
};

Trial trial_of(const Case& one) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.model.layers = 4;
  trial.training.initial_weights.clear();
  trial.steps = 4;
  trial.gradients_at = {0, 3};
  if (one.llama) testing::make_llama(trial.model);
  trial.spec.mesh.tensor = 2;
  trial.spec.recomputation.what = plan::Recompute::full;
  one.set(trial.spec);
  return trial;
}

/// Bytes of buffers whose name ends so, over all classes.
std::int64_t bytes_of(const plan::Schedule& schedule, const std::string& end) {
  std::int64_t bytes = 0;
  for (const plan::RankClass& c : schedule.classes)
    for (const plan::Buffer& b : c.buffers)
      if (b.name.ends_with(end)) bytes += b.bytes();
  return bytes;
}

class PartitionedCheckpoints : public ::testing::TestWithParam<Case> {};

TEST_P(PartitionedCheckpoints, TrainToTheSameBits) {
  Trial trial = trial_of(GetParam());
  const Outcome whole = testing::train(trial);
  trial.spec.recomputation.partition_checkpoints = true;
  const Outcome parts = testing::train(trial);
  ASSERT_EQ(parts.steps.size(), whole.steps.size());
  for (std::size_t i = 0; i < whole.steps.size(); ++i) {
    EXPECT_EQ(parts.steps[i].loss, whole.steps[i].loss) << "step " << i;
    EXPECT_EQ(parts.steps[i].gradient_norm, whole.steps[i].gradient_norm) << "step " << i;
  }
  EXPECT_EQ(testing::relative_distance(parts.weights, whole.weights), 0);
  for (std::size_t rank = 0; rank < parts.memory.size(); ++rank) {
    EXPECT_EQ(parts.memory[rank].peak_live, parts.placements[rank].peak_live_bytes) << "rank " << rank;
    EXPECT_LE(parts.memory[rank].peak_extent, parts.placements[rank].arena_bytes);
  }
  const plan::Schedule schedule = plan::lower(testing::plan_of(trial));
  EXPECT_GT(bytes_of(schedule, ".part"), 0) << "something is divided";
  EXPECT_EQ(bytes_of(schedule, ".part") * trial.spec.mesh.tensor, bytes_of(schedule, ".gathered"));
}

INSTANTIATE_TEST_SUITE_P(
    Plans, PartitionedCheckpoints,
    ::testing::Values(
        Case{"tensor_2", [](plan::PlanSpec&) {}}, Case{"llama", [](plan::PlanSpec&) {}, true},
        Case{"tensor_4", [](plan::PlanSpec& s) { s.mesh.tensor = 4; }},
        Case{"some_layers", [](plan::PlanSpec& s) { s.recomputation.layers = 2; }},
        Case{"data_2_zero_1", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }},
        Case{"data_2_zero_2_overlapped",
             [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2, s.states.overlap_gradients = true; }},
        Case{"data_2_zero_3", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }, true},
        Case{"context_2", [](plan::PlanSpec& s) { s.mesh.context = 2; }},
        Case{"pipeline_2", [](plan::PlanSpec& s) { s.mesh.pipeline = 2; }},
        Case{"pipeline_2_gpipe", [](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = plan::Order::gpipe; },
             true},
        Case{"pipeline_2_zb_h1", [](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = plan::Order::zb_h1; }},
        Case{"pipeline_2_interleaved", [](plan::PlanSpec& s) { s.mesh.pipeline = s.stages.virtual_stages = 2; }},
        Case{"pipeline_2_dualpipe",
             [](plan::PlanSpec& s) {
               s.mesh.pipeline = s.stages.virtual_stages = 2, s.stages.order = plan::Order::dualpipe_v,
               s.stages.layers_per_stage = {1, 1, 1, 1};
             }},
        Case{"on_the_host", [](plan::PlanSpec& s) { s.offload.activations = plan::Space::host; }},
        Case{"on_the_host_data_2_zero_2",
             [](plan::PlanSpec&
                    s) { s.offload.activations = plan::Space::host, s.mesh.data = 2, s.states.zero_stage = 2; }}),
    [](const auto& one) { return std::string(one.param.name); });

// One micro-batch, all of whose checkpoints wait at once: memory falls by what the others have.
TEST(PartitionedCheckpoints, TakeATensorthOfTheMemoryWhileTheyWait) {
  Trial trial = trial_of({"", [](plan::PlanSpec& s) { s.shape.micro_batch = s.shape.batch; }});
  trial.model.layers = 12;
  const plan::Schedule whole = plan::lower(testing::plan_of(trial));
  trial.spec.recomputation.partition_checkpoints = true;
  const plan::Schedule parts = plan::lower(testing::plan_of(trial));
  const auto peak = [](const plan::Schedule& s) { return plan::place(s.classes.front()).peak_live_bytes; };
  const std::int64_t input = bytes_of(parts, ".part") / trial.model.layers;  // of a block, divided
  EXPECT_GE(peak(whole) - peak(parts), (trial.model.layers - 3) * input);
}

}  // namespace partition_checkpoints_test
}  // namespace orrery::exec

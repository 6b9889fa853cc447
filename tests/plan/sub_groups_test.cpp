// Sub-groups of ZeRO in the schedule: who meets whom, and with how many bytes.
#include <gtest/gtest.h>

#include <map>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace sub_groups_test {

PlanSpec of_sub_groups(int zero, int data = 4, int group = 2) {
  PlanSpec spec;
  spec.mesh.data = data;
  spec.states.zero_stage = zero;
  spec.states.zero_group = group;
  spec.shape.batch = 16;
  spec.shape.micro_batch = 2;
  return spec;
}

std::string findings(const Schedule& schedule) {
  return base::render(check(schedule), false);
}

std::vector<int> members(const Schedule& schedule, const std::string& name, int rank) {
  for (const Group& group : schedule.groups)
    if (group.name == name) return group.members(rank);
  return {};
}

TEST(SubGroups, AreNeighboursAndTheirCopiesAreWhoHasTheSameShard) {
  PlanSpec spec = of_sub_groups(3, 4);
  spec.mesh.tensor = 2;
  const Schedule schedule = lower(samples::make(spec));
  EXPECT_EQ(members(schedule, "shard", 0), (std::vector<int>{0, 2}));
  EXPECT_EQ(members(schedule, "shard", 5), (std::vector<int>{5, 7}));
  EXPECT_EQ(members(schedule, "replicate", 0), (std::vector<int>{0, 4}));
  EXPECT_EQ(members(schedule, "replicate", 7), (std::vector<int>{3, 7}));
  EXPECT_EQ(members(schedule, "states", 6), (std::vector<int>{4, 5, 6, 7})) << "of the gradient's norm";
  for (const Bucket& b : schedule.classes[0].buckets) EXPECT_EQ(b.shards, 2);
}

TEST(SubGroups, OfAllReplicasAreNone) {
  const Schedule one = lower(samples::make(of_sub_groups(3, 4, 4))),
                 whole = lower(samples::make(of_sub_groups(3, 4, 0)));
  ASSERT_EQ(one.groups.size(), whole.groups.size());
  for (std::size_t g = 0; g < one.groups.size(); ++g) EXPECT_EQ(one.groups[g].name, whole.groups[g].name);
  EXPECT_EQ(one.steps(), whole.steps());
}

/// Bytes that rank 0 brings to each operation over each group in a step, as Step::message_bytes counts them.
std::map<std::pair<std::string, CollectiveKind>, std::int64_t> bytes_of(const Schedule& schedule) {
  std::map<std::pair<std::string, CollectiveKind>, std::int64_t> out;
  const RankClass& c = schedule.classes[0];
  for (const Entry& entry : c.program)
    for (const Step& step : c.blocks[static_cast<std::size_t>(entry.block)].steps)
      if (step.kind == StepKind::collective && step.phase != Phase::optimizer && step.phase != Phase::reporting)
        out[{schedule.groups[step.group].name, step.collective}] += step.message_bytes(c.buffers);
  return out;
}

// MiCS (Zhang et al. 2022, section 3.4): every micro-batch reduces within the sub-group, and the last one's sums alone
// go over the copies.
TEST(SubGroups, AddUpOverCopiesOnceAStepWhateverIsGatheredAndReducedWithin) {
  constexpr std::int64_t kBytes = 4, kMicroBatches = 2;
  for (const bool early : {false, true})
    for (const int zero : {1, 2, 3}) {
      PlanSpec spec = of_sub_groups(zero);
      spec.states.overlap_gradients = early;
      const Schedule schedule = lower(samples::make(spec));
      EXPECT_EQ(findings(schedule), "");
      std::int64_t elements = 0;
      for (const Bucket& b : schedule.classes[0].buckets) elements += b.elements;
      auto bytes = bytes_of(schedule);
      SCOPED_TRACE(describe(schedule.spec));
      EXPECT_EQ((bytes[{"replicate", CollectiveKind::all_reduce}]), elements / 2 * kBytes);
      const std::int64_t times = zero == 1 ? 1 : kMicroBatches;
      // The tied table is reduced with the head's pass and with the embedding's.
      const std::int64_t table = schedule.classes[0].buckets[0].elements;
      const std::int64_t reduced = times * (elements + (zero == 1 ? 0 : table));
      EXPECT_EQ((bytes[{"shard", CollectiveKind::reduce_scatter}]), reduced * kBytes);
      // Values are gathered behind the update; with ZeRO 3 in every pass, but for backward of the embedding, which
      // reads none: the table comes with both ends.
      std::int64_t positions = 0;
      for (const Bucket& b : schedule.classes[0].buckets) positions += b.name == "embedding" ? b.elements : 0;
      const std::int64_t gathered = zero == 3 ? kMicroBatches * (2 * elements + table - positions) : elements;
      EXPECT_EQ((bytes[{"shard", CollectiveKind::all_gather}]), gathered * kBytes);
    }
}

TEST(SubGroups, AreSoundWithEveryOtherSplit) {
  for (const int zero : {1, 2, 3})
    for (const bool early : {false, true})
      for (const auto& [tensor, pipeline, context] :
           {std::tuple(1, 1, 1), std::tuple(2, 1, 1), std::tuple(1, 2, 1), std::tuple(2, 2, 2)}) {
        PlanSpec spec = of_sub_groups(zero, 8, 4);
        spec.mesh.tensor = tensor, spec.mesh.pipeline = pipeline, spec.mesh.context = context;
        spec.mesh.sequence_parallel = tensor > 1;
        spec.states.overlap_gradients = early;
        EXPECT_EQ(findings(lower(samples::make(spec))), "") << describe(spec);
      }
}

TEST(SubGroups, AreSoundInPipelinesThatNeverDrain) {
  PlanSpec spec = of_sub_groups(1);
  spec.stages.order = Order::pipedream_2bw;
  spec.mesh.pipeline = 2;
  const Schedule schedule = lower(samples::make(spec));
  EXPECT_EQ(findings(schedule), "");
  EXPECT_EQ(members(schedule, "loss", 4), (std::vector<int>{4, 5, 6, 7})) << "of all replicas";
  EXPECT_EQ(members(schedule, "stage", 6), (std::vector<int>{6, 7})) << "of the norm";
}

TEST(SubGroups, AreSoundWhereStatesLiveElsewhere) {
  for (const int zero : {1, 2, 3})
    for (const Space space : {Space::host, Space::nvme}) {
      PlanSpec spec = of_sub_groups(zero);
      spec.offload.optimizer = space;
      if (zero == 3) spec.offload.parameters = space;
      EXPECT_EQ(findings(lower(samples::make(spec))), "") << describe(spec);
    }
}

TEST(MakePlan, RefusesSubGroupsThatCannotBe) {
  const auto code = [](int zero, int data, int group) {
    const auto made = samples::try_make(of_sub_groups(zero, data, group));
    return made ? std::string() : made.error().front().code;
  };
  EXPECT_EQ(code(3, 4, 2), "");
  EXPECT_EQ(code(3, 4, 4), "");
  EXPECT_EQ(code(3, 4, 3), "P40");
  EXPECT_EQ(code(3, 4, 8), "P40");
  EXPECT_EQ(code(3, 4, 1), "P41");
  EXPECT_EQ(code(0, 4, 2), "P41");
}

}  // namespace sub_groups_test
}  // namespace orrery::plan

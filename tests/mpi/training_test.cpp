// Over MPI: the serial run's losses, gradients and memory, and what a run directory holds.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "plan/lower/lower.h"
#include "plan/schedule/place.h"
#include "plan/schedule/timeline.h"
#include "tests/mpi/mpi_support.h"

namespace orrery::exec {
namespace training_test {

using testing::Folder;
using testing::Line;
using testing::Outcome;
using testing::Trial;

/// Four layers, seeded: what interleaved chunks need, which the golden model has not.
Trial deep_trial() {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.training.initial_weights.clear();
  trial.model.layers = 4;
  return trial;
}

const Outcome& deep_serial() {
  static const Outcome outcome = testing::train(deep_trial());
  return outcome;
}

const Outcome& serial() {
  static const Outcome outcome = testing::train(testing::golden_trial("cosine_clipped"));
  return outcome;
}

struct Case {
  const char* name;
  void (*set)(plan::PlanSpec&);
};

class OverMpi : public ::testing::TestWithParam<Case> {};

TEST_P(OverMpi, TrainingEqualsTheSerialRun) {
  const bool deep = std::string(GetParam().name).rfind("interleaved", 0) == 0;
  Trial trial = deep ? deep_trial() : testing::golden_trial("cosine_clipped");
  const Outcome& reference = deep ? deep_serial() : serial();
  GetParam().set(trial.spec);
  const Folder folder;
  TrainCommand command = testing::command_for(trial, folder);
  command.dump_gradients = {1, 20};
  command.progress_thread = trial.spec.states.overlap_gradients;
  std::int64_t reported = 0;
  const RunOutcome outcome = supervise(command, {[&](const StepReport& step) { reported = step.step; }, {}}, nullptr);
  ASSERT_EQ(outcome.end, RunEnd::completed) << outcome.reason << "\n" << outcome.error_tail;
  EXPECT_EQ(reported, 20);
  const std::vector<Line> lines = testing::read_metrics(command.run);
  ASSERT_EQ(lines.size(), 20U);
  double worst = 0;
  for (std::size_t i = 0; i < lines.size(); ++i)
    worst = std::max(worst, std::abs(lines[i].loss - reference.steps[i].loss) / reference.steps[i].loss);
  EXPECT_LE(worst, 1e-5);
  const double first = testing::relative_distance(
      testing::read_tensors(command.run / "gradients/step-000001.safetensors"), reference.gradients.at(0));
  const double last = testing::relative_distance(
      testing::read_tensors(command.run / "gradients/step-000020.safetensors"), reference.gradients.at(19));
  EXPECT_LE(first, 1e-5);
  EXPECT_LE(last, 1e-5);
  std::printf("[ errors   ] %-24s loss %.1e  gradient at step 1 %.1e  at step 20 %.1e\n", GetParam().name, worst, first,
              last);
  const plan::Plan plan = testing::plan_of(trial);
  const plan::Schedule schedule = plan::lower(plan);
  for (int rank = 0; rank < trial.spec.mesh.ranks(); ++rank) {
    const auto predicted = static_cast<double>(plan::place(schedule.class_of(rank)).arena_bytes);
    EXPECT_NEAR(static_cast<double>(lines.back().arena_peak[static_cast<std::size_t>(rank)]), predicted,
                0.02 * predicted);
    EXPECT_GT(lines.back().outside_peak[static_cast<std::size_t>(rank)], 0) << "the allocation hook counted nothing";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, OverMpi,
    ::testing::Values(
        Case{"one_rank", [](plan::PlanSpec&) {}}, Case{"data_2", [](plan::PlanSpec& s) { s.mesh.data = 2; }},
        Case{"tensor_2", [](plan::PlanSpec& s) { s.mesh.tensor = 2; }},
        Case{"pipeline_2_gpipe", [](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = plan::Order::gpipe; }},
        Case{"pipeline_2_1f1b", [](plan::PlanSpec& s) { s.mesh.pipeline = 2; }},
        Case{"zero_1", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }},
        Case{"zero_2", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }},
        Case{"data_2_overlapped", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.overlap_gradients = true; }},
        Case{"zero_1_overlapped",
             [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1, s.states.overlap_gradients = true; }},
        Case{"zero_3", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3; }},
        Case{"data_2_tensor_2", [](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.tensor = 2; }},
        Case{"data_2_pipeline_2", [](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.pipeline = 2; }},
        Case{"tensor_2_pipeline_2", [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.pipeline = 2; }},
        Case{"tensor_2_sequence", [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
        Case{"zero_1_tensor_2_sequence",
             [](plan::PlanSpec& s) {
               s.mesh.data = 2, s.mesh.tensor = 2, s.mesh.sequence_parallel = true, s.states.zero_stage = 1;
             }},
        Case{"interleaved",
             [](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.stages.virtual_stages = 2, s.shape.micro_batch = 1; }},
        Case{"interleaved_data_2_zero_1",
             [](plan::PlanSpec& s) {
               s.mesh.pipeline = 2, s.stages.virtual_stages = 2, s.mesh.data = 2, s.shape.micro_batch = 1;
               s.states.zero_stage = 1;
             }},
        Case{"selective",
             [](plan::PlanSpec& s) { s.numerics.flash = false, s.recomputation.what = plan::Recompute::selective; }},
        Case{"zero_3_sub_groups_of_2",
             [](plan::PlanSpec& s) { s.mesh.data = 4, s.states.zero_stage = 3, s.states.zero_group = 2; }},
        Case{"zero_1_sub_groups_of_2_overlapped",
             [](plan::PlanSpec& s) {
               s.mesh.data = 4, s.states.zero_stage = 1, s.states.zero_group = 2, s.states.overlap_gradients = true;
             }},
        Case{"dualpipe",
             [](plan::PlanSpec& s) {
               s.stages.order = plan::Order::dualpipe, s.mesh.pipeline = s.stages.virtual_stages = 2;
               s.shape.micro_batch = 1;
             }},
        Case{"zero_3_data_4_recompute",
             [](plan::PlanSpec& s) {
               s.mesh.data = 4, s.states.zero_stage = 3, s.recomputation.what = plan::Recompute::full;
             }}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(RunDirectory, HoldsATimelineWithASpanForEveryExecutedStep) {
  Trial trial = testing::golden_trial("constant");
  trial.spec.mesh.pipeline = 2;
  const Folder folder;
  TrainCommand command = testing::command_for(trial, folder);
  command.steps = 4;
  const RunOutcome outcome = supervise(command, {}, nullptr);
  ASSERT_EQ(outcome.end, RunEnd::completed) << outcome.reason << "\n" << outcome.error_tail;
  std::ostringstream text;
  text << std::ifstream(command.run / "timeline.json").rdbuf();
  const auto timeline = plan::parse_timeline(text.str(), "timeline.json");
  ASSERT_TRUE(timeline) << base::render(timeline.error(), false);
  const plan::Schedule schedule = plan::lower(testing::plan_of(trial));
  EXPECT_EQ(timeline->spans.size(), static_cast<std::size_t>(4 * schedule.steps()));
  EXPECT_EQ(timeline->origin, plan::Origin::measured);
  EXPECT_GT(timeline->step_time, 0);
  for (const plan::Span& span : timeline->spans) {
    EXPECT_LE(span.ready, span.start);
    EXPECT_LE(span.start, span.end);
    EXPECT_LE(span.end, 60);
  }
  EXPECT_EQ(outcome.completion->steps, 4);
  EXPECT_GT(outcome.completion->tokens_per_s, 0);
}

}  // namespace training_test
}  // namespace orrery::exec

// Evaluation: the forward passes of a step, lowered by the same code, in the arena of the training step.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "plan/lower/lower.h"
#include "plan/schedule/check.h"
#include "plan/schedule/place.h"
#include "tests/plan/samples.h"

namespace orrery::plan {
namespace evaluation_test {

constexpr LowerOptions kEvaluation{.forward_only = true};

TEST(Evaluation, OfEverySplitIsASoundScheduleOfForwardPassesAlone) {
  for (const auto& [name, spec] : samples::splits()) {
    const Schedule schedule = lower(samples::make(spec), kEvaluation);
    EXPECT_EQ(base::render(check(schedule), false), "") << name;
    for (const RankClass& rank_class : schedule.classes) {
      for (const Block& block : rank_class.blocks)
        for (const Step& step : block.steps)
          EXPECT_TRUE(step.phase == Phase::forward || step.phase == Phase::input || step.phase == Phase::reporting ||
                      step.phase == Phase::parameter_gather)
              << name << " " << block.name << " " << step.part;
      for (const Buffer& buffer : rank_class.buffers)
        EXPECT_TRUE(buffer.purpose != Purpose::gradients && buffer.purpose != Purpose::optimizer_states)
            << name << " " << buffer.name;
    }
  }
}

// What a micro-batch computes and sends on its way forward is what it does in training: the same operators with the
// same sizes, and the same messages; but for the gradient that may stand behind the loss.
TEST(Evaluation, RunsTheOperatorsOfTheTrainingStepsForward) {
  const auto work = [](const RankClass& rank_class) {
    std::map<std::string, int> out;
    for (const Entry& entry : rank_class.program)
      for (const Step& step : rank_class.blocks[static_cast<std::size_t>(entry.block)].steps) {
        if (step.phase != Phase::forward && step.phase != Phase::input) continue;
        if (step.kind != StepKind::compute)
          ++out[name_of(step.kind) + std::to_string(step.message_bytes(rank_class.buffers))];
        for (const models::Op& op : step.ops)
          if (op.kind != models::OpKind::cross_entropy_grad)
            ++out[std::string(models::name_of(op.kind)) + " " + std::to_string(op.m) + " " + std::to_string(op.n) +
                  " " + std::to_string(op.k)];
      }
    return out;
  };
  for (const auto& [name, spec] : samples::splits()) {
    const Plan plan = samples::make(spec);
    const Schedule training = lower(plan), evaluation = lower(plan, kEvaluation);
    for (std::size_t c = 0; c < training.classes.size(); ++c)
      EXPECT_EQ(work(evaluation.classes[c]), work(training.classes[c])) << name << ", stage " << c;
  }
}

/// Splits, and workers of a parameter server, which keep several versions of weights.
std::vector<std::pair<std::string, PlanSpec>> splits_and_servers() {
  std::vector<std::pair<std::string, PlanSpec>> all = samples::splits();
  for (const int staleness : {0, 1, 2, 3}) {
    PlanSpec spec;
    spec.mesh.data = 2;
    spec.states.staleness = staleness;
    all.emplace_back("staleness " + std::to_string(staleness), spec);
  }
  return all;
}

TEST(Evaluation, LiesInTheTrainingStepsArenaWithoutTouchingWhatLasts) {
  for (const auto& [name, spec] : splits_and_servers()) {
    const Plan plan = samples::make(spec);
    const Schedule training = lower(plan), evaluation = lower(plan, kEvaluation);
    for (std::size_t c = 0; c < training.classes.size(); ++c) {
      const RankClass &theirs = training.classes[c], &mine = evaluation.classes[c];
      const Placement step = place(theirs), beside = place_beside(theirs, step, mine);
      std::int64_t lasting = 0;
      for (std::size_t i = 0; i < theirs.buffers.size(); ++i)
        if (const Buffer& b = theirs.buffers[i]; b.persistent)
          lasting = std::max(lasting, step.persistent[i] + b.versions * b.bytes());
      for (std::size_t i = 0; i < mine.buffers.size(); ++i) {
        if (!mine.buffers[i].persistent) continue;
        for (std::size_t j = 0; j < theirs.buffers.size(); ++j)
          if (theirs.buffers[j].name == mine.buffers[i].name) {
            EXPECT_EQ(beside.persistent[i], step.persistent[j]) << name;
          }
      }
      for (const Placed& birth : beside.births) {
        EXPECT_GE(birth.offset, lasting) << name;
        EXPECT_LE(birth.offset + birth.bytes, beside.arena_bytes) << name;
      }
      EXPECT_EQ(beside.arena_bytes, step.arena_bytes) << name << ": forward alone needs no more than the step";
    }
  }
}

TEST(Evaluation, KeepsTheLogitsOnlyWhereAsked) {
  const Plan plan = samples::make({});
  const auto lasts = [](const Schedule& schedule) {
    for (const Buffer& buffer : schedule.classes.back().buffers)
      if (buffer.name == "head.logits") return buffer.persistent;
    return false;
  };
  EXPECT_FALSE(lasts(lower(plan, kEvaluation)));
  const Schedule sampling = lower(plan, {.forward_only = true, .keep_logits = true});
  EXPECT_TRUE(lasts(sampling));
  EXPECT_EQ(base::render(check(sampling), false), "");
}

}  // namespace evaluation_test
}  // namespace orrery::plan

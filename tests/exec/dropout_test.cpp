// Training with dropout: every way of splitting draws the serial run's masks, so that it comes to the serial run; a run
// that goes on draws those that it would have drawn; evaluation draws none.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "exec/engine/thread_transport.h"
#include "exec/state/checkpoint.h"
#include "exec/state/initialise.h"
#include "plan/lower/lower.h"
#include "tests/exec/stale.h"

namespace orrery::exec {
namespace dropout_test {

using plan::Order;
using plan::Recompute;
using testing::Outcome;
using testing::Trial;

Trial dropped_trial() {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.model.layers = 4;
  trial.model.dropout = {0.1, 0.2, 0.15};
  trial.training.initial_weights.clear();
  trial.training.order = plan::DataOrder::shuffled;
  trial.spec.shape.micro_batch = 1;
  trial.steps = 4;
  trial.gradients_at = {0, 3};
  return trial;
}

void expect_equal(const Outcome& split, const Outcome& serial) {
  EXPECT_LE(testing::loss_distance(split, serial), 1e-5);
  for (const auto& [step, gradients] : serial.gradients)
    EXPECT_LE(testing::relative_distance(split.gradients.at(step), gradients), 1e-5) << "step " << step + 1;
  for (std::size_t rank = 0; rank < split.memory.size(); ++rank)
    EXPECT_EQ(split.memory[rank].peak_live, split.placements[rank].peak_live_bytes) << "rank " << rank;
}

struct Split {
  const char* name;
  void (*set)(plan::PlanSpec&);
};

class Dropped : public ::testing::TestWithParam<Split> {};

TEST_P(Dropped, EqualsTheSerialRun) {
  static const Outcome serial = testing::train(dropped_trial());
  Trial trial = dropped_trial();
  GetParam().set(trial.spec);
  expect_equal(testing::train(trial), serial);
}

INSTANTIATE_TEST_SUITE_P(
    Splits, Dropped,
    ::
        testing::
            Values(
                Split{"micro_batch_2", [](plan::PlanSpec& s) { s.shape.micro_batch = 2; }},
                Split{"data_2_zero_2", [](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 2; }},
                Split{"data_4", [](plan::PlanSpec& s) { s.mesh.data = 4; }},
                Split{"tensor_4", [](plan::PlanSpec& s) { s.mesh.tensor = 4; }},
                Split{"tensor_2_sequence",
                     [](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }},
                Split{"context_2", [](plan::PlanSpec& s) { s.mesh.context = 2; }},
                Split{"context_4", [](plan::PlanSpec& s) { s.mesh.context = 4; }},
                Split{"unfused", [](plan::PlanSpec& s) { s.numerics.flash = false; }},
                Split{"pipeline_4", [](plan::PlanSpec& s) { s.mesh.pipeline = 4; }},
                Split{"interleaved", [](plan::PlanSpec& s) { s.mesh.pipeline = s.stages.virtual_stages = 2; }},
                Split{"zb_h1", [](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.stages.order = Order::zb_h1; }},
                Split{"dualpipe",
                      [](plan::PlanSpec& s) {
                        s.mesh.pipeline = s.stages.virtual_stages = 2, s.stages.order = Order::dualpipe;
                      }},
                Split{"recomputed", [](plan::PlanSpec& s) { s.recomputation.what = Recompute::full; }},
                Split{"recomputed_core",
                      [](plan::PlanSpec& s) {
                        s.numerics.flash = false, s.mesh.tensor = 2, s.recomputation.what = Recompute::selective;
                      }},
                Split{"offloaded", [](plan::PlanSpec& s) { s.offload.activations = plan::Space::host; }},
                Split{
                    "all_at_once",
                    [](plan::PlanSpec& s) {
                      s.mesh.data = s.mesh.tensor = s.mesh.pipeline = 2, s.mesh.sequence_parallel = true;
                      s.recomputation.what = Recompute::full;
                      s.states.zero_stage = 1;
                    }}),
    [](const auto& which) { return std::string(which.param.name); });

TEST(DropoutOfBert, BehindTheNormsAndInTheResidualsEqualsTheSerialRun) {
  Trial trial = testing::golden_bert();
  trial.model.dropout = {0.1, 0.1, 0.1};
  trial.steps = 3;
  trial.gradients_at = {0, 2};
  const Outcome serial = testing::train(trial);
  trial.spec.mesh.tensor = trial.spec.mesh.pipeline = 2, trial.spec.mesh.sequence_parallel = true;
  expect_equal(testing::train(trial), serial);
}

TEST(DropoutOfAnAsynchronousPipeline, IsOfTheStepWhoseSequencesRun) {
  Trial trial = testing::asynchronous_trial(Order::pipedream, 3);
  trial.model.dropout = {0.1, 0.1, 0.1};
  trial.steps = 6;
  trial.gradients_at = {};
  const Outcome stale = testing::train_stale(trial);
  EXPECT_LE(testing::loss_distance(testing::train(trial), stale), 1e-5);
}

TEST(DropoutInTraining, ChangesTheRunAndAnotherSeedChangesItAgain) {
  Trial trial = dropped_trial();
  trial.training.order = plan::DataOrder::sequential;
  trial.training.initial_weights = testing::golden_trial("constant").training.initial_weights;
  trial.model.layers = 2;
  const Outcome with = testing::train(trial);
  Trial other = trial;
  other.training.seed += 1;
  EXPECT_GT(testing::loss_distance(testing::train(other), with), 1e-4);
  other = trial;
  other.model.dropout = {};
  EXPECT_GT(testing::loss_distance(testing::train(other), with), 1e-3);
}

TEST(DropoutInTraining, IsNotInEvaluation) {
  Trial trial = dropped_trial();
  trial.training.evaluation = plan::Evaluation{trial.training.data, 1, 2};
  trial.steps = 1;
  const Outcome with = testing::train(trial);
  trial.model.dropout = {};
  const Outcome without = testing::train(trial);
  EXPECT_EQ(with.held_out.at(0), without.held_out.at(0)) << "the same weights, before the first step";
  EXPECT_NE(with.steps.at(0).loss, without.steps.at(0).loss);
}

/// Steps [from, to); loads the newest checkpoint of `folder` first and saves one at the end.
Outcome part(const Trial& trial, const std::filesystem::path& folder, std::int64_t from, std::int64_t to) {
  const plan::Plan plan = testing::plan_of(trial);
  const plan::Schedule schedule = plan::lower(plan);
  ThreadWorld world(plan.spec().mesh.ranks());
  const Waiter waiter(wait_policy(plan.spec().mesh.ranks(), available_cores(), std::chrono::seconds(60)));
  Outcome out;
  testing::in_threads(
      plan.spec().mesh.ranks(),
      [&](int rank) {
        const auto transport = world.transport(rank);
        const auto backend = make_cpu_backend(1);
        Batches batches(std::move(*TokenStream::open(trial.training.data)), trial.training.order, trial.training.seed,
                        plan.spec().shape.batch, plan.spec().shape.sequence, trial.model.vocab);
        Trainer trainer(plan, trial.training, schedule, *backend, *transport, waiter, std::move(batches), {});
        const CheckpointContext context{schedule, trainer.executor().arena(), *backend, *transport};
        initialise(schedule, rank, trainer.executor().arena(), *backend, seeded_source(trial.training.seed));
        if (const auto latest = latest_checkpoint(folder))
          if (load_checkpoint(context, *latest) != from) throw std::runtime_error("another checkpoint");
        for (std::int64_t step = from; step < to; ++step) {
          const StepResult result = trainer.step(step);
          if (rank == 0) out.steps.push_back(result);
        }
        LogicalTensors weights =
            gather_logical(schedule, Gathered::weights, trainer.executor().arena(), *backend, *transport);
        if (rank == 0) out.weights = std::move(weights);
        save_checkpoint(context, folder, to);
      },
      [&](const std::string& why) { world.abort(why); });
  return out;
}

TEST(DropoutInTraining, OfAResumedRunIsBitwiseThatOfTheRunThatWasNotStopped) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("orrery-dropout-" + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  Trial trial = dropped_trial();
  trial.spec.mesh.data = trial.spec.mesh.tensor = 2, trial.spec.states.zero_stage = 1;
  const Outcome whole = testing::train(trial);
  const Outcome first = part(trial, folder, 0, 2), rest = part(trial, folder, 2, 4);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(first.steps[i].loss, whole.steps[i].loss);
    EXPECT_EQ(rest.steps[i].loss, whole.steps[i + 2].loss);
  }
  for (const auto& [name, tensor] : whole.weights) EXPECT_EQ(tensor.values, rest.weights.at(name).values) << name;
  std::filesystem::remove_all(folder);
}

}  // namespace dropout_test
}  // namespace orrery::exec

// Asynchronous pipelines against a serial program with the same old weights: 20 steps in loss, gradients and
// parameters; memory as planned; a run that is stopped and resumed goes on as if it had not been.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <stdexcept>

#include "exec/engine/thread_transport.h"
#include "exec/state/checkpoint.h"
#include "exec/state/initialise.h"
#include "plan/lower/lower.h"
#include "tests/exec/stale.h"

namespace orrery::exec {
namespace asynchronous_test {

using plan::Order;
using testing::Outcome;
using testing::Trial;

struct Case {
  const char* name;
  Order order;
  int stages;
  void (*change)(Trial&);
};

class StaleSerial : public ::testing::TestWithParam<Case> {};

TEST_P(StaleSerial, IsEqualInLossGradientsParametersAndMemory) {
  Trial trial = testing::asynchronous_trial(GetParam().order, GetParam().stages);
  GetParam().change(trial);
  const Outcome serial = testing::train_stale(trial);
  const Outcome split = testing::train(trial);
  ASSERT_EQ(split.steps.size(), 20U);
  EXPECT_LT(split.steps.back().loss, split.steps.front().loss) << "nothing was learnt";
  const double loss = testing::loss_distance(split, serial);
  const double first = testing::relative_distance(split.gradients.at(0), serial.gradients.at(0));
  const double last = testing::relative_distance(split.gradients.at(19), serial.gradients.at(19));
  EXPECT_LE(loss, 1e-5);
  EXPECT_LE(first, 1e-5);
  EXPECT_LE(last, 1e-5);
  EXPECT_LE(testing::relative_distance(split.weights, serial.weights), 1e-5);
  std::printf("[ errors   ] %-24s loss %.1e  gradient at step 1 %.1e  at step 20 %.1e\n", GetParam().name, loss, first,
              last);
  for (std::size_t i = 0; i < serial.steps.size() && !trial.model.tied_embeddings; ++i)
    EXPECT_NEAR(split.steps[i].gradient_norm, serial.steps[i].gradient_norm, 1e-5 * serial.steps[i].gradient_norm);
  for (std::size_t rank = 0; rank < split.memory.size(); ++rank) {
    EXPECT_EQ(split.memory[rank].peak_extent, split.placements[rank].arena_bytes) << "rank " << rank;
    EXPECT_EQ(split.memory[rank].peak_live, split.placements[rank].peak_live_bytes) << "rank " << rank;
  }
}

void as_it_is(Trial&) {}
void untied(Trial& one) {
  one.model.tied_embeddings = false;
}
void halved(Trial& one) {
  one.spec.mesh.data = 2;
  one.spec.shape.micro_batch /= 2;
}
void clipped(Trial& one) {
  one.training.clip_norm = 0.3;
}

INSTANTIATE_TEST_SUITE_P(
    Plans, StaleSerial,
    ::testing::Values(Case{"pipedream_2", Order::pipedream, 2, as_it_is},
                      Case{"pipedream_2_untied", Order::pipedream, 2, untied},
                      Case{"pipedream_3", Order::pipedream, 3, as_it_is},
                      Case{"pipedream_4", Order::pipedream, 4, as_it_is},
                      Case{"pipedream_4_untied", Order::pipedream, 4, untied},
                      Case{"pipedream_2_data_2", Order::pipedream, 2, halved},
                      Case{"pipedream_4_data_2", Order::pipedream, 4, halved},
                      Case{"pipedream_3_data_2_zero_1", Order::pipedream, 3,
                           [](Trial& one) {
                             halved(one);
                             one.spec.states.zero_stage = 1;
                           }},
                      Case{"pipedream_2_tensor_2", Order::pipedream, 2, [](Trial& one) { one.spec.mesh.tensor = 2; }},
                      Case{"pipedream_4_tensor_2_sequence", Order::pipedream, 4,
                           [](Trial& one) { one.spec.mesh.tensor = 2, one.spec.mesh.sequence_parallel = true; }},
                      Case{"pipedream_3_recompute", Order::pipedream, 3,
                           [](Trial& one) { one.spec.recomputation.what = plan::Recompute::full; }},
                      Case{"pipedream_3_context_2", Order::pipedream, 3, [](Trial& one) { one.spec.mesh.context = 2; }},
                      Case{"pipedream_3_clipped", Order::pipedream, 3, clipped},
                      Case{"pipedream_3_clipped_untied", Order::pipedream, 3,
                           [](Trial& one) {
                             clipped(one);
                             untied(one);
                           }},
                      Case{"pipedream_vertical_2", Order::pipedream_vertical, 2, as_it_is},
                      Case{"pipedream_vertical_4", Order::pipedream_vertical, 4, as_it_is},
                      Case{"pipedream_2bw_2", Order::pipedream_2bw, 2, as_it_is},
                      Case{"pipedream_2bw_3", Order::pipedream_2bw, 3, untied},
                      Case{"pipedream_2bw_4", Order::pipedream_2bw, 4, as_it_is},
                      Case{"pipedream_2bw_4_data_2", Order::pipedream_2bw, 4, halved},
                      Case{"pipedream_2bw_2_tensor_2_data_2_zero_1", Order::pipedream_2bw, 2,
                           [](Trial& one) {
                             halved(one);
                             one.spec.mesh.tensor = 2;
                             one.spec.states.zero_stage = 1;
                           }},
                      Case{"pipedream_2bw_2_recompute", Order::pipedream_2bw, 2,
                           [](Trial& one) { one.spec.recomputation.what = plan::Recompute::full; }},
                      Case{"pipedream_2bw_4_clipped", Order::pipedream_2bw, 4, clipped}),
    [](const auto& which) { return std::string(which.param.name); });

// A serial run, whose weights are of the step, is not what an asynchronous pipeline comes to: the tests above could not
// tell otherwise.
TEST(Asynchronous, IsNotTheSynchronousRun) {
  Trial trial = testing::asynchronous_trial(Order::pipedream, 2);
  const Outcome old = testing::train(trial);
  trial.spec.stages.order = Order::one_f_one_b;
  EXPECT_GT(testing::loss_distance(old, testing::train(trial)), 1e-3);
}

TEST(Asynchronous, TwoRunsOfOnePlanAreBitwiseEqual) {
  Trial trial = testing::asynchronous_trial(Order::pipedream_2bw, 3);
  const Outcome a = testing::train(trial), b = testing::train(trial);
  for (std::size_t i = 0; i < a.steps.size(); ++i) EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
  for (const auto& [name, tensor] : a.weights) EXPECT_EQ(tensor.values, b.weights.at(name).values) << name;
}

/// Steps [from, to) of the trial; loads the newest checkpoint of `folder` first and saves one at the end.
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
        trainer.ends_after(trial.steps);
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

TEST(Asynchronous, AResumedRunIsBitwiseTheRunThatWasNotStopped) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("orrery-asynchronous-" + std::to_string(getpid()));
  for (const Order order : {Order::pipedream, Order::pipedream_vertical, Order::pipedream_2bw}) {
    SCOPED_TRACE(name_of(order));
    Trial trial = testing::asynchronous_trial(order, 3);
    if (order == Order::pipedream)
      trial.spec.mesh.data = 2, trial.spec.shape.micro_batch /= 2, trial.spec.states.zero_stage = 1;
    const Outcome whole = testing::train(trial);
    std::filesystem::remove_all(folder);
    std::vector<StepResult> steps;
    for (const auto& [from, to] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {1, 7}, {7, 19}, {19, 20}}) {
      const Outcome here = part(trial, folder, from, to);
      steps.insert(steps.end(), here.steps.begin(), here.steps.end());
      if (to < 20) continue;
      for (const auto& [name, tensor] : whole.weights) EXPECT_EQ(tensor.values, here.weights.at(name).values) << name;
    }
    for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i].loss, whole.steps[i].loss) << "step " << i + 1;
  }
  std::filesystem::remove_all(folder);
}

TEST(Asynchronous, ACheckpointOfAnotherPipelineBeginsItsVersionsWithTheWeights) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("orrery-asynchronous-other-" + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  Trial trial = testing::asynchronous_trial(Order::pipedream, 4);
  (void)part(trial, folder, 0, 6);
  trial.spec.mesh.pipeline = 2;
  EXPECT_EQ(part(trial, folder, 6, 12).steps.size(), 6U);
  trial.spec.stages.order = Order::one_f_one_b;
  const Outcome synchronous = part(trial, folder, 12, 20);
  for (const StepResult& step : synchronous.steps) EXPECT_TRUE(std::isfinite(step.loss));
  std::filesystem::remove_all(folder);
}

}  // namespace asynchronous_test
}  // namespace orrery::exec

// Workers and a parameter server against a serial program that takes their turns with weights as old as theirs: 20
// steps in loss, gradients and weights; memory as planned; a run that is stopped and resumed goes on bitwise.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "exec/engine/thread_transport.h"
#include "exec/state/checkpoint.h"
#include "exec/state/initialise.h"
#include "plan/lower/lower.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace parameter_server_test {

using testing::Outcome;
using testing::Trial;

Trial served_trial(int workers, std::optional<int> staleness) {
  Trial trial = testing::golden_trial("constant");
  trial.training.initial_weights.clear();
  trial.training.order = plan::DataOrder::shuffled;
  trial.spec.mesh.data = workers;
  trial.spec.shape.micro_batch = 1;
  trial.spec.states.staleness = staleness;
  return trial;
}

/// One rank, an update for each worker's part of the batch: update u = t W + w is of part w of step t, with gradients
/// of the weights that the updates of step t - s - 1 and before have made. Weights are moved as logical tensors, so
/// that nothing of how workers keep their versions is used.
class Turns {
 public:
  explicit Turns(const Trial& split) : split_(split), workers_(split.spec.mesh.data), serial_(split) {
    plan::PlanSpec& spec = serial_.spec;
    spec.mesh.data = spec.mesh.tensor = 1;
    spec.shape.batch /= workers_;
    spec.states.staleness.reset();
    spec.states.zero_stage = 0;
    spec.mesh.sequence_parallel = false;
    spec.recomputation.what = plan::Recompute::none;
  }

  Outcome run() {
    const plan::Plan plan = testing::plan_of(serial_);
    schedule_ = plan::lower(plan);
    ThreadWorld world(1);
    const auto transport = world.transport(0);
    const Waiter waiter(wait_policy(1, available_cores(), std::chrono::seconds(60)));
    const auto backend = make_cpu_backend(1);
    Batches batches(std::move(*TokenStream::open(serial_.training.data)), serial_.training.order, serial_.training.seed,
                    plan.spec().shape.batch, plan.spec().shape.sequence, serial_.model.vocab);
    Trainer trainer(plan, serial_.training, schedule_, *backend, *transport, waiter, std::move(batches), {});
    Arena& arena = trainer.executor().arena();
    initialise(schedule_, 0, arena, *backend, seeded_source(serial_.training.seed));
    const auto gathered = [&](Gathered what) { return gather_logical(schedule_, what, arena, *backend, *transport); };
    std::vector<LogicalTensors> history{gathered(Gathered::weights)};
    Outcome out;
    for (std::int64_t t = 0; t < split_.steps; ++t) {
      StepResult step;
      LogicalTensors mean;
      for (std::int64_t w = 0; w < workers_; ++w) {
        write(
            history[static_cast<std::size_t>(std::max<std::int64_t>(0, t - *split_.spec.states.staleness) * workers_)],
            arena, *backend);
        const StepResult turn = trainer.step(t * workers_ + w, [&] {
          add(mean, gathered(Gathered::gradients));
          write(history.back(), arena, *backend);
        });
        step.loss += turn.loss / workers_;
        step.gradient_norm = std::max(step.gradient_norm, turn.gradient_norm);
        history.push_back(gathered(Gathered::weights));
      }
      out.steps.push_back(step);
      if (split_.gradients_at.count(t)) out.gradients[t] = std::move(mean);
    }
    out.weights = history.back();
    return out;
  }

 private:
  void add(LogicalTensors& mean, const LogicalTensors& one) const {
    for (const auto& [name, tensor] : one) {
      LogicalTensor& sum = mean[name];
      sum.shape = tensor.shape;
      sum.values.resize(tensor.values.size());
      for (std::size_t i = 0; i < tensor.values.size(); ++i)
        sum.values[i] += tensor.values[i] / static_cast<float>(workers_);
    }
  }
  void write(const LogicalTensors& tensors, Arena& arena, Backend& backend) const {
    const plan::RankClass& c = schedule_.classes.front();
    for (const plan::Bucket& bucket : c.buckets)
      transfer(arena.data(bucket.parameters, -1), models::DType::fp32, holdings(c, bucket, bucket.parameters, 0), 0,
               backend, StateTransfer::to_device, [&](const Holding& holding, const Run& run, std::span<float> values) {
                 const std::vector<float>& from = tensors.at(holding.range->name).values;
                 std::copy_n(from.begin() + run.logical, values.size(), values.begin());
               });
  }

  const Trial& split_;
  int workers_;
  Trial serial_;
  plan::Schedule schedule_;
};

struct Case {
  const char* name;
  int workers, staleness;
  void (*change)(Trial&);
};

class ParameterServer : public ::testing::TestWithParam<Case> {};

TEST_P(ParameterServer, IsEqualToTheWorkersInTurns) {
  Trial trial = served_trial(GetParam().workers, GetParam().staleness);
  GetParam().change(trial);
  const Outcome serial = Turns(trial).run();
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
  for (std::size_t i = 0; i < serial.steps.size(); ++i)
    EXPECT_NEAR(split.steps[i].gradient_norm, serial.steps[i].gradient_norm, 1e-5 * serial.steps[i].gradient_norm);
  for (std::size_t rank = 0; rank < split.memory.size(); ++rank) {
    EXPECT_EQ(split.memory[rank].peak_extent, split.placements[rank].arena_bytes) << "rank " << rank;
    EXPECT_EQ(split.memory[rank].peak_live, split.placements[rank].peak_live_bytes) << "rank " << rank;
  }
}

void as_it_is(Trial&) {}

INSTANTIATE_TEST_SUITE_P(
    Plans, ParameterServer,
    ::testing::Values(Case{"workers_2_fresh", 2, 0, as_it_is}, Case{"workers_2_stale_1", 2, 1, as_it_is},
                      Case{"workers_2_stale_3", 2, 3, as_it_is}, Case{"workers_4_fresh", 4, 0, as_it_is},
                      Case{"workers_4_stale_1", 4, 1, as_it_is}, Case{"workers_4_stale_3", 4, 3, as_it_is},
                      Case{"workers_2_stale_1_clipped", 2, 1, [](Trial& one) { one.training.clip_norm = 0.3; }},
                      Case{"workers_2_stale_2_sgd", 2, 2,
                           [](Trial& one) {
                             one.training.optimizer.kind = plan::OptimizerKind::sgd;
                             one.training.optimizer.learning_rate = 0.01;
                           }},
                      Case{"workers_2_stale_1_one_micro_batch", 2, 1,
                           [](Trial& one) { one.spec.shape.micro_batch = 4; }},
                      Case{"workers_2_stale_1_tensor_2_sequence", 2, 1,
                           [](Trial& one) { one.spec.mesh.tensor = 2, one.spec.mesh.sequence_parallel = true; }},
                      Case{"workers_2_stale_2_recompute", 2, 2,
                           [](Trial& one) { one.spec.recomputation.what = plan::Recompute::full; }},
                      Case{"workers_2_stale_1_progress_thread", 2, 1,
                           [](Trial& one) { one.progress = Communication::Progress::thread; }}),
    [](const auto& which) { return std::string(which.param.name); });

// The comparison above tells a staleness from another, and all of them from averaged gradients.
TEST(ParameterServer, IsNotTheSynchronousRunNorThatOfAnotherStaleness) {
  const Outcome fresh = testing::train(served_trial(2, 0)), stale = testing::train(served_trial(2, 1)),
                averaged = testing::train(served_trial(2, std::nullopt));
  EXPECT_GT(testing::loss_distance(fresh, averaged), 1e-3);
  EXPECT_GT(testing::loss_distance(stale, fresh), 1e-3);
}

TEST(ParameterServer, TwoRunsOfOnePlanAreBitwiseEqual) {
  const Trial trial = served_trial(4, 2);
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

TEST(ParameterServer, AResumedRunIsBitwiseTheRunThatWasNotStopped) {
  for (const int staleness : {0, 1, 3}) {
    SCOPED_TRACE(staleness);
    const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                         ("orrery-server-" + std::to_string(getpid()) + std::to_string(staleness));
    Trial trial = served_trial(2, staleness);
    trial.steps = 9;
    const Outcome whole = part(trial, folder / "whole", 0, 9);
    (void)part(trial, folder / "parts", 0, 5);
    const Outcome rest = part(trial, folder / "parts", 5, 9);
    for (std::size_t i = 0; i < rest.steps.size(); ++i) EXPECT_EQ(rest.steps[i].loss, whole.steps[i + 5].loss);
    for (const auto& [name, tensor] : whole.weights) EXPECT_EQ(tensor.values, rest.weights.at(name).values) << name;
    std::filesystem::remove_all(folder);
  }
}

}  // namespace parameter_server_test
}  // namespace orrery::exec

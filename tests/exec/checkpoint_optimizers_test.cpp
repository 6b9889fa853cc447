// Checkpoints of every optimizer and precision: a run that stops and goes on, on the same plan or another, ends where
// it would have ended.
#include <gtest/gtest.h>

#include <filesystem>

#include "exec/engine/thread_transport.h"
#include "exec/failure.h"
#include "exec/state/checkpoint.h"
#include "exec/state/initialise.h"
#include "plan/lower/experts.h"
#include "plan/lower/lower.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace checkpoint_optimizers_test {

namespace fs = std::filesystem;
using plan::OptimizerKind;
using testing::Trial;

class CheckpointOf : public ::testing::Test {
 protected:
  CheckpointOf() : folder_(fs::temp_directory_path() / fs::path("orrery-states-" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
  }
  ~CheckpointOf() override { fs::remove_all(folder_); }

  /// Trains steps [first, last), from the checkpoint of step `first` where that is not 0; saves at the end.
  LogicalTensors train(const Trial& trial, std::int64_t first, std::int64_t last) const {
    const plan::Plan plan = testing::plan_of(trial);
    const plan::Schedule lowered = plan::lower(plan);
    const Waiter waiter(wait_policy(plan.spec().mesh.ranks(), 1, std::chrono::seconds(60)));
    ThreadWorld world(plan.spec().mesh.ranks());
    LogicalTensors weights;
    testing::in_threads(
        plan.spec().mesh.ranks(),
        [&](int rank) {
          plan::Schedule schedule = lowered;  // names this rank's experts
          plan::name_experts(schedule, rank);
          const auto transport = world.transport(rank);
          const auto backend = make_cpu_backend(1);
          auto stream = TokenStream::open(trial.training.data);
          Batches batches(std::move(*stream), trial.training.order, trial.training.seed, plan.spec().shape.batch,
                          plan.spec().shape.sequence, trial.model.vocab);
          Trainer trainer(plan, trial.training, schedule, *backend, *transport, waiter, std::move(batches), {});
          Arena& arena = trainer.executor().arena();
          initialise(schedule, rank, arena, *backend, seeded_source(5), trial.training.loss_scaling.initial);
          const CheckpointContext context{schedule, arena, *backend, *transport};
          if (first > 0) {
            EXPECT_EQ(load_checkpoint(context, folder_ / step_name(first)), first);
          }
          for (std::int64_t step = first; step < last; ++step) (void)trainer.step(step);
          save_checkpoint(context, folder_, last, 9);
          LogicalTensors all = gather_logical(schedule, Gathered::weights, arena, *backend, *transport);
          if (rank == 0) weights = std::move(all);
        },
        [&](const std::string& why) { world.abort(why); });
    return weights;
  }
  static std::string step_name(std::int64_t step) { return "step-00000" + std::to_string(step); }

  fs::path folder_;
};

Trial trial_of(OptimizerKind kind, models::DType precision = models::DType::fp32) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.training.optimizer.kind = kind;
  trial.training.optimizer.momentum = 0.9;
  if (kind == OptimizerKind::sgd || kind == OptimizerKind::adafactor) trial.training.optimizer.learning_rate = 2e-2;
  trial.spec.numerics.precision = precision;
  trial.training.loss_scaling.initial = 1024;
  trial.training.loss_scaling.interval = 3;
  return trial;
}

constexpr OptimizerKind kKinds[] = {OptimizerKind::adamw,     OptimizerKind::sgd,        OptimizerKind::lamb,
                                    OptimizerKind::adafactor, OptimizerKind::adamw_8bit, OptimizerKind::lion,
                                    OptimizerKind::muon,      OptimizerKind::adamw_bf16};

TEST_F(CheckpointOf, EveryOptimizerGoesOnBitByBitOnTheSamePlan) {
  for (const OptimizerKind kind : kKinds)
    for (const int zero : {0, 1, 3}) {
      SCOPED_TRACE(std::string(plan::name_of(kind)) + ", ZeRO " + std::to_string(zero));
      Trial trial = trial_of(kind);
      trial.spec.mesh.data = 2;
      trial.spec.states.zero_stage = zero;
      const LogicalTensors whole = train(trial, 0, 6);
      (void)train(trial, 0, 3);
      const LogicalTensors resumed = train(trial, 3, 6);
      for (const auto& [name, tensor] : whole) EXPECT_EQ(tensor.values, resumed.at(name).values) << name;
    }
}

// Experts' states are with other ranks than those of the rest, and written by these.
TEST_F(CheckpointOf, ExpertsWithReplicasOfTheirOwnGoOnBitByBitAndOnAnotherPlan) {
  using Set = void (*)(plan::PlanSpec&);
  const Set sets[] = {[](plan::PlanSpec& s) { s.mesh.expert = 2; },
                      [](plan::PlanSpec& s) { s.mesh.expert = 2, s.states.zero_stage = 1; },
                      [](plan::PlanSpec& s) { s.mesh.expert = 2, s.states.zero_stage = 3, s.states.zero_group = 2; },
                      [](plan::PlanSpec& s) { s.mesh.expert = 4, s.states.zero_stage = 1, s.states.zero_group = 2; },
                      [](plan::PlanSpec& s) {
                        s.mesh.data = s.mesh.tensor = s.mesh.expert = 2, s.mesh.sequence_parallel = true,
                        s.mesh.expert_tensor = 1, s.states.zero_stage = 1;
                      },
                      [](plan::PlanSpec& s) { s.mesh.expert = s.mesh.expert_tensor = 2, s.states.zero_stage = 1; }};
  for (const OptimizerKind kind : {OptimizerKind::lamb, OptimizerKind::adafactor, OptimizerKind::muon})
    for (const Set set : sets) {
      Trial trial = trial_of(kind), other = trial;
      for (Trial* one : {&trial, &other}) {
        one->model.experts = {.count = 8, .chosen = 2, .hidden = 16};
        one->spec.stages.order = plan::Order::gpipe;
        one->spec.mesh.data = 4;
      }
      set(trial.spec);
      SCOPED_TRACE(std::string(plan::name_of(kind)) + ", " + plan::describe(trial.spec));
      other.spec.mesh.data = other.spec.mesh.tensor = 2;
      LogicalTensors whole = train(trial, 0, 6);
      (void)train(trial, 0, 3);
      LogicalTensors resumed = train(trial, 3, 6);
      for (const auto& [name, tensor] : whole) EXPECT_EQ(tensor.values, resumed.at(name).values) << name;
      LogicalTensors elsewhere = train(other, 3, 6);
      for (LogicalTensors* weights : {&whole, &elsewhere})
        std::erase_if(*weights, [](const auto& one) { return one.first.find(".k.bias") != std::string::npos; });
      EXPECT_LE(testing::relative_distance(elsewhere, whole), 1e-4);
    }
}

// Each replica of the experts has an error of its own.
TEST_F(CheckpointOf, CompressedGradientsOfExpertsGoOnBitByBit) {
  Trial trial = trial_of(OptimizerKind::adamw);
  trial.model.experts = {.count = 8, .chosen = 2, .hidden = 16};
  trial.spec.stages.order = plan::Order::gpipe;
  trial.spec.mesh.data = 4, trial.spec.mesh.expert = 2;
  trial.spec.compression.gradients = plan::GradientCompression::powersgd;
  trial.spec.compression.rank = 2, trial.spec.compression.minimum_rate = 1.2;
  const LogicalTensors whole = train(trial, 0, 6);
  (void)train(trial, 0, 3);
  const LogicalTensors resumed = train(trial, 3, 6);
  for (const auto& [name, tensor] : whole) EXPECT_EQ(tensor.values, resumed.at(name).values) << name;
}

TEST_F(CheckpointOf, LowPrecisionGoesOnBitByBitWithItsMastersAndScale) {
  for (const models::DType precision : {models::DType::bf16, models::DType::fp16})
    for (const int zero : {0, 1, 3}) {
      SCOPED_TRACE(std::string(models::name_of(precision)) + ", ZeRO " + std::to_string(zero));
      Trial trial = trial_of(OptimizerKind::adamw, precision);
      trial.spec.mesh.data = 2;
      trial.spec.states.zero_stage = zero;
      const LogicalTensors whole = train(trial, 0, 6);
      (void)train(trial, 0, 3);
      const LogicalTensors resumed = train(trial, 3, 6);
      for (const auto& [name, tensor] : whole) EXPECT_EQ(tensor.values, resumed.at(name).values) << name;
    }
}

TEST_F(CheckpointOf, EveryOptimizerGoesOnAtAnotherPlan) {
  for (const OptimizerKind kind : kKinds) {
    SCOPED_TRACE(plan::name_of(kind));
    Trial from = trial_of(kind), to = from;
    from.spec.mesh.data = 2, from.spec.states.zero_stage = 2, from.spec.mesh.tensor = 2;
    to.spec.mesh.pipeline = 2, to.spec.mesh.data = 2, to.spec.states.zero_stage = 1;
    LogicalTensors whole = train(from, 0, 6);
    (void)train(from, 0, 3);
    LogicalTensors resumed = train(to, 3, 6);
    // A key's bias moves no attention: its gradient is rounding, and its steps are.
    for (LogicalTensors* weights : {&whole, &resumed})
      std::erase_if(*weights, [](const auto& one) { return one.first.find(".k.bias") != std::string::npos; });
    // Blocks of eight bits are others where matrices are cut otherwise; moments in 16 bits round the other way.
    const double bound = kind == OptimizerKind::adamw_8bit ? 1e-2 : kind == OptimizerKind::adamw_bf16 ? 1e-3 : 1e-5;
    EXPECT_LE(testing::relative_distance(resumed, whole), bound);
  }
}

TEST_F(CheckpointOf, AnotherOptimizerIsRefusedByName) {
  (void)train(trial_of(OptimizerKind::lamb), 0, 1);
  try {
    (void)train(trial_of(OptimizerKind::adamw), 1, 2);
    FAIL() << "states of another optimizer were accepted";
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("trained with lamb, and adamw cannot continue from its states"),
              std::string::npos)
        << failure.what();
  }
}

}  // namespace checkpoint_optimizers_test
}  // namespace orrery::exec

// Batches of steps that are graphs: of BERT's masked words too they are in the graph, which copies from pinned memory
// what the host has read and masked while the device computed the step before.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "exec/engine/thread_transport.h"
#include "exec/failure.h"
#include "exec/state/initialise.h"
#include "plan/lower/lower.h"
#include "tests/gpu/emulated_training.h"

namespace orrery::exec::gpu_test {
namespace emulated_batches_test {

using testing::Outcome;
using testing::Trial;

/// A batch that the executor asked for: of which step, while which ran, and after how many launches of graphs.
struct Asked {
  std::int64_t of = 0, during = 0;
  long launches = 0;
};

/// The golden BERT on one emulated device, with batches of this test's making.
class MaskedSteps {
 public:
  MaskedSteps()
      : trial_(testing::golden_bert()),
        plan_(testing::plan_of(trial_)),
        schedule_(plan::lower(plan_)),
        placement_(plan::place(schedule_.classes.front())),
        world_(1),
        transport_(world_.transport(0)),
        waiter_(wait_policy(1, 1, std::chrono::seconds(60))),
        executor_(schedule_, placement_, backend_, *transport_, waiter_, options()) {
    initialise(schedule_, 0, executor_.arena(), backend_, seeded_source(1), 1);
  }

  double step(std::int64_t number, std::int64_t end) {
    StepInput input;
    input.iteration = input.context.step = number;
    input.end = end;
    input.context.learning_rate = 1e-3;
    input.load_masked = [&](const Instance& of, const MaskedBatch& batch) {
      asked.push_back({of.step, number, emulation::graph_faults().launches});
      if (fails_in && *fails_in == of.step) throw Failure("no such words", FailureKind::input);
      fill(batch, 100 * of.step + of.micro_batch);
    };
    (void)executor_.run_step(input);
    return executor_.loss();
  }

  std::vector<Asked> asked;
  std::optional<std::int64_t> fails_in;
  [[nodiscard]] const Executor::GraphCounts& graphs() const { return executor_.graphs(); }

 private:
  static Executor::Options options() {
    Executor::Options options;
    options.record = false;
    return options;
  }
  void fill(const MaskedBatch& batch, std::int64_t seed) const {
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto some = [&](std::span<std::int32_t> ids, int bound) {
      for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % static_cast<unsigned>(bound));
    };
    some(batch.tokens, 64), some(batch.targets, 64), some(batch.token_types, 2), some(batch.next_sentence, 2);
    for (std::size_t i = 0; i < batch.rows.size(); ++i) batch.rows[i] = static_cast<std::int32_t>(i);
  }

  Trial trial_;
  plan::Plan plan_;
  plan::Schedule schedule_;
  plan::Placement placement_;
  ThreadWorld world_;
  std::unique_ptr<Transport> transport_;
  Waiter waiter_;
  cuda::CudaBackend backend_{0, make_cpu_backend(1),
                             cuda::Products::Options{.plan_file = {}, .tune_above_flops = 1e12}};
  Executor executor_;
};

constexpr std::int64_t kSteps = 5, kMicroBatches = 4;

// The first step is traced, and the second reads its own; from then on the launch of a graph comes first.
TEST(MaskedBatches, AreReadWhileTheDeviceComputesTheStepBefore) {
  MaskedSteps run;
  const long before = emulation::graph_faults().launches;
  for (std::int64_t step = 0; step < kSteps; ++step) (void)run.step(step, kSteps);
  EXPECT_EQ(run.graphs().captured, 1);
  EXPECT_EQ(run.graphs().replayed, kSteps - 1);
  ASSERT_EQ(run.asked.size(), static_cast<std::size_t>(kSteps * kMicroBatches)) << "each once";
  for (const Asked& one : run.asked) {
    EXPECT_EQ(one.during, one.of < 2 ? one.of : one.of - 1);
    EXPECT_EQ(one.launches - before, one.of < 2 ? 0 : one.of - 1) << "step " << one.of;
  }
}

TEST(MaskedBatches, ThatFailToBeReadFailTheStepThatWantsThem) {
  MaskedSteps run;
  run.fails_in = 3;
  for (std::int64_t step = 0; step < 3; ++step) EXPECT_TRUE(std::isfinite(run.step(step, kSteps)));
  EXPECT_THROW((void)run.step(3, kSteps), Failure);
}

// Of another step than the next one what was read is not used.
TEST(MaskedBatches, ReadForAStepThatDoesNotComeAreReadAgain) {
  MaskedSteps in_order, jumping;
  const auto far = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t step : {0, 1, 2, 3}) (void)in_order.step(step, far);
  for (const std::int64_t step : {0, 1, 2}) (void)jumping.step(step, far);
  const double again = jumping.step(7, far);
  EXPECT_EQ(jumping.asked.back().of, 8);
  EXPECT_EQ(jumping.asked[jumping.asked.size() - 2 * kMicroBatches].of, 7);
  EXPECT_NE(again, in_order.step(4, far));
}

struct Case {
  const char* name;
  void (*set)(Trial&);
};

class MaskedTraining : public ::testing::TestWithParam<Case> {};

TEST_P(MaskedTraining, IsOneGraphAStepAndTheSameBitsWithoutAndNearTheCpuBackend) {
  Trial trial = testing::golden_bert();
  trial.steps = 5;
  trial.gradients_at = {};
  trial.check = Arena::Check::overlaps;
  trial.sample_every = 100;
  GetParam().set(trial);
  const Outcome by_graphs = on_devices(trial);
  for (const Executor::GraphCounts& counts : by_graphs.graphs) {
    EXPECT_EQ(counts.captured, 1) << counts.reason;
    EXPECT_EQ(counts.replayed, trial.steps - 1);
    EXPECT_EQ(counts.plain_steps, 0);
  }
  const bool narrow = trial.spec.numerics.precision != models::DType::fp32;
  expect_near(by_graphs, testing::train(trial), narrow ? Bounds{2e-3, 2e-2, 3e-2} : Bounds{1e-5, 1e-5, 1e-4});
  trial.graphs = false;
  expect_same_bits(on_devices(trial), by_graphs);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, MaskedTraining,
    ::testing::Values(
        Case{"serial", [](Trial&) {}},
        Case{"shuffled", [](Trial& one) { one.training.order = plan::DataOrder::shuffled; }},
        Case{"data_2_bf16",
             [](Trial& one) { one.spec.mesh.data = 2, one.spec.numerics.precision = models::DType::bf16; }},
        Case{"tensor_2_sequence", [](Trial& one) { one.spec.mesh.tensor = 2, one.spec.mesh.sequence_parallel = true; }},
        Case{"dropout",
             [](Trial& one) {
               one.model.dropout = {0.1, 0.2, 0.15};
             }}),
    [](const auto& tested) { return std::string(tested.param.name); });

// Two executors over one arena: the evaluation's batches are its own.
TEST(MaskedTraining, EvaluatesBetweenStepsWithoutATrace) {
  Trial trial = testing::golden_bert();
  trial.steps = 4;
  trial.gradients_at = {};
  trial.check = Arena::Check::overlaps;
  const Outcome without = on_devices(trial);
  trial.training.evaluation = plan::Evaluation{trial.training.data, 1, 3};
  const Outcome with = on_devices(trial);
  expect_same_bits(with, without);
  const Outcome on_the_cpu = testing::train(trial);
  ASSERT_EQ(with.held_out.size(), 5U);
  for (std::size_t i = 0; i < with.held_out.size(); ++i)
    EXPECT_NEAR(with.held_out[i], on_the_cpu.held_out[i], 1e-5 * on_the_cpu.held_out[i]);
}

}  // namespace emulated_batches_test
}  // namespace orrery::exec::gpu_test

// Graphs on the emulated runtime: what the backend captures is what it runs, in the order that events give; what cannot
// be captured is a Failure, and the executor goes on without. A training by graphs is bitwise the training without.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/nccl_transport.h"
#include "tests/exec/training.h"

namespace orrery::exec::gpu_test {
namespace emulated_graphs_test {

using testing::Devices;
using testing::Outcome;
using testing::Trial;

struct Faults {
  Faults() { reset(); }
  ~Faults() { reset(); }
  static void reset() {
    emulation::graph_faults() = {};
    emulation::reset_nccl_faults();
  }
};

// -- the backend ----------------------------------------------------------------------------------------------------

class Graphs : public ::testing::Test {
 protected:
  const Faults none;
  cuda::CudaBackend backend{0};
  std::byte* arena = backend.allocate_arena(1 << 12);
  float* x = reinterpret_cast<float*>(arena);

  void put(float value) { backend.copy_to_device(arena, std::as_bytes(std::span(&value, 1))); }
  float get() {
    float value = 0;
    backend.copy_to_host(std::as_writable_bytes(std::span(&value, 1)), arena);
    return value;
  }
  void double_on(cudaStream_t stream) { cuda::add(stream, x, x, x, 1); }
};

TEST_F(Graphs, RunOnlyWhenTheyAreReplayed) {
  put(1);
  backend.begin_capture();
  double_on(backend.stream());
  const auto graph = backend.end_capture();
  EXPECT_EQ(get(), 1);
  backend.replay(*graph);
  backend.replay(*graph);
  EXPECT_EQ(get(), 4);
}

TEST_F(Graphs, KeepTheOrderThatEventsGiveBetweenStreams) {
  const cuda::Stream other;
  put(1);
  backend.begin_capture();
  double_on(backend.stream());
  cuda::wait_on(other.get(), *backend.point());
  double_on(other.get());
  backend.order_behind(*backend.point_on(other.get()));
  double_on(backend.stream());
  const auto graph = backend.end_capture();
  backend.replay(*graph);
  EXPECT_EQ(get(), 8);
}

// What is in other streams at the end and is waited for by nobody is an error of CUDA's, not a race.
TEST_F(Graphs, AreRefusedWhereAStreamIsNotJoined) {
  const cuda::Stream other;
  backend.begin_capture();
  cuda::wait_on(other.get(), *backend.point());
  double_on(other.get());
  EXPECT_THROW((void)backend.end_capture(), Failure);
  backend.abandon_capture();
  put(3);
  EXPECT_EQ(get(), 3) << "the stream is free again";
}

TEST_F(Graphs, AreRefusedWhereTheyWaitForSomethingOutside) {
  const cuda::Stream other;
  const auto outside = backend.point_on(other.get());
  backend.begin_capture();
  EXPECT_THROW(backend.order_behind(*outside), Failure);
  EXPECT_THROW(double_on(backend.stream()), Failure) << "a broken capture stays broken";
  backend.abandon_capture();
  put(3);
  EXPECT_EQ(get(), 3);
}

TEST_F(Graphs, CannotHoldWhatTheHostWaitsFor) {
  backend.begin_capture();
  EXPECT_THROW(backend.synchronise(), Failure);
  EXPECT_THROW(put(1), Failure);
  backend.abandon_capture();
}

TEST_F(Graphs, MarksInThemAreOfTheLastReplay) {
  backend.begin_capture();
  const Mark from = backend.mark();
  double_on(backend.stream());
  const Mark to = backend.mark();
  const auto graph = backend.end_capture();
  const Mark origin = backend.mark();
  backend.replay(*graph);
  backend.synchronise();
  const double first = backend.seconds_between(origin, from);
  backend.replay(*graph);
  backend.synchronise();
  EXPECT_GE(backend.seconds_between(from, to), 0);
  EXPECT_GT(backend.seconds_between(origin, from), first);
}

// -- trainings ------------------------------------------------------------------------------------------------------

struct CountedSteps {
  Outcome outcome;
  std::vector<std::vector<std::int64_t>> waits;  // by rank, up to the end of each step
};

Trial short_trial(int steps) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.steps = steps;
  trial.gradients_at = {};
  trial.check = Arena::Check::overlaps;
  return trial;
}

CountedSteps on_devices(Trial trial, bool nccl = true) {
  CountedSteps out;
  out.waits.resize(static_cast<std::size_t>(trial.spec.mesh.ranks()));
  thread_local std::size_t rank = 0;
  trial.devices = [nccl](Transport& host) {
    Devices devices;
    rank = static_cast<std::size_t>(host.rank());
    auto backend = std::make_unique<cuda::CudaBackend>(
        0, make_cpu_backend(1), cuda::Products::Options{.plan_file = {}, .tune_above_flops = 1e12});
    devices.transport = cuda::make_cuda_transport(*backend, host, {.nccl = nccl, .start_timeout_s = 20});
    devices.backend = std::move(backend);
    return devices;
  };
  trial.after_step = [&out](Backend& backend, std::int64_t) {
    out.waits[rank].push_back(dynamic_cast<cuda::CudaBackend&>(backend).host_waits());
  };
  out.outcome = testing::train(trial);
  return out;
}

void expect_same(const Outcome& ours, const Outcome& theirs) {
  ASSERT_EQ(ours.steps.size(), theirs.steps.size());
  for (std::size_t i = 0; i < ours.steps.size(); ++i) {
    EXPECT_EQ(ours.steps[i].loss, theirs.steps[i].loss) << "step " << i;
    EXPECT_EQ(ours.steps[i].gradient_norm, theirs.steps[i].gradient_norm) << "step " << i;
  }
  for (const auto& [name, tensor] : theirs.weights) EXPECT_EQ(ours.weights.at(name).values, tensor.values) << name;
}

struct Case {
  const char* name;
  void (*set)(Trial&);
  double least_share = 0.5;  ///< of steps that are in graphs, on rank 0
};

class TrainingByGraphs : public ::testing::TestWithParam<Case> {};

// The learning rate changes with every step of this job, and so do Adam's bias corrections: a graph that had kept them
// would train another model.
TEST_P(TrainingByGraphs, IsBitwiseTheTrainingWithoutThem) {
  const Faults none;
  Trial trial = short_trial(4);
  GetParam().set(trial);
  const CountedSteps with = on_devices(trial);
  trial.graphs = false;
  const CountedSteps without = on_devices(trial);
  expect_same(with.outcome, without.outcome);
  for (const Executor::GraphCounts& counts : with.outcome.graphs) {
    EXPECT_EQ(counts.failed, 0) << counts.reason;
    EXPECT_EQ(counts.reason, "");
    EXPECT_GT(counts.captured, 0);
    EXPECT_GE(counts.replayed, 2 * counts.captured);
  }
  const Executor::GraphCounts& first = with.outcome.graphs.front();
  EXPECT_GE(static_cast<double>(first.steps),
            GetParam().least_share * static_cast<double>(first.steps + first.plain_steps));
  for (const Executor::GraphCounts& counts : without.outcome.graphs) EXPECT_EQ(counts.reason, "switched off");
  for (std::size_t rank = 0; rank < with.outcome.memory.size(); ++rank)
    EXPECT_EQ(with.outcome.memory[rank].peak_live, with.outcome.placements[rank].peak_live_bytes);
}

using plan::PlanSpec;

INSTANTIATE_TEST_SUITE_P(
    Plans, TrainingByGraphs,
    ::testing::Values(
        Case{"serial", [](Trial&) {}, 0.9},
        Case{"bf16_stochastic",
             [](Trial& one) {
               one.spec.numerics.precision = models::DType::bf16,
               one.spec.numerics.rounding = plan::Rounding::stochastic;
             }},
        Case{"fp16_loss_scale", [](Trial& one) { one.spec.numerics.precision = models::DType::fp16; }},
        Case{"tensor_2", [](Trial& one) { one.spec.mesh.tensor = 2; }, 0.9},
        Case{"data_2_zero_0", [](Trial& one) { one.spec.mesh.data = 2; }, 0.9},
        Case{"zero_3", [](Trial& one) { one.spec.mesh.data = 2, one.spec.states.zero_stage = 3; }},
        Case{"pipeline_2_1f1b",
             [](Trial& one) { one.spec.mesh.pipeline = 2, one.spec.stages.order = plan::Order::one_f_one_b; }, 0.3},
        Case{"context_2", [](Trial& one) { one.spec.mesh.context = 2; }},
        Case{"dropout",
             [](Trial& one) {
               one.model.dropout = {0.1, 0.2, 0.15};
             },
             0.9},
        Case{"dropout_pipeline_2_context_2_bf16",
             [](Trial& one) {
               one.model.dropout = {0.1, 0.2, 0.15};
               one.spec.mesh.pipeline = one.spec.mesh.context = 2, one.spec.numerics.precision = models::DType::bf16;
             },
             0.3},
        Case{"lossless",
             [](Trial& one) {
               one.model.activation = models::Activation::relu;
               one.spec.compression.activations = plan::ActivationEncoding::lossless;
             },
             0.9},
        Case{"loss_in_chunks", [](Trial& one) { one.spec.numerics.loss_chunks = 2; }, 0.9},
        Case{"activations_on_the_host", [](Trial& one) { one.spec.offload.activations = plan::Space::host; }, 0.1}),
    [](const auto& tested) { return std::string(tested.param.name); });

// Nothing in a step needs the host but its end.
TEST(HostWaits, AreOneInAStep) {
  const Faults none;
  using Set = void (*)(Trial&);
  for (const Set set : {Set([](Trial& one) { one.spec.mesh.data = one.spec.mesh.tensor = 2; }),
                        Set([](Trial& one) { one.spec.mesh.pipeline = 2, one.spec.shape.micro_batch = 4; }),
                        Set([](Trial& one) { one.spec.offload.activations = plan::Space::host; })})
    for (const bool graphs : {false, true}) {
      Trial trial = short_trial(5);
      set(trial);
      trial.graphs = graphs;
      const CountedSteps counted = on_devices(trial);
      for (const auto& waits : counted.waits)
        for (std::size_t step = 2; step < waits.size(); ++step)
          EXPECT_LE(waits[step] - waits[step - 1], 1)
              << plan::describe(trial.spec) << ", step " << step << (graphs ? " by graphs" : "");
    }
}

// The host that orders messages itself comes to the same bits.
TEST(HostWaits, ForEachMessageChangeNothing) {
  const Faults none;
  Trial trial = short_trial(3);
  trial.spec.mesh.data = 2, trial.spec.mesh.pipeline = 2;
  const CountedSteps queued = on_devices(trial);
  trial.queue_messages = false;
  expect_same(on_devices(trial).outcome, queued.outcome);
}

TEST(TrainingByGraphsThatFail, GoesOnWithoutThemAndSaysSo) {
  for (const bool at_the_end : {true, false}) {
    const Faults none;
    Trial trial = short_trial(4);
    trial.spec.mesh.data = 2;
    trial.sample_every = 2;  // with marks and without: two graphs, of which one fails
    trial.graphs = false;
    const CountedSteps without = on_devices(trial);
    trial.graphs = true;
    const auto devices_of = [at_the_end](Trial& one) {
      one.after_step = [at_the_end](Backend&, std::int64_t step) {
        if (step == 0)
          (at_the_end ? emulation::graph_faults().refuse_ends : emulation::graph_faults().refuse_instances) = 1;
      };
    };
    Trial failing = trial;
    failing.devices = [](Transport& host) {
      Devices devices;
      auto backend = std::make_unique<cuda::CudaBackend>(
          0, make_cpu_backend(1), cuda::Products::Options{.plan_file = {}, .tune_above_flops = 1e12});
      devices.transport = cuda::make_cuda_transport(*backend, host, {.start_timeout_s = 20});
      devices.backend = std::move(backend);
      return devices;
    };
    devices_of(failing);
    const Outcome ours = testing::train(failing);
    expect_same(ours, without.outcome);
    for (const Executor::GraphCounts& counts : ours.graphs) {
      EXPECT_EQ(counts.failed, 1);
      EXPECT_NE(counts.reason.find("graph"), std::string::npos) << counts.reason;
      EXPECT_GT(counts.replayed, 0) << "the other is one";
    }
  }
}

// Where each newborn buffer is filled by the host, a graph would leave that out.
TEST(GraphsOfATraining, AreNotMadeWhereMemoryIsChecked) {
  const Faults none;
  Trial trial = short_trial(2);
  trial.check = Arena::Check::overlaps_and_poison;
  const CountedSteps counted = on_devices(trial);
  EXPECT_EQ(counted.outcome.graphs.front().captured, 0);
  EXPECT_EQ(counted.outcome.graphs.front().reason, "newborn buffers are filled by the host");
}

/// Graphs that a training step is made of, and steps beside them, on rank 0, when spans are not recorded.
struct Pieces {
  std::int64_t graphs = 0, steps_beside = 0;
};
Pieces pieces_of_a_step(void (*set)(Trial&)) {
  Trial trial = short_trial(4);
  trial.sample_every = 100;
  set(trial);
  const CountedSteps counted = on_devices(trial);
  for (const Executor::GraphCounts& counts : counted.outcome.graphs) EXPECT_EQ(counts.failed, 0) << counts.reason;
  const Executor::GraphCounts& first = counted.outcome.graphs.front();
  EXPECT_EQ(first.replayed, 3 * first.captured);
  return {first.captured, first.plain_steps / 3};
}

// Four micro-batches, whose tokens a graph copies from where the host has put them.
TEST(GraphsOfATraining, HoldAWholeStepWithItsBatches) {
  const Faults none;
  using Set = void (*)(Trial&);
  for (const Set set : {Set([](Trial&) {}), Set([](Trial& one) { one.spec.mesh.tensor = 2; }),
                        Set([](Trial& one) { one.spec.mesh.data = 2; })}) {
    const Pieces pieces = pieces_of_a_step(set);
    EXPECT_EQ(pieces.graphs, 1);
    EXPECT_EQ(pieces.steps_beside, 0);
  }
}

// Each replay trains on its own batch: the data are in order, so that a step which saw the one before again is seen.
TEST(GraphsOfATraining, TakeTheBatchOfTheirOwnStep) {
  const Faults none;
  Trial trial = short_trial(6);
  trial.training.order = plan::DataOrder::sequential;
  const CountedSteps ours = on_devices(trial);
  const Outcome theirs = testing::train(trial);
  EXPECT_LE(testing::loss_distance(ours.outcome, theirs), 1e-5);
  EXPECT_GT(ours.outcome.graphs.front().replayed, 4);
}

TEST_F(Graphs, CopyWhatIsInASlotWhenTheyAreReplayed) {
  const std::span<std::byte> slot = backend.allocate_slot(sizeof(float));
  const auto fill = [&](float value) { std::memcpy(slot.data(), &value, sizeof(value)); };
  fill(1);
  backend.begin_capture();
  backend.queue_to_device(arena, slot);
  double_on(backend.stream());
  const auto graph = backend.end_capture();
  for (const float value : {3.0F, 5.0F}) {
    fill(value);
    backend.replay(*graph);
    EXPECT_EQ(get(), 2 * value);
  }
}

// What graphs are for: a step is a few launches instead of one for each operator.
TEST(GraphsOfATraining, QueueAFractionOfTheWork) {
  const Faults none;
  Trial trial = short_trial(4);
  long before = 0, last = 0;
  trial.after_step = [&](Backend&, std::int64_t) {
    const long queued = emulation::graph_faults().queued + emulation::graph_faults().launches;
    last = queued - std::exchange(before, queued);
  };
  const auto devices = [](Transport& host) {
    Devices made;
    auto backend = std::make_unique<cuda::CudaBackend>(
        0, make_cpu_backend(1), cuda::Products::Options{.plan_file = {}, .tune_above_flops = 1e12});
    made.transport = cuda::make_cuda_transport(*backend, host, {});
    made.backend = std::move(backend);
    return made;
  };
  trial.devices = devices;
  trial.sample_every = 100;
  (void)testing::train(trial);
  const long with = last;
  before = 0;
  trial.graphs = false;
  (void)testing::train(trial);
  const long without = last;
  std::printf("[ queued   ] %ld pieces of work a step, %ld without graphs\n", with, without);
  EXPECT_LT(10 * with, without);
}

// Spans come of a second set of graphs, with marks in them, on sampled steps.
TEST(Sampling, SpansAreOfSampledStepsAndOfEveryStepOfThem) {
  const Faults none;
  Trial trial = short_trial(7);
  trial.spec.mesh.data = 2;
  trial.sample_every = 3;
  const CountedSteps with = on_devices(trial);
  trial.graphs = false;
  const CountedSteps without = on_devices(trial);
  expect_same(with.outcome, without.outcome);
  for (std::size_t rank = 0; rank < with.outcome.spans.size(); ++rank) {
    const auto& ours = with.outcome.spans[rank];
    const auto& theirs = without.outcome.spans[rank];
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_EQ(ours[i].iteration % 3, 0);
      EXPECT_EQ(ours[i].at, theirs[i].at);
      EXPECT_EQ(ours[i].micro_batch, theirs[i].micro_batch);
      EXPECT_GT(ours[i].ready, 0);
      EXPECT_GE(ours[i].end, ours[i].ready);
    }
  }
}

// -- what else runs by the same schedules -----------------------------------------------------------------------------

TEST(OnDevices, EvaluationBetweenStepsLeavesNoTraceAndEqualsTheCpu) {
  const Faults none;
  Trial trial = short_trial(3);
  trial.spec.mesh.data = 2, trial.spec.mesh.pipeline = 2;
  const CountedSteps without = on_devices(trial);
  trial.training.evaluation = plan::Evaluation{trial.training.data, 1, 2};
  const CountedSteps with = on_devices(trial);
  expect_same(with.outcome, without.outcome);
  const Outcome on_the_cpu = testing::train(trial);
  ASSERT_EQ(with.outcome.held_out.size(), 4U);
  for (std::size_t i = 0; i < on_the_cpu.held_out.size(); ++i)
    EXPECT_NEAR(with.outcome.held_out[i], on_the_cpu.held_out[i], 1e-5 * on_the_cpu.held_out[i]);
}

class OnDevicesAsOnTheCpu : public ::testing::TestWithParam<Case> {};

TEST_P(OnDevicesAsOnTheCpu, EqualsTheCpuBackend) {
  const Faults none;
  Trial trial = testing::golden_trial("constant");
  trial.steps = 5;
  trial.gradients_at = {};
  trial.check = Arena::Check::overlaps;
  trial.training.initial_weights.clear();
  GetParam().set(trial);
  const Outcome theirs = testing::train(trial);
  for (const bool graphs : {true, false}) {
    trial.graphs = graphs;
    const CountedSteps ours = on_devices(trial);
    EXPECT_LE(testing::loss_distance(ours.outcome, theirs), 1e-5);
    EXPECT_LE(testing::relative_distance(ours.outcome.weights, theirs.weights), 5e-5);
    for (const Executor::GraphCounts& counts : ours.outcome.graphs) EXPECT_EQ(counts.failed, 0) << counts.reason;
  }
}

void asynchronous(Trial& one, plan::Order order) {
  one.spec.mesh.pipeline = 2;
  one.spec.stages.order = order;
  one.spec.shape.micro_batch = order == plan::Order::pipedream_2bw ? 2 : 8;
  one.training.order = plan::DataOrder::shuffled;
}

INSTANTIATE_TEST_SUITE_P(
    Plans, OnDevicesAsOnTheCpu,
    ::testing::Values(Case{"pipedream", [](Trial& one) { asynchronous(one, plan::Order::pipedream); }},
                      Case{"pipedream_2bw", [](Trial& one) { asynchronous(one, plan::Order::pipedream_2bw); }},
                      Case{"parameter_server",
                           [](Trial& one) {
                             one.spec.mesh.data = 2, one.spec.shape.micro_batch = 1, one.spec.states.staleness = 1;
                             one.training.order = plan::DataOrder::shuffled;
                           }}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace emulated_graphs_test
}  // namespace orrery::exec::gpu_test

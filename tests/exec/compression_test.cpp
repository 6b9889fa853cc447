// Gradients in fewer bits against a serial program that does the same: 20 steps in loss, gradients and parameters;
// memory and messages as planned; PowerSGD's states through checkpoints.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>

#include "exec/engine/thread_transport.h"
#include "exec/state/checkpoint.h"
#include "exec/state/checkpoint_files.h"
#include "exec/state/initialise.h"
#include "plan/lower/lower.h"
#include "tests/exec/compressed.h"

namespace orrery::exec {
namespace compression_test {

using plan::GradientCompression;
using testing::Outcome;
using testing::Trial;

void expect_memory_as_predicted(const Outcome& outcome) {
  for (std::size_t rank = 0; rank < outcome.memory.size(); ++rank) {
    EXPECT_EQ(outcome.memory[rank].peak_extent, outcome.placements[rank].arena_bytes) << "rank " << rank;
    EXPECT_EQ(outcome.memory[rank].peak_live, outcome.placements[rank].peak_live_bytes) << "rank " << rank;
  }
}

struct Case {
  const char* name;
  GradientCompression how;
  double bound;  ///< of the first step's gradient
  void (*set)(plan::PlanSpec&);
};

Trial trial_of(GradientCompression how) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.training.clip_norm.reset();  // the serial program puts its gradients in when the norm has been taken
  trial.spec.compression.gradients = how;
  trial.spec.compression.rank = 2;
  trial.spec.compression.minimum_rate = 1.5;
  return trial;
}

class CompressedSerial : public ::testing::TestWithParam<Case> {};

TEST_P(CompressedSerial, IsEqualInLossGradientsParametersAndMemory) {
  const Case& one = GetParam();
  Trial trial = trial_of(one.how);
  one.set(trial.spec);
  const testing::Compressed serial = testing::train_compressed(trial);
  const Outcome split = testing::train(trial);
  ASSERT_EQ(split.steps.size(), 20U);
  const double loss = testing::loss_distance(split, serial.outcome);
  const double first = testing::relative_distance(split.gradients.at(0), serial.outcome.gradients.at(0));
  const double last = testing::relative_distance(split.gradients.at(19), serial.outcome.gradients.at(19));
  const double weights = testing::relative_distance(split.weights, serial.outcome.weights);
  std::printf("[ errors   ] %-28s loss %.1e  gradient at step 1 %.1e  at step 20 %.1e  weights %.1e\n", one.name, loss,
              first, last, weights);
  // The first gradient is the same; later ones are as far apart as a last bit of the weights makes them, which may
  // round another value the other way.
  EXPECT_LE(first, one.bound);
  EXPECT_LE(loss, 1e-5);
  EXPECT_LE(weights, one.how == GradientCompression::bf16 ? 1e-3 : 1e-4);
  EXPECT_LT(split.steps.back().loss, split.steps.front().loss);
  expect_memory_as_predicted(split);
}

void data_2(plan::PlanSpec& s) {
  s.mesh.data = 2;
}
void data_4_overlapped(plan::PlanSpec& s) {
  s.mesh.data = 4, s.states.overlap_gradients = true;
}
void by_node(plan::PlanSpec& s) {
  s.mesh.data = 4, s.compression.group = 2;
}
void by_node_overlapped(plan::PlanSpec& s) {
  s.mesh.data = 8, s.compression.group = 2, s.states.overlap_gradients = true, s.shape.micro_batch = 1;
}
void by_node_zero_1(plan::PlanSpec& s) {
  s.mesh.data = 4, s.compression.group = 2, s.states.zero_stage = 1;
}
void by_node_zero_1_overlapped(plan::PlanSpec& s) {
  s.mesh.data = 8, s.compression.group = 4, s.states.zero_stage = 1, s.states.overlap_gradients = true,
  s.shape.micro_batch = 1;
}
void zero_1(plan::PlanSpec& s) {
  s.mesh.data = 2, s.states.zero_stage = 1;
}
void zero_1_overlapped(plan::PlanSpec& s) {
  s.mesh.data = 2, s.states.zero_stage = 1, s.states.overlap_gradients = true;
}

INSTANTIATE_TEST_SUITE_P(
    Plans, CompressedSerial,
    ::testing::Values(Case{"bf16_data_2", GradientCompression::bf16, 0, data_2},
                      Case{"fp16_data_2", GradientCompression::fp16, 0, data_2},
                      Case{"bf16_data_4_overlapped", GradientCompression::bf16, 0, data_4_overlapped},
                      Case{"bf16_data_4_by_node", GradientCompression::bf16, 0, by_node},
                      Case{"fp16_data_8_by_node_overlapped", GradientCompression::fp16, 0, by_node_overlapped},
                      Case{"bf16_data_4_by_node_zero_1", GradientCompression::bf16, 0, by_node_zero_1},
                      Case{"fp16_data_8_by_node_zero_1_overlapped", GradientCompression::fp16, 0,
                           by_node_zero_1_overlapped},
                      Case{"bf16_zero_1", GradientCompression::bf16, 0, zero_1},
                      Case{"fp16_zero_1_overlapped", GradientCompression::fp16, 0, zero_1_overlapped},
                      Case{"powersgd_data_2", GradientCompression::powersgd, 1e-5, data_2},
                      Case{"powersgd_data_4_overlapped", GradientCompression::powersgd, 1e-5, data_4_overlapped},
                      Case{"powersgd_zero_1", GradientCompression::powersgd, 1e-5, zero_1},
                      Case{"powersgd_zero_1_overlapped", GradientCompression::powersgd, 1e-5, zero_1_overlapped}),
    [](const auto& tested) { return std::string(tested.param.name); });

/// Counts what a rank is asked to send, in units of (n - 1)/n bytes for collectives of n.
class Counting : public Transport {
 public:
  Counting(Transport& inner, std::atomic<std::int64_t>& bytes) : inner_(inner), bytes_(bytes) {}
  std::string name() const override { return inner_.name(); }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  GroupId make_group(const plan::Group& group) override {
    sizes_.push_back(group.size());
    return inner_.make_group(group);
  }
  std::unique_ptr<Request> all_reduce(GroupId group, plan::Reduce reduce, models::DType dtype, std::byte* data,
                                      std::int64_t elements) override {
    bytes_ += 2 * elements * models::size_of(dtype);
    return inner_.all_reduce(group, reduce, dtype, data, elements);
  }
  std::unique_ptr<Request> all_gather(GroupId group, models::DType dtype, const std::byte* source, std::byte* target,
                                      std::int64_t elements) override {
    bytes_ += whole(group, elements, dtype);
    return inner_.all_gather(group, dtype, source, target, elements);
  }
  std::unique_ptr<Request> reduce_scatter(GroupId group, models::DType dtype, const std::byte* source,
                                          std::byte* target, std::int64_t elements) override {
    bytes_ += whole(group, elements, dtype);
    return inner_.reduce_scatter(group, dtype, source, target, elements);
  }
  std::unique_ptr<Request> all_to_all(GroupId group, models::DType dtype, const std::byte* source, std::byte* target,
                                      std::int64_t elements) override {
    bytes_ += whole(group, elements, dtype);
    return inner_.all_to_all(group, dtype, source, target, elements);
  }
  std::unique_ptr<Request> send(int to, int tag, models::DType dtype, const std::byte* data,
                                std::int64_t elements) override {
    return inner_.send(to, tag, dtype, data, elements);
  }
  std::unique_ptr<Request> receive(int from, int tag, models::DType dtype, std::byte* data,
                                   std::int64_t elements) override {
    return inner_.receive(from, tag, dtype, data, elements);
  }
  void barrier() override { inner_.barrier(); }
  std::vector<std::string> gather_text(const std::string& text) override { return inner_.gather_text(text); }
  double maximum(double value) override { return inner_.maximum(value); }

 private:
  [[nodiscard]] std::int64_t whole(GroupId group, std::int64_t elements, models::DType dtype) const {
    return elements * models::size_of(dtype) * sizes_.at(static_cast<std::size_t>(group));
  }
  Transport& inner_;
  std::atomic<std::int64_t>& bytes_;
  std::vector<std::int64_t> sizes_;
};

TEST(CompressedGradients, MoveAsManyBytesAsTheScheduleSays) {
  for (const auto& [how, group] : {std::pair(GradientCompression::none, 0), std::pair(GradientCompression::bf16, 0),
                                   std::pair(GradientCompression::fp16, 0), std::pair(GradientCompression::powersgd, 0),
                                   std::pair(GradientCompression::bf16, 2)})
    for (const int zero : {0, 1, 2, 3}) {
      Trial trial = trial_of(how);
      trial.spec.mesh.data = group > 0 ? 4 : 2, trial.spec.states.zero_stage = zero,
      trial.spec.compression.group = group;
      if (group > 0 ? zero == 3 : zero == 2 || (how == GradientCompression::powersgd && zero == 3)) continue;
      SCOPED_TRACE(plan::describe(trial.spec));
      trial.steps = 2, trial.gradients_at = {};
      std::atomic<std::int64_t> counted{0};
      trial.devices = [&](Transport& host) {
        return testing::Devices{make_cpu_backend(1), std::make_unique<Counting>(host, counted)};
      };
      std::int64_t planned = 0;
      const plan::Schedule schedule = plan::lower(testing::plan_of(trial));
      const plan::RankClass& c = schedule.classes.front();
      for (const plan::Entry& entry : c.program)
        for (const plan::Step& step : c.blocks[static_cast<std::size_t>(entry.block)].steps)
          if (step.kind == plan::StepKind::collective)
            planned += step.message_bytes(c.buffers) * (step.collective == plan::CollectiveKind::all_reduce ? 2 : 1);
      (void)testing::train(trial);
      // Weights are gathered at the end by other means.
      EXPECT_EQ(counted, planned * trial.steps * trial.spec.mesh.data);
    }
}

// ZeRO 2 and 3 reduce with every micro-batch: with one micro-batch a step they do what ZeRO 1 does, but for the tied
// table, whose two gradients (as input and as head) they reduce, and so round, one by one.
TEST(SixteenBitGradients, AreTheSameUnderEveryZeroStageButForTheTiedTable) {
  Trial trial = trial_of(GradientCompression::bf16);
  trial.spec.mesh.data = 2, trial.spec.shape.micro_batch = 4, trial.spec.states.zero_stage = 1;
  const testing::Compressed serial = testing::train_compressed(trial);
  trial.spec.states.zero_stage = 2;
  const Outcome two = testing::train(trial);
  trial.spec.states.zero_stage = 3;
  const Outcome three = testing::train(trial);
  EXPECT_LE(testing::relative_distance(three.gradients.at(0), two.gradients.at(0)), 1e-6);
  EXPECT_LE(testing::loss_distance(three, two), 1e-5);
  constexpr double kRounding = 1.0 / 512;  // a value of bf16, relative
  for (const Outcome* split : {&two, &three}) {
    EXPECT_LE(testing::relative_distance(split->gradients.at(0), serial.outcome.gradients.at(0)), kRounding);
    EXPECT_LE(testing::loss_distance(*split, serial.outcome), 1e-5);
    expect_memory_as_predicted(*split);
  }
}

// With one micro-batch a step ZeRO 1 and 2 do the same but for the tied table; which shard a rank owns is nobody's
// business but its own.
TEST(SixteenBitGradients, ByNodeAreTheSameUnderZeroOneAndTwo) {
  Trial trial = trial_of(GradientCompression::bf16);
  trial.model.tied_embeddings = false;
  trial.training.initial_weights.clear();
  trial.spec.mesh.data = 4, trial.spec.shape.micro_batch = 2, trial.spec.compression.group = 2,
  trial.spec.states.zero_stage = 1;
  const Outcome one = testing::train(trial);
  trial.spec.states.zero_stage = 2;
  const Outcome two = testing::train(trial);
  for (std::size_t i = 0; i < one.steps.size(); ++i) EXPECT_EQ(two.steps[i].loss, one.steps[i].loss) << "step " << i;
  EXPECT_EQ(testing::relative_distance(two.weights, one.weights), 0);
  expect_memory_as_predicted(one);
  expect_memory_as_predicted(two);
  trial.spec.mesh.tensor = 2, trial.spec.mesh.sequence_parallel = true;
  expect_memory_as_predicted(testing::train(trial));
}

// The mathematics of 16 bits is the same wherever matrices and layers are; sums come in other orders, of which a
// rounding to 16 bits makes more.
TEST(SixteenBitGradients, TrainOnEverySplitOfTheModel) {
  Trial trial = trial_of(GradientCompression::bf16);
  trial.spec.mesh.data = 2;
  const Outcome plain = testing::train(trial);
  using Set = void (*)(plan::PlanSpec&);
  for (const Set set : {Set([](plan::PlanSpec& s) { s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }),
                        Set([](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.states.overlap_gradients = true; }),
                        Set([](plan::PlanSpec& s) { s.mesh.pipeline = 2, s.states.zero_stage = 3, s.mesh.tensor = 2; }),
                        Set([](plan::PlanSpec& s) {
                          s.mesh.pipeline = 2, s.stages.order = plan::Order::zb_v, s.stages.virtual_stages = 2,
                          s.shape.micro_batch = 1;
                          s.states.overlap_gradients = true, s.stages.layers_per_stage = {0, 1, 1, 0};
                        })}) {
    Trial other = trial;
    set(other.spec);
    SCOPED_TRACE(plan::describe(other.spec));
    const Outcome split = testing::train(other);
    EXPECT_LE(testing::loss_distance(split, plain), 2e-4);
    expect_memory_as_predicted(split);
  }
}

// Gradients of fp16 training are in 16 bits as they are: only their sum is another.
TEST(SixteenBitGradients, OfFp16TrainingAreSummedInThirtyTwoBits) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.spec.numerics.precision = models::DType::fp16;
  trial.spec.mesh.data = 4;
  const Outcome narrow = testing::train(trial);
  for (const int zero : {0, 1, 3})
    for (const bool early : {false, true}) {
      trial.spec.compression.gradients = GradientCompression::fp16;
      trial.spec.states.zero_stage = zero;
      trial.spec.states.overlap_gradients = early;
      const Outcome wide = testing::train(trial);
      EXPECT_LE(testing::loss_distance(wide, narrow), 1e-3);
      expect_memory_as_predicted(wide);
    }
}

TEST(PowerSgd, TrainsOnEverySplitThatItAllows) {
  Trial trial = trial_of(GradientCompression::powersgd);
  using Set = void (*)(plan::PlanSpec&);
  for (const Set set :
       {Set([](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.tensor = 2, s.mesh.sequence_parallel = true; }),
        Set([](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.pipeline = 2, s.states.overlap_gradients = true; }),
        Set([](plan::PlanSpec& s) {
          s.mesh.data = 2, s.mesh.pipeline = 2, s.states.zero_stage = 1, s.mesh.tensor = 2;
        }),
        Set([](plan::PlanSpec& s) { s.mesh.context = 2, s.mesh.data = 2; }), Set([](plan::PlanSpec& s) {
          s.mesh.data = 2, s.numerics.precision = models::DType::bf16, s.states.overlap_gradients = true;
        })}) {
    Trial other = trial;
    set(other.spec);
    SCOPED_TRACE(plan::describe(other.spec));
    const Outcome split = testing::train(other);
    ASSERT_EQ(split.steps.size(), 20U);
    EXPECT_LT(split.steps.back().loss, split.steps.front().loss);
    expect_memory_as_predicted(split);
  }
}

// Until PowerSGD starts a run is the plain one; from there it is what a run is that goes on with it.
TEST(PowerSgd, ThatStartsLateIsThePlainRunUntilThen) {
  constexpr std::int64_t kStart = 4;
  using Set = void (*)(plan::PlanSpec&);
  for (const Set set :
       {Set([](plan::PlanSpec& s) { s.mesh.data = 2; }),
        Set([](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1; }),
        Set([](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1, s.states.overlap_gradients = true; }),
        Set([](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.pipeline = 2, s.mesh.tensor = 2; })}) {
    Trial late = trial_of(GradientCompression::powersgd);
    set(late.spec);
    late.spec.compression.start = kStart;
    late.steps = 8, late.gradients_at = {0, kStart - 1, kStart};
    SCOPED_TRACE(plan::describe(late.spec));
    Trial plain = late, at_once = late;
    plain.spec.compression = {};
    at_once.spec.compression.start = 0;
    const Outcome run = testing::train(late), whole = testing::train(plain), low_rank = testing::train(at_once);
    for (std::size_t i = 0; i <= kStart; ++i) EXPECT_EQ(run.steps[i].loss, whole.steps[i].loss) << "step " << i;
    EXPECT_EQ(testing::relative_distance(run.gradients.at(kStart - 1), whole.gradients.at(kStart - 1)), 0);
    EXPECT_GT(testing::relative_distance(run.gradients.at(kStart), whole.gradients.at(kStart)), 1e-3);
    EXPECT_NE(run.steps[kStart + 1].loss, whole.steps[kStart + 1].loss);
    EXPECT_GT(testing::relative_distance(low_rank.gradients.at(0), whole.gradients.at(0)), 1e-3);
    expect_memory_as_predicted(run);
    // Spans are of the steps behind the start, where a run has any; operators of both have their places.
    for (const auto& spans : run.spans)
      for (const RawSpan& span : spans) EXPECT_GE(span.iteration, kStart);
    late.steps = kStart, late.gradients_at = {};
    for (const auto& spans : testing::train(late).spans) EXPECT_FALSE(spans.empty());
  }
}

// With P and Q of as many columns as the matrix nothing is lost.
TEST(PowerSgd, OfFullRankIsTheSum) {
  Trial trial = testing::golden_trial("cosine_clipped");
  trial.spec.mesh.data = 2;
  const Outcome plain = testing::train(trial);
  trial.spec.compression.gradients = GradientCompression::powersgd;
  trial.spec.compression.rank = 64;
  trial.spec.compression.minimum_rate = 1e-3;
  trial.steps = 5;
  trial.gradients_at = {0};
  const Outcome whole = testing::train(trial);
  EXPECT_LE(testing::relative_distance(whole.gradients.at(0), plain.gradients.at(0)), 1e-3);
}

class CheckpointOfErrors : public ::testing::Test {
 protected:
  CheckpointOfErrors()
      : folder_(std::filesystem::temp_directory_path() / ("orrery-errors-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder_);
  }
  ~CheckpointOfErrors() override { std::filesystem::remove_all(folder_); }

  LogicalTensors train(const Trial& trial, std::int64_t first, std::int64_t last) const {
    const plan::Plan plan = testing::plan_of(trial);
    const plan::Schedule schedule = plan::lower(plan);
    const Waiter waiter(wait_policy(plan.spec().mesh.ranks(), 1, std::chrono::seconds(60)));
    ThreadWorld world(plan.spec().mesh.ranks());
    LogicalTensors weights;
    testing::in_threads(
        plan.spec().mesh.ranks(),
        [&](int rank) {
          const auto transport = world.transport(rank);
          const auto backend = make_cpu_backend(1);
          auto stream = TokenStream::open(trial.training.data);
          Trainer trainer(plan, trial.training, schedule, *backend, *transport, waiter,
                          Batches(std::move(*stream), trial.training.order, trial.training.seed,
                                  plan.spec().shape.batch, plan.spec().shape.sequence, trial.model.vocab),
                          {});
          Arena& arena = trainer.executor().arena();
          const CheckpointContext context{schedule, arena, *backend, *transport};
          if (first > 0)
            EXPECT_EQ(load_checkpoint(context, folder_ / name(first)), first);
          else
            initialise(schedule, rank, arena, *backend, seeded_source(5));
          for (std::int64_t step = first; step < last; ++step) (void)trainer.step(step);
          save_checkpoint(context, folder_, last, 9);
          LogicalTensors all = gather_logical(schedule, Gathered::weights, arena, *backend, *transport);
          if (rank == 0) weights = std::move(all);
        },
        [&](const std::string& why) { world.abort(why); });
    return weights;
  }
  static std::string name(std::int64_t step) { return "step-00000" + std::to_string(step); }

  /// The sum of all holders' errors of a parameter.
  std::vector<double> error_of(std::int64_t step, const std::string& tensor, int& holders) const {
    const CheckpointReader reader(folder_ / name(step));
    std::vector<double> sum;
    for (holders = 0; !reader.parts(State::error, tensor, holders).empty(); ++holders)
      for (const CheckpointPart* part : reader.parts(State::error, tensor, holders)) {
        std::vector<float> values(static_cast<std::size_t>(part->end - part->begin));
        reader.read(*part, 0, values);
        sum.resize(static_cast<std::size_t>(logical_elements(part->tensor)));
        for (const exec::Run& run : runs_of(part->tensor, part->tensor_rank, part->begin, part->end))
          for (std::int64_t i = 0; i < run.elements; ++i)
            sum[static_cast<std::size_t>(run.logical + i)] +=
                static_cast<double>(values[static_cast<std::size_t>(run.local - part->begin + i)]);
      }
    return sum;
  }

  std::filesystem::path folder_;
};

TEST_F(CheckpointOfErrors, ARunGoesOnBitByBitOnTheSamePlan) {
  using Set = void (*)(plan::PlanSpec&);
  for (const Set set :
       {Set([](plan::PlanSpec& s) { s.mesh.data = 2; }),
        Set([](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 1, s.mesh.tensor = 2; }),
        Set([](plan::PlanSpec& s) { s.mesh.data = 2, s.mesh.pipeline = 2, s.states.overlap_gradients = true; })}) {
    Trial trial = trial_of(GradientCompression::powersgd);
    set(trial.spec);
    SCOPED_TRACE(plan::describe(trial.spec));
    const LogicalTensors whole = train(trial, 0, 6);
    (void)train(trial, 0, 3);
    const LogicalTensors resumed = train(trial, 3, 6);
    for (const auto& [name, tensor] : whole) EXPECT_EQ(tensor.values, resumed.at(name).values) << name;
  }
}

TEST_F(CheckpointOfErrors, AStartIsCountedOverTheWholeRun) {
  using Set = void (*)(plan::PlanSpec&);
  for (const Set set : {Set([](plan::PlanSpec& s) { s.mesh.data = 2; }), Set([](plan::PlanSpec& s) {
                          s.mesh.data = 2, s.states.zero_stage = 1, s.states.overlap_gradients = true;
                        })}) {
    Trial late = trial_of(GradientCompression::powersgd), plain = late, at_once = late;
    for (Trial* one : {&late, &plain, &at_once}) set(one->spec);
    late.spec.compression.start = 3;
    plain.spec.compression = {};
    SCOPED_TRACE(plan::describe(late.spec));
    const LogicalTensors whole = train(late, 0, 6);
    const auto expect_same = [&](const LogicalTensors& other) {
      for (const auto& [name, tensor] : whole) EXPECT_EQ(tensor.values, other.at(name).values) << name;
    };
    for (const std::int64_t stop : {2, 3, 5}) {  // before it starts, as it does, and behind
      (void)train(late, 0, stop);
      expect_same(train(late, stop, 6));
    }
    (void)train(plain, 0, 3);  // the same in two runs
    expect_same(train(at_once, 3, 6));
  }
}

TEST_F(CheckpointOfErrors, ShardsByNodeGoOnBitByBitAndOnOtherPlans) {
  Trial trial = trial_of(GradientCompression::bf16);
  trial.spec.mesh.data = 4, trial.spec.states.zero_stage = 1, trial.spec.compression.group = 2;
  const LogicalTensors whole = train(trial, 0, 4);
  const LogicalTensors half = train(trial, 0, 2);
  const LogicalTensors resumed = train(trial, 2, 4);
  for (const auto& [name, tensor] : whole) EXPECT_EQ(tensor.values, resumed.at(name).values) << name;
  (void)train(trial, 0, 2);
  using Set = void (*)(plan::PlanSpec&);
  for (const Set set :
       {Set([](plan::PlanSpec& s) { s.compression = {}; }),
        Set([](plan::PlanSpec& s) { s.states.zero_stage = 2, s.compression.group = 0; }),
        Set([](plan::PlanSpec& s) { s.mesh.data = 2, s.states.zero_stage = 3, s.compression = {}; }),
        Set([](plan::PlanSpec& s) { s.mesh.data = 8, s.states.zero_stage = 2, s.compression.group = 4; })}) {
    Trial other = trial;
    set(other.spec);
    if (other.spec.mesh.data == 8) other.spec.shape.micro_batch = 1;
    SCOPED_TRACE(plan::describe(other.spec));
    const LogicalTensors loaded = train(other, 2, 2);  // and saved again, from which the next one goes on
    for (const auto& [name, tensor] : half) EXPECT_EQ(tensor.values, loaded.at(name).values) << name;
  }
  const LogicalTensors back = train(trial, 2, 4);
  for (const auto& [name, tensor] : whole) EXPECT_EQ(tensor.values, back.at(name).values) << name;
}

TEST_F(CheckpointOfErrors, TheirSumIsKeptByAnotherPlan) {
  using Set = void (*)(plan::PlanSpec&);
  Trial from = trial_of(GradientCompression::powersgd);
  from.spec.mesh.data = 2;
  (void)train(from, 0, 3);
  int holders = 0;
  const std::string names[] = {"wte.weight", "h.0.mlp.fc.weight", "h.1.attn.q.weight"};
  std::map<std::string, std::vector<double>> before;
  for (const std::string& tensor : names) before[tensor] = error_of(3, tensor, holders);
  for (const Set set :
       {Set([](plan::PlanSpec& s) { s.mesh.data = 4; }), Set([](plan::PlanSpec& s) { s.mesh.tensor = 2; }),
        Set([](plan::PlanSpec& s) { s.mesh.data = 4, s.mesh.pipeline = 2, s.states.zero_stage = 1; })}) {
    Trial to = from;
    set(to.spec);
    SCOPED_TRACE(plan::describe(to.spec));
    (void)train(to, 3, 3);
    for (const std::string& tensor : names) {
      const std::vector<double> after = error_of(3, tensor, holders);
      const bool two = tensor == "wte.weight" && to.spec.mesh.pipeline > 1;
      EXPECT_EQ(holders, to.spec.mesh.data * (two ? 2 : 1)) << tensor;
      ASSERT_EQ(after.size(), before.at(tensor).size()) << tensor;
      double most = 0, apart = 0;
      for (std::size_t i = 0; i < after.size(); ++i) {
        most = std::max(most, std::abs(before.at(tensor)[i]));
        apart = std::max(apart, std::abs(after[i] - before.at(tensor)[i]));
      }
      EXPECT_GT(most, 1e-6) << tensor << " has lost nothing";
      EXPECT_LE(apart, 1e-6 * most) << tensor;
    }
    (void)train(from, 0, 3);  // the folder's own again
  }
}

TEST_F(CheckpointOfErrors, ARunWithoutCompressionCanBeGoneOnWithAndBack) {
  Trial plain = testing::golden_trial("cosine_clipped"), compressed = trial_of(GradientCompression::powersgd);
  plain.spec.mesh.data = compressed.spec.mesh.data = 2;
  (void)train(plain, 0, 3);
  const LogicalTensors with = train(compressed, 3, 5);
  const LogicalTensors back = train(plain, 5, 6);
  EXPECT_TRUE(std::isfinite(back.at("wte.weight").values.front()));
  EXPECT_GT(testing::relative_distance(back, with), 0);
}

}  // namespace compression_test
}  // namespace orrery::exec

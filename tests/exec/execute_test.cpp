// The executor on schedules made by hand: what overlaps, what waits, what is in flight when memory is handed on.
#include "exec/engine/execute.h"

#include <gtest/gtest.h>

#include "exec/cpu/backend.h"
#include "exec/engine/ranges.h"
#include "exec/engine/thread_transport.h"
#include "exec/failure.h"
#include "exec/state/initialise.h"
#include "plan/lower/lower.h"
#include "tests/exec/training.h"

namespace orrery::exec {
namespace execute_test {

using models::DType;
using models::Op;
using models::OpKind;

Op flat(OpKind kind, std::int64_t m, std::vector<int> in, std::vector<int> out) {
  Op op;
  op.kind = kind;
  op.m = m;
  op.in = std::move(in);
  op.out = std::move(out);
  return op;
}

constexpr plan::BufferId kOnes(0), kX(1), kSum(2);

/// Two stages. Stage 0 makes x = 0 + (its persistent ones), sends it and goes on; stage 1 receives and adds it to its
/// loss, for each of `micro_batches`; nothing is ever sent back.
struct Pipe {
  plan::Schedule schedule;
  std::vector<plan::Placement> placements;

  explicit Pipe(int micro_batches) {
    schedule.spec.mesh.pipeline = 2;
    schedule.spec.shape.batch = micro_batches;
    schedule.classes = {sender(micro_batches), receiver(micro_batches)};
    for (const plan::RankClass& c : schedule.classes) placements.push_back(plan::place(c));
  }

  static plan::RankClass common(int stage) {
    plan::RankClass c;
    c.stage = plan::StageId(stage);
    c.count = 1;
    c.representative = stage;
    c.buffers = {{"ones", plan::Purpose::parameters, DType::fp32, 4, true, false},
                 {"x", plan::Purpose::activations, DType::fp32, 4, false, true},
                 {"sum", plan::Purpose::scalars, DType::fp32, 4, true, false}};
    c.views = {{kOnes, 0, 4}, {kX, 0, 4}, {kSum, 0, 4}};
    return c;
  }
  static plan::RankClass sender(int micro_batches) {
    plan::RankClass c = common(0);
    plan::Step make, send;
    make.ops = {flat(OpKind::fill_zero, 4, {}, {1}), flat(OpKind::accumulate_into, 4, {0}, {1}),
                flat(OpKind::accumulate_into, 4, {0}, {0})};
    make.reads = {kOnes};
    make.writes = {kOnes, kX};
    make.births = {kX};
    send.kind = plan::StepKind::send;
    send.stream = plan::Stream::pipeline_send;
    send.peer = 1;
    send.tag = 3;
    send.source = {kX, 0, 4};
    send.reads = {kX};
    send.deaths = {kX};
    c.blocks = {{"forward", {make, send}}};
    for (int i = 0; i < micro_batches; ++i) c.program.push_back({0, i});
    return c;
  }
  static plan::RankClass receiver(int micro_batches) {
    plan::RankClass c = common(1);
    plan::Step receive, add;
    receive.kind = plan::StepKind::recv;
    receive.stream = plan::Stream::pipeline_recv;
    receive.peer = -1;
    receive.tag = 3;
    receive.target = {kX, 0, 4};
    receive.writes = {kX};
    receive.births = {kX};
    add.ops = {flat(OpKind::accumulate_into, 4, {1}, {2})};
    add.reads = {kX, kSum};
    add.writes = {kSum};
    add.deaths = {kX};
    c.blocks = {{"forward", {receive, add}}};
    for (int i = 0; i < micro_batches; ++i) c.program.push_back({0, i});
    return c;
  }
};

TEST(Executor, CarriesEveryMicroBatchThroughAPipeline) {
  const Pipe pipe(4);
  ThreadWorld world(2);
  const Waiter waiter(wait_policy(8, 1, std::chrono::seconds(60)));
  testing::in_threads(
      2,
      [&](int rank) {
        const auto transport = world.transport(rank);
        const auto backend = make_cpu_backend(1);
        Executor executor(pipe.schedule, pipe.placements[static_cast<std::size_t>(rank)], *backend, *transport, waiter,
                          {Arena::Check::overlaps_and_poison, true, Communication::Progress::inlined, 10});
        const std::vector<float> ones = {1, 1, 1, 1}, zeros(4);
        backend->copy_to_device(executor.arena().data(kOnes, -1), std::as_bytes(std::span(ones)));
        backend->copy_to_device(executor.arena().data(kSum, -1), std::as_bytes(std::span(zeros)));
        executor.run_step({});
        EXPECT_EQ(executor.spans().size(), 8U);
        for (const RawSpan& span : executor.spans()) EXPECT_LE(span.ready, span.end);
        for (const OperatorRecord& one : executor.operators()) {
          EXPECT_EQ(one.count, 4) << "each operator ran once a micro-batch";
          EXPECT_GE(one.seconds, 0);
        }
        EXPECT_FALSE(executor.operators().empty());
        if (rank == 1) {  // 1 + 2 + 4 + 8: each micro-batch carries its own value, whatever was reused meanwhile
          std::vector<float> sum(4);
          backend->copy_to_host(std::as_writable_bytes(std::span(sum)), executor.arena().data(kSum, -1));
          EXPECT_EQ(sum, std::vector<float>(4, 15));
        }
      },
      [&](const std::string& why) { world.abort(why); });
}

// To a loss, -1 is a row that predicts nothing; only the executor itself may say so.
TEST(Executor, RefusesIdsOutsideTheVocabularyForEveryBackend) {
  const testing::Trial trial = testing::golden_trial("constant");
  const plan::Plan plan = testing::plan_of(trial);
  const plan::Schedule schedule = plan::lower(plan, {.forward_only = true});
  const plan::Placement placement = plan::place(schedule.classes.front());
  const Waiter waiter(wait_policy(1, 1, std::chrono::seconds(60)));
  const auto says = [&](std::int32_t token, std::int32_t target) -> std::string {
    ThreadWorld world(1);
    const auto transport = world.transport(0);
    const auto backend = make_cpu_backend(1);
    Executor executor(schedule, placement, *backend, *transport, waiter, {});
    StepInput input;
    input.load = [&](const Instance&, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
      std::fill(tokens.begin(), tokens.end(), 1), std::fill(targets.begin(), targets.end(), 1);
      tokens[2] = token, targets[3] = target;
    };
    try {
      executor.run_step(input);
    } catch (const Failure& failure) {
      return failure.what();
    }
    return "(taken)";
  };
  EXPECT_EQ(says(1, -1), "target id -1 at position 3 of the batch, but the vocabulary has 64");
  EXPECT_EQ(says(1, 64), "target id 64 at position 3 of the batch, but the vocabulary has 64");
  EXPECT_EQ(says(-1, 1), "token id -1 at position 2 of the batch, but the vocabulary has 64");
  EXPECT_EQ(says(64, 1), "token id 64 at position 2 of the batch, but the vocabulary has 64");
  EXPECT_EQ(says(63, 63), "(taken)");
}

TEST(Executor, NamesTheStepThatAPeerNeverAnswers) {
  const Pipe pipe(1);
  ThreadWorld world(2);
  const Waiter waiter(wait_policy(8, 1, std::chrono::milliseconds(50)));
  const auto transport = world.transport(1);
  const auto backend = make_cpu_backend(1);
  Executor executor(pipe.schedule, pipe.placements[1], *backend, *transport, waiter, {});
  try {
    executor.run_step({});
    FAIL() << "it went on";
  } catch (const Failure& failure) {
    const std::string text = failure.what();
    for (const char* part : {"rank 1: recv from rank 0", "buffer \"x\"", "4 elements", "micro-batch 0", "(forward)"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
}

plan::Bucket bucket() {
  plan::Bucket b;
  b.name = "b";
  b.elements = 100;
  b.shards = 2;
  b.ranges = {{"w", 0, 30, true, true, false, false, {}},
              {"bias", 30, 10, false, true, true, false, {}},
              {"copy", 64, 30, true, false, false, false, {}}};
  return b;
}

TEST(ElementRanges, FollowTheParametersOfTheWholeBucket) {
  const auto ranges = element_ranges(bucket(), 0, 100, 4);
  ASSERT_EQ(ranges.size(), 3U);
  EXPECT_EQ(ranges[0].end, 30);
  EXPECT_TRUE(ranges[0].decay);
  EXPECT_EQ(ranges[0].norm_weight, 1);
  EXPECT_EQ(ranges[1].norm_weight, 0.25) << "equal on four tensor ranks";
  EXPECT_FALSE(ranges[1].decay);
  EXPECT_EQ(ranges[2].begin, 64);
  EXPECT_EQ(ranges[2].norm_weight, 0) << "counted where the first copy is";
}

TEST(ElementRanges, AreCutAndShiftedToAShard) {
  const auto ranges = element_ranges(bucket(), 35, 35, 1);
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[0].begin, 0);
  EXPECT_EQ(ranges[0].end, 5);
  EXPECT_EQ(ranges[1].begin, 29);
  EXPECT_EQ(ranges[1].end, 35);
}

TEST(ElementRanges, OfPaddingAreOneEmptyRangeAndNotNone) {
  const auto ranges = element_ranges(bucket(), 95, 5, 1);
  ASSERT_EQ(ranges.size(), 1U);
  EXPECT_EQ(ranges[0].begin, ranges[0].end);
}

}  // namespace execute_test
}  // namespace orrery::exec

// How operators and messages are sampled: on a backend whose clock only moves when an operator says so, on the real
// one, between threads, and through a worker that is a shell script.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "exec/engine/thread_transport.h"
#include "exec/probe/measure.h"
#include "exec/probe/run_probe.h"
#include "models/operators/fp8.h"

namespace orrery::exec {
namespace probe_measure_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// Runs nothing; each operator moves the clock by its elements in nanoseconds, and by more on chosen calls.
class FakeBackend : public Backend {
 public:
  std::string name() const override { return "fake"; }
  std::string device_name() const override { return "a clock"; }
  std::byte* allocate_arena(std::int64_t bytes) override {
    return arenas_.emplace_back(new std::byte[static_cast<std::size_t>(std::max<std::int64_t>(1, bytes))]).get();
  }
  void copy_to_device(std::byte* to, std::span<const std::byte> host) override {
    std::copy(host.begin(), host.end(), to);
  }
  void copy_to_host(std::span<std::byte> host, const std::byte* from) override {
    std::copy(from, from + host.size(), host.begin());
  }
  void run(const models::Op& op, std::span<const Operand> in, std::span<const Operand> out,
           std::span<const ElementRange>, const StepContext&) override {
    for (const auto& side : {in, out})
      for (const Operand& operand : side) absent_ += operand.data == nullptr ? 1 : 0;
    clock_ += op.m + (++calls_ == slow_call ? 1000000 : 0);
  }
  void synchronise() override {}
  Mark mark() override { return clock_; }
  double seconds_between(Mark from, Mark to) override { return static_cast<double>(to - from) * 1e-9; }

  int slow_call = -1;
  int absent_ = 0;

 private:
  std::vector<std::unique_ptr<std::byte[]>> arenas_;
  Mark clock_ = 0;
  int calls_ = 0;
};

Workload two_copies_and_a_clear() {
  Workload w;
  w.name = "test";
  w.buffers = {{100}, {100}, {7}};
  w.views = {{0, 0, 100}, {1, 0, 100}, {2, 0, 7}};
  models::Op copy;
  copy.kind = models::OpKind::copy;
  copy.m = 100;
  copy.in = {0};
  copy.out = {1};
  models::Op clear;
  clear.kind = models::OpKind::fill_zero;
  clear.m = 7;
  clear.out = {2};
  w.ops = {copy, clear, copy};
  return w;
}

TEST(OpTimer, OneSlowPassDoesNotCountAndEqualOperatorsAreOne) {
  const Workload w = two_copies_and_a_clear();
  FakeBackend backend;
  LoadedWorkload loaded(w, backend);
  loaded.fill();
  backend.slow_call = 4;  // the first copy of the second pass: a neighbour on the machine
  std::vector<std::vector<double>> samples;
  for (int pass = 0; pass < 3; ++pass) loaded.pass(&samples);
  const std::vector<OpTime> times = summarise(w, samples);
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0].count, 2);
  EXPECT_NEAR(times[0].seconds, 100e-9, 1e-15);
  EXPECT_EQ(times[1].count, 1);
  EXPECT_NEAR(times[1].seconds, 7e-9, 1e-15);
}

TEST(OpTimer, OperandsThatDifferInPresenceAreDifferentOperators) {
  Workload w = two_copies_and_a_clear();
  w.ops[2].in.push_back(-1);
  w.ops.push_back(w.ops[2]);
  w.ops[3].in[1] = 0;
  EXPECT_EQ(summarise(w, {{1e-6}, {1e-6}, {1e-6}, {2e-6}}).size(), 3U);
}

/// Every operand of every operator lies in its buffer, and no view reaches beyond.
void expect_sound(const Workload& w) {
  SCOPED_TRACE(w.name);
  for (const Workload::View& v : w.views) {
    const Workload::Buffer& b = w.buffers.at(static_cast<std::size_t>(v.buffer));
    EXPECT_GE(v.offset, 0);
    EXPECT_LE(v.offset + v.elements, b.elements);
  }
  for (const models::Op& op : w.ops) {
    for (const std::vector<int>* side : {&op.in, &op.out})
      for (const int operand : *side) EXPECT_LT(operand, static_cast<int>(w.views.size()));
  }
}

TEST(Workloads, AreSoundAndCoverWhatTrainingRuns) {
  std::set<models::OpKind> kinds;
  std::set<std::pair<bool, bool>> transposes;
  for (const Workload& w : standard_workloads(std::int64_t{1} << 40)) {
    expect_sound(w);
    for (const models::Op& op : w.ops) {
      kinds.insert(op.kind);
      if (op.kind == models::OpKind::matmul) transposes.insert({op.trans_a, op.trans_b});
    }
  }
  using K = models::OpKind;
  for (const K kind : {K::embedding,          K::position_add,     K::embedding_grad, K::position_grad,
                       K::layer_norm,         K::layer_norm_grad,  K::matmul,         K::bias_grad,
                       K::attention,          K::attention_grad,   K::gelu,           K::gelu_grad,
                       K::add_bias,           K::softmax_max,      K::softmax_sum,    K::cross_entropy,
                       K::cross_entropy_grad, K::fill_zero,        K::copy,           K::accumulate_into,
                       K::norm_squared,       K::clip_coefficient, K::adamw})
    EXPECT_TRUE(kinds.count(kind)) << models::name_of(kind);
  EXPECT_EQ(transposes, (std::set<std::pair<bool, bool>>{{false, false}, {false, true}, {true, false}}));
}

TEST(Workloads, OfAGpuAreSoundAndCoverItsTypesInAQuarterOfAnH200) {
  std::set<std::pair<models::DType, bool>> products;
  std::set<models::DType> attention;
  const auto all = standard_workloads(std::int64_t{4} << 30, ProbedDevice::gpu);
  std::int64_t bytes = 0;
  for (const Workload& w : all) {
    expect_sound(w);
    bytes += w.bytes();
    for (const models::Op& op : w.ops) {
      if (op.kind == models::OpKind::matmul) products.insert({op.dtype, op.rounded});
      if (op.kind == models::OpKind::attention_grad) attention.insert(op.dtype);
    }
  }
  using D = models::DType;
  EXPECT_EQ(products, (std::set<std::pair<D, bool>>{
                          {D::fp32, false}, {D::fp32, true}, {D::bf16, false}, {D::bf16, true}, {D::fp16, false}}));
  for (const Workload& w : standard_workloads(std::int64_t{4} << 30, ProbedDevice::gpu, false))
    for (const models::Op& op : w.ops) EXPECT_FALSE(models::is_fp8_product(op)) << "a GPU without";
  EXPECT_EQ(attention, (std::set<D>{D::fp32, D::bf16, D::fp16}));
  EXPECT_LE(bytes, std::int64_t{32} << 30) << "all are loaded at once";
  std::int64_t in_little = 0;
  for (const Workload& w : standard_workloads(std::int64_t{1} << 30, ProbedDevice::gpu)) in_little += w.bytes();
  EXPECT_LE(in_little, std::int64_t{12} << 30) << "a GPU of 16 GB, of which a workload has a sixteenth at most";
}

TEST(Workloads, LeaveOutWhatDoesNotFit) {
  constexpr std::int64_t most = 4 << 20;
  const auto small = standard_workloads(most);
  EXPECT_FALSE(small.empty());
  for (const Workload& w : small) EXPECT_LE(w.bytes(), most);
  EXPECT_LT(small.size(), standard_workloads(std::int64_t{1} << 40).size());
}

TEST(Workloads, RunOnTheRealBackendAndGiveFiniteLosses) {
  const auto backend = make_cpu_backend(1);
  for (const auto& [tensor, dtype] : {std::pair{1, models::DType::fp32},
                                      {2, models::DType::fp32},
                                      {1, models::DType::bf16},
                                      {1, models::DType::fp16}}) {
    SCOPED_TRACE(models::name_of(dtype));
    const Workload w = layers_workload({2, 32, 2, 256, 2, 8, tensor, dtype});
    LoadedWorkload loaded(w, *backend);
    loaded.fill();
    std::vector<std::vector<double>> samples;
    for (int pass = 0; pass < 3; ++pass) loaded.pass(&samples);
    for (const OpTime& one : summarise(w, samples)) {
      EXPECT_GT(one.seconds, 0) << models::name_of(one.op.kind);
      EXPECT_LT(one.seconds, 1) << models::name_of(one.op.kind);
    }
    EXPECT_TRUE(std::isfinite(loaded.value_of("cross_entropy")));
    EXPECT_GT(loaded.value_of("cross_entropy"), 1);
    EXPECT_TRUE(std::isfinite(loaded.value_of("clip_coefficient")));
  }
}

TEST(Messages, LastFromWhenTheLastIsReadyToWhenTheLastIsDone) {
  // Rank 1 comes late to the first, rank 0 leaves late from the second; the third was disturbed.
  EXPECT_NEAR(message_seconds({{{100, 400}, {1000, 1500}, {2000, 9000}}, {{300, 390}, {1100, 1400}, {2000, 2200}}}),
              400e-9, 1e-15);
  EXPECT_EQ(message_seconds({}), 0);
  EXPECT_NEAR(message_seconds({{{100, 400}}, {{120, 390}}, {{0, 0}}}), 280e-9, 1e-15) << "rank 2 took no part";
}

TEST(Messages, CoverTwoRanksUpToAllAndSizesUpToTheMost) {
  std::set<int> ranks;
  std::int64_t largest = 0;
  for (const MessageCase& one : standard_messages(6, 1 << 20)) {
    ranks.insert(one.ranks);
    largest = std::max(largest, one.bytes);
  }
  EXPECT_EQ(ranks, (std::set<int>{2, 4, 6}));
  EXPECT_EQ(largest, 1 << 20);
  EXPECT_TRUE(standard_messages(1, 1 << 20).empty());
}

TEST(RunProbe, MeasuresOperatorsMemoryAndMessagesOnEveryRank) {
  constexpr int kRanks = 3;
  ThreadWorld world(kRanks);
  const std::vector<Workload> workloads = {layers_workload({1, 32, 2, 256, 1, 8, 1, models::DType::bf16}),
                                           streams_workload(4096, 2)};
  const std::vector<MessageCase> messages = standard_messages(kRanks, 4096);
  Measured measured;
  std::vector<std::string> lines;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      const auto backend = make_cpu_backend(1);
      const auto transport = world.transport(rank);
      const Waiter waiter(wait_policy(kRanks, 1, std::chrono::seconds(60)));
      ProbeOptions options;
      options.budget_s = 0.01;
      options.stream_bytes = 4096;
      options.most_bytes = 1 << 20;
      options.rounds = 1;
      options.message_samples = 2;
      if (rank == 0) options.report = [&](const std::string& line) { lines.push_back(line); };
      Measured mine = run_probe(workloads, messages, *backend, *transport, waiter, options);
      if (rank == 0) measured = std::move(mine);
    });
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(measured.workloads.size(), 2U);
  for (const WorkloadTimes& w : measured.workloads) {
    EXPECT_GT(w.pass_s, 0);
    EXPECT_GT(w.pass_together_s, 0);
    EXPECT_FALSE(w.ops.empty());
  }
  EXPECT_EQ(measured.messages.size(), messages.size());
  for (const MessageTime& one : measured.messages) EXPECT_GT(one.seconds, 0) << name_of(one.at.kind) << one.at.bytes;
  EXPECT_EQ(measured.streams.size(), 8U) << "four operations, alone and together";
  EXPECT_EQ(measured.ranks, kRanks);
  ASSERT_EQ(measured.copies.size(), 4U) << "64 and 256 KiB, a quarter of the memory at most, there and back";
  for (const CopyTime& one : measured.copies) {
    EXPECT_EQ(one.ranks, kRanks);
    EXPECT_GT(one.seconds, 0);
  }

  // What was reported line by line is what was measured.
  std::string text = "something else that was printed\n";
  for (const std::string& line : lines) text += line + "\n";
  const MeasureOutcome again = read_measurement(text);
  EXPECT_EQ(again.end, MeasureEnd::completed);
  EXPECT_EQ(read_measurement(text.substr(0, text.size() / 2)).end, MeasureEnd::failed);
  const Measured& read = again.measured;
  EXPECT_EQ(read.copies.size(), measured.copies.size());
  ASSERT_EQ(read.workloads.size(), 2U);
  ASSERT_EQ(read.workloads[0].ops.size(), measured.workloads[0].ops.size());
  for (std::size_t i = 0; i < read.workloads[0].ops.size(); ++i) {
    EXPECT_EQ(read.workloads[0].ops[i].op.kind, measured.workloads[0].ops[i].op.kind);
    EXPECT_EQ(read.workloads[0].ops[i].op.dtype, measured.workloads[0].ops[i].op.dtype);
    EXPECT_EQ(models::bytes_of(read.workloads[0].ops[i].op), models::bytes_of(measured.workloads[0].ops[i].op));
    EXPECT_EQ(models::flops_of(read.workloads[0].ops[i].op), models::flops_of(measured.workloads[0].ops[i].op));
    EXPECT_EQ(read.workloads[0].ops[i].seconds, measured.workloads[0].ops[i].seconds);
  }
  EXPECT_EQ(read.messages.size(), measured.messages.size());
  EXPECT_EQ(read.streams.size(), measured.streams.size());
  EXPECT_EQ(read.device, measured.device);
}

TEST(Events, WhatIsMalformedIsPassedOver) {
  Measured into;
  for (const char* text :
       {R"({"event": "workload"})", R"({"event": "message", "operation": "shout"})", R"({"event": 3})",
        R"({"event": "workload", "name": "x", "pass_s": 1, "pass_together_s": 0,
                               "ops": [{"kind": "no such", "count": 1, "seconds": 1, "in": [], "out": []}]})",
        R"([])", R"({"event": "end"})"})
    EXPECT_FALSE(take_event(nlohmann::json::parse(text), into)) << text;
  EXPECT_TRUE(into.workloads.empty());
  EXPECT_TRUE(into.messages.empty());
}

class Measuring : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "orrery-measure-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    std::ofstream(folder_ / "worker") << "";
  }
  void TearDown() override { fs::remove_all(folder_); }
  /// A launcher that does what `script` says, whatever it is to launch.
  [[nodiscard]] MeasureCommand command(const std::string& script) const {
    std::ofstream(folder_ / "launcher") << "#!/bin/sh\n" << script << "\n";
    fs::permissions(folder_ / "launcher", fs::perms::owner_all);
    MeasureCommand out;
    out.launcher = (folder_ / "launcher").string();
    out.worker = folder_ / "worker";
    out.ranks = 2;
    return out;
  }
  fs::path folder_;
};

constexpr const char* kEnd =
    R"(echo '{"event":"end","device":"d","backend":"cpu","ranks":2,"threads":1,"oversubscribed":false,"seconds":1}')";

TEST_F(Measuring, IsWholeOnlyWithItsLastLine) {
  std::vector<std::string> seen;
  const auto note = [&](const std::string& what, double) { seen.push_back(what); };
  const std::string progress = "echo '{\"event\":\"progress\",\"what\":\"memory\",\"share\":0.5}'\n";
  EXPECT_EQ(measure(command(progress + kEnd), note, nullptr).end, MeasureEnd::completed);
  EXPECT_EQ(seen, std::vector<std::string>{"memory"});
  const MeasureOutcome cut = measure(command(progress + "echo oops >&2"), note, nullptr);
  EXPECT_EQ(cut.end, MeasureEnd::failed);
  EXPECT_THAT(cut.error_tail, HasSubstr("oops"));
  EXPECT_EQ(measure(command(kEnd + std::string("\nexit 9")), {}, nullptr).end, MeasureEnd::failed);
}

TEST_F(Measuring, StopsOnRequestAndWhenNobodySpeaks) {
  const std::atomic<bool> stop{true};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(measure(command("exec sleep 60"), {}, &stop).end, MeasureEnd::stopped);
  MeasureCommand silent = command("exec sleep 60");
  silent.silence = std::chrono::seconds(1);
  const MeasureOutcome outcome = measure(silent, {}, nullptr);
  EXPECT_EQ(outcome.end, MeasureEnd::failed);
  EXPECT_THAT(outcome.reason, HasSubstr("said nothing"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST_F(Measuring, SaysWhatIsMissing) {
  MeasureCommand without = command(kEnd);
  without.worker = folder_ / "nowhere";
  EXPECT_EQ(measure(without, {}, nullptr).end, MeasureEnd::not_started);
  without = command(kEnd);
  without.launcher = (folder_ / "no-launcher").string();
  EXPECT_EQ(measure(without, {}, nullptr).end, MeasureEnd::not_started);
}

}  // namespace probe_measure_test
}  // namespace orrery::exec

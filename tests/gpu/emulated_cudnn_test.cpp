// Attention by cuDNN's graphs, computed plainly by the emulation: what the graphs say is the operator, forward and
// backward; what there is no kernel for, or none that repeats, is left to the own kernels; the workspace is bounded.
// Where nothing need repeat, backward adds dq up in memory, if there is a kernel for that.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <set>

#include "exec/cuda/backend.h"
#include "tests/gpu/emulated_training.h"
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace emulated_cudnn_test {

using models::OpKind;

constexpr std::int64_t kArenaBytes = std::int64_t{16} << 20;

/// Of what cuDNN's graph has: no caps, slopes, windows and scales of a model's own.
bool is_plain(const models::Op& op) {
  return op.cap == 0 && op.alibi_heads == 0 && op.window == 0 && op.score_scale == 0;
}

class EmulatedCudnn : public ::testing::Test {
 protected:
  void SetUp() override {
    open();
    host_ = cpu_->allocate_arena(kArenaBytes);
    emulation::cudnn_kernels() = {};
  }
  void TearDown() override {
    backend_.reset();
    emulation::cudnn_kernels() = {};
  }

  void open(bool repeat = true) {
    backend_.reset();
    setenv("ORRERY_CUDNN", "emulated", 1);
    backend_ = std::make_unique<cuda::CudaBackend>(0, nullptr, cuda::Products::Options{.plan_file = {}}, repeat);
    unsetenv("ORRERY_CUDNN");
    device_ = backend_->allocate_arena(kArenaBytes);
  }
  [[nodiscard]] KernelChoice choice_of(const std::string& op) const {
    KernelChoice found;
    for (const KernelChoice& choice : backend_->kernel_choices())
      if (choice.op == op) found = choice;
    return found;
  }
  /// Those that cuDNN's backward is for.
  const std::vector<Case>& gradients() {
    if (gradients_.empty())
      for (Case& c : cases())
        if (c.op.kind == OpKind::attention_grad && c.op.head_dim % 8 == 0 && c.op.dropout <= 0)
          gradients_.push_back(std::move(c));
    return gradients_;
  }

  /// Flash attention in 16 bits; backward reads what forward made on the CPU.
  std::vector<Case> cases() {
    const std::vector<Case> all = all_cases();
    std::vector<Case> out;
    for (const Case& c : all) {
      if (c.op.dtype == models::DType::fp32 || !c.op.flash || !is_plain(c.op)) continue;
      if (c.op.kind == OpKind::attention) out.push_back(c);
      if (c.op.kind != OpKind::attention_grad) continue;
      std::string forward = c.name;
      forward.erase(forward.find("_grad"), std::strlen("_grad"));
      for (const Case& other : all) {
        if (other.name != forward) continue;
        const auto values = run_on(*cpu_, host_, other);
        out.push_back(c);
        out.back().in[2].floats = values[1];
        out.back().in[3].floats = values[2];
      }
    }
    return out;
  }
  void expect_as_on_the_cpu(const Case& c) {
    SCOPED_TRACE(c.name);
    const auto expected = run_on(*cpu_, host_, c);
    const auto got = run_on(*backend_, device_, c);
    for (std::size_t i = c.in.size(); i < got.size(); ++i)
      EXPECT_LE(relative_difference(got[i], expected[i]), c.tolerance) << "operand " << i;
  }

  std::unique_ptr<Backend> cpu_ = make_cpu_backend(1);
  std::unique_ptr<cuda::CudaBackend> backend_;
  std::byte *device_ = nullptr, *host_ = nullptr;
  std::vector<Case> gradients_;
};

TEST_F(EmulatedCudnn, ComputesAttentionAndItsGradientAsTheCpuBackend) {
  int by_cudnn = 0, by_own = 0;
  for (const Case& c : cases()) {
    const std::int64_t before = emulation::cudnn_executions();
    expect_as_on_the_cpu(c);
    const bool taken = emulation::cudnn_executions() > before;
    EXPECT_EQ(taken, c.op.head_dim % 8 == 0 && c.op.dropout <= 0) << c.name;
    ++(taken ? by_cudnn : by_own);
  }
  EXPECT_GE(by_cudnn, 20);
  EXPECT_GE(by_own, 4) << "heads 20 and 100 wide";
}

TEST_F(EmulatedCudnn, LeavesCapsWindowsSlopesAndOwnScalesToOwnKernels) {
  int left = 0;
  for (const Case& c : all_cases()) {
    if (c.op.kind != OpKind::attention || c.op.dtype == models::DType::fp32 || !c.op.flash || is_plain(c.op)) continue;
    const std::int64_t before = emulation::cudnn_executions();
    expect_as_on_the_cpu(c);
    EXPECT_EQ(emulation::cudnn_executions(), before) << c.name;
    EXPECT_NE(choice_of("attention").reason.find("windows"), std::string::npos) << choice_of("attention").reason;
    ++left;
  }
  EXPECT_GE(left, 4);
}

TEST_F(EmulatedCudnn, TakesSoManySequencesAtATimeAsTheWorkspaceIsFor) {
  constexpr std::int64_t kHalf = std::int64_t{64} << 20;
  for (const std::int64_t each : {kHalf - (1 << 20), kHalf + 1, 3 * kHalf}) {
    emulation::cudnn_kernels().workspace_for_each = each;
    open();
    for (const Case& c : cases()) {
      if (c.op.batch != 2 || c.op.head_dim % 8 != 0 || c.op.dropout > 0) continue;
      const std::int64_t before = emulation::cudnn_executions();
      expect_as_on_the_cpu(c);
      const std::int64_t expected = each < kHalf ? 1 : each < 2 * kHalf ? 2 : 0;
      EXPECT_EQ(emulation::cudnn_executions() - before, expected) << c.name;
    }
    EXPECT_LE(backend_->outside_arena_bytes(), std::int64_t{162} << 20);
  }
}

// Of long sequences one alone is too many.
TEST_F(EmulatedCudnn, TakesSoManyHeadsAtATimeAsTheWorkspaceIsFor) {
  constexpr std::int64_t kMost = std::int64_t{128} << 20, kRoom = std::int64_t{1} << 20;
  for (const bool repeat : {true, false}) {
    int split = 0, left = 0;
    for (const Case& c : gradients()) {
      const std::int64_t sharing = c.op.heads / c.op.kv_heads;
      emulation::cudnn_kernels().workspace_for_head = (kMost - kRoom) / sharing;
      open(repeat);
      const std::int64_t before = emulation::cudnn_executions();
      expect_as_on_the_cpu(c);
      const bool aligned = c.op.kv_heads == 1 || sharing * c.op.sequence % 4 == 0;
      EXPECT_EQ(emulation::cudnn_executions() - before, aligned ? c.op.batch * c.op.kv_heads : 0) << c.name;
      split += aligned && c.op.kv_heads > 1 ? 1 : 0;
      left += aligned ? 0 : 1;
    }
    EXPECT_GE(split, 2);
    EXPECT_GE(left, 2) << "statistics of such groups do not begin at 16 bytes";
  }
}

TEST_F(EmulatedCudnn, TakesAsMuchWorkspaceAsTheDeviceHasAShareFor) {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20, kGiB = std::int64_t{1} << 30;
  EXPECT_EQ(cuda::attention_workspace(0), 128 * kMiB);
  EXPECT_EQ(cuda::attention_workspace(8 * kGiB), 128 * kMiB);
  EXPECT_EQ(cuda::attention_workspace(24 * kGiB), 384 * kMiB);
  EXPECT_EQ(cuda::attention_workspace(80 * kGiB), 1280 * kMiB);
  EXPECT_EQ(cuda::attention_workspace(141 * kGiB), 2 * kGiB);
  emulation::cudnn_kernels().workspace_for_each = 100 * kMiB;
  struct Device {
    std::int64_t memory, left, at_a_time;
  };
  for (const Device& device : {Device{8 * kGiB, kGiB, 1}, {16 * kGiB, kGiB, 2}, {16 * kGiB, 150 * kMiB, 1}}) {
    emulation::memory_of_device() = {static_cast<std::size_t>(device.memory), static_cast<std::size_t>(device.left)};
    open();
    for (const Case& c : cases()) {
      if (c.op.batch != 2 || c.op.head_dim % 8 != 0 || c.op.dropout > 0) continue;
      const std::int64_t before = emulation::cudnn_executions();
      expect_as_on_the_cpu(c);
      EXPECT_EQ(emulation::cudnn_executions() - before, 2 / device.at_a_time) << c.name;
      break;
    }
    EXPECT_GE(backend_->outside_arena_bytes(), device.at_a_time * 100 * kMiB);
    EXPECT_LE(backend_->outside_arena_bytes(), device.at_a_time * 128 * kMiB + 34 * kMiB);
    emulation::memory_of_device() = {};
  }
}

// What a plan leaves free counts on it.
TEST_F(EmulatedCudnn, HasTheShareThatMemoryIsPredictedWith) {
  std::ifstream file(std::string(ORRERY_SOURCE_DIR) + "/cost/stacks/orrery-cuda.yaml");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto behind = [&](const std::string& name) {
    const std::size_t at = text.find(name + ": {value: ");
    return at == std::string::npos ? std::string() : text.substr(at + name.size() + std::strlen(": {value: "));
  };
  constexpr std::int64_t kDevice = std::int64_t{80} << 30;
  EXPECT_EQ(std::stod(behind("stack.workspace_share")) * static_cast<double>(kDevice),
            static_cast<double>(cuda::attention_workspace(kDevice)));
  EXPECT_TRUE(behind("stack.workspace_most").starts_with("2 GiB"));
  EXPECT_EQ(cuda::attention_workspace(10 * kDevice), std::int64_t{2} << 30);
}

/// Blocks of a ring in 16 bits, of those that every rank has, without dropout.
std::vector<Case> blocks() {
  std::vector<Case> out;
  for (Case& c : all_cases())
    if ((c.op.kind == OpKind::ring_attention || c.op.kind == OpKind::ring_attention_grad) &&
        c.op.dtype != models::DType::fp32 && c.op.dropout <= 0 && is_plain(c.op))
      out.push_back(std::move(c));
  return out;
}

// Own blocks, an earlier rank's of which half the keys count, a later one's that half the queries see; the first of a
// pass, and those that are merged with what is there.
TEST_F(EmulatedCudnn, ComputesBlocksOfARingAndMergesThem) {
  int taken = 0;
  for (const bool repeat : {true, false}) {
    open(repeat);
    for (const Case& c : blocks()) {
      const std::int64_t before = emulation::cudnn_executions();
      expect_as_on_the_cpu(c);
      EXPECT_EQ(emulation::cudnn_executions() - before, c.op.head_dim % 8 == 0 ? 1 : 0) << c.name;
      taken += c.op.head_dim % 8 == 0 ? 1 : 0;
    }
  }
  EXPECT_EQ(taken, 2 * 2 * 2 * 6) << "ways, types, passes, blocks";
  std::string kernels;
  for (const KernelChoice& choice : backend_->kernel_choices()) kernels += choice.op + ": " + choice.kernel + "\n";
  EXPECT_NE(kernels.find("ring_attention: cuDNN "), std::string::npos) << kernels;
  EXPECT_NE(kernels.find("ring_attention_grad: cuDNN 9.19.0, sums in any order"), std::string::npos) << kernels;
}

// One sequence, and one group of heads, at a time: what is merged begins elsewhere each time.
TEST_F(EmulatedCudnn, MergesBlocksPartByPart) {
  constexpr std::int64_t kMost = std::int64_t{128} << 20, kRoom = std::int64_t{1} << 20;
  for (const bool by_heads : {false, true}) {
    int seen = 0;
    for (const Case& c : blocks()) {
      if (c.op.head_dim % 8 != 0 || c.op.ring_step == 0) continue;
      const std::int64_t sharing = c.op.heads / c.op.kv_heads;
      emulation::cudnn_kernels() = {};
      if (by_heads)
        emulation::cudnn_kernels().workspace_for_head = (kMost - kRoom) / sharing;
      else
        emulation::cudnn_kernels().workspace_for_each = kMost - kRoom;
      open();
      const std::int64_t before = emulation::cudnn_executions();
      expect_as_on_the_cpu(c);
      EXPECT_EQ(emulation::cudnn_executions() - before, c.op.batch * (by_heads ? c.op.kv_heads : 1)) << c.name;
      ++seen;
    }
    EXPECT_GE(seen, 16);
  }
}

TEST_F(EmulatedCudnn, LeavesBlocksThatItHasNoKernelForToTheOwn) {
  emulation::cudnn_kernels().repeat = false;
  const std::int64_t before = emulation::cudnn_executions();
  for (const Case& c : blocks())
    if (c.op.head_dim % 8 == 0 && c.op.ring_step < 2) expect_as_on_the_cpu(c);
  EXPECT_EQ(emulation::cudnn_executions(), before);
}

// Which kernels have run, and why not cuDNN's, is told once each.
TEST_F(EmulatedCudnn, StandsAsideForDropoutAndSaysSo) {
  for (const Case& c : all_cases()) {
    if (c.name != "bf16_attention_dropped_causal_flash_72") continue;
    const std::int64_t before = emulation::cudnn_executions();
    expect_as_on_the_cpu(c);
    expect_as_on_the_cpu(c);
    EXPECT_EQ(emulation::cudnn_executions(), before);
    ASSERT_EQ(backend_->kernel_choices().size(), 1U);
    EXPECT_EQ(choice_of("attention").kernel, "own, tensor cores");
    EXPECT_NE(choice_of("attention").reason.find("masks"), std::string::npos) << choice_of("attention").reason;
  }
  for (const Case& c : cases()) {
    if (c.op.dropout > 0 || c.op.head_dim != 20) continue;
    expect_as_on_the_cpu(c);
    EXPECT_EQ(choice_of("attention_grad").kernel, c.op.kind == OpKind::attention ? "" : "own, fp32 cores");
    if (c.op.kind == OpKind::attention_grad) break;
  }
  EXPECT_FALSE(choice_of("attention_grad").reason.empty());
  for (const Case& c : cases())
    if (c.name == "bf16_attention_causal_flash_tiles") expect_as_on_the_cpu(c);
  bool by_cudnn = false;
  for (const KernelChoice& choice : backend_->kernel_choices())
    by_cudnn = by_cudnn || (choice.kernel.starts_with("cuDNN ") && choice.reason.empty());
  EXPECT_TRUE(by_cudnn);
  EXPECT_EQ(backend_->scratch_bytes(), backend_->outside_arena_bytes());
}

TEST_F(EmulatedCudnn, LeavesWhatDoesNotRepeatToTheOwnKernels) {
  emulation::cudnn_kernels().repeat = false;
  const std::int64_t before = emulation::cudnn_executions();
  for (const Case& c : cases())
    if (c.op.head_dim == 64) expect_as_on_the_cpu(c);
  EXPECT_EQ(emulation::cudnn_executions(), before);
}

TEST_F(EmulatedCudnn, RepeatsBitByBitUnlessToldThatItNeedNot) {
  const std::int64_t before = emulation::cudnn_atomic_executions();
  for (const Case& c : gradients()) (void)run_on(*backend_, device_, c);
  EXPECT_EQ(emulation::cudnn_atomic_executions(), before);
  EXPECT_NE(choice_of("attention_grad").kernel.find("repeats bit by bit"), std::string::npos);
  EXPECT_NE(choice_of("attention_grad").reason.find("--no-repeat"), std::string::npos);
}

// Also what cuDNN before 9.6 does, which adds to what the memory holds: each case runs twice, the second time over the
// sums of the first.
TEST_F(EmulatedCudnn, AddsUpTheGradientOfQueriesInMemoryWhereNothingNeedRepeat) {
  constexpr std::size_t kOld = 90500, kNew = 91900;
  std::vector<std::vector<std::vector<float>>> repeatable;
  for (const Case& c : gradients()) repeatable.push_back(run_on(*backend_, device_, c));
  for (const std::size_t version : {kNew, kOld}) {
    emulation::cudnn_kernels().version = version;
    open(false);
    int causal = 0, grouped = 0, several = 0;
    std::size_t i = 0;
    for (const Case& c : gradients()) {
      SCOPED_TRACE(c.name);
      const std::int64_t before = emulation::cudnn_atomic_executions();
      expect_as_on_the_cpu(c);
      const auto got = run_on(*backend_, device_, c);
      EXPECT_EQ(emulation::cudnn_atomic_executions(), before + 2);
      for (std::size_t k = c.in.size(); k < got.size(); ++k)
        EXPECT_LE(relative_difference(got[k], repeatable[i][k]), c.tolerance);
      causal += c.op.causal ? 1 : 0;
      grouped += c.op.kv_heads != c.op.heads ? 1 : 0;
      several += c.op.batch > 1 ? 1 : 0;
      ++i;
    }
    EXPECT_GE(causal, 2);
    EXPECT_LT(causal, static_cast<int>(i));
    EXPECT_GE(grouped, 2);
    EXPECT_GE(several, 2);
    EXPECT_NE(choice_of("attention_grad").kernel.find("any order"), std::string::npos);
    EXPECT_EQ(choice_of("attention_grad").reason, "");
  }
}

// Of those sums too the workspace has room, beside the kernel's own memory.
TEST_F(EmulatedCudnn, AddsUpForSoManySequencesAtATimeAsTheWorkspaceIsFor) {
  constexpr std::int64_t kHalf = std::int64_t{64} << 20;
  constexpr std::int64_t kShort = kHalf - 128;  // of the sums
  for (const std::int64_t each : {kHalf - (1 << 20), kShort, 3 * kHalf}) {
    emulation::cudnn_kernels().workspace_for_each = each;
    open(false);
    int seen = 0;
    for (const Case& c : gradients()) {
      if (c.op.batch != 2) continue;
      const std::int64_t before = emulation::cudnn_atomic_executions();
      expect_as_on_the_cpu(c);
      const std::int64_t expected = each < kShort ? 1 : each == kShort ? 2 : 0;
      EXPECT_EQ(emulation::cudnn_atomic_executions() - before, expected) << c.name;
      ++seen;
    }
    EXPECT_GE(seen, 2);
    EXPECT_LE(backend_->outside_arena_bytes(), std::int64_t{162} << 20);
  }
}

TEST_F(EmulatedCudnn, RepeatsAllTheSameWhereNoKernelAddsUpInMemory) {
  emulation::cudnn_kernels().atomics = false;
  open(false);
  const std::int64_t before = emulation::cudnn_executions(), atomic = emulation::cudnn_atomic_executions();
  std::int64_t calls = 0;
  for (const Case& c : gradients()) {
    expect_as_on_the_cpu(c);
    ++calls;
  }
  EXPECT_EQ(emulation::cudnn_executions() - before, calls);
  EXPECT_EQ(emulation::cudnn_atomic_executions(), atomic);
  EXPECT_NE(choice_of("attention_grad").kernel.find("repeats bit by bit"), std::string::npos);
  EXPECT_NE(choice_of("attention_grad").reason.find("no kernel"), std::string::npos);

  emulation::cudnn_kernels().repeat = false;  // and none that repeats: the own ones are left
  open(false);
  const std::int64_t again = emulation::cudnn_executions();
  expect_as_on_the_cpu(gradients().front());
  EXPECT_EQ(emulation::cudnn_executions(), again);
  EXPECT_TRUE(choice_of("attention_grad").kernel.starts_with("own")) << choice_of("attention_grad").kernel;
}

// Over two ranks, by graphs from the second step on; what one block leaves in memory another is merged with.
TEST(EmulatedCudnnTraining, OfARingIsNearTheCpuBackend) {
  setenv("ORRERY_CUDNN", "emulated", 1);
  testing::Trial trial = short_trial(3);
  trial.spec.mesh.context = 2;
  trial.spec.numerics.precision = models::DType::bf16;
  const testing::Outcome theirs = testing::train(trial);
  std::mutex lock;
  std::map<std::string, std::set<std::string>> kernels;
  trial.after_step = [&](Backend& backend, std::int64_t) {
    const std::lock_guard guard(lock);
    for (const KernelChoice& choice : backend.kernel_choices())
      kernels[choice.op].insert(choice.kernel.substr(0, choice.kernel.find(' ')));
  };
  const testing::Outcome ours = on_devices(trial);
  unsetenv("ORRERY_CUDNN");
  expect_near(ours, theirs, {2e-3, 2e-2, 3e-2});
  for (const char* op : {"ring_attention", "ring_attention_grad"})
    EXPECT_EQ(kernels[op], std::set<std::string>{"cuDNN"}) << op;
}

}  // namespace emulated_cudnn_test
}  // namespace orrery::exec::gpu_test

// Attention by cuDNN's graphs, computed plainly by the emulation: what the graphs say is the operator, forward and
// backward; what there is no kernel for, or none that repeats, is left to the own kernels; the workspace is bounded.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "exec/cuda/backend.h"
#include "tests/gpu/testing.h"

namespace orrery::exec::gpu_test {
namespace {

using models::OpKind;

constexpr std::int64_t kArenaBytes = std::int64_t{16} << 20;

class EmulatedCudnn : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("ORRERY_CUDNN", "emulated", 1);
    backend_ = std::make_unique<cuda::CudaBackend>(0, nullptr, cuda::Products::Options{.plan_file = {}});
    unsetenv("ORRERY_CUDNN");
    device_ = backend_->allocate_arena(kArenaBytes);
    host_ = cpu_->allocate_arena(kArenaBytes);
    emulation::cudnn_kernels() = {};
  }
  void TearDown() override {
    backend_.reset();
    emulation::cudnn_kernels() = {};
  }

  /// Flash attention in 16 bits; backward reads what forward made on the CPU.
  std::vector<Case> cases() {
    const std::vector<Case> all = all_cases();
    std::vector<Case> out;
    for (const Case& c : all) {
      if (c.op.dtype == models::DType::fp32 || !c.op.flash) continue;
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

TEST_F(EmulatedCudnn, TakesSoManySequencesAtATimeAsTheWorkspaceIsFor) {
  constexpr std::int64_t kHalf = std::int64_t{64} << 20;
  for (const std::int64_t each : {kHalf - (1 << 20), kHalf + 1, 3 * kHalf}) {
    emulation::cudnn_kernels().workspace_for_each = each;
    backend_.reset();
    setenv("ORRERY_CUDNN", "emulated", 1);
    backend_ = std::make_unique<cuda::CudaBackend>(0, nullptr, cuda::Products::Options{.plan_file = {}});
    unsetenv("ORRERY_CUDNN");
    device_ = backend_->allocate_arena(kArenaBytes);
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

// Which kernels have run, and why not cuDNN's, is told once each.
TEST_F(EmulatedCudnn, StandsAsideForDropoutAndSaysSo) {
  const auto choice_of = [&](const std::string& op) {
    KernelChoice found;
    for (const KernelChoice& choice : backend_->kernel_choices())
      if (choice.op == op) found = choice;
    return found;
  };
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

}  // namespace
}  // namespace orrery::exec::gpu_test

#pragma once
/// CpuBackend: runs operators on this machine's cores, computing in fp32 from tensors in fp32, bf16 or fp16. Matrix
/// products use CBLAS, everything else exec/cpu/simd.
#include <chrono>

#include "exec/cpu/machine.h"
#include "exec/engine/backend.h"

namespace orrery::exec {

class CpuBackend final : public Backend {
 public:
  /// `threads` >= 1, including the caller's. `kernels` is for tests.
  explicit CpuBackend(int threads, const Kernels& kernels, std::int64_t device_memory = 0);
  ~CpuBackend() override;
  CpuBackend(const CpuBackend&) = delete;
  CpuBackend& operator=(const CpuBackend&) = delete;

  [[nodiscard]] std::string name() const override { return "cpu"; }
  [[nodiscard]] std::string device_name() const override;
  [[nodiscard]] std::byte* allocate_arena(std::int64_t bytes) override;
  [[nodiscard]] std::byte* allocate_host(std::int64_t bytes) override;
  void copy_to_device(std::byte* device, std::span<const std::byte> host) override;
  void copy_to_host(std::span<std::byte> host, const std::byte* device) override;
  void run(const models::Op& op, std::span<const Operand> in, std::span<const Operand> out,
           std::span<const ElementRange> ranges, const StepContext& context) override;
  void synchronise() override {}
  [[nodiscard]] Mark mark() override;
  [[nodiscard]] double seconds_between(Mark from, Mark to) override;
  [[nodiscard]] std::int64_t scratch_bytes() const override;

 private:
  void run_in_its_type(const Call& call);
  void run_in_fp32(const Call& call);
  struct Arena {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  [[nodiscard]] std::byte* map(std::int64_t bytes, const char* what);
  Machine machine_;
  std::int64_t device_memory_ = 0;
  std::vector<Arena> arenas_;
};

}  // namespace orrery::exec

#pragma once
/// The CUDA backend: one device, one arena, one compute stream on which every operator is queued in program order.
/// Matrix products by cuBLAS in full fp32, the rest by exec/cuda/kernels.
#include <cublas_v2.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/backend.h"
#include "exec/cuda/handles.h"
#include "exec/cuda/ranges.h"

namespace orrery::exec::cuda {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int device);
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  [[nodiscard]] std::string name() const override { return "cuda"; }
  [[nodiscard]] std::string device_name() const override { return device_name_; }
  [[nodiscard]] std::byte* allocate_arena(std::int64_t bytes) override;
  void copy_to_device(std::byte* device, std::span<const std::byte> host) override;
  void copy_to_host(std::span<std::byte> host, const std::byte* device) override;
  void run(const models::Op& op, std::span<const Operand> in, std::span<const Operand> out,
           std::span<const ElementRange> ranges, const StepContext& context) override;
  void synchronise() override;
  [[nodiscard]] Mark mark() override;
  [[nodiscard]] double seconds_between(Mark from, Mark to) override;
  /// `run` only queues.
  [[nodiscard]] bool asynchronous() const override { return true; }

  // -- for the transport of the same module
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
  [[nodiscard]] int device() const { return device_; }
  /// `watch` is called from time to time while the host waits for the device; it may throw (a peer has failed).
  void while_waiting(std::function<void()> watch) { watch_ = std::move(watch); }
  /// Device memory taken besides the arena: cuBLAS's workspace and tables of ranges.
  [[nodiscard]] std::int64_t outside_arena_bytes() const;

 private:
  void matmul(const models::Op& op, std::span<const Operand> in, std::span<const Operand> out);
  [[nodiscard]] const Event& event_of(Mark mark) const;
  void wait_for(const Event& event) const;

  int device_;
  std::string device_name_;
  Stream stream_;
  DeviceMemory arena_, workspace_;
  cublasHandle_t blas_ = nullptr;
  RangeTables ranges_;
  PinnedMemory staging_;  ///< of copy_to_device, free again once `staged_` is done
  Event staged_, reached_;
  std::vector<Event> marks_;  ///< a ring: mark i is event i % kMarks
  Mark next_mark_ = 0;
  std::function<void()> watch_;
};

}  // namespace orrery::exec::cuda

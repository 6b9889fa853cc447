#pragma once
/// Communication of device memory through pinned host memory and the host's transport, if NCCL cannot be used. The
/// host's transport (MPICH as Debian builds it) is not CUDA-aware: it must never see a device pointer.
#include <functional>
#include <memory>
#include <vector>

#include "exec/cuda/backend.h"
#include "exec/engine/transport.h"

namespace orrery::exec::cuda {

/// Reuses pinned buffers, because page-locking takes milliseconds.
class PinnedPool {
 public:
  [[nodiscard]] PinnedMemory take(std::size_t bytes);
  void give_back(PinnedMemory memory) { free_.push_back(std::move(memory)); }

 private:
  std::vector<PinnedMemory> free_;
};

class StagedTransport final : public Transport {
 public:
  /// `why`: the reason for not using NCCL, for the name.
  StagedTransport(CudaBackend& backend, Transport& host, std::string why)
      : backend_(backend), host_(host), why_(std::move(why)) {}

  [[nodiscard]] std::string name() const override { return host_.name() + " through pinned memory, not NCCL: " + why_; }
  [[nodiscard]] int rank() const override { return host_.rank(); }
  [[nodiscard]] int size() const override { return host_.size(); }
  [[nodiscard]] GroupId make_group(const plan::Group& group) override;
  [[nodiscard]] std::unique_ptr<Request> all_reduce(GroupId group, plan::Reduce reduce, models::DType dtype,
                                                    std::byte* data, std::int64_t elements) override;
  [[nodiscard]] std::unique_ptr<Request> all_gather(GroupId group, models::DType dtype, const std::byte* source,
                                                    std::byte* target, std::int64_t elements_per_rank) override;
  [[nodiscard]] std::unique_ptr<Request> reduce_scatter(GroupId group, models::DType dtype, const std::byte* source,
                                                        std::byte* target, std::int64_t elements_per_rank) override;
  [[nodiscard]] std::unique_ptr<Request> all_to_all(GroupId group, models::DType dtype, const std::byte* source,
                                                    std::byte* target, std::int64_t elements_per_rank) override;
  /// Whole slots go through pinned memory, counted elements between the hosts.
  [[nodiscard]] std::unique_ptr<Request> all_to_all_counted(GroupId group, models::DType dtype, const std::byte* source,
                                                            std::byte* target, std::int64_t slot,
                                                            const std::vector<std::int64_t>& sent,
                                                            const std::vector<std::int64_t>& received) override;
  [[nodiscard]] std::unique_ptr<Request> send(int to, int tag, models::DType dtype, const std::byte* data,
                                              std::int64_t elements) override;
  [[nodiscard]] std::unique_ptr<Request> receive(int from, int tag, models::DType dtype, std::byte* data,
                                                 std::int64_t elements) override;
  void prepare(Preparation preparation) override { behind_ = std::move(preparation.behind); }
  void barrier() override { host_.barrier(); }
  [[nodiscard]] std::vector<std::string> gather_text(const std::string& text) override {
    return host_.gather_text(text);
  }
  [[nodiscard]] double maximum(double value) override { return host_.maximum(value); }

 private:
  /// Starts the host's operation, with the pinned copy of the source and room for the result.
  using Start = std::function<std::unique_ptr<Request>(std::byte* in, std::byte* out)>;
  /// Copies `source` to the host, starts the operation, and has the request copy the result to `target`. With `same`,
  /// the operation works in place in the pinned copy.
  [[nodiscard]] std::unique_ptr<Request> stage(const std::byte* source, std::size_t source_bytes, std::byte* target,
                                               std::size_t target_bytes, bool same, const Start& start);
  void begin();

  CudaBackend& backend_;
  Transport& host_;
  std::string why_;
  Stream stream_;
  Points behind_;  ///< the next operation begins after these; empty: after all compute queued so far
  Event copied_;
  PinnedPool pool_;
  std::vector<int> group_sizes_;
};

}  // namespace orrery::exec::cuda

// Staging: device -> pinned -> host's transport -> pinned -> device.
#include "exec/cuda/staged_transport.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "models/dtype.h"

namespace orrery::exec::cuda {
namespace {

std::size_t bytes_of(models::DType dtype, std::int64_t elements) {
  return static_cast<std::size_t>(elements * models::size_of(dtype));
}

/// Waits for the host's operation, then for the copy of its result to the device.
class StagedRequest final : public Request {
 public:
  struct Buffers {
    PinnedMemory in, out;
    std::byte* result = nullptr;  ///< in pinned memory
    std::byte* target = nullptr;  ///< on the device; null when nothing comes back
    std::size_t bytes = 0;
  };
  StagedRequest(std::unique_ptr<Request> host, Buffers buffers, cudaStream_t stream, PinnedPool& pool)
      : host_(std::move(host)), buffers_(std::move(buffers)), stream_(stream), pool_(pool) {}

  bool test() override {
    if (host_) {
      if (!host_->test()) return false;
      host_.reset();
      if (buffers_.target) {
        check(cudaMemcpyAsync(buffers_.target, buffers_.result, buffers_.bytes, cudaMemcpyHostToDevice, stream_),
              "copying what was received");
        arrived_.record(stream_);
      }
    }
    if (!arrived_.done()) return false;
    if (buffers_.in.bytes() > 0) pool_.give_back(std::move(buffers_.in));
    if (buffers_.out.bytes() > 0) pool_.give_back(std::move(buffers_.out));
    return true;
  }

 private:
  std::unique_ptr<Request> host_;
  Buffers buffers_;
  cudaStream_t stream_;
  PinnedPool& pool_;
  Event arrived_;
};

}  // namespace

PinnedMemory PinnedPool::take(std::size_t bytes) {
  const auto fits = [bytes](const PinnedMemory& memory) { return memory.bytes() >= bytes; };
  const auto found = std::find_if(free_.begin(), free_.end(), fits);
  if (found == free_.end()) return PinnedMemory(bytes);
  PinnedMemory memory = std::move(*found);
  free_.erase(found);
  return memory;
}

GroupId StagedTransport::make_group(const plan::Group& group) {
  const GroupId id = host_.make_group(group);
  if (group_sizes_.size() <= static_cast<std::size_t>(id)) group_sizes_.resize(static_cast<std::size_t>(id) + 1, 0);
  group_sizes_[static_cast<std::size_t>(id)] = group.size();
  return id;
}

void StagedTransport::begin() {
  Points behind = std::exchange(behind_, {});
  if (behind.empty()) behind.push_back(backend_.point());
  for (const auto& point : behind) wait_on(stream_.get(), *point);
}

std::unique_ptr<Request> StagedTransport::stage(const std::byte* source, std::size_t source_bytes, std::byte* target,
                                                std::size_t target_bytes, bool same, const Start& start) {
  StagedRequest::Buffers buffers;
  if (source_bytes > 0) {
    buffers.in = pool_.take(source_bytes);
    begin();
    check(cudaMemcpyAsync(buffers.in.data(), source, source_bytes, cudaMemcpyDeviceToHost, stream_.get()),
          "copying what is sent");
    copied_.record(stream_.get());
    // Not left to the first test, because all ranks must start a group's operations in the same order.
    while (!copied_.done()) std::this_thread::yield();
  }
  if (target_bytes > 0 && !same) buffers.out = pool_.take(target_bytes);
  buffers.result = same ? buffers.in.data() : buffers.out.data();
  buffers.target = target;
  buffers.bytes = target_bytes;
  if (source_bytes == 0) begin();  // a receive: computing with the old contents comes first
  auto request = start(buffers.in.data(), buffers.result);
  return std::make_unique<StagedRequest>(std::move(request), std::move(buffers), stream_.get(), pool_);
}

std::unique_ptr<Request> StagedTransport::all_reduce(GroupId group, plan::Reduce reduce, models::DType dtype,
                                                     std::byte* data, std::int64_t elements) {
  const std::size_t bytes = bytes_of(dtype, elements);
  return stage(data, bytes, data, bytes, true,
               [=, this](std::byte* in, std::byte*) { return host_.all_reduce(group, reduce, dtype, in, elements); });
}

std::unique_ptr<Request> StagedTransport::all_gather(GroupId group, models::DType dtype, const std::byte* source,
                                                     std::byte* target, std::int64_t elements_per_rank) {
  const std::size_t bytes = bytes_of(dtype, elements_per_rank);
  const std::size_t all = bytes * static_cast<std::size_t>(group_sizes_.at(static_cast<std::size_t>(group)));
  return stage(source, bytes, target, all, false, [=, this](std::byte* in, std::byte* out) {
    return host_.all_gather(group, dtype, in, out, elements_per_rank);
  });
}

std::unique_ptr<Request> StagedTransport::reduce_scatter(GroupId group, models::DType dtype, const std::byte* source,
                                                         std::byte* target, std::int64_t elements_per_rank) {
  const std::size_t bytes = bytes_of(dtype, elements_per_rank);
  const std::size_t all = bytes * static_cast<std::size_t>(group_sizes_.at(static_cast<std::size_t>(group)));
  return stage(source, all, target, bytes, false, [=, this](std::byte* in, std::byte* out) {
    return host_.reduce_scatter(group, dtype, in, out, elements_per_rank);
  });
}

std::unique_ptr<Request> StagedTransport::all_to_all(GroupId group, models::DType dtype, const std::byte* source,
                                                     std::byte* target, std::int64_t elements_per_rank) {
  const std::size_t all =
      bytes_of(dtype, elements_per_rank) * static_cast<std::size_t>(group_sizes_.at(static_cast<std::size_t>(group)));
  return stage(source, all, target, all, false, [=, this](std::byte* in, std::byte* out) {
    return host_.all_to_all(group, dtype, in, out, elements_per_rank);
  });
}

std::unique_ptr<Request> StagedTransport::all_to_all_counted(GroupId group, models::DType dtype,
                                                             const std::byte* source, std::byte* target,
                                                             std::int64_t slot, const std::vector<std::int64_t>& sent,
                                                             const std::vector<std::int64_t>& received) {
  const std::size_t all = bytes_of(dtype, slot) * sent.size();
  return stage(source, all, target, all, false, [=, this](std::byte* in, std::byte* out) {
    return host_.all_to_all_counted(group, dtype, in, out, slot, sent, received);
  });
}

std::unique_ptr<Request> StagedTransport::send(int to, int tag, models::DType dtype, const std::byte* data,
                                               std::int64_t elements) {
  std::byte* nothing = nullptr;
  return stage(data, bytes_of(dtype, elements), nothing, 0, true,
               [=, this](std::byte* in, std::byte*) { return host_.send(to, tag, dtype, in, elements); });
}

std::unique_ptr<Request> StagedTransport::receive(int from, int tag, models::DType dtype, std::byte* data,
                                                  std::int64_t elements) {
  const std::byte* nothing = nullptr;
  return stage(nothing, 0, data, bytes_of(dtype, elements), false,
               [=, this](std::byte*, std::byte* out) { return host_.receive(from, tag, dtype, out, elements); });
}

}  // namespace orrery::exec::cuda

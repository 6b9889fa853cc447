#pragma once
/// Owners of CUDA resources: device memory, pinned host memory, streams, events. Each frees what it made.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "exec/cuda/check.h"
#include "exec/engine/request.h"

namespace orrery::exec::cuda {

class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(std::size_t bytes, const char* what) : bytes_(bytes) {
    if (bytes > 0) check(cudaMalloc(&data_, bytes), what);
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Page-locked host memory, which the device reads and writes by itself.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(std::size_t bytes) : bytes_(bytes) {
    if (bytes > 0) check(cudaHostAlloc(&data_, bytes, cudaHostAllocDefault), "allocating pinned memory");
  }
  ~PinnedMemory() { cudaFreeHost(data_); }
  PinnedMemory(PinnedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A stream that does not wait for the legacy default stream.
class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(bool timed = false) {
    check(cudaEventCreateWithFlags(&event_, timed ? 0 : cudaEventDisableTiming), "creating an event");
  }
  ~Event() {
    if (event_) cudaEventDestroy(event_);
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  [[nodiscard]] cudaEvent_t get() const { return event_; }
  void record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "recording an event"); }
  /// For use while `stream` is captured: the graph records the event in each run.
  void record_in_graph(cudaStream_t stream) const {
    check(cudaEventRecordWithFlags(event_, stream, cudaEventRecordExternal), "recording an event in a graph");
  }
  /// True once everything before the last record has finished, or if it was never recorded.
  [[nodiscard]] bool done() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    check(status, "work on the device");
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Work queued on `stream` from now on starts after `event`'s last record.
inline void wait_on(cudaStream_t stream, const Event& event) {
  check(cudaStreamWaitEvent(stream, event.get(), 0), "ordering two streams");
}

/// Reuses events, because creating one takes longer than recording it.
class EventPool {
 public:
  [[nodiscard]] Event take() {
    const std::lock_guard guard(lock_);
    if (free_.empty()) return Event();
    Event event = std::move(free_.back());
    free_.pop_back();
    return event;
  }
  void give_back(Event event) {
    const std::lock_guard guard(lock_);
    free_.push_back(std::move(event));
  }

 private:
  std::mutex lock_;
  std::vector<Event> free_;
};

/// A point in a stream.
class StreamPoint final : public Point {
 public:
  StreamPoint(std::shared_ptr<EventPool> pool, cudaStream_t stream) : pool_(std::move(pool)), event_(pool_->take()) {
    event_.record(stream);
  }
  ~StreamPoint() override { pool_->give_back(std::move(event_)); }
  StreamPoint(const StreamPoint&) = delete;
  StreamPoint& operator=(const StreamPoint&) = delete;
  [[nodiscard]] bool passed() const override { return event_.done(); }
  [[nodiscard]] const Event& event() const { return event_; }

 private:
  std::shared_ptr<EventPool> pool_;
  Event event_;
};

/// Work queued on `stream` from now on starts after `point`, which must be a StreamPoint.
inline void wait_on(cudaStream_t stream, const Point& point) {
  wait_on(stream, dynamic_cast<const StreamPoint&>(point).event());
}

}  // namespace orrery::exec::cuda

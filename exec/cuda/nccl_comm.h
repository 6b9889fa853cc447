#pragma once
/// One NCCL communicator, nonblocking: every call may still be in progress when it returns, and is polled against a
/// deadline, because a blocking communicator whose peer is gone never comes back.
#include <nccl.h>

#include <chrono>
#include <string>

#include "exec/cuda/handles.h"

namespace orrery::exec::cuda {

using Clock = std::chrono::steady_clock;

/// Throws Failure unless success or in progress.
void check_nccl(ncclResult_t result, const std::string& doing);

class NcclComm {
 public:
  NcclComm() = default;
  /// Joins the communicator of `id`; returns once all of `size` ranks are in it. Throws Failure at `deadline`.
  NcclComm(const ncclUniqueId& id, int size, int rank, Clock::time_point deadline);
  ~NcclComm();
  NcclComm(NcclComm&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  NcclComm& operator=(NcclComm&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }
  /// The part of this communicator whose ranks give the same colour, ordered by `key`; collective over all its ranks.
  /// With colour NCCL_SPLIT_NOCOLOR the result is empty.
  [[nodiscard]] NcclComm split(int colour, int key, Clock::time_point deadline) const;

  [[nodiscard]] ncclComm_t get() const { return comm_; }
  [[nodiscard]] explicit operator bool() const { return comm_ != nullptr; }
  /// Waits until the last call has been taken in. Throws Failure on an error or at `deadline`.
  void settle(const std::string& doing, Clock::time_point deadline) const;
  /// Throws Failure when the communicator has failed (a peer is gone, the network broke).
  void check_health() const;
  /// Ends all operations in flight at once; the communicator is gone afterwards.
  void abort();

 private:
  /// Lets operations in flight end; true when all ranks have done so in time.
  [[nodiscard]] bool flush() const;
  ncclComm_t comm_ = nullptr;
};

}  // namespace orrery::exec::cuda

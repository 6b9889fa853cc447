#pragma once
/// One NCCL communicator, nonblocking: every call may still be in progress when it returns, and is polled against a
/// deadline, because a blocking communicator whose peer is gone never comes back.
#include <nccl.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "exec/cuda/handles.h"

namespace orrery::exec::cuda {

using Clock = std::chrono::steady_clock;

/// Throws Failure unless success or in progress.
void check_nccl(ncclResult_t result, const std::string& doing);

/// Calls may come from the rank and from its watchdog: a lock stands before each. None of them blocks.
class NcclComm {
 public:
  NcclComm() = default;
  /// Joins the communicator of `id`; returns once all of `size` ranks are in it. Throws Failure at `deadline`.
  NcclComm(const ncclUniqueId& id, int size, int rank, Clock::time_point deadline);
  ~NcclComm();
  NcclComm(NcclComm&& other) noexcept : lock_(std::move(other.lock_)), comm_(std::exchange(other.comm_, nullptr)) {}
  NcclComm& operator=(NcclComm&& other) noexcept {
    std::swap(lock_, other.lock_);
    std::swap(comm_, other.comm_);
    return *this;
  }
  /// The part of this communicator whose ranks give the same colour, ordered by `key`; collective over all its ranks.
  /// With colour NCCL_SPLIT_NOCOLOR the result is empty.
  [[nodiscard]] NcclComm split(int colour, int key, Clock::time_point deadline) const;

  /// `operation(communicator)`, an NCCL call, and then its being taken in: only then is it on its stream.
  template <class Operation>
  void call(const std::string& doing, Clock::time_point deadline, const Operation& operation) const {
    {
      const std::lock_guard guard(*lock_);
      if (!comm_) throw_aborted(doing);
      check_nccl(operation(comm_), doing);
    }
    settle(doing, deadline);
  }
  /// False in a group of one, and after `abort`.
  [[nodiscard]] explicit operator bool() const {
    if (!lock_) return false;
    const std::lock_guard guard(*lock_);
    return comm_ != nullptr;
  }
  /// Waits until the last call has been taken in. Throws Failure on an error or at `deadline`.
  void settle(const std::string& doing, Clock::time_point deadline) const;
  /// Why the communicator has failed (a peer is gone, the network broke); empty: it has not.
  [[nodiscard]] std::string illness() const;
  /// Ends all operations in flight at once; the communicator is gone afterwards.
  void abort();

 private:
  /// Lets operations in flight end; true when all ranks have done so in time.
  [[nodiscard]] bool flush() const;
  [[noreturn]] static void throw_aborted(const std::string& doing);
  [[nodiscard]] ncclResult_t state() const;
  [[nodiscard]] ncclResult_t settled(Clock::time_point deadline) const;
  [[nodiscard]] std::string last_error() const;
  std::unique_ptr<std::mutex> lock_ = std::make_unique<std::mutex>();
  ncclComm_t comm_ = nullptr;
};

}  // namespace orrery::exec::cuda

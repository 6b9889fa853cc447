#pragma once
/// One NCCL communicator, nonblocking: every call may still be in progress when it returns, and is polled against a
/// deadline, because a blocking communicator whose peer is gone never comes back.
#include <nccl.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exec/cuda/handles.h"

namespace orrery::exec::cuda {

using Clock = std::chrono::steady_clock;

/// Throws Failure unless success or in progress.
void check_nccl(ncclResult_t result, const std::string& doing);

/// Calls may come from the rank and from its watchdog: a lock stands before each. None of them blocks but the ends of
/// communicators: those wait for the device and for graphs (below).
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
  /// `part` becomes the part of this communicator whose ranks give the same colour, ordered by `key`; collective over
  /// all its ranks. With colour NCCL_SPLIT_NOCOLOR it stays empty. After a Failure it may be there all the same, for
  /// the caller to abort with the others.
  void split(NcclComm& part, int colour, int key, Clock::time_point deadline) const;

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
  /// The handle, which this object no longer has; null where there is none.
  [[nodiscard]] ncclComm_t release();
  /// Ends all operations in flight of this communicator alone; it is gone afterwards.
  void abort() { abort_all({release()}); }
  /// The same of all of them. Every operation on the device is told to quit before anything is waited for, then
  /// `meanwhile` is called, then this waits until all have quit: one communicator's abort synchronises the device, so
  /// one after the other would wait for the next one's kernel for ever (pytorch/pytorch#119797, NVIDIA/nccl#1013). It
  /// also waits until no graph holds an operation of theirs (2.28.9, src/init.cc: commDestroySync), on nonblocking
  /// communicators too (src/group.cc: ncclAsyncLaunch makes the group a blocking one).
  static void abort_all(const std::vector<ncclComm_t>& all, const std::function<void()>& meanwhile = {});

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

#pragma once
/// One NCCL communicator. It is nonblocking: a call may still be in progress when it returns, and is polled against a
/// deadline. A blocking communicator whose peer is gone would never return.
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

/// Throws Failure unless `result` is success or in progress.
void check_nccl(ncclResult_t result, const std::string& doing);

/// The rank and its watchdog may both call: a lock guards each call. No call blocks except those that end
/// communicators, which wait for the device and for graphs (below).
class NcclComm {
 public:
  NcclComm() = default;
  /// Joins the communicator of `id`; returns once all `size` ranks are in it. Throws Failure at `deadline`.
  NcclComm(const ncclUniqueId& id, int size, int rank, Clock::time_point deadline);
  ~NcclComm();
  NcclComm(NcclComm&& other) noexcept : lock_(std::move(other.lock_)), comm_(std::exchange(other.comm_, nullptr)) {}
  NcclComm& operator=(NcclComm&& other) noexcept {
    std::swap(lock_, other.lock_);
    std::swap(comm_, other.comm_);
    return *this;
  }
  /// `part` becomes a communicator of the ranks that give the same colour, ordered by `key`. Collective over all ranks
  /// of this one. With colour NCCL_SPLIT_NOCOLOR it stays empty. It may exist even after a Failure; the caller must
  /// then abort it with the others.
  void split(NcclComm& part, int colour, int key, Clock::time_point deadline) const;

  /// Calls `operation(communicator)`, an NCCL call, and waits until NCCL has accepted it: only then is it on its
  /// stream.
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
  /// Waits until NCCL has accepted the last call. Throws Failure on an error or at `deadline`.
  void settle(const std::string& doing, Clock::time_point deadline) const;
  /// Why the communicator has failed (a peer is gone, the network broke); empty: it has not.
  [[nodiscard]] std::string illness() const;
  /// Gives up the handle and returns it; null if there is none.
  [[nodiscard]] ncclComm_t release();
  /// Aborts all operations in flight of this communicator, which is gone afterwards.
  void abort() { abort_all({release()}); }
  /// The same for several. First every operation on the device is told to quit, then `meanwhile` is called, then this
  /// waits until all have quit. One communicator's abort synchronises the device, so aborting them one after another
  /// would wait for ever for the next one's kernel (pytorch/pytorch#119797, NVIDIA/nccl#1013). It also waits until no
  /// graph holds an operation of theirs (2.28.9, src/init.cc: commDestroySync), even for nonblocking communicators
  /// (src/group.cc: ncclAsyncLaunch makes the group a blocking one).
  static void abort_all(const std::vector<ncclComm_t>& all, const std::function<void()>& meanwhile = {});

 private:
  /// Lets operations in flight finish; true if they do so on all ranks in time.
  [[nodiscard]] bool flush() const;
  [[noreturn]] static void throw_aborted(const std::string& doing);
  [[nodiscard]] ncclResult_t state() const;
  [[nodiscard]] ncclResult_t settled(Clock::time_point deadline) const;
  [[nodiscard]] std::string last_error() const;
  std::unique_ptr<std::mutex> lock_ = std::make_unique<std::mutex>();
  ncclComm_t comm_ = nullptr;
};

}  // namespace orrery::exec::cuda

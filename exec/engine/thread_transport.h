#pragma once
/// A Transport between threads of one process, for unit tests and runs without MPI. Sends are rendezvous and sums are
/// taken in member order, so a schedule that works here relies on no buffering, and repeats bit for bit.
#include <memory>
#include <string>

#include "exec/engine/transport.h"

namespace orrery::exec {

/// What the ranks share. Outlives its transports.
class ThreadWorld {
 public:
  explicit ThreadWorld(int ranks);
  ~ThreadWorld();
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;
  /// One rank's transport; used by one thread.
  [[nodiscard]] std::unique_ptr<Transport> transport(int rank);
  /// Makes every current and later wait of every rank throw Failure(why), because one rank failed.
  void abort(const std::string& why);

  struct Shared;

 private:
  std::unique_ptr<Shared> shared_;
};

}  // namespace orrery::exec

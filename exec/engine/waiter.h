#pragma once
/// Waiter: the only place that waits. MPICH 4.0 polls without pause and has no setting against it, so a waiting rank
/// takes a core from the rank that it waits for. A wait spins, then yields, then naps; if busy threads outnumber cores,
/// it naps almost at once. A wait beyond the deadline is a DeadlinePassed that names what was awaited.
#include <chrono>
#include <functional>
#include <string>

#include "exec/engine/recorder.h"
#include "exec/engine/transport.h"

namespace orrery::exec {

struct WaitPolicy {
  int spins = 4000;                    ///< tests before the first yield
  int yields = 200;                    ///< yields before the first nap
  std::chrono::nanoseconds nap{1000};  ///< first nap; doubles up to longest_nap
  std::chrono::nanoseconds longest_nap{20000};
  std::chrono::milliseconds deadline{120000};  ///< 0: none
};

/// Spins if every busy thread has a core of its own; naps early if `busy_threads` (of all ranks on this node) outnumber
/// `cores`.
[[nodiscard]] WaitPolicy wait_policy(int busy_threads, int cores, std::chrono::milliseconds deadline);

/// Cores this process may run on (its affinity mask, not the machine's count).
[[nodiscard]] int available_cores();

class Waiter {
 public:
  /// `recorder`: this rank's, which records waits; it must outlive the waiter. Null: waits are not recorded.
  explicit Waiter(const WaitPolicy& policy, Recorder* recorder = nullptr) : policy_(policy), recorder_(recorder) {}
  /// Returns once `done()` is true. Throws DeadlinePassed with `what()`.
  void until(const std::function<bool()>& done, const std::function<std::string()>& what) const;
  void finish(Request& request, const std::function<std::string()>& what) const;
  [[nodiscard]] const WaitPolicy& policy() const { return policy_; }
  [[nodiscard]] Recorder* recorder() const { return recorder_; }

 private:
  WaitPolicy policy_;
  Recorder* recorder_;
};

}  // namespace orrery::exec

#pragma once
/// Looks after operations of the device that nobody on the host waits for: a thread that asks from time to time whether
/// the communicators are well and whether an operation under way has passed its deadline, and that ends everything in
/// flight when one has not, because a kernel whose peer is gone never ends by itself. What it found is told at once,
/// and thrown where the rank asks next: the end of what is in flight may block, and nobody waits for it to know why.
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "exec/engine/request.h"

namespace orrery::exec::cuda {

class Watchdog {
 public:
  struct Hooks {
    std::function<std::string()> illness;          ///< why the communicators are not well; empty: they are
    std::function<void(const std::string&)> tell;  ///< of the failure, before the end; called once; may be empty
    std::function<void()> abort;                   ///< ends everything in flight; called once; may block
  };
  /// `deadline_s`: of one operation, from its own beginning on, not from when it was queued; 0: none.
  Watchdog(Hooks hooks, double deadline_s, std::chrono::milliseconds interval);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// `what` is between two points of a stream.
  void add(std::string what, std::shared_ptr<const Point> begin, std::shared_ptr<const Point> end);
  /// Throws Failure when something was wrong.
  void check() const;
  /// Ends everything in flight and throws Failure: with `why`, or with what was found before.
  [[noreturn]] void give_up(const std::string& why);
  /// Operations that have not been seen to end.
  [[nodiscard]] std::size_t watched() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched {
    std::string what;
    std::shared_ptr<const Point> begin, end;
    Clock::time_point begun{};
    bool under_way = false;
  };
  void serve();
  void look();
  [[nodiscard]] std::string overdue();
  void fail(const std::string& why);

  Hooks hooks_;
  double deadline_s_;
  std::chrono::milliseconds interval_;
  mutable std::mutex lock_;
  std::condition_variable wake_;
  std::list<Watched> watched_;
  std::string failure_;  ///< empty: all is well
  bool ending_ = false;
  std::thread thread_;  ///< last: it uses all the others
};

}  // namespace orrery::exec::cuda

#pragma once
/// Watches device operations that nobody on the host waits for. A thread checks from time to time whether the
/// communicators are well and whether an operation has passed its deadline. If something is wrong it ends everything in
/// flight, because a kernel whose peer is gone never ends by itself. It reports what it found at once, and then throws
/// it when the rank next asks: ending what is in flight may block, and nobody should have to wait for that to learn
/// why.
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
    std::function<void(const std::string&)> tell;  ///< reports the failure first of all; called once; may be empty
    std::function<void()> abort;                   ///< ends everything in flight; called once; may block
  };
  /// `deadline_s`: for one operation, from its own start, not from when it was queued; 0: none.
  Watchdog(Hooks hooks, double deadline_s, std::chrono::milliseconds interval);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Watches `what`, which runs between two points of a stream.
  void add(std::string what, std::shared_ptr<const Point> begin, std::shared_ptr<const Point> end);
  /// Throws Failure if something was wrong.
  void check() const;
  /// Ends everything in flight and throws Failure, with `why` or with what was found before.
  [[noreturn]] void give_up(const std::string& why);
  /// Operations not yet seen to end.
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
  std::condition_variable wake_, told_;
  std::list<Watched> watched_;
  bool failing_ = false;  ///< something was wrong; it may not have been told yet
  std::string failure_;   ///< empty: all is well
  bool ending_ = false;
  std::thread thread_;  ///< last: it uses all the others
};

}  // namespace orrery::exec::cuda

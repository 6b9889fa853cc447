#pragma once
/// Requests to stop, as a flag: ^C during a long search, and signals with which schedulers ask a run to save and end.
#include <atomic>

namespace orrery::apps {

/// While alive, the first signal sets `requested()`; the next has its usual effect. Instances may be nested: the
/// outermost one counts.
class Interrupt {
 public:
  enum class By {
    keyboard,  ///< SIGINT
    anybody,   ///< SIGINT, SIGTERM, SIGHUP, SIGUSR1
  };
  explicit Interrupt(By by = By::keyboard);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  [[nodiscard]] static const std::atomic<bool>& requested();

 private:
  bool outermost_;
};

}  // namespace orrery::apps

#pragma once
/// ^C during a long search: the first asks for the best so far, the second ends the program.
#include <atomic>

namespace orrery::apps {

/// While alive, the first SIGINT sets `requested()`; the next has its usual effect.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  [[nodiscard]] static const std::atomic<bool>& requested();
};

}  // namespace orrery::apps

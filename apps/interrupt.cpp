// SIGINT as a flag. A signal handler can reach nothing but a static, so the flag is one.
#include "apps/interrupt.h"

#include <csignal>

namespace orrery::apps {
namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

extern "C" void on_interrupt(int) {
  flag.store(true);
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace

Interrupt::Interrupt() {
  flag.store(false);
  std::signal(SIGINT, on_interrupt);
}

Interrupt::~Interrupt() {
  std::signal(SIGINT, SIG_DFL);
}

const std::atomic<bool>& Interrupt::requested() {
  return flag;
}

}  // namespace orrery::apps

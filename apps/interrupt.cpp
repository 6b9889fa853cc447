// Signals as a flag. It is static because a signal handler can reach nothing else.
#include "apps/interrupt.h"

#include <array>
#include <csignal>
#include <utility>

namespace orrery::apps {
namespace {

constexpr std::array kAll{SIGINT, SIGTERM, SIGHUP, SIGUSR1};

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");
bool listening = false;  // only used by the main thread

/// True for what nohup asks for. SIGINT is not considered: shells without job control make children ignore it.
bool ignored(int number) {
  struct sigaction now {};
  return number == SIGHUP && sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void reset() {
  for (const int one : kAll)
    if (!ignored(one)) std::signal(one, SIG_DFL);
}

extern "C" void on_interrupt(int) {
  flag.store(true);
  reset();
}

}  // namespace

Interrupt::Interrupt(By by) : outermost_(!std::exchange(listening, true)) {
  if (!outermost_ || flag.load()) return;
  for (const int one : kAll) {
    if (by == By::keyboard && one != SIGINT) continue;
    if (!ignored(one)) std::signal(one, on_interrupt);
  }
}

Interrupt::~Interrupt() {
  if (!outermost_) return;
  listening = false;
  reset();
}

const std::atomic<bool>& Interrupt::requested() {
  return flag;
}

}  // namespace orrery::apps

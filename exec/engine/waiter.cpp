// The waiting loop: spin, yield, nap.
#include "exec/engine/waiter.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <ctime>

#include "exec/failure.h"

namespace orrery::exec {

namespace {
constexpr std::chrono::milliseconds kTell{100};  // waits this long are reported to the recorder
}

WaitPolicy wait_policy(int busy_threads, int cores, std::chrono::milliseconds deadline) {
  WaitPolicy policy;
  policy.deadline = deadline;
  if (busy_threads > cores) {
    policy.spins = 20;  // about as long as one shared-memory message between two running ranks
    policy.yields = 0;  // yielding still burns the core that the awaited rank needs
  }
  return policy;
}

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

void Waiter::until(const std::function<bool()>& done, const std::function<std::string()>& what) const {
  using Clock = std::chrono::steady_clock;
  if (done()) return;
  const auto begin = Clock::now();
  bool told = false;
  const auto over = [&] {
    if (!recorder_) return;
    recorder_->add_waited(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count());
    if (told) recorder_->waits_no_more();
  };
  for (int i = 1; i < policy_.spins; ++i)
    if (done()) return over();
  for (int i = 0; i < policy_.yields; ++i) {
    sched_yield();
    if (done()) return over();
  }
  auto nap = policy_.nap;
  while (!done()) {
    const timespec pause{0, static_cast<long>(nap.count())};
    nanosleep(&pause, nullptr);
    nap = std::min(nap * 2, policy_.longest_nap);
    const auto waited = Clock::now() - begin;
    if (recorder_ && !told && waited > kTell) {
      recorder_->waits_for(what());
      told = true;
    }
    if (policy_.deadline.count() > 0 && waited > policy_.deadline)
      throw DeadlinePassed(fmt::format("waited more than {:.1f} s for {}",
                                       std::chrono::duration<double>(policy_.deadline).count(), what()));
  }
  over();
}

void Waiter::finish(Request& request, const std::function<std::string()>& what) const {
  until([&] { return request.test(); }, what);
}

}  // namespace orrery::exec

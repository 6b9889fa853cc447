// The waiting loop: spin, yield, nap.
#include "exec/waiter.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <ctime>

#include "exec/failure.h"

namespace orrery::exec {

WaitPolicy wait_policy(int busy_threads, int cores, std::chrono::milliseconds deadline) {
  WaitPolicy policy;
  policy.deadline = deadline;
  if (busy_threads > cores) {
    policy.spins = 20;  // about the time of one shared-memory message between two running ranks
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
  for (int i = 0; i < policy_.spins; ++i)
    if (done()) return;
  for (int i = 0; i < policy_.yields; ++i) {
    sched_yield();
    if (done()) return;
  }
  const auto begin = std::chrono::steady_clock::now();
  auto nap = policy_.nap;
  while (!done()) {
    const timespec pause{0, static_cast<long>(nap.count())};
    nanosleep(&pause, nullptr);
    nap = std::min(nap * 2, policy_.longest_nap);
    if (policy_.deadline.count() > 0 && std::chrono::steady_clock::now() - begin > policy_.deadline)
      throw Failure(fmt::format("waited more than {:.1f} s for {}",
                                std::chrono::duration<double>(policy_.deadline).count(), what()));
  }
}

void Waiter::finish(Request& request, const std::function<std::string()>& what) const {
  until([&] { return request.test(); }, what);
}

}  // namespace orrery::exec

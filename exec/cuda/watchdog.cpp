// The thread that watches operations on the device.
#include "exec/cuda/watchdog.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "exec/failure.h"

namespace orrery::exec::cuda {

Watchdog::Watchdog(Hooks hooks, double deadline_s, std::chrono::milliseconds interval)
    : hooks_(std::move(hooks)), deadline_s_(deadline_s), interval_(interval), thread_([this] { serve(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard guard(lock_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Watchdog::add(std::string what, std::shared_ptr<const Point> begin, std::shared_ptr<const Point> end) {
  const std::lock_guard guard(lock_);
  watched_.push_back({std::move(what), std::move(begin), std::move(end), {}, false});
}

std::size_t Watchdog::watched() const {
  const std::lock_guard guard(lock_);
  return watched_.size();
}

void Watchdog::check() const {
  const std::lock_guard guard(lock_);
  if (!failure_.empty()) throw Failure(failure_);
}

void Watchdog::give_up(const std::string& why) {
  fail(why);
  check();
  throw Failure(why);
}

// Only the first failure counts; the others follow from it. It is told before `check` throws it: a rank that it stops
// ends the communicators itself.
void Watchdog::fail(const std::string& why) {
  {
    std::unique_lock guard(lock_);
    if (std::exchange(failing_, true)) {
      told_.wait(guard, [this] { return !failure_.empty(); });
      return;
    }
    watched_.clear();
  }
  try {
    if (hooks_.tell) hooks_.tell(why);
  } catch (...) {  // whoever waits for the reason must not wait for ever
  }
  {
    const std::lock_guard guard(lock_);
    failure_ = why.empty() ? "a device operation failed without a reason" : why;
  }
  told_.notify_all();
  hooks_.abort();
}

void Watchdog::serve() {
  std::unique_lock guard(lock_);
  while (!wake_.wait_for(guard, interval_, [this] { return ending_; })) {
    if (failing_) continue;
    guard.unlock();
    look();
    guard.lock();
  }
}

void Watchdog::look() {
  std::string why;
  try {
    why = overdue();
    if (why.empty()) why = hooks_.illness();
  } catch (const std::exception& error) {  // of the device itself
    why = error.what();
  }
  if (!why.empty()) fail(why);
}

std::string Watchdog::overdue() {
  const std::lock_guard guard(lock_);
  const Clock::time_point now = Clock::now();
  std::erase_if(watched_, [](const Watched& one) { return one.end->passed(); });
  for (Watched& one : watched_) {
    if (!one.under_way) {
      if (!one.begin->passed()) continue;
      one.under_way = true;
      one.begun = now;
    }
    if (deadline_s_ > 0 && now - one.begun > std::chrono::duration<double>(deadline_s_))
      return fmt::format("NCCL: {}: not done within {} s{}", one.what, deadline_s_,
                         watched_.size() > 1 ? fmt::format("; {} more are queued", watched_.size() - 1) : "");
  }
  return {};
}

}  // namespace orrery::exec::cuda

// Queues of communication steps and the rules of their order.
#include "exec/communication.h"

#include <algorithm>

namespace orrery::exec {

bool conflict(const Touch& a, const Touch& b) {
  return (a.writes || b.writes) && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

Communication::Communication(const Waiter& waiter, Progress progress) : waiter_(waiter) {
  if (progress == Progress::thread) thread_ = std::thread([this] { serve(); });
}

Communication::~Communication() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard guard(lock_);
    ending_ = true;
  }
  work_.notify_one();
  thread_.join();
}

// Naps between looks: a core that polls is one that does not compute.
void Communication::serve() {
  constexpr std::chrono::microseconds kNap{20};
  std::unique_lock guard(lock_);
  while (!ending_ && !failure_) {
    if (pending_ == 0) {
      work_.wait(guard, [this] { return ending_ || pending_ > 0; });
      continue;
    }
    try {
      move_on();
    } catch (...) {
      failure_ = std::current_exception();
    }
    guard.unlock();
    std::this_thread::sleep_for(kNap);
    guard.lock();
  }
}

void Communication::fail_as_the_thread() {
  if (failure_) std::rethrow_exception(failure_);
}

void Communication::submit(plan::Stream stream, std::vector<Touch> touches, bool frees, Start start, Observer observer,
                           Describe describe) {
  const std::lock_guard guard(lock_);
  fail_as_the_thread();
  Message message;
  message.number = next_++;
  message.touches = std::move(touches);
  message.frees = frees;
  message.start = std::move(start);
  message.observer = std::move(observer);
  message.describe = std::move(describe);
  queues_[static_cast<std::size_t>(stream)].push_back(std::move(message));
  ++pending_;
  freeing_ += frees ? 1 : 0;
  move_on();
  if (pending_ > 0) work_.notify_one();
}

bool Communication::idle() const {
  const std::lock_guard guard(lock_);
  return pending_ == 0;
}

bool Communication::conflicts(const std::vector<Touch>& touches) const {
  const std::lock_guard guard(lock_);
  return conflicts(touches, next_);
}

bool Communication::conflicts(const std::vector<Touch>& touches, std::int64_t before) const {
  for (const Queue& queue : queues_)
    for (const Message& other : queue) {
      if (other.number >= before) break;
      for (const Touch& a : touches)
        for (const Touch& b : other.touches)
          if (conflict(a, b)) return true;
    }
  return false;
}

bool Communication::may_start(const Message& message) const {
  return !conflicts(message.touches, message.number);
}

bool Communication::advance(Queue& queue) {
  bool moved = false;
  while (!queue.empty()) {
    Message& head = queue.front();
    if (!head.request) {
      if (!may_start(head)) return moved;
      // Before the call: MPI may already move data in it.
      if (head.observer.started) head.observer.started();
      head.request = head.start();
      moved = true;
    }
    if (!head.request->test()) return moved;
    if (head.observer.finished) head.observer.finished();
    freeing_ -= head.frees ? 1 : 0;
    queue.pop_front();
    --pending_;
    moved = true;
  }
  return moved;
}

void Communication::progress() {
  const std::lock_guard guard(lock_);
  fail_as_the_thread();
  move_on();
}

void Communication::move_on() {
  if (pending_ == 0) return;
  bool moved = true;
  while (moved) {  // the end of one step may let a step of another stream start
    moved = false;
    for (Queue& queue : queues_)
      if (!queue.empty() && advance(queue)) moved = true;
  }
}

void Communication::wait(const std::function<bool()>& done) {
  {
    const std::lock_guard guard(lock_);
    if (done()) return;
  }
  waiter_.until(
      [&] {
        const std::lock_guard guard(lock_);
        fail_as_the_thread();
        move_on();
        return done();
      },
      [&] {
        const std::lock_guard guard(lock_);
        return describe_pending();
      });
}

void Communication::wait_for(const std::vector<Touch>& touches) {
  wait([&] { return pending_ == 0 || !conflicts(touches, next_); });
}

void Communication::wait_for_freeing() {
  wait([&] { return freeing_ == 0; });
}

void Communication::wait_for_all() {
  wait([&] { return pending_ == 0; });
}

std::string Communication::describe_pending() const {
  std::string text;
  for (const Queue& queue : queues_)
    for (const Message& message : queue) {
      if (!text.empty()) text += "; ";
      text += message.describe() + (message.request ? "" : " (not started)");
    }
  return text;
}

}  // namespace orrery::exec

// Queues of communication steps, and the rules of their order.
#include "exec/engine/communication.h"

#include <algorithm>
#include <utility>

#include "plan/schedule/waits.h"

namespace orrery::exec {

using plan::conflict_between;

Communication::Communication(const Waiter& waiter, Progress progress, std::function<void(const Point&)> order)
    : waiter_(waiter), order_(std::move(order)) {
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

// Naps between looks: a polling core does not compute.
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
                           Describe describe, OnDevice on_device) {
  const std::lock_guard guard(lock_);
  fail_as_the_thread();
  Message message;
  message.number = next_++;
  message.touches = std::move(touches);
  message.frees = frees;
  message.start = std::move(start);
  message.observer = std::move(observer);
  message.describe = std::move(describe);
  message.on_device = std::move(on_device);
  const std::int64_t number = message.number;
  if (trace_ != nullptr) trace_->submitted.push_back(number);
  Queue& queue = queues_[static_cast<std::size_t>(stream)];
  queue.push_back(std::move(message));
  ++pending_;
  freeing_ += frees ? 1 : 0;
  move_on();
  const bool queued = !queue.empty() && queue.back().number == number && !queue.back().ends.empty();
  if (trace_ != nullptr && !queued) trace_->host = true;
  if (pending_ > 0) work_.notify_one();
}

bool Communication::idle() const {
  const std::lock_guard guard(lock_);
  return pending_ == 0;
}

bool Communication::conflicts(const std::vector<Touch>& touches) const {
  const std::lock_guard guard(lock_);
  for (const Queue& queue : queues_)
    for (const Message& other : queue)
      if (conflict_between(touches, other.touches)) return true;
  return false;
}

// A message starts after the one before it on its own stream, and after those that it conflicts with. A message of the
// device is ordered on the device after the device's other messages; all others must have ended.
bool Communication::may_start(const Message& message, const Message* before, Points& behind) const {
  const bool queues = message.on_device.queues;
  std::vector<std::int64_t> numbers;
  const auto follows = [&](const Message& other) {
    if (other.ends.empty()) return false;
    if (queues && other.ordered && message.number >= other.ordered_by)
      return true;  // this one comes after that
                    // compute
    for (const auto& end : other.ends) {
      if (queues)
        behind.push_back(end);
      else if (!end->passed())
        return false;
    }
    numbers.push_back(other.number);
    return true;
  };
  if (!queues && message.on_device.computed && !message.on_device.computed->passed()) return false;
  if (before != nullptr && !follows(*before)) return false;
  for (const Queue& queue : queues_)
    for (const Message& other : queue) {
      if (other.number >= message.number) break;
      if (&other == before) continue;
      if (plan::message_waits(message.touches, other.touches) && !follows(other)) return false;
    }
  if (message.on_device.computed) behind.push_back(message.on_device.computed);
  if (trace_ != nullptr) trace_->behind.insert(trace_->behind.end(), numbers.begin(), numbers.end());
  return true;
}

void Communication::start(Message& message, const Points& behind) {
  // Before the call, because MPI may already move data in it.
  if (message.observer.started) message.observer.started();
  message.request = message.start(behind);
  message.ends = message.request->ends();
}

void Communication::finish(Queue& queue, Queue::iterator message) {
  if (message->observer.finished) message->observer.finished();
  freeing_ -= message->frees ? 1 : 0;
  queue.erase(message);
  --pending_;
}

bool Communication::passed(const Message& message) {
  return !message.ends.empty() &&
         std::all_of(message.ends.begin(), message.ends.end(), [](const auto& end) { return end->passed(); });
}

bool Communication::advance(Queue& queue) {
  bool moved = false;
  for (std::size_t i = 0; i < queue.size();) {
    Message& message = queue[i];
    if (!message.request) {
      Points behind;
      if (!may_start(message, i > 0 ? &queue[i - 1] : nullptr, behind)) return moved;
      start(message, behind);
      moved = true;
    }
    if (message.ordered && passed(message)) {
      queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(i));
      --pending_;
      continue;
    }
    if (!message.ends.empty()) {  // the device's: what depends on it is ordered after it
      ++i;
      continue;
    }
    if (!message.request->test()) return moved;
    finish(queue, queue.begin() + static_cast<std::ptrdiff_t>(i));
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
  while (moved) {  // the end of one step may let another stream's step start
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

// Messages that compute is ordered after are over for everything that follows, because that comes after this compute.
// The same goes for what came before them on their streams. The exception: a host's message that is already here and
// has not begun does not come after that compute. For its sake, messages that it may have to wait for stay until they
// have passed.
void Communication::order_behind(const Picks& picks) {
  std::int64_t last_waiting = -1;
  for (const Queue& queue : queues_)
    for (const Message& message : queue)
      if (!message.request) last_waiting = std::max(last_waiting, message.number);
  for (Queue& queue : queues_) {
    const auto picked = [&](const Message& message) {
      return !message.ends.empty() && !message.ordered && picks(message);
    };
    const auto last = std::find_if(queue.rbegin(), queue.rend(), picked);
    if (last == queue.rend()) continue;
    for (const auto& end : last->ends) order_(*end);
    std::size_t at = 0;
    for (auto left = queue.rend() - last; left > 0; --left) {
      Message& message = queue[at];
      if (trace_ != nullptr && !message.ordered) trace_->ordered.push_back(message.number);
      if (message.on_device.host_memory || message.number < last_waiting) {
        freeing_ -= message.frees && !message.ordered ? 1 : 0;
        message.frees = false;
        if (!std::exchange(message.ordered, true)) message.ordered_by = next_;
        ++at;
      } else {
        finish(queue, queue.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
  }
}

bool Communication::pending(const Picks& picks, Who who) {
  if (pending_ == 0) return false;
  if (who == Who::device) order_behind(picks);
  for (const Queue& queue : queues_)
    for (const Message& message : queue) {
      const bool over = who == Who::device ? message.ordered : passed(message);
      if (picks(message) && !over) return true;
    }
  return false;
}

void Communication::wait_for(const std::vector<Touch>& touches, Who who) {
  const Picks conflicting = [&](const Message& message) { return conflict_between(touches, message.touches); };
  wait([&] { return !pending(conflicting, who); });
}

void Communication::wait_for_freeing() {
  wait([&] { return freeing_ == 0 || !pending([](const Message& message) { return message.frees; }, Who::device); });
}

void Communication::wait_for_all() {
  wait([&] { return !pending([](const Message&) { return true; }, Who::device); });
}

void Communication::forget_from(std::int64_t number) {
  const std::lock_guard guard(lock_);
  for (Queue& queue : queues_)
    while (!queue.empty() && queue.back().number >= number) {
      freeing_ -= queue.back().frees ? 1 : 0;
      queue.pop_back();
      --pending_;
    }
  next_ = number;
}

void Communication::order_behind_from(std::int64_t number) {
  const std::lock_guard guard(lock_);
  order_behind([number](const Message& message) { return message.number >= number; });
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

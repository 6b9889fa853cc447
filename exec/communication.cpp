// Queues of communication steps and the rules of their order.
#include "exec/communication.h"

#include <algorithm>

namespace orrery::exec {

bool conflict(const Touch& a, const Touch& b) {
  return (a.writes || b.writes) && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

void Communication::submit(plan::Stream stream, std::vector<Touch> touches, bool frees, Start start, Observer observer,
                           Describe describe) {
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
  progress();
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
  if (pending_ == 0) return;
  bool moved = true;
  while (moved) {  // the end of one step may let a step of another stream start
    moved = false;
    for (Queue& queue : queues_)
      if (!queue.empty() && advance(queue)) moved = true;
  }
}

void Communication::wait_for(const std::vector<Touch>& touches) {
  if (pending_ == 0 || !conflicts(touches, next_)) return;
  waiter_.until(
      [&] {
        progress();
        return !conflicts(touches, next_);
      },
      [&] { return describe_pending(); });
}

void Communication::wait_for_freeing() {
  if (freeing_ == 0) return;
  waiter_.until(
      [&] {
        progress();
        return freeing_ == 0;
      },
      [&] { return describe_pending(); });
}

void Communication::wait_for_all() {
  if (pending_ == 0) return;
  waiter_.until(
      [&] {
        progress();
        return pending_ == 0;
      },
      [&] { return describe_pending(); });
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

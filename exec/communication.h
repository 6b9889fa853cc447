#pragma once
/// Communication steps in flight: one queue per stream, started and finished in the order that plan/schedule.h gives.
/// A step that may not start yet waits in its queue while compute goes on; conflicts are found by memory ranges, so a
/// buffer that reuses the memory of a message in flight waits for it too.
///
/// Requests move while somebody asks for them: the rank that computes, between its steps, or beside it a progress
/// thread. One lock stands before all of it, so that the transport is never called by two threads at once.
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "exec/transport.h"
#include "exec/waiter.h"
#include "plan/schedule.h"

namespace orrery::exec {

/// Memory that a step touches.
struct Touch {
  const std::byte* begin = nullptr;
  std::int64_t bytes = 0;
  bool writes = false;
};

/// True where the two may not run at once: they overlap and one of them writes.
[[nodiscard]] bool conflict(const Touch& a, const Touch& b);

class Communication {
 public:
  using Start = std::function<std::unique_ptr<Request>()>;
  using Describe = std::function<std::string()>;
  /// Called just before a step starts (on the wire) and when its end is seen; with a progress thread, there.
  struct Observer {
    std::function<void()> started, finished;
  };

  enum class Progress : std::uint8_t { inlined, thread };

  explicit Communication(const Waiter& waiter, Progress progress = Progress::inlined);
  ~Communication();
  Communication(const Communication&) = delete;
  Communication& operator=(const Communication&) = delete;
  /// Queues a step; starts it at once when nothing before it stands in the way. `frees`: it lists deaths.
  void submit(plan::Stream stream, std::vector<Touch> touches, bool frees, Start start, Observer observer,
              Describe describe);
  /// Finishes what has finished and starts what may start. Cheap when nothing is pending.
  void progress();
  /// Waits until no pending step conflicts with `touches`.
  void wait_for(const std::vector<Touch>& touches);
  [[nodiscard]] bool conflicts(const std::vector<Touch>& touches) const;
  /// Waits until no pending step frees memory: compute may be handed that memory.
  void wait_for_freeing();
  void wait_for_all();
  [[nodiscard]] bool idle() const;

 private:
  struct Message {
    std::int64_t number = 0;  ///< program order
    std::vector<Touch> touches;
    bool frees = false;
    Start start;
    Observer observer;
    Describe describe;
    std::unique_ptr<Request> request;
  };
  using Queue = std::deque<Message>;
  // All below expect the lock to be held.
  [[nodiscard]] bool may_start(const Message& message) const;
  [[nodiscard]] bool conflicts(const std::vector<Touch>& touches, std::int64_t before) const;
  bool advance(Queue& queue);
  void move_on();
  void fail_as_the_thread();
  [[nodiscard]] std::string describe_pending() const;
  // Without the lock: until `done`, which is asked under it.
  void wait(const std::function<bool()>& done);
  void serve();

  const Waiter& waiter_;
  mutable std::mutex lock_;
  std::condition_variable work_;
  std::array<Queue, plan::kStreams> queues_;  ///< by plan::Stream
  std::int64_t next_ = 0;
  int pending_ = 0;
  int freeing_ = 0;  ///< pending steps that free memory
  bool ending_ = false;
  std::exception_ptr failure_;  ///< the thread's, for who calls next
  std::thread thread_;          ///< last: it uses all the others
};

}  // namespace orrery::exec

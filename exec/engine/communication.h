#pragma once
/// Communication steps in flight: one queue per stream, started and finished in the order that plan/schedule/schedule.h
/// gives. A step that may not start yet waits in its queue while compute goes on; conflicts are found by memory ranges,
/// so a buffer that reuses the memory of a message in flight waits for it too.
///
/// A message is the host's, which starts it and asks after its end; or the device's, which is started at once, behind
/// points of what it depends on, and is behind points itself: compute that touches the same memory is ordered behind
/// them, and the host waits for nothing. Both keep the same order.
///
/// Requests of the host move while somebody asks for them: the rank that computes, between its steps, or beside it a
/// progress thread. One lock stands before all of it, so that the transport is never called by two threads at once.
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

#include "exec/engine/transport.h"
#include "exec/engine/waiter.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

/// Memory that a step touches.
struct Touch {
  const std::byte* begin = nullptr;
  std::int64_t bytes = 0;
  bool writes = false;
};

/// True where the two may not run at once: they overlap and one of them writes.
[[nodiscard]] bool conflict(const Touch& a, const Touch& b);

/// How a message waits for compute that was queued before it, where compute is queued.
struct OnDevice {
  std::shared_ptr<const Point> computed = nullptr;  ///< null: all of it has run
  bool queues = false;                              ///< its request is the device's
  /// It touches memory of the host's too, where being ordered behind it on the device is not enough.
  bool host_memory = false;
};

class Communication {
 public:
  /// `behind`: what a message of the device's begins behind; of the host's, what it has waited for already.
  using Start = std::function<std::unique_ptr<Request>(const Points& behind)>;
  using Describe = std::function<std::string()>;
  /// Called just before a step starts (on the wire) and when its end is seen; with a progress thread, there.
  struct Observer {
    std::function<void()> started, finished;
  };

  enum class Progress : std::uint8_t { inlined, thread };
  /// What became of messages, by their numbers: for who wants to know why a step had to wait
  /// (exec/engine/graph_runs.h).
  struct Trace {
    std::vector<std::int64_t> submitted;
    std::vector<std::int64_t> ordered;  ///< compute is behind these from now on
    std::vector<std::int64_t> behind;   ///< the device's message begins behind these
    bool host = false;                  ///< a message was the host's, or could not be started at once
  };

  /// `order`: has compute that is queued from now on begin behind a point; needed where requests are the device's.
  explicit Communication(const Waiter& waiter, Progress progress = Progress::inlined,
                         std::function<void(const Point&)> order = {});
  ~Communication();
  Communication(const Communication&) = delete;
  Communication& operator=(const Communication&) = delete;
  /// Queues a step; starts it at once when nothing before it stands in the way. `frees`: it lists deaths.
  void submit(plan::Stream stream, std::vector<Touch> touches, bool frees, Start start, Observer observer,
              Describe describe, OnDevice on_device = {});
  /// Finishes what has finished and starts what may start. Cheap when nothing is pending.
  void progress();
  /// No pending step conflicts with `touches` any more, for who computes next: on the device, which is then behind the
  /// device's messages and waits on the host for the host's alone; or on the host, which waits for both.
  enum class Who : std::uint8_t { device, host };
  void wait_for(const std::vector<Touch>& touches, Who who = Who::device);
  [[nodiscard]] bool conflicts(const std::vector<Touch>& touches) const;
  /// Waits until no pending step frees memory: compute may be handed that memory.
  void wait_for_freeing();
  void wait_for_all();
  [[nodiscard]] bool idle() const;
  /// Into `trace` until told otherwise; null: nowhere. Without a progress thread only.
  void trace_into(Trace* trace) { trace_ = trace; }
  /// Messages from this number on never were: a capture of theirs has failed.
  [[nodiscard]] std::int64_t next_number() const { return next_; }
  void forget_from(std::int64_t number);
  /// Compute that is queued from now on begins behind the device's messages from this number on.
  void order_behind_from(std::int64_t number);

 private:
  struct Message {
    std::int64_t number = 0;  ///< program order
    std::vector<Touch> touches;
    bool frees = false;
    Start start;
    Observer observer;
    Describe describe;
    OnDevice on_device;
    std::unique_ptr<Request> request;
    Points ends;           ///< of a request of the device's
    bool ordered = false;  ///< compute is behind it; still here for the host's sake, or for a message's that waits
    std::int64_t ordered_by = 0;  ///< messages from this number on are behind that compute
  };
  using Queue = std::deque<Message>;
  using Picks = std::function<bool(const Message&)>;
  // All below expect the lock to be held.
  [[nodiscard]] bool may_start(const Message& message, const Message* before, Points& behind) const;
  void start(Message& message, const Points& behind);
  [[nodiscard]] static bool passed(const Message& message);
  void finish(Queue& queue, Queue::iterator message);
  void order_behind(const Picks& picks);
  [[nodiscard]] bool pending(const Picks& picks, Who who);
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
  std::function<void(const Point&)> order_;
  Trace* trace_ = nullptr;
  std::exception_ptr failure_;  ///< the thread's, for who calls next
  std::thread thread_;          ///< last: it uses all the others
};

}  // namespace orrery::exec

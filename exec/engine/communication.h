#pragma once
/// Communication steps in flight: one queue per stream, whose steps start and finish in the order that
/// plan/schedule/schedule.h prescribes. A step that may not start yet waits in its queue while compute goes on. Which
/// steps conflict is decided by plan/schedule/waits.h, here on ranges of addresses, so a buffer that reuses the memory
/// of a message in flight also waits for it.
///
/// A message belongs to the host or to the device. The host starts its own messages and asks whether they have ended.
/// The device's messages are started at once, ordered after points of what they depend on; compute that touches the
/// same memory is ordered after them in turn, and the host waits for nothing. Both keep the same order.
///
/// The host's requests advance only while a thread asks about them: the computing rank between its steps, or a progress
/// thread beside it. One lock guards all of this, so that two threads never call the transport at once.
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

/// Memory that a step touches: a use in the sense of plan/schedule/waits.h.
struct Touch {
  const std::byte* begin = nullptr;
  std::int64_t bytes = 0;
  bool writes = false;
};
[[nodiscard]] inline bool overlap(const Touch& a, const Touch& b) {
  return a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

/// How a message waits for compute that was queued before it, if compute is queued.
struct OnDevice {
  std::shared_ptr<const Point> computed = nullptr;  ///< null: all of it has run
  bool queues = false;                              ///< its request is the device's
  /// It also touches host memory, for which ordering on the device is not enough.
  bool host_memory = false;
};

class Communication {
 public:
  /// `behind`: a device's message begins after these points; a host's message has already waited for them.
  using Start = std::function<std::unique_ptr<Request>(const Points& behind)>;
  using Describe = std::function<std::string()>;
  /// Called just before a step starts (on the wire), and when its end is seen; both on the progress thread, if there is
  /// one.
  struct Observer {
    std::function<void()> started, finished;
  };

  enum class Progress : std::uint8_t { inlined, thread };
  /// What happened to messages, by number: it shows why a step had to wait (exec/engine/graph_runs.h).
  struct Trace {
    std::vector<std::int64_t> submitted;
    std::vector<std::int64_t> ordered;  ///< compute is ordered after these from now on
    std::vector<std::int64_t> behind;   ///< the device's message begins after these
    bool host = false;                  ///< a message was the host's, or could not start at once
  };

  /// `order` makes compute that is queued from now on begin after a point; needed if requests are the device's.
  explicit Communication(const Waiter& waiter, Progress progress = Progress::inlined,
                         std::function<void(const Point&)> order = {});
  ~Communication();
  Communication(const Communication&) = delete;
  Communication& operator=(const Communication&) = delete;
  /// Queues a step, and starts it at once if nothing conflicts. `frees`: it lists deaths.
  void submit(plan::Stream stream, std::vector<Touch> touches, bool frees, Start start, Observer observer,
              Describe describe, OnDevice on_device = {});
  /// Finishes steps that have ended and starts those that may start. Cheap when nothing is pending.
  void progress();
  /// Makes sure that no pending step conflicts with `touches`, before the device or the host computes on them. The
  /// device is ordered after its own messages, and waits on the host only for the host's messages; the host waits for
  /// both.
  enum class Who : std::uint8_t { device, host };
  void wait_for(const std::vector<Touch>& touches, Who who = Who::device);
  [[nodiscard]] bool conflicts(const std::vector<Touch>& touches) const;
  /// Waits until no pending step frees memory, so that compute may be given that memory.
  void wait_for_freeing();
  void wait_for_all();
  [[nodiscard]] bool idle() const;
  /// Records into `trace` until called again; null: stops. Only without a progress thread.
  void trace_into(Trace* trace) { trace_ = trace; }
  /// forget_from: cancels messages from that number on, because their capture has failed and they never ran.
  [[nodiscard]] std::int64_t next_number() const { return next_; }
  void forget_from(std::int64_t number);
  /// Orders compute that is queued from now on after the device's messages from this number on.
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
    Points ends;                  ///< of a device's request
    bool ordered = false;         ///< compute is ordered after it; kept for the host, or for a message that still waits
    std::int64_t ordered_by = 0;  ///< the first message number after that compute
  };
  using Queue = std::deque<Message>;
  using Picks = std::function<bool(const Message&)>;
  // The lock must be held for all below.
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
  // Call without the lock. Waits until `done`, which is called with it.
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
  std::exception_ptr failure_;  ///< the thread's, thrown to the next caller
  std::thread thread_;          ///< last: it uses all the others
};

}  // namespace orrery::exec

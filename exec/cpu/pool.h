#pragma once
/// Pool: the few threads that share the rows of one kernel. Work is divided into chunks whose boundaries depend only on
/// the work. A free thread takes the next chunk, so a thread that the system has put to sleep delays only its own
/// chunk. Waiting spins for some microseconds, then sleeps, because ranks may outnumber cores.
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace orrery::exec {

class Pool {
 public:
  explicit Pool(int threads);  ///< the calling thread counts as one
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  [[nodiscard]] int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(begin, end, thread) over [0, count) in chunks of `chunk`, in the calling thread alone if one chunk is
  /// enough. `thread` is in [0, threads()). The body must not throw. Not reentrant.
  template <class Body>
  void each(std::int64_t count, std::int64_t chunk, Body&& body) {
    if (count <= 0) return;
    if (workers_.empty() || count <= chunk) {
      body(std::int64_t{0}, count, 0);
      return;
    }
    publish({[](void* context, std::int64_t begin, std::int64_t end, int thread) {
               (*static_cast<std::remove_reference_t<Body>*>(context))(begin, end, thread);
             },
             const_cast<void*>(static_cast<const void*>(&body)), count, chunk});
  }

 private:
  struct Job {
    void (*call)(void*, std::int64_t, std::int64_t, int) = nullptr;
    void* context = nullptr;
    std::int64_t count = 0;
    std::int64_t chunk = 1;
  };
  void publish(const Job& job);
  bool take_one(int thread);
  void work(int thread);

  Job job_;                                  ///< stable while one of its chunks is unfinished
  std::atomic<std::uint64_t> ticket_{0};     ///< generation << 32 | chunks not yet taken
  std::atomic<std::int32_t> unfinished_{0};  ///< chunks
  std::atomic<std::int32_t> wake_{0};        ///< changes with each job; sleepers watch it
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace orrery::exec

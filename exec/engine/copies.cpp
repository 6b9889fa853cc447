// Threads that copy.
#include "exec/engine/copies.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "exec/engine/reduce.h"

namespace orrery::exec {
namespace {

struct CopyJob {
  std::function<void()> work;
  std::exception_ptr error;
  std::atomic<bool> done{false};
};

class Copy : public Request {
 public:
  explicit Copy(std::shared_ptr<CopyJob> job) : job_(std::move(job)) {}
  bool test() override {
    if (!job_->done.load(std::memory_order_acquire)) return false;
    if (job_->error) std::rethrow_exception(job_->error);
    return true;
  }

 private:
  std::shared_ptr<CopyJob> job_;
};

}  // namespace

class CopyEngines::Engine {
 public:
  Engine() : thread_([this] { loop(); }) {}
  ~Engine() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void add(std::shared_ptr<CopyJob> job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    wake_.notify_one();
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const std::shared_ptr<CopyJob> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      try {
        job->work();
      } catch (...) {
        job->error = std::current_exception();
      }
      job->done.store(true, std::memory_order_release);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<CopyJob>> jobs_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

CopyEngines::CopyEngines() = default;
CopyEngines::~CopyEngines() = default;

std::unique_ptr<Request> CopyEngines::run(plan::Stream stream, std::function<void()> work) {
  std::unique_ptr<Engine>& engine = engines_[static_cast<std::size_t>(stream)];
  if (!engine) engine = std::make_unique<Engine>();
  auto job = std::make_shared<CopyJob>();
  job->work = std::move(work);
  engine->add(job);
  return std::make_unique<Copy>(std::move(job));
}

// Values that are not fp32 come piece by piece, each added while it is in the cache.
void add_between(Backend& backend, std::byte* to, const std::byte* from, std::int64_t elements, models::DType dtype) {
  const std::int64_t size = models::size_of(dtype);
  if (dtype == models::DType::fp32)
    return backend.copy_between(to, from, static_cast<std::size_t>(elements * size), true);
  // A device's piece is waited for, so it must be large enough to be worth a wait.
  const std::int64_t most = (backend.asynchronous() ? std::int64_t{1} << 20 : std::int64_t{1} << 14) / size;
  std::vector<std::max_align_t> memory(
      static_cast<std::size_t>(std::min(elements, most) * size) / sizeof(std::max_align_t) + 1);
  auto* const piece = reinterpret_cast<std::byte*>(memory.data());
  for (std::int64_t at = 0; at < elements; at += most) {
    const std::int64_t count = std::min(most, elements - at);
    backend.copy_between(piece, from + at * size, static_cast<std::size_t>(count * size), false);
    reduce_into(to + at * size, piece, count, dtype, plan::Reduce::sum);
  }
}

}  // namespace orrery::exec

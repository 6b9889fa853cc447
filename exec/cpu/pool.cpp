// How the pool hands over work: a ticket holds the generation and the remaining chunks, so that a late thread can never
// take a chunk of a finished job.
#include "exec/cpu/pool.h"

#include "base/ensure.h"

namespace orrery::exec {
namespace {

/// About 20 microseconds: longer than the gap between two kernels of a step, shorter than a time slice.
constexpr int spins_before_sleep = 400;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

constexpr std::uint64_t remaining_mask = 0xffffffffU;

}  // namespace

Pool::Pool(int threads) {
  ENSURE(threads >= 1, "a pool of {} threads", threads);
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
}

Pool::~Pool() {
  stop_.store(true, std::memory_order_release);
  wake_.fetch_add(1, std::memory_order_release);
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Pool::publish(const Job& job) {
  const std::int64_t chunks = (job.count + job.chunk - 1) / job.chunk;
  ENSURE(chunks < (std::int64_t{1} << 31), "{} chunks", chunks);
  job_ = job;
  unfinished_.store(static_cast<std::int32_t>(chunks), std::memory_order_relaxed);
  const std::uint64_t generation = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store(generation << 32 | static_cast<std::uint64_t>(chunks), std::memory_order_release);
  wake_.fetch_add(1, std::memory_order_release);
  wake_.notify_all();
  while (take_one(0)) {
  }
  for (int spin = 0; spin < spins_before_sleep; ++spin) {
    if (unfinished_.load(std::memory_order_acquire) == 0) return;
    pause_briefly();
  }
  for (std::int32_t left = unfinished_.load(std::memory_order_acquire); left != 0;
       left = unfinished_.load(std::memory_order_acquire))
    unfinished_.wait(left, std::memory_order_acquire);
}

bool Pool::take_one(int thread) {
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if ((ticket & remaining_mask) == 0) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel, std::memory_order_acquire));
  const Job& job = job_;
  const std::int64_t index = static_cast<std::int64_t>(ticket & remaining_mask) - 1;
  const std::int64_t begin = index * job.chunk;
  const std::int64_t end = begin + job.chunk < job.count ? begin + job.chunk : job.count;
  job.call(job.context, begin, end, thread);
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_all();
  return true;
}

void Pool::work(int thread) {
  while (true) {
    const std::int32_t seen = wake_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) return;
    while (take_one(thread)) {
    }
    int spin = 0;
    while (spin < spins_before_sleep && wake_.load(std::memory_order_acquire) == seen) {
      pause_briefly();
      ++spin;
    }
    if (spin == spins_before_sleep) wake_.wait(seen, std::memory_order_acquire);
  }
}

}  // namespace orrery::exec

#pragma once
/// Runs many independent items on a few threads, each with its own worker.
#include <atomic>
#include <cstddef>
#include <future>
#include <memory>
#include <vector>

namespace orrery::sim {

/// Calls (*worker)(i) once for every i below `count`, by the next free worker, and at last each worker's finish(stop),
/// if it has one. The first worker runs on this thread and calls tell(items begun) between pieces. Ends early once
/// `stop` is set. An exception from a worker is rethrown here
/// after all workers have ended.
template <class Worker, class Tell>
void share_out(const std::vector<std::unique_ptr<Worker>>& workers, std::size_t count, std::size_t piece,
               const std::atomic<bool>* stop, const Tell& tell) {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  const auto work = [&](Worker& worker, bool tells) {
    try {
      for (std::size_t first = next.fetch_add(piece); first < count; first = next.fetch_add(piece)) {
        if (failed) return;
        if (stop && stop->load(std::memory_order_relaxed)) break;
        if (tells) tell(first);
        for (std::size_t i = first; i < count && i < first + piece; ++i) worker(i);
      }
      if constexpr (requires { worker.finish(stop); }) worker.finish(stop);
    } catch (...) {
      failed = true;
      throw;
    }
  };
  std::vector<std::future<void>> others;
  for (std::size_t w = 1; w < workers.size(); ++w)
    others.push_back(std::async(std::launch::async, [&work, &worker = *workers[w]] { work(worker, false); }));
  work(*workers.front(), true);
  for (std::future<void>& other : others) other.get();
}

}  // namespace orrery::sim

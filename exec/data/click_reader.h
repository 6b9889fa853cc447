#pragma once
/// Reads the samples of coming steps on a thread of its own while the rank computes. A step gets exactly what it would
/// have read itself; only the time of reading differs.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "exec/data/data.h"

namespace orrery::exec {

class ClickReader {
 public:
  /// Reads samples [first, first + count) of each step, for up to `ahead` steps beyond the last one requested.
  /// `batches` must outlive the reader and stay unchanged.
  ClickReader(const Batches& batches, std::int64_t first, std::int64_t count, int ahead);
  ~ClickReader();
  ClickReader(const ClickReader&) = delete;
  ClickReader& operator=(const ClickReader&) = delete;

  /// Waits for the step's samples if necessary. Steps are expected in order; any other step (one that is repeated)
  /// makes the reader start again there. Throws what reading this very step threw.
  void load(std::int64_t step, const ClickBatch& out);
  /// Number of steps that are read and not requested yet.
  [[nodiscard]] std::size_t ready();

 private:
  struct Ready {
    std::vector<float> dense, labels;
    std::vector<std::int32_t> indices;
    std::exception_ptr failure;
  };
  void work();
  [[nodiscard]] Ready read(std::int64_t step) const;

  const Batches& batches_;
  const std::int64_t first_, count_;
  const std::size_t ahead_;
  std::mutex mutex_;
  std::condition_variable wanted_, there_;
  std::deque<Ready> ready_;    ///< of consecutive steps
  std::int64_t coming_ = 0;    ///< the step requested next, if they come in order
  std::int64_t next_ = 0;      ///< the step to read next
  std::int64_t restarts_ = 0;  ///< how often it began elsewhere; what was read before that is discarded
  bool begun_ = false, ends_ = false;
  std::thread thread_;
};

}  // namespace orrery::exec

#pragma once
/// Samples of coming steps, read on a thread of its own while the rank computes. What a step gets is what reading it by
/// itself would give: only the time at which it is read is another.
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
  /// Of each step samples [first, first + count), of up to `ahead` steps behind the last one that was asked for.
  /// `batches` outlives the reader and stays as it is.
  ClickReader(const Batches& batches, std::int64_t first, std::int64_t count, int ahead);
  ~ClickReader();
  ClickReader(const ClickReader&) = delete;
  ClickReader& operator=(const ClickReader&) = delete;

  /// Waits for the step's samples, if they are not there. Steps come in order; one that does not (a step that is done
  /// again) makes the reader begin there. Throws what reading this very step threw.
  void load(std::int64_t step, const ClickBatch& out);
  /// Steps that are read and not yet asked for.
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
  std::deque<Ready> ready_;    ///< of steps that follow one another
  std::int64_t coming_ = 0;    ///< the step that is asked for next, if they come in order
  std::int64_t next_ = 0;      ///< the step that is read next
  std::int64_t restarts_ = 0;  ///< of what was read before one nobody wants any more
  bool begun_ = false, ends_ = false;
  std::thread thread_;
};

}  // namespace orrery::exec

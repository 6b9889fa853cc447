#pragma once
/// Copies between a rank's memories, while it computes: one thread per stream, started with its first copy, as a GPU
/// has one copy engine per direction. Failures are thrown to the caller that asks about the copy.
#include <array>
#include <functional>
#include <memory>

#include "exec/engine/backend.h"
#include "exec/engine/transport.h"
#include "plan/schedule/schedule.h"

namespace orrery::exec {

class CopyEngines {
 public:
  CopyEngines();
  ~CopyEngines();  ///< waits for copies in progress
  CopyEngines(const CopyEngines&) = delete;
  CopyEngines& operator=(const CopyEngines&) = delete;

  /// Jobs of one stream run in the order given.
  [[nodiscard]] std::unique_ptr<Request> run(plan::Stream stream, std::function<void()> work);

 private:
  class Engine;
  std::array<std::unique_ptr<Engine>, plan::kStreams> engines_;
};

/// `to`, in host memory, += `from`, in device memory: `elements` values of `dtype`. 16-bit values are added in fp32 and
/// rounded again, as in all other sums. Returns when done; called by threads beside the computing one.
void add_between(Backend& backend, std::byte* to, const std::byte* from, std::int64_t elements, models::DType dtype);

}  // namespace orrery::exec

#pragma once
/// Copies between a rank's memories, done beside its computing: a thread for each stream, started with its first copy,
/// as a GPU has a copy engine for each direction. What fails there is thrown where the copy is asked after.
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
  ~CopyEngines();  ///< waits for what is under way
  CopyEngines(const CopyEngines&) = delete;
  CopyEngines& operator=(const CopyEngines&) = delete;

  /// Work of one stream runs in the order in which it is given.
  [[nodiscard]] std::unique_ptr<Request> run(plan::Stream stream, std::function<void()> work);

 private:
  class Engine;
  std::array<std::unique_ptr<Engine>, plan::kStreams> engines_;
};

/// `to`, of the host's memory, += `from`, of the device's: `elements` values of `dtype`, those of 16 bits added in fp32
/// and rounded again, as every other sum of theirs. Returns when it is done; called by threads beside the one that
/// computes.
void add_between(Backend& backend, std::byte* to, const std::byte* from, std::int64_t elements, models::DType dtype);

}  // namespace orrery::exec

#pragma once
/// Times queued work with none of its operands in the second-level cache. In a training step, hundreds of megabytes
/// pass between two uses of a matrix. A loop over one product would find up to all of its operands in the cache (50 MB
/// on Hopper), and the fastest kernel there need not be the fastest in the step.
#include <cuda_runtime.h>

#include <functional>
#include <limits>

#include "exec/cuda/handles.h"

namespace orrery::exec::cuda {

class ColdTimer {
 public:
  /// Allocates twice the cache's size of device memory for its lifetime. If the device has no such memory left,
  /// measures with whatever is in the cache.
  ColdTimer();
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  /// Device seconds of one run of `work`, which queues on `stream`; the host waits. kNever if `work` returns false.
  /// Throws Failure if the device reports an error.
  [[nodiscard]] double seconds(cudaStream_t stream, const std::function<bool()>& work) const;
  [[nodiscard]] bool cold() const { return room_.bytes() > 0; }

 private:
  DeviceMemory room_;
  Event from_{true}, to_{true};
};

}  // namespace orrery::exec::cuda

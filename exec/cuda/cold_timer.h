#pragma once
/// Times what is queued with none of its operands in the second-level cache: in a training step hundreds of megabytes
/// lie between two uses of a matrix, while a loop over one product finds up to all of them there (50 MB on Hopper), and
/// the kernel that is fastest then need not be the one that is fastest in the step.
#include <cuda_runtime.h>

#include <functional>
#include <limits>

#include "exec/cuda/handles.h"

namespace orrery::exec::cuda {

class ColdTimer {
 public:
  /// Takes room of twice the cache for as long as it lives. Where a device has none to give, times are taken with
  /// whatever is in the cache.
  ColdTimer();
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  /// Seconds on the device of one run of `work`, which queues on `stream`; the host waits. kNever where it returns
  /// false. Throws Failure on an error of the device.
  [[nodiscard]] double seconds(cudaStream_t stream, const std::function<bool()>& work) const;
  [[nodiscard]] bool cold() const { return room_.bytes() > 0; }

 private:
  DeviceMemory room_;
  Event from_{true}, to_{true};
};

}  // namespace orrery::exec::cuda

// Fills the cache with other data before each run.
#include "exec/cuda/cold_timer.h"

#include "exec/cuda/check.h"

namespace orrery::exec::cuda {
namespace {

constexpr std::size_t kTimesTheCache = 2;  // lines are not replaced in order of use: a single pass would leave some

DeviceMemory room_of_the_cache() {
  int device = 0, bytes = 0;
  check(cudaGetDevice(&device), "asking for the device");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "asking for the second-level cache's size");
  try {
    return DeviceMemory(kTimesTheCache * static_cast<std::size_t>(bytes), "timing with a cold cache");
  } catch (const Failure&) {
    static_cast<void>(cudaGetLastError());
    return {};
  }
}

}  // namespace

ColdTimer::ColdTimer() : room_(room_of_the_cache()) {}

double ColdTimer::seconds(cudaStream_t stream, const std::function<bool()>& work) const {
  if (cold()) check(cudaMemsetAsync(room_.data(), 0, room_.bytes(), stream), "emptying the cache");
  from_.record(stream);
  if (!work()) return kNever;
  to_.record(stream);
  check(cudaEventSynchronize(to_.get()), "timing");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, from_.get(), to_.get()), "timing");
  return static_cast<double>(milliseconds) * 1e-3;
}

}  // namespace orrery::exec::cuda

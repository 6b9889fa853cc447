#pragma once
/// A failed process' end that nothing holds up. Ending what is in flight on a device may block for ever: NCCL's abort
/// waits for the device and for graphs, and freeing device memory waits for kernels whose peer is gone.
#include <chrono>

namespace orrery::exec {

/// The most that ending its device may take a rank that has failed and said why.
inline constexpr std::chrono::seconds kLongestFarewell{30};

/// The process has so long from now on; then it ends with `code`, at once: nothing is flushed, no handler runs. Not to
/// be taken back. By any thread.
void leave_within(std::chrono::milliseconds patience, int code);

}  // namespace orrery::exec

#pragma once
/// Ends a failed process although something could hold it up. Ending what is in flight on a device may block for ever:
/// NCCL's abort waits for the device and for graphs, and freeing device memory waits for kernels whose peer is gone.
#include <chrono>

namespace orrery::exec {

/// The longest that a rank which has failed and said why may take to shut its device down.
inline constexpr std::chrono::seconds kLongestFarewell{30};

/// Gives the process this long; then it ends with `code` at once: nothing is flushed, no handler runs. Cannot be
/// undone. May be called on any thread.
void leave_within(std::chrono::milliseconds patience, int code);

}  // namespace orrery::exec

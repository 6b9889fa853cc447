#pragma once
/// Clocks of ranks: each one's offset to rank 0's, by ping-pong (Cristian 1989: half the shortest round trip bounds the
/// error). Measured at the start and the end of a run, and interpolated linearly in between.
#include "exec/engine/execute.h"
#include "exec/engine/transport.h"
#include "exec/engine/waiter.h"

namespace orrery::exec {

struct ClockReading {
  Nanoseconds local = 0;   ///< when it was measured, on this rank's clock
  Nanoseconds offset = 0;  ///< rank 0's clock - this clock
  Nanoseconds error = 0;   ///< half the shortest round trip
};

/// Collective.
[[nodiscard]] ClockReading read_clock(Transport& transport, const Waiter& waiter);

/// Converts this rank's clock to rank 0's.
struct ClockLine {
  ClockReading begin, end;
  [[nodiscard]] double seconds(Nanoseconds local, Nanoseconds origin) const;  ///< since rank 0's clock showed `origin`
};

}  // namespace orrery::exec

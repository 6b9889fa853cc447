#pragma once
/// The clockwork of simulate(): what each class did when. Private to sim/.
#include <cstdint>
#include <vector>

#include "cost/pricing.h"
#include "plan/schedule.h"
#include "plan/timeline.h"

namespace orrery::sim {

using Picoseconds = std::int64_t;

/// Busy and waiting time of one class's compute stream and of its messages over one training step.
struct ClassTotals {
  std::vector<Picoseconds> compute;  ///< by plan::Phase
  std::vector<Picoseconds> exposed;  ///< by plan::Stream of the message waited for
  Picoseconds bubble = 0;
  Picoseconds end = 0;
  /// By [block][step]: transfer time (summed over entries), exposed time, executions.
  struct Message {
    std::int64_t count = 0;
    Picoseconds time = 0, exposed = 0;
  };
  std::vector<std::vector<Message>> messages;
};

struct Replay {
  std::vector<ClassTotals> classes;
  Picoseconds makespan = 0;
  std::vector<plan::Span> spans;  ///< seconds
};

[[nodiscard]] Replay replay(const plan::Schedule& schedule, const cost::Pricing& pricing, bool spans);

}  // namespace orrery::sim

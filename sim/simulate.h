#pragma once
/// Replays a Schedule: one representative of each rank class runs its program under the rules of plan/schedule.h,
/// classes meet in sends, receives and collectives, and every step gets its time from cost::Pricing. The clock is an
/// integer count of picoseconds, so equal inputs give equal bytes.
#include "cost/pricing.h"
#include "cost/results.h"
#include "plan/plan.h"
#include "plan/schedule.h"
#include "plan/timeline.h"

namespace orrery::sim {

struct SimulateOptions {
  bool spans = true;  ///< note a span per executed step (one rank per class); false saves memory in a search
};

struct Simulation {
  cost::Prediction prediction;  ///< simulation_seconds is left to the caller, who owns a clock
  plan::Timeline timeline;      ///< spans of the classes' representatives
};

/// `schedule` must have passed plan::check. What a rank waits for another stage (before the last partner of a message
/// has arrived, and after its own end until the slowest rank's) is bubble; what it waits while a transfer runs is
/// exposed communication. Streams that the stack cannot overlap make progress only while the compute stream waits.
[[nodiscard]] Simulation simulate(const plan::Plan& plan, const plan::Schedule& schedule, const cost::Pricing& pricing,
                                  const SimulateOptions& options = {});

/// Lowers with the stack's habits, checks and replays. A failed check is a bug and aborts.
[[nodiscard]] Simulation simulate(const plan::Plan& plan, const cost::Pricing& pricing,
                                  const SimulateOptions& options = {});

}  // namespace orrery::sim

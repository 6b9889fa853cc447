#pragma once
/// One training step of a run of a pipeline that never drains: the time of one of many equal steps. Private to sim/.
#include "sim/replay/replay.h"

namespace orrery::sim {

/// Replays a run until after its pipeline has filled, and the same run with more steps: the difference divided by the
/// number of added steps is one step. As many steps are added as are in flight at once, after which their pattern
/// repeats. Spans are those of one step in the middle, relative to the start of its first rank.
[[nodiscard]] Replay steady_step(const JobOnCluster& job, const clusters::Cluster& cluster, const Fabric* fabric,
                                 const ReplayOptions& options);

}  // namespace orrery::sim

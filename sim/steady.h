#pragma once
/// A training step of a pipeline that never drains, out of a run: what one of many equal steps takes. Private to sim/.
#include "sim/replay.h"

namespace orrery::sim {

/// Replays a run until its pipeline has filled and further, and the same run some steps longer: what these add, divided
/// by their number, is a step. As many are added as are in flight at once, after which their pattern repeats.
/// Spans are those of one step in the middle, from its first rank's beginning.
[[nodiscard]] Replay steady_step(const JobOnCluster& job, const clusters::Cluster& cluster, const Fabric* fabric,
                                 const ReplayOptions& options);

}  // namespace orrery::sim

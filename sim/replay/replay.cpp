// Folds jobs into classes and replays them.
#include "sim/replay/replay.h"

#include "sim/replay/machine.h"

namespace orrery::sim {

Replay replay(std::span<const JobOnCluster> jobs, const clusters::Cluster& cluster, const Fabric* fabric,
              const ReplayOptions& options) {
  const Traffic traffic = traffic_of(jobs, cluster, fabric);
  const Folded folded = fold(traffic, jobs, fabric, options.every_rank);
  return Machine(jobs, traffic, folded, fabric, options).run();
}

}  // namespace orrery::sim

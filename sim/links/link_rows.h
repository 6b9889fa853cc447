#pragma once
/// Utilisation of links by class, from the bytes that each direction carried in a replay.
#include <vector>

#include "clusters/cluster.h"
#include "cost/results.h"
#include "sim/links/fabric.h"

namespace orrery::sim {

struct Carried {
  int link = 0;  ///< a direction of the fabric
  double bytes = 0;
};

/// Rows by name: each kind of link, and for the network each tier ("infiniband", "leaf-spine", "spine-core"). Means are
/// over all links of a class in the cluster, including idle ones. `seconds`: the replay's duration.
[[nodiscard]] std::vector<cost::LinkRow> link_rows(const Fabric& fabric, const clusters::Cluster& cluster,
                                                   const std::vector<Carried>& carried, double seconds);

}  // namespace orrery::sim

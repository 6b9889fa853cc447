#pragma once
/// What links of a kind are called on a cluster.
#include <string>

#include "clusters/cluster.h"

namespace orrery::clusters {

/// The kind's word; that of links between devices is what the cluster calls them ("ici"), or "torus".
[[nodiscard]] std::string name_on(const Cluster& cluster, LinkKind kind);

}  // namespace orrery::clusters

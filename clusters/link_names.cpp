/// Names of links between devices.
#include "clusters/link_names.h"

namespace orrery::clusters {

std::string name_on(const Cluster& cluster, LinkKind kind) {
  if (kind != LinkKind::nvlink || !cluster.shape) return name_of(kind);
  const NodeShape& node = cluster.shape->node;
  if (!node.link_name.empty()) return node.link_name;
  return node.fabric == NodeFabric::torus ? "torus" : name_of(kind);
}

}  // namespace orrery::clusters

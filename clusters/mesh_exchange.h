#pragma once
/// All-to-alls in a node whose devices are not all linked to each other.
#include "clusters/cluster.h"

namespace orrery::clusters {

/// The share of the bandwidth of a device's links that an all-to-all among all `devices` of a mesh reaches. Messages
/// between two devices without a link pass through a third one, of those whose slower link is widest; the most loaded
/// link decides. (NCCL's PATH_NVB, src/graph/paths.cc: NVLink through an intermediate device.) 1: all have links, or
/// there is no mesh; also where two devices have no such third one, whose messages go another way altogether.
[[nodiscard]] double mesh_exchange_share(const NodeShape& node, int devices);

}  // namespace orrery::clusters

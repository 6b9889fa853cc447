#pragma once
/// From the description of a regular cluster to its graph and its link classes. For the readers of this room.
#include "clusters/cluster.h"

namespace orrery::clusters {

/// Fills graph, device_vertices, intra, inter, nics_per_node and oversubscription from shape, nodes and
/// devices_per_node. The shape is known to be sound (clusters/read.cpp checks it).
void build(Cluster& cluster);

/// intra, inter, nics_per_node, oversubscription, host_memory and nvme of a cluster that has a shape.
void describe(Cluster& cluster);

/// A torus of devices in boxes: each node is a block, its devices and the nodes numbered with the first dimension
/// running fastest.
struct Torus {
  std::vector<int> dims, block;
  [[nodiscard]] int device(const std::vector<int>& at) const;  ///< global device at these coordinates
};
[[nodiscard]] Torus torus_of(const Cluster& cluster);
/// The extents nearest to a cube that `nodes` blocks make; empty when they make none.
[[nodiscard]] std::vector<int> torus_for(const std::vector<int>& block, int nodes);

/// An upper bound of the vertices that build() would make.
[[nodiscard]] double vertices_of(const NodeShape& node, double nodes, int devices_per_node);

/// intra and inter of a cluster given link by link: the slowest pair of neighbours in node 0, and what leaves node 0
/// shared by its devices.
void summarize(Cluster& cluster);

/// Leaf group and pod of a node; both 0 on a cluster without a shape.
[[nodiscard]] int leaf_group_of(const Cluster& cluster, int node);
[[nodiscard]] int pod_of(const Cluster& cluster, int node);
/// The node's NIC that is nearest to a device of it, by local indices; -1 without NICs.
[[nodiscard]] int nic_of(const NodeShape& node, int local_device, int devices_per_node);

}  // namespace orrery::clusters

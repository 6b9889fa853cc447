#pragma once
/// Turns the description of a regular cluster into its graph and its link classes. For the readers of this folder.
#include "clusters/cluster.h"

namespace orrery::clusters {

/// Fills graph, device_vertices, intra, inter, nics_per_node and oversubscription from shape, nodes and
/// devices_per_node. The shape must have passed the checks of clusters/read.cpp.
void build(Cluster& cluster);

/// Fills intra, inter, nics_per_node, oversubscription, host_memory and nvme of a cluster that has a shape.
void describe(Cluster& cluster);

/// A torus of devices divided into boxes: each node is one box. Devices are numbered within their box, and nodes in the
/// torus, with the first dimension running fastest.
struct Torus {
  std::vector<int> dims, block;
  [[nodiscard]] int device(const std::vector<int>& at) const;  ///< global device at these coordinates
  [[nodiscard]] std::vector<int> place(int device) const;      ///< coordinates of a device
};
[[nodiscard]] Torus torus_of(const Cluster& cluster);
/// The most cubic torus that `nodes` blocks can form; empty when they form none.
[[nodiscard]] std::vector<int> torus_for(const std::vector<int>& block, int nodes);

/// An upper bound on the number of vertices that build() makes.
[[nodiscard]] double vertices_of(const NodeShape& node, double nodes, int devices_per_node);

/// Fills intra, inter, host_memory and nvme of a cluster given link by link: intra from the slowest pair of neighbours
/// in node 0, inter from the bandwidth that leaves node 0, divided among its devices.
void summarize(Cluster& cluster);

/// Leaf group and pod of a node; both 0 on a cluster without a shape.
[[nodiscard]] int leaf_group_of(const Cluster& cluster, int node);
[[nodiscard]] int pod_of(const Cluster& cluster, int node);
/// The NIC nearest to a device of the same node, by local indices; -1 without NICs.
[[nodiscard]] int nic_of(const NodeShape& node, int local_device, int devices_per_node);

}  // namespace orrery::clusters

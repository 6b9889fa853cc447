#pragma once
/// What the network offers a group of devices: how many nodes it spans, the bottleneck between neighbours, and the
/// route between two devices.
#include <vector>

#include "clusters/cluster.h"

namespace orrery::clusters {

/// A regular group of ranks: base + sum(i_k * stride_k), 0 <= i_k < size_k. Rank r is device r.
struct GroupSpan {
  int nodes = 1;     ///< nodes that the group touches
  int per_node = 1;  ///< the most members in any node
  bool within_node = true;
  BytesPerSecond bandwidth;  ///< per member and direction on the slowest hop, with no other traffic
  Seconds latency;           ///< of that hop, including the network software's time per message
  int hops = 0;              ///< messages one after another until all members have all; 0: one less than members
  BytesPerSecond exchange;   ///< per member, when all send to all; 0: as `bandwidth`
};

/// Summarizes a group given by its members (one representative group, never every rank). `sharing` groups of the same
/// kind run at once through the same NICs: bandwidth between nodes is divided by the number of members, of any group,
/// that share a NIC. A torus is one fabric without nodes: there `sharing` beyond 1 means that groups whose members lie
/// between those of this one do the same.
[[nodiscard]] GroupSpan span_of(const Cluster& cluster, const std::vector<int>& members, int sharing = 1);

/// Vertices from device a to device b by Dijkstra on latency, then bandwidth; empty when a == b. Takes time
/// proportional to the size of the graph: for many pairs use Paths (clusters/paths.h).
[[nodiscard]] std::vector<Graph::vertex_descriptor> route(const Cluster& cluster, int a, int b);
/// Slowest link on that route, per direction.
[[nodiscard]] BytesPerSecond bottleneck(const Cluster& cluster, int a, int b);
[[nodiscard]] Seconds latency(const Cluster& cluster, int a, int b);
/// Max-flow between the first half of the devices and the second, per direction. On a regular cluster each node is
/// collapsed into what it can send, so that 100,000 devices take milliseconds; on a torus links are counted.
[[nodiscard]] BytesPerSecond bisection(const Cluster& cluster);

}  // namespace orrery::clusters

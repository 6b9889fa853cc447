#pragma once
/// Paths from a device to its host's memory and on to the node's drives: the links that a copy crosses, and the
/// bandwidth that remains when all devices of a node copy at once.
#include <vector>

#include "clusters/cluster.h"

namespace orrery::clusters {

struct HostPath {
  std::vector<int> links;    ///< directions, numbered as in clusters/paths.h; empty: the graph has no such place
  BytesPerSecond bandwidth;  ///< of the slowest link
  Seconds latency;           ///< sum over the links
};

class HostPaths {
 public:
  /// Copies what it needs from the cluster's graph.
  explicit HostPaths(const Cluster& cluster);

  /// From a device to the nearest memory of its node's sockets. The way back uses the same links reversed.
  [[nodiscard]] HostPath to_memory(int device) const;
  /// From that memory to the nearest drives of the node.
  [[nodiscard]] HostPath to_drives(int device) const;

  /// Bandwidth of each device of the first node when all of them copy at once (the minimum over devices), bytes/s; 0
  /// without a path.
  [[nodiscard]] BytesPerSecond shared_to_memory() const { return shared(false); }
  [[nodiscard]] BytesPerSecond shared_to_drives() const { return shared(true); }

 private:
  struct Arc {
    int to = 0, link = 0;
    double latency = 0, bandwidth = 0;
  };
  [[nodiscard]] HostPath nearest(int from, VertexKind kind) const;
  [[nodiscard]] int end_of(int from, const HostPath& path) const;
  [[nodiscard]] BytesPerSecond shared(bool drives) const;

  std::vector<int> first_;  // of each vertex, in arcs_
  std::vector<Arc> arcs_;
  std::vector<VertexKind> kinds_;
  std::vector<int> nodes_, vertex_of_;
  int per_node_ = 1;
};

}  // namespace orrery::clusters

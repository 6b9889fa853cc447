#pragma once
/// A cluster's graph for a replay of all ranks: numbered directions of links, and fast queries for routes between
/// devices. A route is found once per kind of node (equal nodes share it) and once per pair of switches that NICs
/// connect to, never for every pair of devices.
///
/// A device sends to another node through its nearest NICs; devices that are equally near to several NICs divide them
/// in order, as NCCL does. If a node has more NICs than devices, a device's traffic is spread over its own NICs. On a
/// torus or a mesh routes keep to the devices' own links (clusters::relays).
#include <cstdint>
#include <memory>
#include <vector>

#include "clusters/cluster.h"

namespace orrery::sim {

/// One direction of a link of the graph: 2 * edge + (0 from source to target, 1 back), edges in the graph's order.
struct Direction {
  clusters::LinkKind kind = clusters::LinkKind::nvlink;
  int tier = 0;          ///< network: 0 NIC to switch, 1 between a leaf and the tier above, 2 higher
  double bandwidth = 0;  ///< bytes/s, datasheet
};

class Fabric {
 public:
  explicit Fabric(const clusters::Cluster& cluster);
  ~Fabric();

  [[nodiscard]] int directions() const;
  [[nodiscard]] const Direction& direction(int number) const;
  /// Whether a direction between switches has as much bandwidth as all directions that lead to it from below (up the
  /// tree), or away from it (down): it can then be full only if those are, so max-min fair rates do not depend on it.
  [[nodiscard]] bool implied(int number) const;

  /// Number of NICs that a device's traffic to other nodes is spread over; 1 if it has none of its own.
  [[nodiscard]] int ways(int device) const;
  /// Appends the directions from device a to device b; `way`: which share of the traffic, if the nodes differ; on
  /// a torus odd shares take the other one of two ways as long.
  void route(int a, int b, int way, std::vector<int>& out) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace orrery::sim
